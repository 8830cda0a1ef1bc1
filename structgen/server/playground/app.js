// The page: reads the form, runs it, and shows the tokens as they come.
// Owns the form, a run and its tokens. `server.js` asks, `results.js` shows what came of it.

import { withCurl, withOpenai, withStructgen } from "./calls.js";
import { $, kept, make, number, percent, tell, visible } from "./dom.js";
import { draw } from "./draw.js";
import { CHOICES, PROMPTS, QUESTIONS, REGEXES, SCHEMAS, TOOLS } from "./examples.js";
import { showAnswers, showValue } from "./results.js";
import { ask, askJson, events, needsKey } from "./server.js";
import { read } from "./values.js";

const TYPES = { json_schema: "JSON Schema", regex: "Regex", choice: "Choices", grammar: "Grammar",
  tools: "Tools", decisions: "Decisions", free: "Free text" };
const LANGUAGES = { structgen: "Python", openai: "openai", curl: "curl" };

// -- the form -----------------------------------------------------------------------------------

const hasForm = kind => !["tools", "decisions", "free"].includes(kind);
const kindNow = () => document.querySelector("#types input:checked").value;

/** What the form asks for: {kind, body, form, …}. Raises Error with words for the reader. */
function asked() {
  const kind = kindNow();
  const model = $("model").value;
  if (!model) throw new Error(needsKey ? "Type an API key above." : "The server offers no text model yet.");
  const root = $("model").selectedOptions[0]?.dataset.root;  // what programs load it by
  const prompt = $("prompt").value;
  if (kind === "decisions") {
    return { kind, root, body: { model, input: prompt, questions: json($("questions").value, "The list of questions") } };
  }
  const body = { model, messages: [{ role: "user", content: prompt }] };
  if ($("system").value) body.messages.unshift({ role: "system", content: $("system").value });
  for (const [id, name] of [["max-tokens", "max_tokens"], ["temperature", "temperature"], ["seed", "seed"]]) {
    if ($(id).validity.badInput) throw new Error(`${name} must be a number.`);
    if ($(id).value !== "") body[name] = Number($(id).value);
  }
  const made = { kind, root, body };
  if (kind === "json_schema") {
    const schema = json($("schema").value, "The schema");
    if (typeof schema !== "boolean" && (typeof schema !== "object" || !schema || Array.isArray(schema) || JSON.isRawJSON?.(schema))) {
      throw new Error('The schema must be a JSON object, such as {"type": "string"}.');
    }
    body.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  } else if (kind === "tools") {
    Object.assign(body, { tools: json($("tools").value, "The list of tools"), tool_choice: $("tool-choice").value,
      parallel_tool_calls: false });
  } else if (kind === "regex") {
    if (!$("regex").value) throw new Error("Type a regular expression.");
    Object.assign(body, { grammar: $("regex").value, grammar_type: "regex" });
  } else if (kind === "choice") {
    const lines = $("choices").value.split("\n").map(line => line.trim()).filter(Boolean);
    if (!lines.length) throw new Error("Type at least one choice.");
    Object.assign(body, { grammar: lines, grammar_type: "choice" });
  } else if (kind === "grammar") {
    if (!$("grammar").value.trim()) throw new Error("Type a grammar.");
    Object.assign(body, { grammar: $("grammar").value, grammar_type: $("grammar-dialect").value });
    made.grammarName = $("grammar-names").value;
  }
  return made;
}

function json(text, what) {
  try {
    return read(text);
  } catch (error) {
    throw new Error(`${what} is not valid JSON: ${error.message}`);
  }
}

/** What of a body says which form the text has. */
function formOf(body) {
  const form = {};
  for (const name of ["response_format", "grammar", "grammar_type"]) {
    if (body[name] !== undefined) form[name] = body[name];
  }
  return form;
}

function segments(parent, name, options, chosen, changed) {
  for (const [value, label] of Object.entries(options)) {
    const input = Object.assign(document.createElement("input"), { type: "radio", name, value });
    input.checked = value === chosen;
    input.addEventListener("change", changed);
    parent.append(make("label", "", input, make("span", "", label)));
  }
}

/** A prompt that was typed stays; one of an example gives way to the next. */
function suggest(prompt) {
  if (!$("prompt").value || $("prompt").value === suggest.last) $("prompt").value = prompt;
  suggest.last = prompt;
}

