"""Dialects: what servers with OpenAI's API support of an output type, and how to say it.

For each dialect a table: the arguments that carry a JSON Schema, a regular expression, a choice or
a grammar, the keywords of a schema that such servers are known to enforce, and their names for the
options of a call. A doubtful keyword is not in the table: it is sent, but structgen does not rely
on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from structgen.errors import OptionError
from structgen.options import OPTIONS

DialectName: TypeAlias = Literal[
    "openai",
    "openai-non-strict",
    "json-schema",
    "vllm",
    "vllm-guided",
    "sglang",
    "llama.cpp",
    "ollama",
    "none",
]
"""The dialects; docs/remote.md says what each enforces."""

_STRUCTURE = frozenset(
    ("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf")
)
_XGRAMMAR = _STRUCTURE | {"prefixItems", "minItems", "maxItems", "minimum", "maximum", "pattern"}
_LLAMA = _STRUCTURE | {"prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern"}
_OPENAI = _STRUCTURE | {
    *("minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("multipleOf", "pattern", "format"),
}

STANDARD = frozenset(
    (
        "max_tokens",
        *(
            option.remote["openai"]
            for option in OPTIONS.values()
            if isinstance(option.remote, Mapping) and "openai" in option.remote
        ),
    )
)
"""OpenAI's own arguments; all others go into the extra body."""


@dataclass(frozen=True)
class Dialect:
    """How requests to one kind of server are written.

    Attributes:
        name: its name, which docs/remote.md describes.
        json: how a schema is sent: in ``response_format``, with or without ``strict``; in a key of
            ``body``; or not at all.
        strict: the value of ``strict`` in ``response_format``.
        is_subset: whether schemas must be in OpenAI's strict subset.
        needs_object: whether the root of a schema must be an object.
        keywords: the keywords of a schema that such servers enforce.
        body: by kind (``regex``, ``choice``, ``grammar`` or ``json``), the path of it in the extra
            body.
        reads_left_recursion: whether grammars may be left-recursive.
        servers: the servers in the table of options that have the same options.
        has_logprobs: whether log probabilities are returned.
    """

    name: DialectName
    json: Literal["response_format", "body", "none"] = "response_format"
    strict: bool | None = True
    is_subset: bool = False
    needs_object: bool = True
    keywords: frozenset[str] = frozenset()
    body: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reads_left_recursion: bool = True
    servers: str = "compatible"
    has_logprobs: bool = True


def _vllm(name: DialectName, before: tuple[str, ...], prefix: str) -> Dialect:
    return Dialect(
        name,
        json="body",
        needs_object=False,
        keywords=_XGRAMMAR,
        body={
            kind: (*before, f"{prefix}{kind}") for kind in ("json", "regex", "choice", "grammar")
        },
        servers="vllm",
    )


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("openai", is_subset=True, keywords=_OPENAI, servers="openai"),
        Dialect("openai-non-strict", strict=False, servers="openai"),
        Dialect("json-schema", keywords=_STRUCTURE),
        _vllm("vllm", ("structured_outputs",), ""),
        _vllm("vllm-guided", (), "guided_"),
        Dialect(
            "sglang",
            needs_object=False,
            keywords=_XGRAMMAR,
            body={"regex": ("regex",), "grammar": ("ebnf",)},
            servers="sglang",
        ),
        Dialect(
            "llama.cpp",
            needs_object=False,
            keywords=_LLAMA,
            body={"grammar": ("grammar",)},
            reads_left_recursion=False,
            servers="llama.cpp",
        ),
        Dialect("ollama", strict=None, keywords=_LLAMA, servers="ollama", has_logprobs=False),
        Dialect("none", json="none", strict=None, needs_object=False),
    )
}


def dialect_of(name: str) -> Dialect:
    """Return a dialect by name.

    Raises:
        OptionError: there is none.
    """
    if isinstance(name, str) and name in DIALECTS:
        return DIALECTS[name]
    raise OptionError(f"dialect={name!r} is unknown. Dialects are: {', '.join(DIALECTS)}.")
