// Pydantic classes as text, to a JSON Schema. Nothing is run: this is a small reader of its own.
// Owns which part of Python is read. What is not read is named: `notes`, or an error with its line.

const FORMATS = { date: "date", datetime: "date-time", time: "time", timedelta: "duration",
  UUID: "uuid", EmailStr: "email", IPv4Address: "ipv4", IPv6Address: "ipv6", AnyUrl: "uri",
  HttpUrl: "uri" };
const PLAIN = { str: { type: "string" }, int: { type: "integer" }, float: { type: "number" },
  bool: { type: "boolean" }, None: { type: "null" }, Any: {}, object: {}, list: { type: "array" },
  dict: { type: "object" }, set: { type: "array", uniqueItems: true } };
const LISTS = new Set(["list", "List", "Sequence", "Iterable"]);
const SETS = new Set(["set", "Set", "frozenset", "FrozenSet"]);
const DICTS = new Set(["dict", "Dict", "Mapping"]);
const SIZES = { string: ["minLength", "maxLength"], array: ["minItems", "maxItems"],
  object: ["minProperties", "maxProperties"] };
const BOUNDS = { ge: "minimum", gt: "exclusiveMinimum", le: "maximum", lt: "exclusiveMaximum",
  multiple_of: "multipleOf" };

export class Unread extends Error {}

const TOKEN = new RegExp([
  String.raw`(?<space>[ \t\f]+|\\\r?\n|#[^\n]*)`,
  String.raw`(?<newline>\r?\n)`,
  String.raw`(?<text>[rRbBuUfF]{0,2}(?:"""[^]*?"""|'''[^]*?'''|"(?:\\[^]|[^"\\\n])*"|'(?:\\[^]|[^'\\\n])*'))`,
  String.raw`(?<number>\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)`,
  String.raw`(?<name>[\p{L}_][\p{L}\p{N}_]*)`,
  String.raw`(?<mark>->|\.\.\.|\*\*|[-+*/@|&:,.=()[\]{}<>~%^!;])`,
].join("|"), "uy");

/** The logical lines: {indent, number, tokens}. */
function linesOf(source) {
  const lines = [];
  let line = null, depth = 0, number = 1, start = true, indent = 0;
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < source.length) {
    const at = TOKEN.lastIndex;
    const found = TOKEN.exec(source);
    if (found === null) {
      throw new Unread(`line ${number}: ${JSON.stringify(source.slice(at, at + 8))} is not read`);
    }
    const kind = Object.keys(found.groups).find(name => found.groups[name] !== undefined);
    const value = found[0];
    if (kind === "newline") {
      if (!depth) { start = true; indent = 0; line = null; }
    } else if (kind === "space") {
      if (start && value[0] !== "#") indent = value.replaceAll("\t", "    ").length;
    } else {
      if (start) {
        line = { indent, number, tokens: [] };
        lines.push(line);
        start = false;
      }
      if ("([{".includes(value)) depth++;
      if (")]}".includes(value)) depth--;
      line.tokens.push({ kind, value, number });
    }
    number += value.split("\n").length - 1;
  }
  return lines;
}

