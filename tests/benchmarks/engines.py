"""Engines side by side: what the mask benchmark asks of each, and how each is asked.

An adapter prepares a tokenizer once, compiles a schema, and gives for each sequence two callables:
write the mask of the next token into ``out``, and commit a token. Nothing is wrapped around the
engines' own functions, so that timing a call times the engine. Each peer is used as its
documentation recommends, with its defaults, compact JSON and as many mask bits as the others.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

import structgen
from structgen.errors import StructgenError, TokenNotAllowed
from structgen.types import JsonSchema
from structgen.vocabulary.tokens import Vocabulary

_COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}


class Refused(Exception):
    """The engine does not compile this schema."""


class Session(NamedTuple):
    """One sequence.

    Attributes:
        mask: write the mask of the next token into the engine's ``out``.
        commit: take a token; returns False, or raises `Refused`, when it is not allowed.
        problem: why the engine gave up on this sequence, or an empty string.
    """

    mask: Callable[[], object]
    commit: Callable[[int], object]
    problem: Callable[[], str]


class Engine(ABC):
    """A tokenizer made ready in one engine.

    Attributes:
        name: as in the tables.
        interruptible: whether a signal ends its compilations.
        clock: in seconds, for `prepare_seconds`.
        out: uint32 ``[ceil(vocabulary size / 32)]``, where masks are written.
        prepare_seconds: time it took to make the tokenizer ready, imports aside.
    """

    name: str
    interruptible = True
    clock: Callable[[], float] = staticmethod(time.perf_counter)

    def __init__(self, tokenizer: Path, vocabulary: Vocabulary) -> None:
        self.out = np.zeros((vocabulary.size + 31) // 32, np.uint32)
        self._module = import_module(self.name)
        started = self.clock()
        self._prepare(tokenizer, vocabulary)
        self.prepare_seconds = self.clock() - started

    @property
    def version(self) -> str:
        """Version of the installed package."""
        return version(self.name)

    @abstractmethod
    def _prepare(self, tokenizer: Path, vocabulary: Vocabulary) -> None:
        """Make the tokenizer ready."""

    @abstractmethod
    def compile(self, schema: str) -> Any:
        """Compile a schema, given as JSON text, or raise `Refused`."""

    @abstractmethod
    def start(self, compiled: Any) -> Session:
        """Start a sequence."""


# Looked up here, as they are imported when first asked for: imports do not count, for no engine.
_compile, _warm_up = structgen.compile, structgen.warm_up


class Structgen(Engine):
    """This project. ``options`` are those that schemas are compiled with."""

    name = "structgen"
    options: ClassVar[dict[str, Any]] = {}

    def _prepare(self, tokenizer: Path, vocabulary: Vocabulary) -> None:
        self._vocabulary = Vocabulary.from_tokenizer_json(tokenizer)
        _warm_up(self._vocabulary)  # as a server does; part of what preparing takes

    @property
    def version(self) -> str:
        """Version of the package, which need not be installed."""
        return structgen.__version__

    def compile(self, schema: str) -> Any:
        try:
            return _compile(JsonSchema(schema), self._vocabulary, **self.options)
        except StructgenError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    def start(self, compiled: Any) -> Session:
        cursor = compiled.start()
        return Session(partial(cursor.fill_mask, self.out), cursor.accept, str)


class LLGuidance(Engine):
    """https://github.com/guidance-ai/llguidance through its Python package."""

    name = "llguidance"

    def _prepare(self, tokenizer: Path, vocabulary: Vocabulary) -> None:
        self._matcher = self._module.LLMatcher
        self._tokenizer = self._module.LLTokenizer(
            tokenizer.read_text(encoding="utf-8"),
            n_vocab=vocabulary.size,
            eos_token=list(vocabulary.eos_token_ids),
        )

    def compile(self, schema: str) -> Any:
        try:
            grammar = self._matcher.grammar_from_json_schema(schema, overrides=_COMPACT)
        except ValueError as error:
            raise Refused(str(error)) from error
        matcher = self._matcher(self._tokenizer, grammar)
        if matcher.is_error():
            raise Refused(matcher.get_error())
        return matcher

    def start(self, compiled: Any) -> Session:
        matcher = compiled.deep_copy()  # shares what the lexer has learnt
        return Session(
            # What `llguidance.numpy.fill_next_token_bitmask` calls after its checks.
            partial(matcher.unsafe_compute_mask_ptr, self.out.ctypes.data, self.out.nbytes),
            matcher.consume_token,
            lambda: str(matcher.get_error()) if matcher.is_error() else "",
        )


class XGrammar(Engine):
    """https://github.com/mlc-ai/xgrammar, one thread, without its cache of compiled schemas."""

    name = "xgrammar"
    interruptible = False

    def _prepare(self, tokenizer: Path, vocabulary: Vocabulary) -> None:
        info = self._module.TokenizerInfo(
            list(vocabulary.tokens),
            vocab_size=vocabulary.size,
            stop_token_ids=list(vocabulary.eos_token_ids),
        )
        self._compiler = self._module.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._bitmask = self.out.view(np.int32).reshape(1, -1)

    def compile(self, schema: str) -> Any:
        try:
            return self._compiler.compile_json_schema(
                schema, any_whitespace=False, separators=(",", ":"), strict_mode=False
            )
        except RuntimeError as error:
            raise Refused(str(error)) from error

    def start(self, compiled: Any) -> Session:
        matcher = self._module.GrammarMatcher(compiled)
        mask = partial(matcher.fill_next_token_bitmask, self._bitmask)
        return Session(mask, matcher.accept_token, str)


class OutlinesCore(Engine):
    """https://github.com/dottxt-ai/outlines-core: schema → regular expression → index."""

    name = "outlines_core"
    interruptible = False

    def _prepare(self, tokenizer: Path, vocabulary: Vocabulary) -> None:
        ids: dict[bytes, list[int]] = {}
        for token_id, token in enumerate(vocabulary.tokens):
            if token:
                ids.setdefault(token, []).append(token_id)
        self._eos = vocabulary.eos_token_ids[0]
        self._vocabulary = self._module.Vocabulary(self._eos, ids)

    def compile(self, schema: str) -> Any:
        try:
            pattern = self._module.json_schema.build_regex_from_schema(
                schema, whitespace_pattern=""
            )
            return self._module.Index(pattern, self._vocabulary)
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    def start(self, compiled: Any) -> Session:
        guide = self._module.Guide(compiled)
        address, n_words, eos = self.out.ctypes.data, len(self.out), self._eos

        def commit(token: int) -> None:
            if token != eos:  # which its guides do not take
                guide.advance(token, False)

        return Session(partial(guide.write_mask_into, address, n_words, 4), commit, str)


ENGINES: dict[str, type[Engine]] = {
    engine.name: engine for engine in (Structgen, LLGuidance, XGrammar, OutlinesCore)
}

REFUSALS = (Refused, TokenNotAllowed)
"""What a commit may raise when a token is not allowed."""
