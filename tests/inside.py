"""What tests look at inside: every access to what is private to the package stands here.

A test that needs more adds a function; so a change inside breaks one line, not many tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from structgen.models.genai.runtime import OLD

needs_newer_runtime = pytest.mark.skipif(bool(OLD), reason=OLD)


def arrays(holder: Any) -> Any:
    """``_arrays`` of ``holder``."""
    return holder._arrays


def arguments_asked(monkeypatch: Any) -> list[Any]:
    """From now on, what Runners of this process have masks enforce of the arguments of tools.

    Returns:
        A list that grows: a JSON Schema for each tool of each request.
    """
    from structgen.runner import constraints
    from structgen.types import lower
    from structgen.types.tools import read_tools

    made, found = constraints.ToolCalls, []

    def noted(tools: Any, **options: Any) -> Any:
        found.extend(tool.output.grammar.schema for tool in read_tools(tools, lower))
        return made(tools, **options)

    monkeypatch.setattr(constraints, "ToolCalls", noted)
    return found


def bytes_per_token(holder: Any) -> Any:
    """``_bytes_per_token`` of ``holder``."""
    return holder._bytes_per_token


def bytes_of_a_token(og_model: Any, config: Any, generator: Any = None) -> int:
    """What a model reads off a token's key-value cache; ``generator``: where it is read."""
    from structgen.models.genai import opening

    with pytest.MonkeyPatch.context() as patch:
        if generator is not None:
            patch.setattr(opening, "_after_one_token", lambda *_: generator)
        return opening._bytes_per_token(og_model, config)


def characters(holder: Any) -> Any:
    """``_characters`` of ``holder``."""
    return holder._characters


def engine(holder: Any) -> Any:
    """What the cursors of a constraint share."""
    return holder._engine


def entries(holder: Any) -> dict[tuple[int, int], int]:
    """The results of ``entry`` of ``holder`` from now on, by its arguments."""
    found: dict[tuple[int, int], int] = {}
    entry = holder.entry

    def noted(place: int, condition: int) -> int:
        made: int = found.setdefault((place, condition), entry(place, condition))
        return made

    holder.entry = noted
    return found


def keys(holder: Any) -> Any:
    """``_keys`` of ``holder``."""
    return holder._keys


def language(holder: Any) -> Any:
    """``_language`` of ``holder``."""
    return holder._language


def foreign(tool: Any) -> Any:
    """A tool, as if it were of an MCP server."""
    tool._is_foreign = True
    return tool


def lines_to(kept: Any) -> Any:
    """`structgen.runner.mcp._lines_to`."""
    from structgen.runner import mcp

    return mcp._lines_to(kept)


def last_lines(server: Any) -> Any:
    """What is kept of an `McpServer`'s standard error."""
    return server._connection._last_lines


def machine(holder: Any) -> Any:
    """The automaton of a constraint, an engine or a cursor."""
    return holder._machine if hasattr(holder, "_machine") else holder._engine.machine


def rules(holder: Any) -> Any:
    """The frame of a constraint that is a grammar."""
    return machine(holder).rules


def lexer_walks(holder: Any) -> Any:
    """The walks of the lexer of a constraint that is a grammar."""
    return masks(holder).frames.of_lexer(machine(holder).rules.lexer)


def masks(holder: Any) -> Any:
    """What makes the masks of an engine."""
    return holder._masks if hasattr(holder, "_masks") else holder._engine.masks


def model(holder: Any) -> Any:
    """``_model`` of ``holder``."""
    return holder._model


def nesting(holder: Any) -> Any:
    """``_nesting`` of ``holder``."""
    return holder._nesting


def prompt_length(holder: Any) -> Any:
    """``_prompt_length`` of ``holder``."""
    return holder._prompt_length


def generation(holder: Any) -> Any:
    """``_run`` of ``holder``."""
    return holder._run


def sets(holder: Any) -> Any:
    """``_sets`` of ``holder``."""
    return holder._sets


def shortest(holder: Any) -> Any:
    """``_shortest`` of ``holder``."""
    return holder._shortest


def state(holder: Any) -> Any:
    """The state that a cursor is in."""
    return holder.state


def stream(holder: Any) -> Any:
    """``_stream`` of ``holder``."""
    return holder._stream


def terminals(holder: Any) -> Any:
    """``_terminals`` of ``holder``."""
    return holder._terminals


def text_history(holder: Any) -> Any:
    """``_text`` of ``holder``."""
    return holder._text


def tokens(holder: Any) -> Any:
    """``_tokens`` of ``holder``."""
    return holder._tokens


def trail(holder: Any) -> Any:
    """``_trail`` of ``holder``."""
    return holder._trail


def walker(holder: Any) -> Any:
    """``_walker`` of ``holder``."""
    return holder._walker


def walks(holder: Any) -> Any:
    """``_walks`` of ``holder``."""
    return holder._walks


def streamed(pieces: list[bytes]) -> list[bytes]:
    """What the client of a remote model gets of a stream that comes in ``pieces``, one by one."""
    from types import SimpleNamespace as Some

    from structgen.remote.generator import _Bound

    exchange: Any = Some(is_in_pieces=True, is_interrupted=False, has_scores=False)
    kind = {"content-type": "text/event-stream"}
    bound = _Bound(exchange, Some(headers=kind, is_success=True))
    return [bound.take(piece) for piece in pieces]
