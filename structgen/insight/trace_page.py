"""The page that shows a trace: one HTML document, with nothing to fetch.

It owns how a trace looks. What it shows is `trace`'s; here is layout, colour and words.
"""

from __future__ import annotations

import codecs
import html
import json
import math
from collections.abc import Iterator
from typing import Any, Protocol

from structgen.sampling import TopToken

from .rejections import shown
from .trace_step import TraceStep


class Shown(Protocol):
    """What of a trace is shown; see `trace.Trace`."""

    title: str
    prompt: str
    n_tokens: int

    def __len__(self) -> int:
        """How many steps."""

    def __iter__(self) -> Iterator[TraceStep]:
        """The steps."""


def page(trace: Shown) -> str:
    """Return the page of a trace."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    spans = []
    details = []
    for step in trace:
        text = "" if step.is_end else decoder.decode(step.token)
        spans.append(_span(step, text, trace.n_tokens))
        details.append(_details(step))
    n_forced = sum(step.is_forced for step in trace)
    removed = [step.removed for step in trace if step.removed is not None and not step.is_forced]
    overruled = sum(step.masked_favourite is not None for step in trace if not step.is_forced)
    chosen = len(trace) - n_forced
    mean = sum(removed) / max(len(removed), 1)
    facts = [
        (f"{len(trace):,}", "tokens"),
        (f"{n_forced:,}", "forced"),
        (f"{overruled:,} of {chosen:,}", "favourites of the model barred"),
        (f"{mean:.1%}", "of the mass removed, on average"),
    ]
    fields = {
        "TITLE": html.escape(trace.title),
        "PROMPT": html.escape(trace.prompt),
        "FACTS": "".join(f"<div><b>{value}</b><span>{name}</span></div>" for value, name in facts),
        "SPANS": "".join(spans),
        "BARS": "".join(_bar(step) for step in trace),
        "SIZE": f"{trace.n_tokens:,}",
        "DATA": json.dumps({"size": trace.n_tokens, "steps": details}).replace("<", "\\u003c"),
    }
    document = _PAGE
    for name, value in fields.items():
        document = document.replace(f"<!--{name}-->", value)
    return document


def _span(step: TraceStep, text: str, size: int) -> str:
    kind = " f" if step.is_forced else ""
    if step.is_end:
        text, kind = "end", kind + " x"
    elif not text:
        text, kind = "·", kind + " x"  # a character that the next token finishes
    # 0 where anything goes, 1 where one token was left: a log scale, as widths differ by 10,000.
    narrow = 1 - math.log(max(step.n_allowed, 1)) / math.log(max(size, 2))
    shade = f"{max(narrow, 0):.2f}"
    escaped = html.escape(text).replace("\n", '<i class="nl">↵</i>\n')
    return f'<span class="t{kind}" style="--n:{shade}" data-i="{step.index}">{escaped}</span>'


def _bar(step: TraceStep) -> str:
    height = 100 * (step.removed or 0)
    kind = "f" if step.is_forced else ""
    return f'<i class="{kind}" data-i="{step.index}" style="--h:{height:.1f}%"></i>'


def _details(step: TraceStep) -> dict[str, Any]:
    scores = step.logprob
    unmasked = scores.unmasked_logprob
    favourite = step.masked_favourite
    return {
        "token": "end of sequence" if step.is_end else shown(step.token),
        "id": step.token_id,
        "forced": step.is_forced,
        "allowed": step.n_allowed,
        "path": step.path,
        "p": math.exp(scores.logprob),
        "own": None if unmasked is None else math.exp(unmasked),
        "removed": step.removed,
        "favourite": None if favourite is None else _row(favourite),
        "top": [] if step.is_forced else [_row(token) for token in scores.top],
        "ownTop": [_row(token) for token in scores.unmasked_top],
    }


def _row(token: TopToken) -> list[Any]:
    name = shown(token.token) if token.token else f"end or special ({token.token_id})"
    return [name, math.exp(token.logprob), token.is_allowed, token.token_id]


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Trace: <!--TITLE--></title>
<style>
:root {
  color-scheme: light dark;
  --page: light-dark(#f6f7f9, #14161a); --card: light-dark(#fff, #1c1f25);
  --ink: light-dark(#1b1f27, #e7e9ee); --soft: light-dark(#626a78, #98a0ae);
  --line: light-dark(#dfe3e9, #2f343d); --few: light-dark(#f0a23b, #b86a12);
  --own: light-dark(#4471d6, #6d95f0); --bad: light-dark(#c5384b, #ee7182);
  --good: light-dark(#23825a, #55bb8d);
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, monospace;
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 20px; font-weight: 600; margin: 0 0 16px; }
h2 { font-size: 12px; font-weight: 600; letter-spacing: .04em; text-transform: uppercase;
  color: var(--soft); margin: 20px 0 8px; }
.facts { display: flex; flex-wrap: wrap; gap: 10px 34px; margin-bottom: 20px; }
.facts b { display: block; font-size: 20px; font-weight: 600; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.facts span { color: var(--soft); font-size: 13px; }
.columns { display: grid; grid-template-columns: minmax(0, 1fr) 360px; gap: 20px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 20px; }
.text { font: 15px/2 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
.prompt { font-size: 13px; line-height: 1.5; color: var(--soft); max-height: 220px;
  overflow: auto; }
.columns h2:first-child { margin-top: 0; }
.t { border-radius: 3px; padding: 3px 0; cursor: default;
  background: color-mix(in oklab, var(--few) calc(var(--n) * 78%), transparent);
  box-shadow: inset -1px 0 var(--card); }
.t.f { background: none; color: var(--soft);
  box-shadow: inset 0 -2px color-mix(in oklab, var(--soft) 45%, transparent); }
.t.x { font-size: 11px; color: var(--soft); padding: 3px 2px; }
.t.on { outline: 2px solid var(--own); outline-offset: 1px; color: var(--ink); }
.nl { font-style: normal; color: var(--soft); opacity: .7; }
.legend { display: flex; align-items: center; gap: 10px; margin-top: 18px; flex-wrap: wrap;
  font-size: 12.5px; color: var(--soft); }
.legend u { width: 150px; height: 12px; border-radius: 3px; background: linear-gradient(90deg,
  color-mix(in oklab, var(--few) 78%, transparent), transparent); border: 1px solid var(--line); }
.legend .t { padding: 0 4px; margin-left: 14px; }
.bars { display: flex; align-items: stretch; height: 56px; gap: 1px; }
.bars i { flex: 1 1 0; min-width: 1px; max-width: 14px; position: relative; }
.bars i::after { content: ""; position: absolute; inset: auto 0 0; height: max(var(--h), 1px);
  background: var(--bad); opacity: .75; border-radius: 1px 1px 0 0; }
.bars i.f::after { background: var(--soft); opacity: .4; }
.bars i.on { background: color-mix(in oklab, var(--own) 22%, transparent); }
aside { position: sticky; top: 20px; align-self: start; min-height: 420px; }
.big { font: 600 19px/1.4 var(--mono); overflow-wrap: anywhere; white-space: pre-wrap; }
.path { font: 13px/1.5 var(--mono); color: var(--soft); overflow-wrap: anywhere; }
.tag { display: inline-block; font-size: 12px; padding: 1px 8px; border-radius: 99px;
  border: 1px solid var(--line); color: var(--soft); margin: 8px 6px 0 0; }
.why { margin-top: 12px; padding: 9px 12px; border-radius: 7px; font-size: 13.5px;
  background: color-mix(in oklab, var(--bad) 11%, transparent); }
.why code, .row code { font-family: var(--mono); overflow-wrap: anywhere; white-space: pre-wrap; }
.row { display: grid; grid-template-columns: minmax(0, 1fr) 58px; gap: 8px; font-size: 13px;
  padding: 2px 6px; position: relative; border-radius: 4px; overflow: hidden; }
.row::before { content: ""; position: absolute; inset: 1px auto 1px 0; width: var(--w);
  background: color-mix(in oklab, var(--tint) 24%, transparent); border-radius: 4px; }
.row * { position: relative; }
.row span { text-align: right; font-variant-numeric: tabular-nums; }
.row.no code { text-decoration: line-through; color: var(--bad); }
.row.it { font-weight: 650; }
footer { margin-top: 18px; font-size: 12.5px; color: var(--soft); }
kbd { font: inherit; border: 1px solid var(--line); border-radius: 4px; padding: 0 5px; }
@media (max-width: 880px) {
  .columns { grid-template-columns: minmax(0, 1fr); }
  aside { top: auto; bottom: 12px; min-height: 0; max-height: 46vh; overflow: auto;
    box-shadow: 0 6px 28px rgb(0 0 0 / .22); }
}
</style>
</head>
<body>
<main>
<h1><!--TITLE--></h1>
<div class="facts"><!--FACTS--></div>
<div class="columns">
<div>
<h2>Prompt</h2>
<section class="card"><pre class="text prompt"><!--PROMPT--></pre></section>
<h2>Output</h2>
<section class="card">
<pre class="text"><!--SPANS--></pre>
<div class="legend">1 token allowed <u></u> all <!--SIZE--> <span class="t f">forced</span>
the only way on, not chosen</div>
</section>
<h2>Mass removed, step by step</h2>
<section class="card"><div class="bars"><!--BARS--></div></section>
<footer>Point at a token, click to hold it, <kbd>←</kbd> <kbd>→</kbd> to step,
<kbd>Esc</kbd> to let go. Mass removed: the probability that the model gave to what was not
allowed.</footer>
</div>
<aside class="card" id="panel" aria-live="polite"></aside>
</div>
</main>
<script type="application/json" id="data"><!--DATA--></script>
<script>
"use strict";
const {size, steps} = JSON.parse(document.getElementById("data").textContent);
const panel = document.getElementById("panel");
const number = value => value.toLocaleString("en");
const percent = p => p >= .9995 ? "100%" : p >= .1 ? (100 * p).toFixed(1) + "%"
  : p >= 1e-4 ? (100 * p).toFixed(2) + "%" : p ? p.toExponential(1) : "0";
function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}
function rows(title, list, tint, id) {
  if (!list.length) return;
  panel.append(make("h2", "", title));
  for (const [name, p, allowed, token] of list) {
    const row = make("div", "row" + (allowed ? "" : " no") + (token === id ? " it" : ""));
    row.style.setProperty("--w", (100 * p).toFixed(2) + "%");
    row.style.setProperty("--tint", `var(--${tint})`);
    row.append(make("code", "", name), make("span", "", percent(p)));
    panel.append(row);
  }
}
let at = 0, held = false;
function show(i) {
  at = Math.max(0, Math.min(i, steps.length - 1));
  for (const old of document.querySelectorAll(".on")) old.classList.remove("on");
  for (const now of document.querySelectorAll(`[data-i="${at}"]`)) now.classList.add("on");
  const step = steps[at];
  panel.replaceChildren();
  if (!step) return;
  panel.append(make("div", "big", step.token), make("div", "path", step.path));
  const tags = [`step ${at + 1} of ${steps.length}`, `id ${step.id}`, step.forced ? "forced"
    : step.allowed === size ? "anything allowed" : `${number(step.allowed)} allowed`];
  if (step.removed !== null) tags.push(`${percent(step.removed)} removed`);
  for (const tag of tags) panel.append(make("span", "tag", tag));
  if (step.favourite) {
    const why = make("div", "why", "The model would rather have written ");
    why.append(make("code", "", step.favourite[0]), ` (${percent(step.favourite[1])}), `
      + "which was not allowed here.");
    panel.append(why);
  }
  rows("The model's own view", step.ownTop, "own", step.id);
  rows("Among what was allowed", step.top, "good", step.id);
  if (step.forced) panel.append(make("h2", "", "Forced: no choice was made"));
}
const indexOf = event => {
  const target = event.target.closest("[data-i]");
  return target ? Number(target.dataset.i) : -1;
};
document.addEventListener("pointerover", event => {
  const i = indexOf(event);
  if (i >= 0 && !held) show(i);
});
document.addEventListener("click", event => {
  const i = indexOf(event);
  if (i >= 0) { held = true; show(i); }
});
document.addEventListener("keydown", event => {
  const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  if (by) { held = true; show(at + by); event.preventDefault(); }
  if (event.key === "Escape") held = false;
});
const first = steps.findIndex(step => step.favourite && !step.forced);
show(first < 0 ? 0 : first);
</script>
</body>
</html>
"""
