// JSON as it was typed, and a JSON text that is still being written as a tree: what is there so far, and what is whole.
// Owns reading and writing; knows nothing of the page.

const DEEPEST = 50;

// JavaScript puts members named by whole numbers first. A mark before the name keeps them in their place.
export const marked = name => String(name).replace(/^(?=\d+$)/, "\uffff");
export const unmarked = name => name.replace(/^\uffff(?=\d+$)/, "");

/** Parse JSON so that `write` writes what was typed: numbers with their digits, members in their order. */
export function read(text) {
  JSON.parse(text);  // an error names a place of this text
  return JSON.parse(text.replace(/(?<!\\)"(?=\d+"\s*:)/g, '"\uffff'), (_, value, context) => typeof value === "number"
    && context?.source && String(value) !== context.source && JSON.rawJSON ? JSON.rawJSON(context.source) : value);
}

export const write = (value, indent) => JSON.stringify(value, null, indent).replace(/"\uffff(?=\d+":)/g, '"');

/** Path of a value inside another, written as the server writes paths. */
export function childPath(path, step) {
  if (typeof step === "number") return `${path}[${step}]`;
  if (/^\$?[\p{L}_][\p{L}\p{N}_]*$/u.test(step)) return `${path}.${step}`;
  return `${path}["${step.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"]`;
}

/**
 * Read as much of a JSON text as there is.
 * A node: {kind: "object"|"array"|"string"|"other", path, whole, members|items|value|text}.
 * What is nested deeper than a reader can follow is one text.
 * Returns null where nothing has begun, or where it is no JSON.
 */
export function partial(text) {
  let at = 0;
  const blank = () => { while (at < text.length && " \t\n\r".includes(text[at])) at++; };

  function string() {
    const first = at++;
    while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
    const whole = at < text.length;
    at = whole ? at + 1 : text.length;
    let raw = text.slice(first, at);
    if (!whole) raw = raw.replace(/\\(u[0-9a-fA-F]{0,3})?$/, "") + '"';
    try {
      return { value: JSON.parse(raw), whole };
    } catch {
      return { value: raw.slice(1, -1), whole };
    }
  }

  function node(path, depth) {
    blank();
    if (at >= text.length) return null;
    const char = text[at];
    if (char === '"') return { kind: "string", path, ...string() };
    if (depth > DEEPEST) return { kind: "other", path, text: text.slice(at), whole: false };
    if (char === "{" || char === "[") {
      at++;
      const isObject = char === "{";
      const made = { kind: isObject ? "object" : "array", path, whole: false, members: [] };
      for (let index = 0; ; index++) {
        blank();
        if (at >= text.length) return made;
        if (text[at] === (isObject ? "}" : "]")) {
          at++;
          made.whole = true;
          return made;
        }
        if (text[at] === ",") { at++; blank(); }
        if (at >= text.length) return made;
        let step = index;
        if (isObject) {
          if (text[at] !== '"') return made;
          const key = string();
          if (!key.whole) {
            made.members.push({ step: key.value, node: null, isKey: true });
            return made;
          }
          step = key.value;
          blank();
          if (text[at] === ":") at++;
        }
        const child = node(childPath(path, step), depth + 1);
        made.members.push({ step, node: child });
        if (child === null || !child.whole) return made;
      }
    }
    const found = /^[^\s,\]}]+/.exec(text.slice(at));
    if (found === null) return null;
    at += found[0].length;
    return { kind: "other", path, text: found[0], whole: at < text.length || path === "$" };
  }

  return node("$", 0);
}
