// What all drivers for Node share.

// The conversation that every scenario is about.
export const TRIP = { "X-Conversation-Id": "trip" };

// What the client's own tool answers.
export const forecast = (city) => `rain in ${city}`;

// Run the scenario that the command line names, and print what the client saw as one line.
export async function main(scenarios) {
  const [baseURL, wanted, ...rest] = process.argv.slice(2);
  console.log(JSON.stringify(await scenarios[wanted](baseURL, ...rest)));
}
