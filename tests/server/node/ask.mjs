// Asks the server through Vercel's AI SDK, without retries; prints what came, as JSON.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, embed, generateObject, generateText, streamObject, streamText, tool } from "ai";
import { z } from "zod";

const local = createOpenAICompatible({
  name: "structgen",
  baseURL: process.env.STRUCTGEN_URL,
  apiKey: process.env.STRUCTGEN_KEY,
  supportsStructuredOutputs: true,
  includeUsage: true,
});
const asked = { model: local("small"), maxRetries: 0, maxOutputTokens: 80 };
const City = z.object({ name: z.string().max(12), country: z.enum(["Italy", "Norway"]) });
const weather = tool({
  description: "Tell the weather of a city.",
  inputSchema: z.object({ city: z.enum(["Rome", "Oslo"]) }),
  execute: async ({ city }) => `12 degrees in ${city}`,
});
const calls = { ...asked, tools: { weather }, toolChoice: "required", prompt: "Weather in Oslo?" };
const found = {};

const object = await generateObject({ ...asked, schema: City, prompt: "Name a city." });
found.object = City.parse(object.object);
found.tokens = object.usage.outputTokens;
found.warnings = object.warnings ?? [];

const stream = streamObject({ ...asked, schema: City, prompt: "Name a city." });
found.partials = 0;
for await (const partial of stream.partialObjectStream) found.partials += 1;
found.streamed = City.parse(await stream.object);

const list = await generateObject({ ...asked, output: "array", schema: City, prompt: "Two cities." });
found.list = list.object.map((one) => City.parse(one));
const choice = await generateObject({
  ...asked, output: "enum", enum: ["tea", "coffee"], prompt: "Pick.",
});
found.choice = choice.object;
const output = Output.object({ schema: City });
found.output = City.parse((await generateText({ ...asked, output, prompt: "A city." })).output);

const called = await generateText(calls);
found.results = called.toolResults.map((one) => one.output);
const more = streamText(calls);
for await (const part of more.fullStream) if (part.type === "error") throw part.error;
found.calls = (await more.toolCalls).map((one) => one.input);

const vector = await embed({ model: local.textEmbeddingModel("vectors"), value: "a cat", maxRetries: 0 });
found.dimensions = vector.embedding.length;
console.log(JSON.stringify(found));
