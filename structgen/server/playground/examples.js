// What the page begins with, and offers.

const object = (properties, more = {}) => ({
  type: "object", properties, required: Object.keys(properties), additionalProperties: false, ...more,
});

export const SCHEMAS = {
  "A person": object({
    name: { type: "string", maxLength: 30 },
    age: { type: "integer", minimum: 0, maximum: 120 },
    job: { enum: ["teacher", "engineer", "doctor", "artist"] },
    email: { type: "string", format: "email" },
  }),
  "An order": object({
    id: { type: "string", pattern: "^ORD-[0-9]{4}$" },
    items: {
      type: "array", minItems: 1, maxItems: 3,
      items: object({ name: { type: "string", maxLength: 20 }, count: { type: "integer", minimum: 1, maximum: 9 } }),
    },
    paid: { type: "boolean" },
  }),
  "A label": { enum: ["positive", "neutral", "negative"] },
  "A list of numbers": { type: "array", items: { type: "integer" }, minItems: 3, maxItems: 6 },
  "A tree (recursive)": {
    $ref: "#/$defs/node",
    $defs: {
      node: object({
        name: { type: "string", maxLength: 12 },
        children: { type: "array", items: { $ref: "#/$defs/node" }, maxItems: 2 },
      }),
    },
  },
};

export const REGEXES = {
  "A product number": "[A-Z]{3}-[0-9]{4}",
  "A time of day": "([01][0-9]|2[0-3]):[0-5][0-9]",
  "An IP address": "((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])",
  "Yes or no, and why": "(Yes|No), because [a-z ]{10,40}\\.",
};

export const PYDANTIC = `from enum import Enum
from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Topping(BaseModel):
    name: Annotated[str, Field(max_length=15)]
    extra: bool = False


class Pizza(BaseModel):
    """A pizza to be made."""

    size: Size
    crust: Literal["thin", "thick"]
    toppings: list[Topping] = Field(min_length=1, max_length=3)
    price: Annotated[int, Field(ge=5, le=30)]
`;

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
  json_schema: "Invent a person who lives in Oslo.",
  pydantic: "A large pizza with ham and a thin crust, please.",
  regex: "Make up a product number.",
  choice: `Which team should handle this mail? "${MAIL}"`,
  grammar: "Write an SQL query: the names of all users older than 30.",
  decisions: MAIL,
  free: "Why is the sky blue? Answer in one sentence.",
};