function chooseKind() {
  const kind = kindNow();
  for (const section of document.querySelectorAll("[data-type]")) {
    section.hidden = section.dataset.type !== kind;
  }
  const [list, name] = { json_schema: [SCHEMAS, "schema"], regex: [REGEXES, "regex"] }[kind] ?? [];
  suggest(PROMPTS[kind] ?? (list[$(`${name}-examples`).value] ?? Object.values(list)[0])[0]);
  const isDecision = kind === "decisions";  // which writes no tokens
  for (const name of ["options", "system-box", "token-card", "tokens-card"]) $(name).hidden = isDecision;
  $("columns").classList.toggle("one", isDecision);
  $("sure-box").hidden = !hasForm(kind);
  $("automaton").hidden = true;
  clear();
  changed();
}

/** Offer examples: name to [prompt, value]. */
function examples(select, field, list, write) {
  for (const name of Object.keys(list)) select.append(new Option(name));
  select.append(new Option("custom", ""));
  const put = () => {
    if (select.value) {
      suggest(list[select.value][0]);
      field.value = write(list[select.value][1]);
    }
    changed();
  };
  select.addEventListener("change", put);
  field.addEventListener("input", () => { select.value = ""; });
  field.value = write(Object.values(list)[0][1]);
}

// -- what is checked while it is typed ----------------------------------------------------------

let timer = 0, checking = null;
let run = null;  // {controller, asked, steps, spans, …}

function changed() {
  $("error").hidden = true;
  markOld();
  showCode();
  clearTimeout(timer);
  timer = setTimeout(check, 350);
}

/** Show whether the answer on the page is to what the form asks now. */
function markOld() {
  let now = null;
  try {
    now = JSON.stringify(asked().body);
  } catch { /* then it asks nothing */ }
  $("results").classList.toggle("old", run !== null && JSON.stringify(run.asked.body) !== now);
}

function note(kind, text, isBad = false) {
  const place = document.querySelector(`[data-type="${kind}"] [role="status"]`);
  if (!place) return;
  tell(place, text);
  place.classList.toggle("bad", isBad);
}

