// The same call as code: with structgen, with the openai package, as curl.
// Owns how a request is written down. What is asked, the page says.

import { visible } from "./dom.js";
import { marked, unmarked, write } from "./values.js";

const pad = (text, by) => text.replaceAll("\n", `\n${by}`);

/** A text of Python's. */
export const quoted = text => visible(JSON.stringify(text));

/** A value of JSON as Python writes it. */
export function python(value, width = 72) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "string") return quoted(value);
  if (typeof value !== "object") return String(value);
  if (JSON.isRawJSON?.(value)) return value.rawJSON;
  const isList = Array.isArray(value);
  const parts = isList ? value.map(one => python(one, width - 4))
    : Object.entries(value).map(([key, one]) => `${quoted(unmarked(key))}: ${python(one, width - 4)}`);
  const [open, close] = isList ? "[]" : "{}";
  const short = open + parts.join(", ") + close;
  if (short.length <= width && !short.includes("\n")) return short;
  return `${open}\n${parts.map(one => `    ${pad(one, "    ")},\n`).join("")}${close}`;
}

/** A text of several lines that is easy to read, where Python lets it be. */
function block(text) {
  if (!text.includes("\n") || visible(text) !== text) return quoted(text);
  if (/\\|"""/.test(text) && !/'''|['\\]$/.test(text)) return `r'''${text}'''`;
  return text.includes('"""') || text.endsWith('"') || text.includes("\\") ? quoted(text)
    : `"""${text}"""`;
}

function raw(pattern) {
  return /["\n]|\\$/.test(pattern) || visible(pattern) !== pattern ? quoted(pattern) : `r"${pattern}"`;
}

const call = (name, args) => `${name}(\n${args.map(one => `    ${pad(one, "    ")},\n`).join("")})`;

/** With structgen, in a program: `asked` is what the page's `asked()` gives. */
export function withStructgen(asked) {
  const { kind, body } = asked;
  if (kind === "decisions") return decider(asked);
  if (kind === "tools") return runner(asked);
  const options = [];
  if (body.max_tokens) options.push(`max_new_tokens=${body.max_tokens}`);
  if (body.temperature !== undefined) options.push(`temperature=${body.temperature}`);
  if (body.seed !== undefined) options.push(`seed=${body.seed}`);
  const lines = [];
  let type = "None", imports = "";
  if (kind === "json_schema") {
    imports = "JsonSchema";
    lines.push(`schema = ${python(body.response_format.json_schema.schema)}`);
    type = "JsonSchema(schema)";
  } else if (kind === "regex") {
    imports = "Regex";
    type = `Regex(${raw(body.grammar)})`;
  } else if (kind === "choice") {
    imports = "Choice";
    type = `Choice(${python(body.grammar)})`;
  } else if (kind === "grammar") {
    imports = "Cfg";
    if (asked.grammarName) type = `Cfg.named(${quoted(asked.grammarName)})`;
    else {
      lines.push(`grammar = ${block(body.grammar.endsWith("\n") ? body.grammar : `${body.grammar}\n`)}`);
      type = `Cfg(grammar, dialect=${quoted(body.grammar_type)})`;
    }
  }
  const value = kind === "json_schema" ? ".parse" : "";
  return [
    "import structgen",
    `from structgen import ${["Generator", imports].filter(Boolean).sort().join(", ")}`,
    "",
    ...lines.flatMap(line => [line, ""]),
    `model = structgen.load(${quoted(asked.root ?? body.model)})  # a catalogue name or a folder`,
    type === "None" ? "generator = Generator(model)" : `generator = Generator(model, ${type})`,
    `messages = ${python(body.messages)}`,
    `print(generator${value}(${["messages", ...options].join(", ")}))`,
  ].join("\n");
}

function runner({ body, root }) {
  const { model, ...fields } = body;
  const args = Object.entries(fields).map(([name, value]) => `${name}=${python(value)}`);
  return [
    "from structgen import Runner",
    "",
    `with Runner({${quoted(model)}: ${quoted(root ?? model)}}) as runner:`,
    `    answer = ${pad(call("runner.chat", args), "    ")}`,
    "    print(answer.choices[0].message)",
  ].join("\n");
}

function decider({ body, root }) {
  const written = body.questions.map((one, index) => {
    const name = quoted(one.name ?? `q${index}`);
    const text = quoted(one.instructions ?? "");
    if (one.type === "choice") {
      const options = Object.fromEntries((one.choices ?? []).map(o => [marked(o.value), o.description ?? null]));
      return `${name}: Choice(${text}, ${python(options)})`;
    }
    if (one.type === "score") {
      const levels = one.levels ?? [];
      const isPlain = levels.every(level => level.description === undefined);
      return `${name}: Score(${text}, ${python(isPlain ? levels.map(level => level.label)
        : Object.fromEntries(levels.map(level => [marked(level.label), level.description ?? null])))})`;
    }
    return `${name}: Predicate(${text})`;
  });
  return [
    "from structgen.decisions import Choice, Decider, Predicate, Score",
    "",
    `decider = Decider(${quoted(root ?? body.model)})  # a catalogue name or a folder`,
    `state = ${block(body.input)}`,
    `answers = decider.decide(\n    state,\n    {\n${written.map(one => `        ${pad(one, "        ")},\n`).join("")}    },\n)`,
    "for name, answer in answers.items():",
    "    print(name, answer)",
  ].join("\n");
}

/** With the `openai` package, of a server at `root`. */
export function withOpenai(asked, root, needsKey) {
  const { kind, body } = asked;
  const key = needsKey ? 'os.environ["STRUCTGEN_API_KEY"]' : '"none"';
  const head = [
    ...(needsKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${quoted(`${root}/v1`)}, api_key=${key})`,
  ];
  if (kind === "decisions") {
    const args = [`model=${quoted(body.model)}`, `input=${block(body.input)}`, `questions=${python(body.questions)}`];
    return [...head, `made = ${call("client.decisions.create", args)}`,
      "for answer in made.answers:", "    print(answer)"].join("\n");
  }
  const args = [`model=${quoted(body.model)}`, `messages=${python(body.messages)}`];
  for (const name of ["max_tokens", "temperature", "seed"]) {
    if (body[name] !== undefined) args.push(`${name}=${body[name]}`);
  }
  if (body.response_format) args.push(`response_format=${python(body.response_format)}`);
  if (kind === "tools") args.push(`tools=${python(body.tools)}`, `tool_choice=${quoted(body.tool_choice)}`,
    "parallel_tool_calls=False");
  if (body.grammar !== undefined) {
    args.push(`extra_body=${python({ grammar: body.grammar, grammar_type: body.grammar_type })}`);
  }
  return [...head,
    `made = ${call("client.chat.completions.create", args)}`,
    `print(made.choices[0].message${kind === "tools" ? "" : ".content"})`].join("\n");
}

/** As curl. */
export function withCurl(asked, root, needsKey) {
  const path = asked.kind === "decisions" ? "/v1/decisions" : "/v1/chat/completions";
  const json = visible(write(asked.body, 2)).replaceAll("'", "'\\''");
  const key = needsKey ? '  -H "Authorization: Bearer $STRUCTGEN_API_KEY" \\\n' : "";
  return `curl ${root}${path} \\\n  -H 'Content-Type: application/json' \\\n${key}  -d '${json}'`;
}
