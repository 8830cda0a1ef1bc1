"""Web search: a tool that calls the program's own search function.

Limits the results, cuts pages into passages, selects those that the model reads, and builds the
document that an answer may quote. Only the program's `search_callback` accesses the network. The
ranking function is passed in; an agent runs the tool.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, final

from structgen.errors import OptionError, OutputTypeError, Unsatisfiable
from structgen.types import filled

from .loops import in_thread, is_async
from .requests import ChatRequest, RerankRequest, WebSearchOptions
from .responses import RerankResponse, SearchPassage
from .tools import Tool, ToolFailure, shown

SOURCE = "web_search"
"""The name of the tool, and of the document in quotes: ``Quote(source="web_search")``."""

ROUNDS = 4
"""How many rounds of calls a request may make by default."""

_PASSAGES: Mapping[str, int] = {"low": 3, "medium": 6, "high": 12}
"""Passages that the model gets for a query, by ``search_context_size``."""

_MOST_RESULTS = 10
_LONGEST_CONTENT = 100_000  # characters of a result that are read
_LONGEST_NAME = 300  # of a title or address
_PASSAGE = 800  # characters
_LEAST_PASSAGE = 200
_MOST_RANKED = 64  # passages; ranking one takes about 10 ms
_MOST_KEPT = 100  # passages of all of a request's queries
_BETWEEN = "\n\n"
_WORD = re.compile(r"\w+")

Rerank: TypeAlias = Callable[[RerankRequest], Awaitable[RerankResponse]]
SearchCallback: TypeAlias = Callable[[str], Any]
"""Takes a query and returns results, or an awaitable of them: dicts with ``title``,
``description``, ``url`` and ``content``."""


@final
class WebSearch:
    """The web search of a Runner. Requests share it.

    Raises:
        OptionError: the callback is not a function.
    """

    def __init__(self, callback: Any, rerank: Rerank) -> None:
        if not callable(callback):
            raise OptionError(
                "enable_search=True requires search_callback=: a function that takes a query and "
                'returns [{"title": …, "description": …, "url": …, "content": …}, …]. '
                "structgen has no search engine of its own."
            )
        self._callback = callback
        self._rerank = rerank

    async def passages(self, query: str, most: int) -> list[SearchPassage]:
        """Return the passages that best answer a query.

        Raises:
            ToolFailure: the callback returned something else.
        """
        if is_async(self._callback):
            found = await self._callback(query)
        else:
            found = await in_thread(lambda: self._callback(query), SOURCE)
            if inspect.isawaitable(found):
                found = await found
        cut = [one for result in _results(found) for one in _cut(*result)]
        passages = list({(one.url, one.text): one for one in cut}.values())
        words = set(_WORD.findall(query.lower()))
        passages.sort(key=lambda one: -len(words & set(_WORD.findall(one.text.lower()))))
        passages = passages[:_MOST_RANKED]
        if len(passages) <= 1:
            return passages
        ranked = await self._rerank(
            RerankRequest(
                query=query,
                documents=[f"{one.title}\n{one.text}" for one in passages],
                top_n=most,
                truncate_sequence=True,
            )
        )
        return [passages[one.index] for one in ranked.results]


@final
class Search:
    """What one request has found so far, and its tool.

    Attributes:
        found: the passages that the model got, each once.
        tool: the tool that the model calls.
    """

    def __init__(self, search: WebSearch, options: WebSearchOptions, output_type: Any) -> None:
        self.found: list[SearchPassage] = []
        self._search = search
        self._most = _PASSAGES[options.search_context_size or "medium"]
        self._quotes = _quotes(output_type)
        about = options.search_description or "Search the web and return passages of web pages."
        if options.user_location is not None:
            named = options.user_location.approximate.model_dump(exclude_none=True)
            about += f" The user is near {', '.join(map(str, named.values()))}."
        query = {"type": "string", "minLength": 1, "maxLength": 200}
        definition = {
            "name": SOURCE,
            "description": about,
            "parameters": {"type": "object", "properties": {"query": query}, "required": ["query"]},
        }
        self.tool = Tool({"type": "function", "function": definition}, self._called)

    async def _called(self, query: str) -> str:
        passages = await self._search.passages(query, self._most)
        # Computed now: another search of the same round may have ended meanwhile.
        known = {(one.url, one.text): number for number, one in enumerate(self.found, 1)}
        texts = []
        for one in passages:
            number = known.get((one.url, one.text))
            if number is None and len(self.found) < _MOST_KEPT:
                last = self.found[-1].end + len(_BETWEEN) if self.found else 0
                self.found.append(
                    one.model_copy(update={"start": last, "end": last + len(one.text)})
                )
                number = len(self.found)
            if number is not None:
                texts.append(f"[{number}] {one.title} ({one.url})\n{one.text}")
        return _BETWEEN.join(texts) or "Nothing was found."

    def form(self, request: ChatRequest, *, is_last: bool) -> dict[str, Any]:
        """Return the form of a round's answer, whose quotes come from what was found.

        Before something was found an answer that quotes is impossible: then the model must search.
        """
        if not self._quotes:
            return {}
        if not self.found and not is_last and request.tool_choice in (None, "auto", "required"):
            return {"tool_choice": {"type": "function", "function": {"name": SOURCE}}}
        document = _BETWEEN.join(one.text for one in self.found)
        return {"output_type": filled(request.output_type, {SOURCE: document})}

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Explain an error if an answer must quote and nothing was found."""
        try:
            yield
        except Unsatisfiable as error:
            if self.found or not self._quotes:
                raise
            raise OutputTypeError(
                "The web search found nothing, but the output type requires a quote from the "
                "results. Make the quote optional, or use a list that may be empty."
            ) from error


