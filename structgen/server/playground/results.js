// What came of a run: the value field by field, or the answers to questions.
// Owns how sure the model was of each, in words. What a run is, `app.js` says.

import { $, make, percent } from "./dom.js";
import { partial } from "./values.js";

const FEW = 1000;

/** For each path, what the model gave to what was chosen there: {sum, n, most}. */
function sureness(run) {
  const found = new Map();
  for (const step of run.steps) {
    if (!step || step.is_end || step.is_forced) continue;
    const one = found.get(step.path) ?? { sum: 0, n: 0, most: 0 };
    found.set(step.path, { sum: one.sum + step.logprob, n: one.n + 1, most: Math.max(one.most, step.allowed) });
  }
  return found;
}

/** How sure the model was of a value: of a choice among few as a whole, of free text a token. */
function sure(run, path, sums) {
  const known = run.confidence?.[path];
  if (known) {
    const bar = make("span", "sure known", percent(known.probability));
    bar.style.setProperty("--w", `${(100 * known.probability).toFixed(1)}%`);
    bar.title = "The model's confidence in this value, over all ways to write it:\n"
      + known.alternatives.map(other => `${JSON.stringify(other.value)} ${percent(other.probability)}`).join("\n");
    return bar;
  }
  const one = sums.get(path);
  const isFew = one !== undefined && one.most <= FEW;
  const p = one === undefined ? 1 : Math.exp(isFew ? one.sum : one.sum / one.n);
  const bar = make("span", "sure", one === undefined ? "forced" : isFew ? percent(p) : `${percent(p)}/token`);
  bar.style.setProperty("--w", `${(100 * p).toFixed(1)}%`);
  bar.title = one === undefined ? "No other token was allowed."
    : isFew ? "The probability of this text among the allowed tokens."
      : "The mean probability of a token among the allowed ones (geometric mean).";
  return bar;
}

function leaf(run, key, text, kind, path, isWhole, sums) {
  const row = make("div", `leaf${isWhole ? "" : " growing"}`,
    make("span", "", key === null ? null : make("span", "key", `${key}: `), make("span", kind, text)));
  if (path !== null && isWhole) row.append(sure(run, path, sums));
  return row;
}

function tree(run, node, key, sums) {
  if (node === null) return leaf(run, key, "…", "state", null, false, sums);
  if (node.kind === "string") return leaf(run, key, JSON.stringify(node.value), "", node.path, node.whole, sums);
  if (node.kind === "other") {
    return leaf(run, key, node.text, node.text === "null" ? "null" : "", node.path, node.whole || run.isOver, sums);
  }
  const [open, close] = node.kind === "object" ? "{}" : "[]";
  const inside = node.members.map(({ step, node: child, isKey }) =>
    isKey ? make("div", "leaf growing", make("span", "", make("span", "key", step)))
      : tree(run, child, node.kind === "object" ? step : null, sums));
  const head = make("div", "", key === null ? null : make("span", "key", `${key}: `), open,
    inside.length || !node.whole ? null : close);
  return make("div", "", head, make("div", "in", ...inside), inside.length && node.whole ? close : null);
}

/** Show the value as far as it is written. */
export function showValue(run) {
  const { kind } = run.asked;
  const isJson = kind === "json_schema";
  const sums = sureness(run);
  const state = $("value-state");
  let isValid = run.isOver && ["stop", "tool_calls"].includes(run.reason);
  if (isJson) {
    $("value").replaceChildren(run.text ? tree(run, partial(run.text), null, sums) : "");
    try {
      if (isValid) JSON.parse(run.text);
    } catch {
      isValid = false;
    }
  } else if (run.calls.length) {
    $("value").replaceChildren(...run.calls.map(({ name, arguments: given }) =>
      leaf(run, name, given, "", null, run.isOver, sums)));
  } else if (kind === "free" || kind === "tools") {
    $("value").replaceChildren(run.text);
  } else {
    $("value").replaceChildren(run.text ? leaf(run, null, run.text, "", "$", run.isOver, sums) : "");
  }
  state.classList.toggle("good", isValid && kind !== "free");
  let told = !run.isOver ? "writing …" : isValid
    ? { json_schema: "valid JSON", regex: "matches", choice: "one of the choices",
      grammar: "matches the grammar", tools: run.calls.length ? "valid calls" : "text", free: "complete" }[kind]
    : run.reason === "length" ? "cut off at max tokens" : run.reason ?? "stopped";
  if (isValid && run.shortened) {
    const [first, ...more] = run.shortened.map(path => path || "$");
    told += `; shortened to fit max tokens: ${first}${more.length ? ` and ${more.length} more` : ""}`;
  }
  if (state.textContent !== told) state.textContent = told;  // else it is read out at each token
}

/** Show the answers to questions. */
export function showAnswers(run, found) {
  const rows = pairs => {
    const most = percent(Math.max(...pairs.map(([, p]) => p)));
    const first = pairs.filter(([, p]) => percent(p) === most);  // several that read the same: a tie
    return [...pairs.map(pair => {
      const [name, p] = pair;
      const row = make("div", `bar${first.length === 1 && pair === first[0] ? " it" : ""}`,
        make("code", "", name), make("span", "", percent(p)));
      row.style.setProperty("--w", `${(100 * p).toFixed(1)}%`);
      row.style.setProperty("--tint", "var(--good)");
      return row;
    }), ...first.length > 1 ? [make("span", "state", "tie: the top answers are equally likely")] : []];
  };
  $("value").replaceChildren(...found.answers.map((answer, index) => {
    const question = run.asked.body.questions[index] ?? {};
    const sure = answer.confidence === undefined || answer.confidence === null ? null
      : make("span", "state", ` confidence ${percent(answer.confidence)}`);
    const head = make("div", "", make("b", "", answer.name ?? question.instructions ?? ""), " ", sure);
    let body = [];
    if (answer.type === "predicate") {
      body = rows([["yes", answer.probability], ["no", 1 - answer.probability]]);
    } else if (answer.type === "refusal") {
      body = [make("span", "state", "no answer was likely enough")];
    } else {
      const pairs = (answer.probabilities ?? []).map(one =>
        [String(one.label ?? one.value), one.probability]);
      body = rows(pairs);
      if (answer.score !== undefined) head.append(make("span", "state", ` score ${answer.score.toFixed(2)} of 0 to ${pairs.length - 1}`));
    }
    if (answer.informative === false) {
      body.push(make("span", "state", "no signal: this answer says little about the prompt"));
    }
    return make("div", "answer", head, ...body);
  }));
  $("value-state").textContent = "";
}
