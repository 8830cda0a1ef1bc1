"""What a Runner offers beside requests: its models, their states, tokens and adapters.

Owns the public methods for these; `registry` keeps the models.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from structgen.decoding import check_may_fit, encode
from structgen.errors import ModelNotFound, RequestError
from structgen.insight import Passes
from structgen.models.base import Model
from structgen.workers import AsyncModel, owner, run_errands

from .configuration import ModelConfig
from .hosts import EmbeddingHost, Host, TextHost
from .loops import LoopThread
from .registry import Entry, Registry, Status
from .vectors import in_bounds


class Models:
    """The models of a Runner. Every method may be called from any thread."""

    _thread: LoopThread
    _registry: Registry

    # -- which there are --------------------------------------------------------------------

    def list_models(self) -> list[str]:
        """Ids of all models, in the order in which they were added."""
        return list(self._registry.entries)

    def list_models_with_status(self) -> dict[str, Status]:
        """Each model's id and status."""
        return {id_: entry.status for id_, entry in list(self._registry.entries.items())}

    def list_unloaded_models(self) -> list[str]:
        """Ids of the models that are not loaded: the next request loads them."""
        return [id_ for id_, status in self.list_models_with_status().items() if status != "loaded"]

    def get_model_status(self, model: str | None = None) -> Status:
        """``loaded``, ``loading``, ``unloading``, ``unloaded`` or ``failed``.

        Raises:
            ModelNotFound: there is no such model.
        """
        return self._registry.entry(model).status

    def get_model_info(self, model: str | None = None) -> dict[str, Any]:
        """What is known of a model: source, status, bytes, aliases, why loading failed, ….

        Raises:
            ModelNotFound: there is no such model.
        """
        return self._registry.told(self._registry.entry(model))

    def is_model_loaded(self, model: str | None = None) -> bool:
        """Whether a model is loaded.

        Raises:
            ModelNotFound: there is no such model.
        """
        return self.get_model_status(model) == "loaded"

    def get_default_model_id(self) -> str | None:
        """Id of the model that requests without one get."""
        return self._registry.default

    def set_default_model_id(self, model: str) -> None:
        """Have requests without a model get this one.

        Raises:
            ModelNotFound: there is no such model.
        """
        self._registry.default = self._registry.entry(model).id

    def add_model(self, model: str, source: Any) -> None:
        """Add a model, unloaded. Args as for ``models=`` of a Runner.

        Raises:
            OptionError: there is one of that name, or the source is none.
        """
        config = ModelConfig.of(source)

        async def add() -> None:
            self._registry.add(model, config)

        self._thread.wait(add())

    def add_alias(self, alias: str, model: str) -> None:
        """Let a model have another name, or an alias another model.

        Raises:
            OptionError: a model has that name.
            ModelNotFound: there is no such model.
        """

        async def add() -> None:
            self._registry.add_alias(alias, model)

        self._thread.wait(add())

    def remove_alias(self, alias: str) -> None:
        """Take a name away.

        Raises:
            ModelNotFound: it is no alias.
        """

        async def remove() -> None:
            if self._registry.aliases.pop(alias, None) is None:
                raise ModelNotFound(f"{alias!r} is no alias.")

        self._thread.wait(remove())

    def list_aliases(self) -> dict[str, str]:
        """Each alias and the id of its model."""
        return dict(self._registry.aliases)

    # -- loading ----------------------------------------------------------------------------

    def load(self, model: str | None = None) -> None:
        """Load a model, unless it is loaded. Requests to others go on meanwhile.

        Raises:
            ModelNotFound: there is no such model.
            StructgenError: it cannot be loaded.
        """
        self._thread.wait(self._registry.load(self._registry.entry(model)))

    async def aload(self, model: str | None = None) -> None:
        """`load`, for asynchronous code."""
        await self._thread.asked(self._registry.load(self._registry.entry(model)))

    def unload(self, model: str | None = None) -> None:
        """Unload a model when the requests that use it have ended; the next one loads it again.

        Raises:
            ModelNotFound: there is no such model.
        """
        self._thread.wait(self._registry.unload(self._registry.entry(model)))

    async def aunload(self, model: str | None = None) -> None:
        """`unload`, for asynchronous code."""
        await self._thread.asked(self._registry.unload(self._registry.entry(model)))

    def reload(self, model: str | None = None) -> None:
        """Unload a model and load it again. Args and raises as for `load`."""
        self._thread.wait(self._reload(self._registry.entry(model)))

    async def areload(self, model: str | None = None) -> None:
        """`reload`, for asynchronous code."""
        await self._thread.asked(self._reload(self._registry.entry(model)))

    async def _reload(self, entry: Entry) -> None:
        await self._registry.unload(entry)
        await self._registry.load(entry)

    def remove(self, model: str) -> None:
        """Unload a model and forget it. Requests that wait for it fail.

        Raises:
            ModelNotFound: there is no such model.
        """
        self._thread.wait(self._registry.remove(self._registry.entry(model)))

    async def aremove(self, model: str) -> None:
        """`remove`, for asynchronous code."""
        await self._thread.asked(self._registry.remove(self._registry.entry(model)))

    # -- tokens -----------------------------------------------------------------------------

    def tokenize_text(
        self,
        text: str | Sequence[Any],
        *,
        add_special_tokens: bool = True,
        model: str | None = None,
    ) -> list[int]:
        """Return the token ids of a text, or of chat messages.

        Args:
            text: the text; or messages, which go through the chat template.
            add_special_tokens: whether a text gets the tokens that a prompt begins with.
            model: id or alias of the model, which is loaded if need be.

        Raises:
            ModelNotFound: there is no such model.
            PromptError: malformed messages.
        """
        entry = self._registry.entry(model)
        return self._thread.wait(self._tokenized(entry, text, add_special_tokens))

    async def atokenize_text(
        self,
        text: str | Sequence[Any],
        *,
        add_special_tokens: bool = True,
        model: str | None = None,
    ) -> list[int]:
        """`tokenize_text`, for asynchronous code."""
        entry = self._registry.entry(model)
        return await self._thread.asked(self._tokenized(entry, text, add_special_tokens))

    async def _tokenized(self, entry: Entry, text: Any, special: bool) -> list[int]:
        async with self._registry.lease(entry) as host:
            if isinstance(host, TextHost):
                return await _tokens_of(host.model, text, is_bare=not special)
            if not isinstance(text, str):
                raise RequestError(f"{entry.id} reads texts, and no chats.", param="text")
            text = in_bounds(host.embedder, text, "text", cuts=True)
            return (await asyncio.to_thread(host.embedder.tokenize, [text]))[0]

    def detokenize_text(
        self,
        tokens: Sequence[int],
        *,
        skip_special_tokens: bool = True,
        model: str | None = None,
    ) -> str:
        """Return the text of token ids.

        Args:
            tokens: the ids.
            skip_special_tokens: whether special tokens are left out, rather than written by name.
            model: as for `tokenize_text`.

        Raises:
            ModelNotFound: there is no such model.
            OptionError: one is no token id.
        """
        entry = self._registry.entry(model)
        return self._thread.wait(self._detokenized(entry, tokens, skip_special_tokens))

    async def adetokenize_text(
        self,
        tokens: Sequence[int],
        *,
        skip_special_tokens: bool = True,
        model: str | None = None,
    ) -> str:
        """`detokenize_text`, for asynchronous code."""
        entry = self._registry.entry(model)
        return await self._thread.asked(self._detokenized(entry, tokens, skip_special_tokens))

    async def _detokenized(self, entry: Entry, tokens: Sequence[int], skips: bool) -> str:
        async with self._registry.lease(entry) as host:
            text_of = host.embedder.detokenize if isinstance(host, EmbeddingHost) else host.text_of
            return await asyncio.to_thread(text_of, tokens, skip_special_tokens=skips)

    def max_sequence_length(self, model: str | None = None) -> int | None:
        """Return how many tokens a model takes, prompt and output together; None: not known.

        Raises:
            ModelNotFound: there is no such model.
        """
        return self._thread.wait(self._longest(self._registry.entry(model)))

    async def amax_sequence_length(self, model: str | None = None) -> int | None:
        """`max_sequence_length`, for asynchronous code."""
        return await self._thread.asked(self._longest(self._registry.entry(model)))

    async def _longest(self, entry: Entry) -> int | None:
        async with self._registry.lease(entry) as host:
            if isinstance(host, EmbeddingHost):
                return host.embedder.max_length
            return host.context_length

    # -- adapters ---------------------------------------------------------------------------

    def load_adapter(
        self, name: str, path: str | os.PathLike[str], *, model: str | None = None
    ) -> None:
        """Load a LoRA adapter, for requests with ``adapter=name``. It is there after reloads, too.

        Raises:
            ModelNotFound: there is no such model.
            StructgenError: as for `structgen.TextModel.load_adapter`.
        """
        self._thread.wait(self._with_adapter(self._registry.entry(model), name, path))

    async def aload_adapter(
        self, name: str, path: str | os.PathLike[str], *, model: str | None = None
    ) -> None:
        """`load_adapter`, for asynchronous code."""
        entry = self._registry.entry(model)
        await self._thread.asked(self._with_adapter(entry, name, path))

    def unload_adapter(self, name: str, *, model: str | None = None) -> None:
        """Unload an adapter. Raises as `structgen.TextModel.unload_adapter`."""
        self._thread.wait(self._with_adapter(self._registry.entry(model), name, None))

    async def aunload_adapter(self, name: str, *, model: str | None = None) -> None:
        """`unload_adapter`, for asynchronous code."""
        await self._thread.asked(self._with_adapter(self._registry.entry(model), name, None))

    def list_adapters(self, model: str | None = None) -> list[str]:
        """Names of the adapters that a model has, or will have when it is loaded."""
        entry = self._registry.entry(model)
        if isinstance(entry.host, TextHost):
            return list(entry.host.models[0].adapters)
        return sorted(entry.config.adapters)

    async def _with_adapter(
        self, entry: Entry, name: str, path: str | os.PathLike[str] | None
    ) -> None:
        if path is not None:
            path = os.path.abspath(os.path.expanduser(path))
        if path is not None or entry.host is not None or name not in entry.config.adapters:
            async with self._registry.lease(entry) as host:
                before = entry.config.adapters.get(name)
                before = None if before is None else os.fspath(before)
                await text_host(host, entry).with_adapter(name, path, before)
        adapters: Mapping[str, Any] = {k: v for k, v in entry.config.adapters.items() if k != name}
        if path is not None:
            adapters = {**adapters, name: path}
        entry.config = replace(entry.config, adapters=adapters)