def _quotes(output_type: Any) -> bool:
    """Return whether an output type quotes search results."""
    try:
        filled(output_type, {SOURCE: "x"})
    except OptionError:
        return False  # it quotes nothing, or only its own documents
    return output_type is not None


def _results(given: Any) -> list[tuple[str, str, str]]:
    """Return title, address and content of each result, cut to limits.

    Raises:
        ToolFailure: these are not results.
    """
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
        raise ToolFailure(
            "The search failed.",
            detail=(
                f"search_callback returned a {type(given).__name__}. It must return a list of "
                "dicts."
            ),
        )
    found = []
    for one in given[:_MOST_RESULTS]:
        fields = [
            shown(text.replace("\0", ""), _LONGEST_CONTENT)[0]
            for name in ("title", "url", "content", "description")
            if isinstance(one, Mapping) and isinstance(text := one.get(name, ""), str)
        ]
        if len(fields) < 4 or not {"content", "description"} & one.keys():
            raise ToolFailure(
                "The search failed.",
                detail=f"search_callback returned {str(one)[:200]!r}. Each result must be a dict "
                "with strings for title, description, url and content.",
            )
        title, url, content, description = fields
        text = content[:_LONGEST_CONTENT].strip() or description[:_LONGEST_CONTENT].strip()
        found.append((title[:_LONGEST_NAME], url[:_LONGEST_NAME], text))
    return found


def _cut(title: str, url: str, text: str) -> list[SearchPassage]:
    """Cut a page into passages that end with a sentence or line where possible."""
    found = []
    while text:
        end = len(text)
        if end > _PASSAGE:
            part = text[:_PASSAGE]
            ends = [part.rfind(mark) + 1 for mark in (". ", "! ", "? ", "\n")]
            end = max(ends)
            if end < _LEAST_PASSAGE:
                end = part.rfind(" ") + 1 or _PASSAGE
        passage = text[:end].strip()
        if passage:
            found.append(SearchPassage(title=title, url=url, text=passage, start=0, end=0))
        text = text[end:]
    return found