/** Have the server say whether the form can be enforced, and draw a small regex. */
async function check() {
  checking?.abort();
  checking = new AbortController();
  const { signal } = checking;
  const kind = kindNow();
  if (!$("model").value) return;  // not before the server has told its models: it may want a key
  try {
    const { body } = asked();
    note(kind, "");
    if (!hasForm(kind)) return;
    const grammar = body.grammar ?? body.response_format.json_schema.schema;
    const grammar_type = body.grammar_type ?? "json_schema";
    const found = await askJson("/v1/grammars/check", { grammar, grammar_type }, signal);
    const first = found.problems.find(one => one.is_error) ?? found.problems[0];
    const where = first?.line ? `Line ${first.line}: ` : "";
    // What the server calls `grammar` is the field above; a path in a schema begins with $.
    const told = first?.message.replace(/^grammar(?=[.[])/, "$").replace(/^grammar[^:]*: /, "")
      .replace(/^(\$.*?): (?=.* at \1[.,:;])/s, "");  // the message has the path itself
    note(kind, first ? where + told : "Can be enforced exactly.", !found.valid);
    if (!found.valid) clear();
    if (kind === "regex") await picture(found.valid ? grammar : null, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    note(kind, error.message, true);
    clear();
    $("automaton").hidden = true;
  }
}

async function picture(regex, signal) {
  const figure = $("automaton");
  figure.hidden = true;
  if (regex === null || regex.length > 2000) return;
  const found = await askJson("/v1/grammars/picture", { regex }, signal);
  figure.replaceChildren(found.is_whole ? draw(found)
    : make("p", "note", `Too large to draw: the automaton has more than ${found.states.length} states.`));
  figure.hidden = false;
  const svg = figure.querySelector("svg");
  if (svg) {  // cut to what is drawn, and made smaller to fit, as long as it can be read
    const drawn = svg.getBBox();
    svg.setAttribute("viewBox", `${drawn.x - 6} ${drawn.y - 6} ${drawn.width + 12} ${drawn.height + 12}`);
    const width = drawn.width + 12;
    for (const name of ["width", "height"]) svg.removeAttribute(name);
    svg.style.width = `${Math.max(Math.min(width, figure.clientWidth - 14), .8 * width)}px`;
    svg.style.height = "auto";
  }
}

// -- a run --------------------------------------------------------------------------------------

let pinned = false, shownAt = -1;

function busy(isBusy) {  // `disabled` would take the focus away
  $("run").setAttribute("aria-disabled", isBusy);
  if (document.activeElement === $("stop")) $("run").focus();
  $("stop").disabled = !isBusy;
}

function fail(error) {
  const box = $("error");
  const isOurs = !["TypeError", "SyntaxError", "RangeError"].includes(error.name);
  tell(box, isOurs ? error.message : `This page cannot read the server's answer: ${error.message}`);
  if (error.param && !error.message.includes(error.param)) box.append("\nField: ", make("code", "", error.param));
  box.hidden = false;
}

/** Take away what came of the last run: it is no answer to what is asked now. */
function clear() {
  run?.controller.abort();
  run = null;
  pinned = false;
  shownAt = -1;
  for (const name of ["tokens", "value", "token", "value-state", "figures"]) $(name).replaceChildren();
}

async function start() {
  if (run?.controller && !$("stop").disabled) return;
  $("error").hidden = true;
  clear();
  let now;
  try {
    now = asked();
  } catch (error) {
    fail(error);
    return;
  }
  run = { controller: new AbortController(), asked: now, steps: [], spans: [], text: "", thought: "",
    began: performance.now(), first: null, usage: null, reason: null, most: 49152, isOver: false, calls: [] };
  const mine = run;
  const isDecision = now.kind === "decisions";
  markOld();
  busy(true);
  figures();
  if ($("figures").getBoundingClientRect().top > innerHeight) {  // on a phone they are below
    $("figures").scrollIntoView({ behavior: "smooth" });
  }
  try {
    if (isDecision) {
      const found = await askJson("/v1/decisions", now.body, mine.controller.signal);
      mine.usage = { prompt_tokens: found.usage?.input_tokens, completion_tokens: 0 };
      if (run === mine) showAnswers(mine, found);
    }
    else await stream();
  } catch (error) {
    mine.reason = error.name === "AbortError" ? "stopped" : "failed";
    if (mine.reason === "failed" && run === mine) {
      clear();
      fail(error);
    }
  }
  mine.isOver = true;
  if (run !== null && run !== mine) return;  // another has begun
  busy(false);
  render();
}

async function stream() {
  const mine = run;
  const body = { ...mine.asked.body, stream: true, stream_options: { include_usage: true }, trace: true };
  // So low that nothing is refused: what is wanted is that it is worked out.
  if ($("sure").checked && hasForm(mine.asked.kind)) body.abstain_below = 1e-9;
  const { signal } = mine.controller;
  const answer = await ask("/v1/chat/completions", body, signal).catch(error => {
    if (error.param !== "abstain_below") throw error;
    delete body.abstain_below;  // nothing in it is a choice among few
    return ask("/v1/chat/completions", body, signal);
  });
  for await (const chunk of events(answer)) {
    if (chunk.usage) mine.usage = chunk.usage;
    const choice = chunk.choices[0];
    if (choice === undefined) continue;
    if (mine.first === null && (choice.delta.content || choice.delta.reasoning_content || choice.delta.tool_calls)) {
      mine.first = performance.now();
    }
    mine.text += choice.delta.content ?? "";
    mine.thought += choice.delta.reasoning_content ?? "";
    if (run !== mine) return;  // the form has changed, and this is no answer to it
    for (const { index, function: { name, arguments: more } } of choice.delta.tool_calls ?? []) {
      mine.calls[index] ??= { name, arguments: "" };
      mine.calls[index].arguments += more ?? "";
    }
    for (const step of choice.trace ?? []) take(step);
    if (choice.finish_reason) mine.reason = choice.finish_reason;
    if (choice.confidence) mine.confidence = choice.confidence;
    if (choice.shortened) mine.shortened = choice.shortened;
    later();
  }
}

/** A step that is new, or known better. */
function take(step) {
  const before = run.steps[step.index];
  run.steps[step.index] = step;
  run.most = Math.max(run.most, step.allowed);
  if (before !== undefined && before.token_id !== step.token_id) {  // the output went back
    run.steps.length = step.index + 1;
    run.isStale = true;
  } else if (before !== undefined) {
    dress(run.spans[step.index], step);
  }
}

let isWaiting = false;
function later() {
  if (isWaiting) return;
  isWaiting = true;
  // The longer the text, the longer it takes to show it.
  setTimeout(() => { isWaiting = false; render(); }, Math.min(16 + (run?.steps.length ?? 0) / 4, 400));
}

function render() {
  if (run === null) return;
  try {
    figures();
    if (run.asked.kind === "decisions") return;
    tokens();
    showValue(run);
  } catch (error) {
    clear();
    fail(error);
  }
}

function figures() {
  const places = [];
  const seconds = ms => ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
  const { usage, steps } = run;
  const written = steps.filter(step => step && !step.is_end);
  const n = usage?.completion_tokens ?? written.length;
  const forced = usage?.completion_tokens_details?.forced_tokens ?? written.filter(step => step.is_forced).length;
  if (run.asked.kind !== "decisions") {
    places.push([number(n), "tokens"]);
    places.push([n ? `${Math.round(100 * forced / n)}%` : "–", "forced"]);
    const barred = written.filter(step => favourite(step)).length;
    places.push([number(barred), "top tokens ruled out"]);
    places.push([run.first === null ? "–" : seconds(run.first - run.began), "to first token"]);
  }
  if (run.isOver) run.ended ??= performance.now();
  const total = (run.ended ?? performance.now()) - run.began;
  places.push([seconds(total), "total"]);
  if (n && run.first !== null) places.push([(1000 * n / total).toFixed(0), "tokens per second"]);
  if (usage?.prompt_tokens !== undefined) places.push([number(usage.prompt_tokens), "prompt tokens"]);
  $("figures").replaceChildren(...places.map(([figure, name]) =>
    make("div", "", make("b", "", figure), make("span", "", name))));
}

// -- tokens -------------------------------------------------------------------------------------

/** What the model would rather have written, if that was barred. */
function favourite(step) {
  const first = step.own_top[0];
  return first && !first.is_allowed && !step.is_forced ? first : null;
}

function dress(span, step) {
  if (!span) return;
  const narrow = 1 - Math.log(Math.max(step.allowed, 1)) / Math.log(run.most);
  span.style.setProperty("--n", Math.max(narrow, 0).toFixed(2));
  span.className = ["t", step.is_forced ? "forced" : "", step.is_end ? "end" : "",
    favourite(step) ? "barred" : "", step.index === shownAt ? "on" : ""].filter(Boolean).join(" ");
  const how = step.is_forced ? "forced" : `${number(step.allowed)} allowed`;
  span.setAttribute("aria-label", `${step.is_end ? "end" : step.token}: ${how}`);
}

function tokens() {
  const box = $("tokens");
  if (run.isStale) {
    run.isStale = false;
    run.spans = [];
    run.decoder = null;
    box.replaceChildren();
  }
  if (run.thought) {
    run.thoughtSpan ??= box.insertBefore(make("span", "t thought"), box.firstChild);
    run.thoughtSpan.textContent = `${run.thought}\n`;
  }
  run.decoder ??= new TextDecoder();
  const isAtEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 30;
  for (let i = run.spans.length; i < run.steps.length && run.steps[i]; i++) {
    const step = run.steps[i];
    const text = step.is_end ? "end" : run.decoder.decode(new Uint8Array(step.bytes), { stream: true }) || "·";
    const span = make("span", "t");
    text.split("\n").forEach((line, j) => {
      if (j) span.append(make("i", "nl", "↵"), "\n");
      span.append(visible(line));
    });
    span.dataset.i = i;
    span.setAttribute("role", "button");
    span.tabIndex = i ? -1 : 0;
    dress(span, step);
    run.spans.push(span);
    box.append(span);
  }
  if (isAtEnd && !run.isOver) box.scrollTop = box.scrollHeight;
  if (run.isOver && shownAt < 0 && run.steps.length) {
    const first = run.steps.findIndex(step => favourite(step));
    show(first < 0 ? 0 : first, false);
  }
}

function indexOf(event) {
  const span = event.target.closest?.("#tokens [data-i]");
  return span ? Number(span.dataset.i) : -1;
}

function show(i, takesFocus) {
  if (!run || !run.steps[i]) return;
  for (const span of document.querySelectorAll("#tokens .on")) span.classList.remove("on");
  for (const span of document.querySelectorAll("#tokens [tabindex='0']")) span.tabIndex = -1;
  shownAt = i;
  const span = run.spans[i];
  span.classList.add("on");
  span.tabIndex = 0;
  if (takesFocus) span.focus();
  details(run.steps[i]);
}

const shown = token => token === "" ? "end" : visible(JSON.stringify(token)).slice(1, -1).replaceAll('\\"', '"')
  .replace(/^ | $/g, "␣");

function details(step) {
  const mine = run;
  const head = make("div", "head",
    make("span", "big", step.is_end ? "end of the text" : shown(step.token)),
    ...[`${step.index + 1} of ${mine.steps.length}`, `id ${step.token_id}`,
      step.is_forced ? "forced: no other token allowed"
        : step.allowed >= mine.most ? "all tokens allowed" : `${number(step.allowed)} tokens allowed`,
      step.is_forced ? null : `${percent(Math.exp(step.logprob))} among these`,
      step.removed === null || step.removed === undefined ? null : `${percent(step.removed)} of the model's probability ruled out`,
      step.path === "$" ? null : step.path]
      .filter(Boolean).map(text => make("span", "tag", text)));
  const why = make("p", "why");
  why.hidden = true;
  const lists = make("div", "lists");
  const list = (title, rows, tint) => {
    if (!rows.length) return;
    lists.append(make("div", "", make("h3", "", title), ...rows.map(one => {
      const isBarred = !one.is_allowed && one.token_id !== step.token_id;
      const canAsk = isBarred && mine.asked.kind !== "tools";
      const row = make(canAsk ? "button" : "div",
        `bar${isBarred ? " no" : ""}${one.token_id === step.token_id ? " it" : ""}`,
        make("span", "", make("code", "", shown(one.token)), canAsk ? " " : null, canAsk ? make("u", "", "why?") : null),
        make("span", "", percent(Math.exp(one.logprob))));
      if (canAsk) row.type = "button";
      row.style.setProperty("--w", `${(100 * Math.exp(one.logprob)).toFixed(1)}%`);
      row.style.setProperty("--tint", `var(--${tint})`);
      if (canAsk) row.addEventListener("click", () => { pinned = true; explain(mine, step, one, why); });
      return row;
    })));
  };
  list("What the model wanted", step.own_top, "own");
  list("What was allowed", step.is_forced ? [] : step.top, "good");
  $("token").replaceChildren(head, why, lists);
  const first = favourite(step);
  clearTimeout(details.timer);
  if (first && mine.asked.kind !== "tools") details.timer = setTimeout(() => explain(mine, step, first, why), 250);
}

/** Ask the server why a token was barred, once. */
async function explain(mine, step, token, place) {
  mine.reasons ??= new Map();
  const key = `${step.index} ${token.token_id}`;
  place.hidden = false;
  if (!mine.reasons.has(key)) {
    place.textContent = "…";
    const before = mine.steps.slice(0, step.index).map(one => one.token_id);
    const { body } = mine.asked;
    mine.reasons.set(key, askJson("/v1/grammars/explain", { model: body.model, ...formOf(body),
      ...(body.max_tokens ? { max_tokens: body.max_tokens } : {}), before, token: token.token_id,
      chosen: step.token_id }).then(found => found.reason, error => error.message));
  }
  place.textContent = await mine.reasons.get(key);
}

// -- the same call ------------------------------------------------------------------------------

function showCode() {
  const language = document.querySelector("#code-kinds input:checked")?.value ?? "structgen";
  try {
    const now = asked();
    const root = location.origin;
    $("code").textContent = language === "curl" ? withCurl(now, root, needsKey)
      : language === "openai" ? withOpenai(now, root, needsKey) : withStructgen(now);
  } catch (error) {
    const told = error instanceof TypeError ? "The list of questions is incomplete." : error.message;
    $("code").textContent = `# ${told.replaceAll("\n", "\n# ")}`;
  }
}

async function copy() {
  const text = $("code").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not over plain HTTP from another machine: then the text is selected
    const range = document.createRange();
    range.selectNodeContents($("code"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  $("copy").textContent = "Copied";
  setTimeout(() => { $("copy").textContent = "Copy"; }, 1500);
}

// -- the beginning ------------------------------------------------------------------------------

const THEMES = { "": ["◐ auto", "system"], light: ["☀ light", "light"], dark: ["☾ dark", "dark"] };

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  $("theme").textContent = THEMES[name][0];
  $("theme").title = `Colour theme: ${THEMES[name][1]}`;
  kept("theme", name);
}

async function models() {
  try {
    const { data } = await askJson("/v1/models");
    const kinds = await Promise.all(data.map(one => one.kind ?? askJson(
      `/v1/models/${encodeURIComponent(one.id)}/status`).then(told => told.kind, () => "text")));
    const texts = data.filter((_, i) => !kinds[i] || kinds[i] === "text");
    const chosen = $("model").value;
    $("model").replaceChildren(...texts.map(one => {
      const option = new Option(one.id, one.id, false, one.is_default);
      option.dataset.root = one.root;
      return option;
    }));
    if (texts.some(one => one.id === chosen)) $("model").value = chosen;
    $("error").hidden = true;
    $("key").removeAttribute("aria-invalid");
    const grammars = await askJson("/v1/grammars");
    $("grammar-names").replaceChildren(new Option("custom", ""),
      ...grammars.data.map(one => Object.assign(new Option(one.id), { title: one.description })));
    $("grammar-names").value = "sql-select-strict";
    await library();
  } catch (error) {
    changed();
    if (error.status === 401 && !$("key").value) $("key").focus();
    else fail(error);
    if (error.status === 401 && $("key").value) $("key").setAttribute("aria-invalid", "true");
  }
}

async function library() {
  const name = $("grammar-names").value;
  if (name) {
    const found = await askJson(`/v1/grammars/${encodeURIComponent(name)}`);
    $("grammar").value = found.grammar;
    $("grammar-dialect").value = found.grammar_type;
  }
  changed();
}

segments($("types"), "type", TYPES, "json_schema", chooseKind);
segments($("code-kinds"), "language", LANGUAGES, "structgen", showCode);
examples($("schema-examples"), $("schema"), SCHEMAS, schema => JSON.stringify(schema, null, 2));
examples($("regex-examples"), $("regex"), REGEXES, value => value);
$("tools").value = TOOLS;
$("choices").value = CHOICES;
$("questions").value = QUESTIONS;
$("tokens").dataset.empty = "Press Run. Tokens appear here as the model writes them. Grey tokens were forced; a "
  + "stronger colour means that fewer tokens were allowed.";
$("value").dataset.empty = "The value appears here.";
$("token").dataset.empty = "Point at a token, or move with the arrow keys, to see what the model wanted and why it "
  + "was ruled out.";
theme(kept("theme") in THEMES ? kept("theme") : "");

$("ask").addEventListener("submit", event => { event.preventDefault(); start(); });
$("ask").addEventListener("input", changed);
$("stop").addEventListener("click", () => run?.controller.abort());
$("copy").addEventListener("click", copy);
$("model").addEventListener("change", changed);
$("key").addEventListener("change", models);
$("grammar-names").addEventListener("change", () => library().catch(fail));
$("grammar").addEventListener("input", () => { $("grammar-names").value = ""; });
$("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  theme(names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length]);
});
$("tokens").addEventListener("pointerover", event => {
  const i = indexOf(event);
  if (i >= 0 && i !== shownAt && !pinned && event.pointerType !== "touch") show(i, false);
});
$("tokens").addEventListener("click", event => {
  const i = indexOf(event);
  if (i >= 0) { pinned = true; show(i, true); }
});
$("tokens").addEventListener("focusin", event => {
  const i = indexOf(event);
  if (i >= 0 && i !== shownAt) show(i, false);
});
$("tokens").addEventListener("keydown", event => {
  const last = (run?.steps.length ?? 0) - 1;
  const to = { ArrowLeft: shownAt - 1, ArrowRight: shownAt + 1, ArrowUp: shownAt - 1,
    ArrowDown: shownAt + 1, Home: 0, End: last }[event.key];
  if (to === undefined || last < 0) return;
  event.preventDefault();
  pinned = true;
  show(Math.min(Math.max(to, 0), last), true);
});
document.addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); start(); }
  if (event.key === "Escape") {
    pinned = false;
    run?.controller.abort();
  }
});

chooseKind();
models();
