// The Vercel AI SDK, version 6.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { SAID, main } from "./rounds.mjs";

await main(async ({ baseURL, responses, streamed, headers, weather }) => {
  const model = responses
    ? createOpenAI({ baseURL, apiKey: "any", headers }).responses("root")
    : createOpenAICompatible({ name: "holdfast", baseURL, headers })("root");
  const tools = {
    get_weather: tool({
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: ({ city }) => weather(city),
    }),
  };
  const messages = [];
  const answers = [];
  for (const said of SAID) {
    messages.push({ role: "user", content: said });
    const options = { model, messages, tools, stopWhen: stepCountIs(5), maxRetries: 5 };
    const result = streamed ? streamText(options) : await generateText(options);
    if (streamed) await result.consumeStream();
    messages.push(...(await result.response).messages);
    answers.push(await result.text);
  }
  return answers;
});
