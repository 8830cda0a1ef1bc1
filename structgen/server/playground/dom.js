// Small things that all of the page uses: elements, numbers, what a browser keeps.

export const $ = id => document.getElementById(id);
export const number = value => value.toLocaleString("en");
export const percent = p => p >= .9995 ? "100%" : p >= .1 ? `${(100 * p).toFixed(1)}%`
  : p >= 1e-4 ? `${(100 * p).toFixed(2)}%` : p > 0 ? "<0.01%" : "0%";

/** A text in which characters that are not seen, or that turn the writing round, are escapes. */
export const visible = text => text.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
  char => `\\u${char.charCodeAt().toString(16).padStart(4, "0")}`);

export function make(tag, name, ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children.filter(one => one !== null && one !== undefined));
  return element;
}

/** Write a message; one with a caret under its second line keeps its lines, in letters of one width. */
export function tell(element, text) {
  element.replaceChildren(text);
  element.classList.toggle("code", text.includes("\n"));
}

export function kept(name, value) {  // a browser may forbid storage
  try {
    if (value === undefined) return localStorage.getItem(`structgen-${name}`);
    if (value === "") localStorage.removeItem(`structgen-${name}`);
    else localStorage.setItem(`structgen-${name}`, value);
  } catch { /* then it is not kept */ }
  return null;
}
