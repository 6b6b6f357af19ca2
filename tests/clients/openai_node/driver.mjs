// The OpenAI SDK for Node.

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { ResponsesWS } from "openai/resources/responses/ws";
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

const weather = {
  type: "function",
  name: "get_weather",
  description: "The weather in a city.",
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
  strict: true,
};

// Over Responses: `ask` gives an answer to what is new, and the calls in it are run.
async function talk(ask) {
  const ran = [];
  const answers = [];
  for (const said of ["Weather in Oslo?", "And tomorrow?"]) {
    let input = [user(said)];
    let answer;
    while (input.length) {
      answer = await ask({ model: "root", tools: [weather], input });
      input = [];
      for (const item of answer.output) {
        if (item.type !== "function_call") continue;
        const { city } = JSON.parse(item.arguments);
        ran.push({ city });
        input.push({ type: "function_call_output", call_id: item.call_id, output: forecast(city) });
      }
    }
    const texts = answer.output.flatMap((item) => (item.type === "message" ? item.content : []));
    answers.push(texts.map((part) => part.text).join(""));
  }
  return { answers, ran };
}

// By the stream helper, in a conversation that is made for it.
async function responses(baseURL) {
  const here = new OpenAI({ baseURL, apiKey: "any" });
  const { id } = await here.conversations.create();
  return talk((body) => here.responses.stream({ ...body, conversation: id }).finalResponse());
}

async function chained(baseURL) {
  const here = new OpenAI({ baseURL, apiKey: "any" });
  let previous;
  return talk(async (body) => {
    const answer = await here.responses.create({ ...body, previous_response_id: previous });
    previous = answer.id;
    return answer;
  });
}

// Over one WebSocket, and nothing of it is stored.
async function socket(baseURL) {
  const connection = new ResponsesWS(new OpenAI({ baseURL, apiKey: "any" }));
  let previous;
  try {
    return await talk(async (body) => {
      const answered = new Promise((resolve, reject) => {
        connection.once("response.completed", (event) => resolve(event.response));
        connection.once("error", reject);
      });
      connection.send({
        type: "response.create",
        ...body,
        store: false,
        previous_response_id: previous,
      });
      const answer = await answered;
      previous = answer.id;
      return answer;
    });
  } finally {
    connection.close();
  }
}

const allOf = async (found) => {
  const all = [];
  for await (const each of await found) all.push(each);
  return all;
};

const refused = (promise) => promise.then(() => null, (error) => [error.status, error.code]);

// Everything that there is under `responses` and `conversations`, once.
async function methods(baseURL) {
  const here = new OpenAI({ baseURL, apiKey: "any" });
  const { responses, conversations } = here;
  const text = (item) => item.content[0].text;
  const items = [user("one"), user("two")];
  const made = await conversations.create({ metadata: { topic: "a" }, items });
  const updated = await conversations.update(made.id, { metadata: { topic: "b" } });
  const added = await conversations.items.create(made.id, { items: [user("three")] });
  const listed = await allOf(conversations.items.list(made.id, { limit: 2, order: "asc" }));
  const at = { conversation_id: made.id };
  const item = await conversations.items.retrieve(listed[0].id, at);
  await conversations.items.delete(listed[1].id, at);
  const left = await allOf(conversations.items.list(made.id));

  const first = await responses.create({ model: "root", input: "four", conversation: made.id });
  const stream = await allOf(responses.create({ model: "root", input: "five", stream: true }));
  const helper = await responses.stream({ model: "root", input: "six" }).finalResponse();
  const found = await responses.retrieve(first.id);
  const last = stream.at(-1).response;
  const again = await allOf(responses.retrieve(last.id, { stream: true }));
  const after = again.at(-3).sequence_number;
  const rest = await allOf(responses.retrieve(last.id, { stream: true, starting_after: after }));
  const brought = await allOf(responses.inputItems.list(first.id));
  let later = await responses.create({ model: "root", input: "seven", background: true });
  await allOf(responses.retrieve(later.id, { stream: true }));
  later = await responses.retrieve(later.id);
  const stopped = await responses.cancel(later.id);
  await responses.delete(helper.id);
  const count = await responses.inputTokens.count({ model: "root", input: "How many?" });
  const compact = await responses.compact({ model: "root", previous_response_id: first.id });

  const facts = {
    made: [made.object, made.metadata, updated.metadata],
    added: added.data.map(text),
    listed: listed.map(text),
    item: text(item),
    left: left.map(text),
    first: [first.status, first.output_text, first.conversation.id === made.id],
    stream: [
      stream[0].type,
      stream.at(-1).type,
      stream.map((each) => (each.type === "response.output_text.delta" ? each.delta : "")).join(""),
    ],
    helper: helper.output_text,
    found: found.output_text === first.output_text && found.id === first.id,
    again: [JSON.stringify(again.at(-1).response) === JSON.stringify(last), rest.length],
    brought: brought.map(text),
    later: [later.status, later.output_text, stopped.status],
    deleted: await refused(responses.retrieve(helper.id)),
    sync_cancel: await refused(responses.cancel(first.id)),
    lost: await refused(
      responses.create({ model: "root", input: "x", previous_response_id: "resp_none" }),
    ),
    count: [count.object, count.input_tokens > 0],
    compact: [compact.object, compact.output.map((each) => each.type)],
  };
  await conversations.delete(made.id);
  facts.gone = await refused(conversations.retrieve(made.id));
  return { async: facts };
}

async function parsed(baseURL) {
  const Weather = z.object({ city: z.string(), degrees: z.number().int() });
  const answer = await new OpenAI({ baseURL, apiKey: "any" }).responses.parse({
    model: "root",
    input: "Weather in Oslo?",
    text: { format: zodTextFormat(Weather, "weather") },
  });
  return { typed: answer.output_parsed };
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
  responses,
  chained,
  socket,
  methods,
  parsed,
  typed,
  broken_stream: brokenStream,
  keyed,
  models,
});
