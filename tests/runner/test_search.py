"""Web search: what is taken of results, what the model is told, and what an answer may quote."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import pytest
from mixed import tiny_model
from pydantic import BaseModel, Field
from test_agent import Scripted

import structgen
from structgen import OptionError, OutputTypeError, Quote, RequestError, Runner
from structgen.runner.agent import Agent
from structgen.runner.requests import ChatRequest
from structgen.runner.responses import InputUsage, RerankResponse, RerankResult, SearchPassage
from structgen.runner.search import Search, WebSearch, WebSearchOptions
from structgen.runner.tools import ToolFailure

MILL = {
    "title": "Mill",
    "description": "About a mill.",
    "url": "https://a/mill",
    "content": "The mill was built in 1832. It has two wheels.",
}
BRIDGE = {"title": "Bridge", "description": "A bridge of steel.", "url": "https://a/bridge"}


class Cited(BaseModel):
    quote: Annotated[str, Quote(source="web_search", unit="sentence", max=1)]
    answer: Annotated[str, Field(max_length=8)]


async def last_first(request: Any) -> RerankResponse:
    """Ranks by place, the last first."""
    n = len(request.documents)
    found = [RerankResult(index=i, relevance_score=i) for i in reversed(range(n))]
    return RerankResponse(
        model="fake",
        results=found[: request.top_n],
        usage=InputUsage(prompt_tokens=0, total_tokens=0),
    )


def test_what_is_no_text_ends_no_answer() -> None:
    (found,) = asyncio.run(searching([{**MILL, "content": "a\ud800\0b"}]).passages("mill", 3))
    assert found.text == "a\ufffdb"
    assert found.model_dump_json()


def test_a_page_found_twice_is_one() -> None:
    search = Search(searching([MILL, MILL, BRIDGE]), WebSearchOptions(), None)
    text = asyncio.run(search.tool.run('{"query": "mill"}')).content
    assert text.count("1832") == 1
    assert len(search.found) == 2


def searching(pages: Any) -> WebSearch:
    return WebSearch(lambda query: pages, last_first)


def asked(**fields: Any) -> ChatRequest:
    return ChatRequest(messages="When?", web_search_options={}, **fields)


def test_the_model_is_told_of_passages_and_may_quote_them() -> None:
    model = Scripted(
        [("web_search", {"query": "mill"}), ("web_search", {"query": "a mill"})], "1832."
    )
    request = asked(output_type=Cited)
    search = Search(searching([MILL, BRIDGE]), WebSearchOptions(), Cited)

    async def run() -> Any:
        return [piece async for piece in Agent(request, search=search).answer(model.ask)]

    *_, response = asyncio.run(run())
    first, second = model.asked
    # Nothing can be quoted before something was found: it has to search.
    assert first.tool_choice == {"type": "function", "function": {"name": "web_search"}}
    assert second.tool_choice is None
    told = [call.result for call in response.agentic_tool_calls]
    bridge = "Bridge (https://a/bridge)\nA bridge of steel."
    mill = f"Mill (https://a/mill)\n{MILL['content']}"
    assert told == [f"[1] {bridge}\n\n[2] {mill}"] * 2  # what is known keeps its number
    document = "\n\n".join(one.text for one in response.web_search)
    assert all(document[one.start : one.end] == one.text for one in response.web_search)
    value = second.output_type.parse('{"quote": "It has two wheels.", "answer": "1832"}')
    assert document[value.quote.start : value.quote.end] == "It has two wheels."
    assert response.cited(value.quote).url == "https://a/mill"
    assert response.model_dump()["web_search"][0]["title"] == "Bridge"
    with pytest.raises(LookupError):
        response.cited(structgen.types.QuotedText("x", ((900, 901),)))


def test_without_a_quote_the_model_searches_as_it_likes() -> None:
    model = Scripted("I know.")
    request = asked(output_type=str)
    search = Search(searching([]), WebSearchOptions(), str)

    async def run() -> Any:
        return [piece async for piece in Agent(request, search=search).answer(model.ask)]

    *_, response = asyncio.run(run())
    assert model.asked[0].tool_choice is None
    assert model.asked[0].output_type is str
    assert (response.web_search, response.agentic_end) == ([], "answer")


def found(pages: Any, query: str = "mill", most: int = 6) -> list[SearchPassage]:
    return asyncio.run(searching(pages).passages(query, most))


def test_what_comes_from_outside_is_bounded() -> None:
    words = "".join(f"{i} word. " for i in range(100_000))
    long = {**MILL, "title": "t" * 900, "url": "u" * 900, "content": words}
    passages = found([long] * 30)
    assert len(passages) == 6
    assert all(len(one.text) <= 800 and one.text.endswith("word.") for one in passages)
    assert {len(one.title) for one in passages} == {len(one.url) for one in passages} == {300}
    (whole,) = found([{**MILL, "content": "x" * 801}], most=1)
    assert len(whole.text) in (1, 800)  # one word, which is cut
    assert found([{**MILL, "content": " \n", "description": ""}]) == []
    assert found([{**MILL, "content": "a\0b"}])[0].text == "ab"
    # Of many passages those with the query's words are ranked.
    rest = "".join(f"Something else happened there, the {i}th. " for i in range(1_600))
    ranked = found([{**MILL, "content": rest + "The old mill."}], most=99)
    assert len(ranked) == 64
    assert "The old mill." in ranked[-1].text


@pytest.mark.parametrize(
    "pages",
    [
        "text",
        {"a": 1},
        None,
        3,
        [3],
        [{"title": 3}],
        [{"snippet": "x"}],
        [{**MILL, "content": None}],
    ],
)
def test_results_that_are_none(pages: Any) -> None:
    with pytest.raises(ToolFailure) as caught:
        found(pages)
    assert str(caught.value) == "The search failed."  # nothing of it for the model
    assert "search_callback returned" in str(caught.value.detail)


def test_asynchronous_callbacks() -> None:
    async def pages(query: str) -> list[dict[str, str]]:
        return [MILL]

    for callback in (pages, lambda query: pages(query)):
        passages = asyncio.run(WebSearch(callback, last_first).passages("mill", 3))
        assert [one.title for one in passages] == ["Mill"]


def test_what_the_tool_says_of_itself() -> None:
    place = {"type": "approximate", "approximate": {"city": "Rome", "country": "IT"}}
    given = WebSearchOptions(search_description="Search our files.", user_location=place)  # type: ignore[arg-type]
    search = Search(searching([]), given, None)
    assert search.tool.description == "Search our files. The user is near Rome, IT."
    function = search.tool.schema["function"]
    assert (function["name"], function["parameters"]["required"]) == ("web_search", ["query"])


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"search_context_size": "huge"}, "web_search_options.search_context_size"),
        ({"engine": "x"}, "web_search_options.engine"),
        ({"extract_description": "x"}, "web_search_options.extract_description"),
        ({"user_location": {"approximate": {"street": "x"}}}, "user_location.approximate.street"),
        (True, "web_search_options"),
    ],
)
def test_options_that_are_wrong(options: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        ChatRequest(messages="When?", web_search_options=options)
    assert str(caught.value.param).endswith(param)


def test_a_runner_without_a_search_says_what_to_give() -> None:
    with pytest.raises(OptionError, match=r"search_callback=: a function that takes a query"):
        Runner(enable_search=True)
    with pytest.raises(OptionError, match="require enable_search=True"):
        Runner(search_callback=lambda query: [])
    with (
        Runner({"it": "smollm2-135m-instruct"}) as runner,
        pytest.raises(RequestError, match="this Runner cannot search the web") as caught,
    ):
        runner.chat("When?", web_search_options={})
    assert (caught.value.param, caught.value.kind) == ("web_search_options", "unsupported")


def test_an_answer_with_a_quote_of_the_web(tmp_path: Path) -> None:
    embedder = structgen.load_embedder("all-minilm-l6-v2")
    pages = [MILL]
    asks: Any = {
        "messages": "When?",
        "web_search_options": {"search_context_size": "low"},
        "output_type": Cited,
        "max_tokens": 90,
    }
    models = {
        "it": {"source": tiny_model(tmp_path, context_length=4096), "in_process": True},
        "vectors": embedder,
    }
    with Runner(models, enable_search=True, search_callback=lambda query: pages) as runner:
        assert runner.list_models() == ["it", "vectors"]  # which ranks
        answer = runner.chat(asks)
        assert answer.value.quote in ("The mill was built in 1832.", "It has two wheels.")
        assert answer.cited(answer.value.quote).title == "Mill"
        assert runner.count_tokens("Hi", web_search_options={}) > runner.count_tokens("Hi")
        pages.clear()
        with pytest.raises(OutputTypeError, match="the output type requires a quote"):
            runner.chat(asks)
    with Runner({}, enable_search=True, search_callback=len) as runner:
        assert (runner.list_models(), runner.get_default_model_id()) == (["all-minilm-l6-v2"], None)