def text_host(host: Host, entry: Entry) -> TextHost:
    """The host, which has to make text.

    Raises:
        RequestError: it makes vectors.
    """
    if not isinstance(host, TextHost):
        raise RequestError(
            f"{entry.id} makes vectors and no text. Pass another model=.", param="model"
        )
    return host


def embedding_host(host: Host, entry: Entry, instead: str) -> EmbeddingHost:
    """The host, which has to make vectors; ``instead`` says what to pass where it does not.

    Raises:
        RequestError: it makes text.
    """
    if not isinstance(host, EmbeddingHost):
        raise RequestError(f"{entry.id} is a text model. {instead}", param="model")
    return host


# -- tokens of prompts, asked of the process that has the tokenizer ---------------------------


@dataclass(frozen=True, slots=True)
class Tokenising:
    """An errand: the tokens of a prompt.

    Attributes:
        prompt: a text, or messages.
        is_bare: whether a text is taken as it is, without the tokens that prompts begin with.
        is_bounded: whether it has to be one that the model may hold.
    """

    prompt: Any
    is_bare: bool
    is_bounded: bool

    def begin(self, model: Model) -> Passes[list[int]]:
        """Encode it; no pass of the model is made."""
        if isinstance(self.prompt, str) and (self.is_bare or not self.prompt):
            if self.is_bounded:
                check_may_fit(model, self.prompt)
            found = model.encode(self.prompt) if self.prompt else ()
        else:
            found = encode(model, self.prompt, bounded=self.is_bounded)
        return _told([int(token) for token in found])


def _told(tokens: list[int]) -> Passes[list[int]]:
    yield from ()
    return tokens


async def _tokens_of(model: AsyncModel, prompt: Any, *, is_bare: bool) -> list[int]:
    """The tokens of a text or of messages.

    Raises:
        PromptError: it is malformed, or a stranger's and longer than the model can hold.
    """
    errand = Tokenising(prompt, is_bare, owner() is not None)
    found: list[list[int]] = await run_errands(model, [errand])
    return found[0]
