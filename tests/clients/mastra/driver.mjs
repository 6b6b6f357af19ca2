// Mastra: an agent whose messages are sent again with every request, in its own grouping.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";
import { SAID, main } from "./rounds.mjs";

await main(async ({ baseURL, responses, streamed, headers, weather }) => {
  const model = responses
    ? createOpenAI({ baseURL, apiKey: "any", headers }).responses("root")
    : createOpenAICompatible({ name: "holdfast", baseURL, headers })("root");
  const get_weather = createTool({
    id: "get_weather",
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async (input) => weather(input.city ?? input.context.city),
  });
  const agent = new Agent({
    id: "guide",
    name: "Guide",
    instructions: "Be kind.",
    model,
    tools: { get_weather },
    maxRetries: 5,
  });
  let messages = [];
  const answers = [];
  for (const said of SAID) {
    messages.push({ role: "user", content: said });
    let result;
    if (streamed) {
      const stream = await agent.stream(messages, { maxSteps: 5 });
      result = await stream.getFullOutput();
    } else {
      result = await agent.generate(messages, { maxSteps: 5 });
    }
    messages = [...result.messages];
    answers.push(result.text.replace("Let me look.", ""));
  }
  return answers;
});
