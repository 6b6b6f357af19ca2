// What the drivers of frameworks for Node share: a talk in which a framework runs its own tool in several rounds.

import { TRIP, forecast } from "./telling.mjs";

// What the user says: the model answers the first with two calls at once and then a third, and the second at once.
export const SAID = ["Weather in Oslo, Rome and Paris?", "And tomorrow?"];

// Hold the talk that the command line asks for, and print what the framework saw as one line.
export async function main(talk) {
  const [baseURL, how] = process.argv.slice(2);
  const [api, pace, naming] = how.split("-");
  const ran = [];
  const answers = await talk({
    baseURL,
    responses: api === "responses",
    streamed: pace === "streamed",
    headers: naming === "named" ? TRIP : {},
    weather: (city) => {
      ran.push(city);
      return forecast(city);
    },
  });
  console.log("\n" + JSON.stringify({ answers, ran }));
  process.exit(0);
}
