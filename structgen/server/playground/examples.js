// What the page begins with, and offers.

const object = (properties, more = {}) => ({
  type: "object", properties, required: Object.keys(properties), additionalProperties: false, ...more,
});

const facts = (text, fields) => `Text: ${text}\n\nGive the facts of the text in JSON, with the fields ${fields}.`;

/** Name to [prompt, schema]. */
export const SCHEMAS = {
  "A person": [facts("Lena Vogt, 34, is a doctor and lives in Oslo.", "name, age, job, city"), object({
    name: { type: "string", maxLength: 30 },
    age: { type: "integer", minimum: 0, maximum: 120 },
    job: { enum: ["teacher", "engineer", "doctor", "artist"] },
    city: { type: "string", maxLength: 20 },
  })],
  "An invoice": [facts("Blue Crane, invoice ORD-4711, 12 May 2026: 250 euros, paid.", "company, id, date, amount, paid"), object({
    company: { type: "string", maxLength: 30 },
    id: { type: "string", pattern: "^ORD-[0-9]{4}$" },
    date: { type: "string", format: "date", pattern: "^202" },
    amount: { type: "integer", minimum: 1, maximum: 9999 },
    paid: { type: "boolean" },
  })],
  "A label": ['Is this review positive, neutral or negative? "The food was wonderful and the staff kind."',
    { enum: ["positive", "neutral", "negative"] }],
  "A list of numbers": ["Count from 1 to 5, as a JSON list.",
    { type: "array", items: { type: "integer" }, minItems: 3, maxItems: 6 }],
  "A tree (recursive)": ["Anna has two children, Ben and Cleo. Give the family in JSON, with the fields name and children.", {
    $ref: "#/$defs/node",
    $defs: {
      node: object({
        name: { type: "string", maxLength: 12 },
        children: { type: "array", items: { $ref: "#/$defs/node" }, maxItems: 2 },
      }),
    },
  }],
};

export const REGEXES = {
  "A product number": ["Make up a product number.", "[A-Z]{3}-[0-9]{4}"],
  "A time of day": ["When does the sun rise in spring?", "([01][0-9]|2[0-3]):[0-5][0-9]"],
  "An IP address": ["Which IP address does a router at home have?",
    "((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"],
  "Yes or no, and why": ["Is water wet?", "(Yes|No), because [a-z ]{10,40}\\."],
};

export const TOOLS = JSON.stringify([{
  type: "function",
  function: {
    name: "weather", description: "Tell the weather of a city.",
    parameters: object({ city: { type: "string", maxLength: 20 }, unit: { enum: ["celsius", "fahrenheit"] } }),
  },
}], null, 2);

export const CHOICES = "billing\ntechnical\nsales\nother";

export const QUESTIONS = JSON.stringify([
  { type: "predicate", name: "refund", instructions: "Does the customer ask for a refund?" },
  {
    type: "choice", name: "team", instructions: "Which team should handle this?",
    choices: [
      { value: "billing", description: "payments and refunds" },
      { value: "tech", description: "crashes and bugs" },
      { value: "other" },
    ],
  },
  {
    type: "score", name: "anger", instructions: "How angry is the customer?",
    levels: [{ label: "calm" }, { label: "annoyed" }, { label: "furious" }],
  },
], null, 2);

const MAIL = "The app crashes every time I open it. I want my money back, now!";

export const PROMPTS = {
  choice: `Which team should handle this mail? "${MAIL}"`,
  grammar: "Write an SQL query: the names of all users older than 30.",
  tools: "What is the weather in Paris?",
  decisions: MAIL,
  free: "Why is the sky blue? Answer in one sentence.",
};
