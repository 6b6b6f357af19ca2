// Anthropic's SDK for Node, over the Messages API.

import Anthropic from "@anthropic-ai/sdk";
import { TRIP, forecast, main } from "./telling.mjs";

// The SDK adds `/v1` by itself.
const client = (baseURL) =>
  new Anthropic({
    baseURL: baseURL.replace(/\/v1$/, ""),
    apiKey: "any",
    defaultHeaders: TRIP,
  });
const user = (content) => ({ role: "user", content });
const textOf = (answer) =>
  answer.content.map((block) => (block.type === "text" ? block.text : "")).join("");
const ASKED = { model: "root", max_tokens: 512 };

const getWeather = {
  name: "get_weather",
  description: "The weather in a city.",
  input_schema: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
  },
};

async function conversation(baseURL) {
  const { messages } = client(baseURL);
  const answers = [];
  for (const said of ["My name is Ada.", "What is my name?"]) {
    answers.push(textOf(await messages.create({ ...ASKED, messages: [user(said)] })));
  }
  return { answers };
}

async function resending(baseURL) {
  const here = client(baseURL);
  const messages = [];
  const answers = [];
  for (const said of ["one", "two", "three"]) {
    messages.push(user(said));
    const answer = await here.messages.create({ ...ASKED, system: "Be kind.", messages });
    messages.push({ role: "assistant", content: answer.content });
    answers.push(textOf(answer));
  }
  return { answers };
}

// By the helper, which follows the events and complains of any that do not fit.
async function stream(baseURL) {
  const pieces = [];
  const run = client(baseURL)
    .messages.stream({ ...ASKED, messages: [user("one")] })
    .on("text", (piece) => pieces.push(piece));
  const answer = await run.finalMessage();
  return {
    answers: [textOf(answer)],
    pieces,
    finish: answer.stop_reason === "end_turn" ? "stop" : answer.stop_reason,
    usage: [answer.usage.input_tokens, answer.usage.output_tokens],
  };
}

// `ask` gives the answer to these messages; the calls in it are run until there are none.
async function talk(questions, ask, { resends }) {
  const ran = [];
  const answers = [];
  let messages = [];
  for (const said of questions) {
    messages = [...(resends ? messages : []), user(said)];
    for (;;) {
      const answer = await ask({ ...ASKED, tools: [getWeather], messages });
      const results = answer.content
        .filter((block) => block.type === "tool_use")
        .map(({ id, input }) => {
          ran.push(input);
          return { type: "tool_result", tool_use_id: id, content: forecast(input.city) };
        });
      messages = [...messages, { role: "assistant", content: answer.content }];
      if (!results.length) {
        answers.push(textOf(answer));
        break;
      }
      messages = [...messages, user(results)];
    }
  }
  return { answers, ran };
}

const tools = (baseURL) =>
  talk(
    ["Weather in Oslo?", "And tomorrow?"],
    (body) => client(baseURL).messages.create(body),
    { resends: false },
  );

const toolsStreamed = (baseURL) =>
  talk(
    ["Weather in Oslo and Rome?", "And tomorrow?"],
    (body) => client(baseURL).messages.stream(body).finalMessage(),
    { resends: true },
  );

async function typed(baseURL) {
  const schema = {
    type: "object",
    properties: { city: { type: "string" }, degrees: { type: "integer" } },
    required: ["city", "degrees"],
    additionalProperties: false,
  };
  const answer = await client(baseURL).messages.create({
    ...ASKED,
    messages: [user("Weather in Oslo?")],
    output_config: { format: { type: "json_schema", schema } },
  });
  return { typed: JSON.parse(textOf(answer)) };
}

async function brokenStream(baseURL) {
  const { messages } = client(baseURL);
  const answers = [];
  const failures = [];
  for (const said of ["one", "two", "two"]) {
    let text = "";
    try {
      const events = await messages.create({ ...ASKED, messages: [user(said)], stream: true });
      for await (const event of events) text += event.delta?.text ?? "";
      answers.push(text);
    } catch (error) {
      if (!(error instanceof Anthropic.APIError)) throw error;
      failures.push({ code: error.error?.error?.code, before: text });
    }
  }
  return { answers, failures };
}

async function keyed(baseURL) {
  const { messages } = client(baseURL);
  const headers = { "Idempotency-Key": "order-7" };
  const answers = [];
  for (let n = 0; n < 2; n++) {
    answers.push(textOf(await messages.create({ ...ASKED, messages: [user("one")] }, { headers })));
  }
  return { answers };
}

async function models(baseURL) {
  const here = client(baseURL).models;
  const listed = [];
  for await (const model of here.list()) listed.push(model.id);
  const found = await here.retrieve("root");
  const missing = await here.retrieve("nobody").then(
    () => null,
    (error) => error.error?.error?.code,
  );
  return { listed, found: found.id, missing };
}

await main({
  conversation,
  resending,
  stream,
  tools,
  tools_streamed: toolsStreamed,
  typed,
  broken_stream: brokenStream,
  keyed,
  models,
});
