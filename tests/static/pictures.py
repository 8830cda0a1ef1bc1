"""What a type checker knows of prompts with pictures.

mypy takes a list of two kinds of things for a list of objects, unless it has a type; a tuple it
takes for what it is.
"""

from typing_extensions import assert_type

import structgen
from structgen.media import Audio, Image

model = structgen.load("x")
generator = structgen.Generator(model, int)
parts: list[str | Image | Audio] = ["What is this?", Image("a.png")]

assert_type(model(parts, int), int)
assert_type(model(("What is this?", Image("a.png")), int), int)
assert_type(generator.parse(parts), int)
assert_type(generator(("What is said?", Audio(b""))), str)
assert_type(generator.parse([("this?", Image("a.png")), ("that?", Image("b.png"))]), list[int])
assert_type(generator.parse(["this?", "that?"]), list[int])
assert_type(generator.parse(("this?", "that?")), list[int])
assert_type(generator.parse([{"role": "user", "content": ["this?", Image("a.png")]}]), int)