/** The value of a string literal of Python's. */
function stringOf(text) {
  const [, prefix, quote] = /^([a-zA-Z]*)("""|'''|"|')/.exec(text);
  const inner = text.slice(prefix.length + quote.length, -quote.length);
  if (/[fFbB]/.test(prefix)) throw new Unread(`${text} is not a plain text`);
  if (/[rR]/.test(prefix)) return inner;
  const plain = { n: "\n", t: "\t", r: "\r", "\\": "\\", "'": "'", '"': '"', "\n": "" };
  return inner.replace(/\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[^])/g, (whole, code) =>
    code.length > 1 ? String.fromCharCode(parseInt(code.slice(1), 16)) : plain[code] ?? whole);
}

/** Reads the expressions of annotations and defaults, as far as they are known. */
class Expressions {
  constructor(tokens) { this.tokens = tokens; this.at = 0; }
  get next() { return this.tokens[this.at]; }
  is(value) { return this.next !== undefined && this.next.kind !== "text" && this.next.value === value; }
  take(value) {
    if (!this.is(value)) {
      const found = this.next === undefined ? "the end of the line" : this.next.value;
      throw new Unread(`${value} is expected, and there is ${found}`);
    }
    return this.tokens[this.at++];
  }
  union() {
    const parts = [this.unary()];
    while (this.is("|")) { this.at++; parts.push(this.unary()); }
    return parts.length === 1 ? parts[0] : { kind: "union", parts };
  }
  unary() {
    if (this.is("-")) {
      this.at++;
      const of = this.unary();
      if (of.kind !== "value" || typeof of.value !== "number") throw new Unread("- is of numbers");
      return { kind: "value", value: -of.value };
    }
    const token = this.next;
    if (token === undefined) throw new Unread("something is missing at the end of the line");
    if (token.kind === "text") {
      let value = "";
      while (this.next?.kind === "text") value += stringOf(this.tokens[this.at++].value);
      return { kind: "value", value, isText: true };
    }
    this.at++;
    if (token.kind === "number") return { kind: "value", value: Number(token.value.replaceAll("_", "")) };
    if (token.value === "...") return { kind: "dots" };
    if (token.value === "(") {
      const items = this.several(")");
      return items.length === 1 ? items[0].value : { kind: "list", items: items.map(one => one.value) };
    }
    if (token.value === "[") return { kind: "list", items: this.several("]").map(one => one.value) };
    if (token.value === "{") { this.several("}"); return { kind: "unread", name: "{…}" }; }
    if (token.kind !== "name") throw new Unread(`${token.value} is not read here`);
    if (token.value === "lambda") throw new Unread("lambda is not read");
    let made = { True: { kind: "value", value: true }, False: { kind: "value", value: false } }[token.value]
      ?? { kind: "name", name: token.value };
    for (;;) {
      if (this.is(".")) {
        this.at++;
        made = { kind: "name", name: this.tokens[this.at++]?.value, of: made.name };
      } else if (this.is("[")) {
        this.at++;
        made = { kind: "index", name: made.name, items: this.several("]").map(one => one.value) };
      } else if (this.is("(")) {
        this.at++;
        made = { kind: "call", name: made.name, items: this.several(")") };
      } else return made;
    }
  }
  several(end) {
    const items = [];
    while (!this.is(end)) {
      let name = null;
      if (this.next?.kind === "name" && this.tokens[this.at + 1]?.value === "=") {
        name = this.next.value;
        this.at += 2;
      }
      let value = this.union();
      if (this.is(":")) { this.at++; value = this.union(); }
      items.push({ name, value });
      if (!this.is(end)) this.take(",");
    }
    this.take(end);
    return items;
  }
}

/** Convert. Returns {schema, name, notes}. Raises Unread. */
export function schemaOf(source) {
  const lines = linesOf(source);
  const classes = new Map();
  const notes = [];
  for (let i = 0; i < lines.length; i++) {
    const { indent, tokens, number } = lines[i];
    const word = tokens[0].value;
    if (indent === 0 && word === "class") {
      const end = tokens.length - 1;
      const bases = tokens.slice(2, end).filter(one => one.kind === "name").map(one => one.value);
      const made = { name: tokens[1]?.value, bases, body: [], number };
      classes.set(made.name, made);
      while (i + 1 < lines.length && lines[i + 1].indent > 0) made.body.push(lines[++i]);
      if (tokens[end].value !== ":") throw new Unread(`line ${number}: a class of one line is not read`);
    } else if (!["import", "from", "if"].includes(word) && tokens[0].kind !== "text") {
      notes.push(`line ${number}: ${word} … is not read`);
      while (i + 1 < lines.length && lines[i + 1].indent > 0) i++;
    }
  }
  if (!classes.size) throw new Unread("there is no class");

  const defs = {};
  const doing = new Set();
  const isEnum = one => one.bases.some(base => /^(Str|Int)?Enum$/.test(base));

  function reference(name) {
    const one = classes.get(name);
    if (!(name in defs) && !doing.has(name)) {
      doing.add(name);
      defs[name] = isEnum(one) ? enumeration(one) : object(one);
      doing.delete(name);
    }
    return { $ref: `#/$defs/${name}` };
  }

  function enumeration(one) {
    const values = [];
    for (const { tokens, number } of one.body) {
      if (tokens[0].kind === "text") continue;
      if (tokens[1]?.value !== "=") { notes.push(`line ${number}: ${tokens[0].value} … is not read`); continue; }
      const value = placed(number, () => new Expressions(tokens.slice(2)).union());
      if (value.kind !== "value") throw new Unread(`line ${number}: members are texts and numbers`);
      values.push(value.value);
    }
    return { enum: values };
  }

  function object(one) {
    const made = { type: "object", properties: {}, required: [], additionalProperties: false };
    for (const base of one.bases) {
      if (!classes.has(base)) continue;
      const inherited = object(classes.get(base));
      Object.assign(made.properties, inherited.properties);
      made.required.push(...inherited.required);
    }
    const base = one.body[0]?.indent;
    for (let i = 0; i < one.body.length; i++) {
      const { indent, tokens, number } = one.body[i];
      if (indent > base || tokens[0].value === "pass" || tokens[0].value === "...") continue;
      if (tokens[0].kind === "text") {
        if (i === 0) made.description = stringOf(tokens[0].value).trim();
        continue;
      }
      if (tokens[0].kind !== "name" || tokens[1]?.value !== ":" || ["class", "def"].includes(tokens[0].value)) {
        notes.push(`line ${number}: ${tokens.slice(0, 2).map(t => t.value).join(" ")} … is not read`);
        continue;
      }
      placed(number, () => field(made, tokens));
    }
    return made;
  }

  function field(made, tokens) {
    const reader = new Expressions(tokens.slice(2));
    const annotation = reader.union();
    let name = tokens[0].value;
    let isRequired = true, schema = typed(annotation);
    if (annotation.name === "ClassVar") return;
    if (reader.is("=")) {
      reader.at++;
      const value = reader.union();
      if (value.kind === "call" && value.name === "Field") {
        const found = fielded(schema, value.items);
        schema = found.schema;
        isRequired = !found.hasDefault;
        name = found.alias ?? name;
      } else isRequired = value.kind === "dots";
    }
    if (reader.next !== undefined) throw new Unread(`${reader.next.value} is not read here`);
    if (schema.hasDefault) { isRequired = false; delete schema.hasDefault; }
    made.properties[name] = schema;
    made.required = made.required.filter(one => one !== name);
    if (isRequired) made.required.push(name);
  }

  function fielded(schema, items) {
    let hasDefault = false, alias = null;
    const target = schema.anyOf ? schema.anyOf.find(one => one.type !== "null") : schema;
    for (const { name, value } of items) {
      if (name === null || name === "default") hasDefault ||= value.kind !== "dots";
      else if (name === "default_factory") hasDefault = true;
      else if (name === "alias" && value.isText) alias = value.value;
      else if (["description", "title"].includes(name) && value.isText) schema[name] = value.value;
      else if (name in BOUNDS && value.kind === "value") target[BOUNDS[name]] = value.value;
      else if (name === "pattern" && value.isText) target.pattern = value.value;
      else if (["min_length", "max_length"].includes(name) && target.type in SIZES) {
        target[SIZES[target.type][name === "min_length" ? 0 : 1]] = value.value;
      } else if (["strict", "examples", "repr", "exclude", "frozen"].includes(name)) continue;
      else throw new Unread(`${name}= is not read`);
    }
    return { schema, hasDefault, alias };
  }

  function typed(of) {
    if (of.kind === "union") return { anyOf: of.parts.map(typed) };
    if (of.isText) {  // a name in quotes
      const inner = linesOf(of.value)[0];
      return typed(new Expressions(inner?.tokens ?? []).union());
    }
    if (of.kind === "name") {
      if (classes.has(of.name)) return reference(of.name);
      if (of.name in PLAIN) return structuredClone(PLAIN[of.name]);
      if (of.name in FORMATS) return { type: "string", format: FORMATS[of.name] };
      if (LISTS.has(of.name)) return { type: "array" };
      if (DICTS.has(of.name)) return { type: "object" };
      if (of.name === "PositiveInt") return { type: "integer", exclusiveMinimum: 0 };
      if (of.name === "NonNegativeInt") return { type: "integer", minimum: 0 };
      throw new Unread(`the type ${of.name} is not read`);
    }
    if (of.kind === "call" && ["conint", "constr", "confloat", "conlist"].includes(of.name)) {
      const base = { conint: "int", constr: "str", confloat: "float", conlist: "list" }[of.name];
      const first = of.items[0]?.name === null ? of.items.shift().value : null;
      const schema = structuredClone(PLAIN[base]);
      if (first !== null) schema.items = typed(first);
      return fielded(schema, of.items).schema;
    }
    if (of.kind !== "index") throw new Unread(`${of.name ?? of.kind} is not read as a type`);
    const { name, items } = of;
    if (name === "Literal") {
      return { enum: items.map(one => {
        if (one.kind === "name" && one.name === "None") return null;
        if (one.kind !== "value") throw new Unread("Literal is of texts, numbers, True, False, None");
        return one.value;
      }) };
    }
    if (name === "Optional") return { anyOf: [typed(items[0]), { type: "null" }] };
    if (name === "Union") return { anyOf: items.map(typed) };
    if (name === "Annotated") {
      let schema = typed(items[0]);
      for (const one of items.slice(1)) {
        if (one.kind === "value" && one.isText) continue;
        if (one.kind !== "call") throw new Unread("Annotated is of a type and Field(…)");
        const names = { Ge: "ge", Gt: "gt", Le: "le", Lt: "lt", MinLen: "min_length",
          MaxLen: "max_length", MultipleOf: "multiple_of" };
        const given = one.name in names ? [{ name: names[one.name], value: one.items[0]?.value }] : one.items;
        if (!(one.name in names) && !["Field", "StringConstraints"].includes(one.name)) {
          throw new Unread(`${one.name}(…) is not read`);
        }
        const found = fielded(schema, given);
        schema = found.schema;
        if (found.hasDefault) schema.hasDefault = true;
      }
      return schema;
    }
    if (LISTS.has(name)) return { type: "array", items: typed(items[0]) };
    if (SETS.has(name)) return { type: "array", items: typed(items[0]), uniqueItems: true };
    if (DICTS.has(name)) {
      if (items[0].name !== "str") throw new Unread("keys of a dict are str");
      return { type: "object", additionalProperties: typed(items[1]) };
    }
    if (["tuple", "Tuple"].includes(name)) {
      if (items[1]?.kind === "dots") return { type: "array", items: typed(items[0]) };
      return { type: "array", prefixItems: items.map(typed), items: false, minItems: items.length };
    }
    throw new Unread(`the type ${name}[…] is not read`);
  }

  const last = [...classes.values()].at(-1);
  const ref = reference(last.name);
  const schema = { ...defs[last.name] };
  delete defs[last.name];
  if (JSON.stringify([schema, defs]).includes(JSON.stringify(ref.$ref))) defs[last.name] = { ...schema };
  if (Object.keys(defs).length) schema.$defs = defs;
  return { schema, name: last.name, notes };
}

function placed(number, work) {
  try {
    return work();
  } catch (error) {
    if (error instanceof Unread && !error.message.startsWith("line ")) {
      throw new Unread(`line ${number}: ${error.message}`);
    }
    throw error;
  }
}
