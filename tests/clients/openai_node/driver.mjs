// The OpenAI SDK for Node.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { TRIP, forecast, main } from "./telling.mjs";

const client = (baseURL) => new OpenAI({ baseURL, apiKey: "any", defaultHeaders: TRIP });
const user = (content) => ({ role: "user", content });
const textOf = (answer) => answer.choices[0].message.content;

const getWeather = (ran) => ({
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
      additionalProperties: false,
    },
    parse: JSON.parse,
    function: ({ city }) => {
      ran.push({ city });
      return forecast(city);
    },
  },
});

async function conversation(baseURL) {
  const chat = client(baseURL).chat.completions;
  const answers = [];
  for (const said of ["My name is Ada.", "What is my name?"]) {
    answers.push(textOf(await chat.create({ model: "root", messages: [user(said)] })));
  }
  return { answers };
}

async function resending(baseURL) {
  const chat = client(baseURL).chat.completions;
  const messages = [{ role: "developer", content: "Be kind." }];
  const answers = [];
  for (const said of ["one", "two", "three"]) {
    messages.push(user(said));
    const answer = await chat.create({ model: "root", messages });
    messages.push(answer.choices[0].message);
    answers.push(textOf(answer));
  }
  return { answers };
}

// By the helper, which follows the chunks and complains of any that do not fit.
async function stream(baseURL) {
  const pieces = [];
  const run = client(baseURL)
    .chat.completions.stream({
      model: "root",
      messages: [user("one")],
      stream_options: { include_usage: true },
    })
    .on("content", (piece) => pieces.push(piece));
  const answer = await run.finalChatCompletion();
  return {
    answers: [textOf(answer)],
    pieces,
    finish: answer.choices[0].finish_reason,
    usage: [answer.usage.prompt_tokens, answer.usage.completion_tokens],
  };
}

// By the helper that runs tools; it sends the whole exchange each time.
async function tools(baseURL) {
  const chat = client(baseURL).chat.completions;
  const ran = [];
  const answers = [];
  for (const said of ["Weather in Oslo?", "And tomorrow?"]) {
    const run = chat.runTools({ model: "root", messages: [user(said)], tools: [getWeather(ran)] });
    answers.push(await run.finalContent());
  }
  return { answers, ran };
}

// By the same helper, as a stream; its own messages are sent back.
async function toolsStreamed(baseURL) {
  const chat = client(baseURL).chat.completions;
  const ran = [];
  const answers = [];
  let messages = [];
  for (const said of ["Weather in Oslo and Rome?", "And tomorrow?"]) {
    messages = [...messages, user(said)];
    const run = chat.runTools({ model: "root", messages, tools: [getWeather(ran)], stream: true });
    answers.push(await run.finalContent());
    messages = run.messages;
  }
  return { answers, ran };
}

async function typed(baseURL) {
  const Weather = z.object({ city: z.string(), degrees: z.number().int() });
  const answer = await client(baseURL).chat.completions.parse({
    model: "root",
    messages: [user("Weather in Oslo?")],
    response_format: zodResponseFormat(Weather, "weather"),
  });
  return { typed: answer.choices[0].message.parsed };
}

// The SDK's own: nobody here notices that something failed.
async function retry(baseURL) {
  const chat = client(baseURL).chat.completions;
  const answers = [];
  for (const said of ["one", "two"]) {
    answers.push(textOf(await chat.create({ model: "root", messages: [user(said)] })));
  }
  return { answers };
}

async function brokenStream(baseURL) {
  const chat = client(baseURL).chat.completions;
  const answers = [];
  const failures = [];
  for (const said of ["one", "two", "two"]) {
    let text = "";
    try {
      const chunks = await chat.create({ model: "root", messages: [user(said)], stream: true });
      for await (const chunk of chunks) text += chunk.choices[0]?.delta.content ?? "";
      answers.push(text);
    } catch (error) {
      if (!(error instanceof OpenAI.APIError)) throw error;
      failures.push({ code: error.code, before: text });
    }
  }
  return { answers, failures };
}

async function keyed(baseURL) {
  const chat = client(baseURL).chat.completions;
  const headers = { "Idempotency-Key": "order-7" };
  const answers = [];
  for (let n = 0; n < 2; n++) {
    const answer = await chat.create({ model: "root", messages: [user("one")] }, { headers });
    answers.push(textOf(answer));
  }
  return { answers };
}

async function models(baseURL) {
  const here = client(baseURL).models;
  const listed = [];
  for await (const model of await here.list()) listed.push(model.id);
  const missing = await here.retrieve("nobody").catch((error) => error.code);
  return { listed, found: (await here.retrieve("root")).id, missing };
}

await main({
  conversation,
  resending,
  stream,
  tools,
  tools_streamed: toolsStreamed,
  typed,
  retry,
  broken_stream: brokenStream,
  keyed,
  models,
});
