// Asking the server that the page came from, and nobody else: answers, streams, and what it refuses.

import { $ } from "./dom.js";
import { write } from "./values.js";

export class Refused extends Error {
  constructor(status, told) {
    super(told.message ?? `The server answered with status ${status}.`);
    this.status = status;
    this.param = told.param ?? null;
  }
}

export let needsKey = false;

function lost(error) {  // fetch and streams throw a TypeError where the connection fails
  throw error instanceof TypeError ? new Error("The server cannot be reached. Is it running?") : error;
}

export async function ask(path, body, signal) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const key = $("key").value;
  if (/[^ -~]/.test(key)) throw new Refused(401, { message: "The API key contains characters other than printable ASCII." });
  if (key) headers.Authorization = `Bearer ${key}`;
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST", headers, signal,
    body: body === undefined ? undefined : write(body),
  }).catch(lost);
  if (answer.ok) return answer;
  let told = {};
  try {
    told = (await answer.json()).error ?? {};
  } catch { /* no JSON: the status has to do */ }
  if (answer.status === 401) {
    needsKey = true;
    $("key-box").hidden = false;
  }
  throw new Refused(answer.status, told);
}

export const askJson = async (path, body, signal) => (await ask(path, body, signal)).json();

/** The objects of a stream of events. */
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read().catch(lost);
    if (done) throw new Error("The answer ended early: the connection was closed before it was complete.");
    held += value;
    const whole = held.split("\n\n");
    held = whole.pop();
    for (const event of whole) {
      const data = event.split("\n").filter(line => line.startsWith("data:"))
        .map(line => line.slice(5).trim()).join("\n");
      if (data === "[DONE]") return;
      if (!data) continue;
      const piece = JSON.parse(data);
      if (piece.error) throw new Refused(200, piece.error);
      yield piece;
    }
  }
}
