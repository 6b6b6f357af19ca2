// The Vercel AI SDK, with either of its providers.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { TRIP, forecast, main } from "./telling.mjs";

const PROVIDERS = {
  openai: (baseURL) => createOpenAI({ baseURL, apiKey: "any", headers: TRIP }).chat("root"),
  compatible: (baseURL) =>
    createOpenAICompatible({
      name: "holdfast",
      baseURL,
      headers: TRIP,
      includeUsage: true,
      supportsStructuredOutputs: true,
    })("root"),
};

const model = (baseURL, provider) => PROVIDERS[provider](baseURL);

async function ask(here, prompts, options = {}) {
  const answers = [];
  for (const prompt of prompts) {
    answers.push((await generateText({ model: here, prompt, ...options })).text);
  }
  return answers;
}

async function conversation(...where) {
  return { answers: await ask(model(...where), ["My name is Ada.", "What is my name?"]) };
}

async function resending(...where) {
  const messages = [];
  const answers = [];
  for (const said of ["one", "two", "three"]) {
    messages.push({ role: "user", content: said });
    const answer = await generateText({ model: model(...where), system: "Be kind.", messages });
    messages.push(...answer.response.messages);
    answers.push(answer.text);
  }
  return { answers };
}

// The pieces of an answer; what goes wrong is an event among them.
async function streamed(here, prompt) {
  const pieces = [];
  let failure = null;
  const result = streamText({ model: here, prompt, onError: () => {} });
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") pieces.push(part.text);
    if (part.type === "error") failure = part.error;
  }
  return { pieces, failure, result };
}

async function stream(...where) {
  const { pieces, result } = await streamed(model(...where), "one");
  const usage = await result.totalUsage;
  return {
    answers: [pieces.join("")],
    pieces,
    finish: await result.finishReason,
    usage: [usage.inputTokens, usage.outputTokens],
  };
}

const weatherTools = (ran) => ({
  get_weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => {
      ran.push({ city });
      return forecast(city);
    },
  }),
});

async function tools(...where) {
  const ran = [];
  const answers = await ask(model(...where), ["Weather in Oslo?", "And tomorrow?"], {
    tools: weatherTools(ran),
    stopWhen: stepCountIs(5),
  });
  return { answers, ran };
}

// Everything that was said is sent again, as the SDK tells it.
async function talkStreamed(here, prompts) {
  const ran = [];
  const answers = [];
  const messages = [];
  for (const said of prompts) {
    messages.push({ role: "user", content: said });
    const result = streamText({
      model: here,
      messages,
      tools: weatherTools(ran),
      stopWhen: stepCountIs(5),
    });
    await result.consumeStream();
    messages.push(...(await result.responseMessages));
    answers.push(await result.text);
  }
  return { answers, ran };
}

async function toolsStreamed(...where) {
  return talkStreamed(model(...where), ["Weather in Oslo and Rome?", "And tomorrow?"]);
}

// Over Responses; what the assistant has said comes as references to the server's own items.
async function responses(baseURL) {
  const here = createOpenAI({ baseURL, apiKey: "any" }).responses("root");
  return talkStreamed(here, ["Weather in Oslo?", "And tomorrow?"]);
}

async function typed(...where) {
  const schema = z.object({ city: z.string(), degrees: z.number().int() });
  const { output } = await generateText({
    model: model(...where),
    prompt: "Weather in Oslo?",
    output: Output.object({ schema }),
  });
  return { typed: output };
}

async function brokenStream(...where) {
  const answers = [];
  const failures = [];
  for (const said of ["one", "two", "two"]) {
    const { pieces, failure } = await streamed(model(...where), said);
    if (failure === null) answers.push(pieces.join(""));
    else failures.push({ code: String(failure.code ?? failure), before: pieces.join("") });
  }
  return { answers, failures };
}

async function keyed(...where) {
  const headers = { "Idempotency-Key": "order-7" };
  return { answers: await ask(model(...where), ["one", "one"], { headers }) };
}

await main({
  conversation,
  resending,
  stream,
  tools,
  tools_streamed: toolsStreamed,
  responses,
  typed,
  broken_stream: brokenStream,
  keyed,
});
