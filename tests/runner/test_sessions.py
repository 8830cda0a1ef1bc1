"""Sessions: what is kept between turns, in which bounds, and what happens when things go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structgen import OptionError
from structgen.errors import SessionError
from structgen.runner.sessions import Sessions

HELLO = {"role": "user", "content": "Hello"}
HI = {"role": "assistant", "content": "Hi."}


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def say(sessions: Sessions, name: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """A turn in which these are said, and answered."""

    async def turn() -> list[dict[str, Any]]:
        async with sessions.turn(name) as turn:
            said = turn.with_history(messages)
            await turn.end([*said, HI])
        return said

    return asyncio.run(turn())


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "sessions.db" if request.param == "file" else None


def test_turns_add_up(place: Path | None) -> None:
    sessions = Sessions(place)
    assert say(sessions, "a", HELLO) == [HELLO]
    assert say(sessions, "a", HELLO) == [HELLO, HI, HELLO]
    assert say(sessions, "b", HELLO) == [HELLO]
    assert sessions.messages("a") == [HELLO, HI, HELLO, HI]


def test_a_turn_that_fails_changes_nothing(place: Path | None) -> None:
    sessions = Sessions(place)
    say(sessions, "a", HELLO)

    async def fails() -> None:
        async with sessions.turn("a") as turn:
            turn.with_history([HELLO])
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        asyncio.run(fails())
    assert sessions.messages("a") == [HELLO, HI]
    assert say(sessions, "a", HELLO) == [HELLO, HI, HELLO]


def test_a_new_system_message_stands_in_place_of_the_one_before() -> None:
    sessions = Sessions()
    system = [{"role": "system", "content": text} for text in ("Be brief.", "Be kind.")]
    say(sessions, "a", system[0], HELLO)
    assert say(sessions, "a", HELLO)[0] == system[0]
    assert say(sessions, "a", system[1], HELLO) == [system[1], *[HELLO, HI, HELLO, HI], HELLO]
    say(sessions, "b", HELLO)
    assert say(sessions, "b", system[0], HELLO) == [system[0], HELLO, HI, HELLO]


def test_ids_are_listed_by_use_and_deleted(place: Path | None) -> None:
    clock = Clock()
    sessions = Sessions(place, clock=clock)
    for name in ("a", "b", "a"):
        clock.now += 1
        say(sessions, name, HELLO)
    assert sessions.ids() == ["a", "b"]
    assert sessions.delete("a")
    assert not sessions.delete("a")
    assert sessions.ids() == ["b"]
    with pytest.raises(SessionError, match="session 'a' does not exist"):
        sessions.messages("a")


def test_a_restart_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    sessions = Sessions(file)
    say(sessions, "a", HELLO)
    # The process is killed: nothing is closed.
    again = Sessions(file)
    assert say(again, "a", HELLO) == [HELLO, HI, HELLO]
    again.close()
    with pytest.raises(SessionError, match="closed"):
        again.ids()
    assert say(sessions, "a", HELLO) == [HELLO, HI, HELLO, HI, HELLO]


def test_the_file_is_for_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    Sessions(file)
    assert file.stat().st_mode & 0o077 == 0


# -- bounds -----------------------------------------------------------------------------------


def test_sessions_expire(place: Path | None) -> None:
    clock = Clock()
    sessions = Sessions(place, max_age=60, clock=clock)
    say(sessions, "a", HELLO)
    clock.now += 50
    say(sessions, "a", HELLO)
    clock.now += 50
    assert len(say(sessions, "a", HELLO)) == 5
    clock.now += 61
    assert sessions.ids() == []
    with pytest.raises(SessionError, match="expired"):
        sessions.export("a")
    assert say(sessions, "a", HELLO) == [HELLO]


def test_the_session_that_was_used_longest_ago_makes_room(place: Path | None) -> None:
    clock = Clock()
    sessions = Sessions(place, max_sessions=2, clock=clock)
    for name in ("a", "b", "a", "c"):
        clock.now += 1
        say(sessions, name, HELLO)
    assert sessions.ids() == ["c", "a"]


def test_a_session_in_a_turn_is_not_deleted_for_another() -> None:
    clock = Clock()
    sessions = Sessions(max_sessions=1, clock=clock)
    say(sessions, "a", HELLO)

    async def both() -> None:
        async with sessions.turn("a") as first:
            said = first.with_history([HELLO])
            async with sessions.turn("b") as second:
                with pytest.raises(SessionError, match="max_sessions"):
                    await second.end([HELLO])
            await first.end([*said, HI])

    asyncio.run(both())
    assert sessions.ids() == ["a"]
    assert len(sessions.messages("a")) == 4


def test_a_session_that_is_long_takes_no_further_turn() -> None:
    sessions = Sessions(max_bytes=300)
    long = {"role": "user", "content": "ä" * 100}
    say(sessions, "a", long)
    with pytest.raises(SessionError, match=r"'a' would have \d+ bytes.*limit is 300"):
        say(sessions, "a", long)
    assert sessions.messages("a") == [long, HI]


@pytest.mark.parametrize(
    "options",
    [
        {"max_sessions": 0},
        {"max_sessions": True},
        {"max_bytes": 1.5},
        {"max_age": 0},
        {"max_age": float("nan")},
        {"max_age": "1"},
    ],
)
def test_bounds_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Sessions(**options)


@pytest.mark.parametrize("name", ["", "a" * 201, "a\0", "\ud800", 3, None])
def test_ids_are_checked(name: Any) -> None:
    sessions = Sessions()
    for use in (sessions.turn, sessions.delete, sessions.export, sessions.messages):
        with pytest.raises(SessionError):
            use(name)


# -- at once ----------------------------------------------------------------------------------


def test_turns_of_one_session_wait_for_each_other() -> None:
    sessions = Sessions()
    at_once = most = 0

    async def one(number: int) -> None:
        nonlocal at_once, most
        async with sessions.turn("a") as turn:
            at_once += 1
            most = max(most, at_once)
            said = turn.with_history([{"role": "user", "content": str(number)}])
            await asyncio.sleep(0)
            await turn.end([*said, HI])
            at_once -= 1

    async def all_of_them() -> None:
        await asyncio.gather(*[one(number) for number in range(20)])

    asyncio.run(all_of_them())
    assert most == 1
    assert [m["content"] for m in sessions.messages("a")[::2]] == [str(i) for i in range(20)]


def test_turns_of_one_session_from_several_threads(place: Path | None) -> None:
    sessions = Sessions(place)
    threads = [
        threading.Thread(target=lambda: [say(sessions, "a", HELLO) for _ in range(5)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sessions.messages("a") == [HELLO, HI] * 20


def test_those_who_wait_may_go_away() -> None:
    sessions = Sessions()

    async def some() -> None:
        waiting = [asyncio.create_task(one(may_go)) for may_go in (False, True, True, False)]
        while len(sessions._lanes.get("a", ())) < 4:
            await asyncio.sleep(0)
        for task in waiting[1:3]:
            task.cancel()
        await asyncio.sleep(0)
        go.set()
        await waiting[0]
        await waiting[3]
        assert [task.cancelled() for task in waiting] == [False, True, True, False]

    async def one(may_go: bool) -> None:
        async with sessions.turn("a") as turn:
            assert not may_go
            await go.wait()
            await turn.end(turn.with_history([HELLO]))

    go = asyncio.Event()
    asyncio.run(asyncio.wait_for(some(), 60))
    assert sessions.messages("a") == [HELLO, HELLO]
    assert not sessions._lanes


def test_a_turn_within_a_turn_of_the_same_session_is_refused() -> None:
    sessions = Sessions()

    async def nested() -> None:
        async with sessions.turn("a"):
            async with sessions.turn("b"):
                pass
            with pytest.raises(SessionError, match="inside a turn of the same session"):
                async with sessions.turn("a"):
                    pass
            thread = asyncio.to_thread(lambda: say(sessions, "a", HELLO))
            with pytest.raises(SessionError, match="inside a turn of the same session"):
                await thread
        async with sessions.turn("a"):
            pass

    asyncio.run(nested())


@pytest.mark.parametrize("n", [2, 3])
def test_turns_that_would_wait_for_each_other_are_refused(n: int) -> None:
    """Agents whose tools ask each other, each in its own session, waited until tools timed out."""
    sessions = Sessions()
    told: list[str] = []

    async def begun(barrier: asyncio.Event, own: int) -> None:
        async with sessions.turn(str(own)) as turn:
            ready.append(own)
            if len(ready) == n:
                barrier.set()
            await barrier.wait()

            async def tool() -> None:
                async with sessions.turn(str((own + 1) % n)) as other:
                    await other.end(other.with_history([{"role": "user", "content": f"{own}"}]))

            try:
                await asyncio.create_task(tool())
            except SessionError as error:
                told.append(str(error))
            await turn.end(turn.with_history([{"role": "user", "content": f"{own}"}]))

    async def all_at_once() -> None:
        barrier = asyncio.Event()
        await asyncio.wait_for(asyncio.gather(*[begun(barrier, own) for own in range(n)]), 30)

    ready: list[int] = []
    asyncio.run(all_at_once())
    (only,) = told
    assert "is used inside a turn that this session waits for" in only
    assert sum(len(sessions.messages(one)) for one in sessions.ids()) == 2 * n - 1
    assert not sessions._lanes


def test_two_processes_that_go_on_at_once_are_told(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    here, there = Sessions(file), Sessions(file)  # two connections, as of two processes
    say(here, "a", HELLO)

    async def both() -> None:
        async with here.turn("a") as first, there.turn("a") as second:
            await second.end([*second.with_history([HELLO]), HI])
            with pytest.raises(SessionError, match="continued by another process"):
                await first.end([HELLO])
        async with here.turn("new") as first, there.turn("new") as second:
            await second.end([HELLO])
            with pytest.raises(SessionError, match="not saved"):
                await first.end([HI])

    asyncio.run(both())
    assert here.messages("a") == [HELLO, HI] * 2
    assert here.messages("new") == [HELLO]


def test_a_session_that_is_deleted_in_its_turn_stays_deleted() -> None:
    sessions = Sessions()
    say(sessions, "a", HELLO)

    async def turn() -> None:
        async with sessions.turn("a") as turn:
            sessions.delete("a")
            with pytest.raises(SessionError, match="deleted"):
                await turn.end([HELLO])

    asyncio.run(turn())
    assert sessions.ids() == []


def test_a_session_that_is_replaced_in_its_turn_is_not_overwritten() -> None:
    sessions = Sessions()
    say(sessions, "a", HELLO)
    other = sessions.export("a").replace("Hello", "Another")

    async def turn() -> None:
        async with sessions.turn("a") as turn:
            sessions.delete("a")
            sessions.load(other)  # its first turn, as the deleted one's was
            with pytest.raises(SessionError, match="replaced"):
                await turn.end([HELLO])

    asyncio.run(turn())
    assert "Another" in sessions.export("a")


def test_several_processes_write_one_file(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    code = """
import asyncio, sys
from structgen.runner.sessions import Sessions
sessions = Sessions(sys.argv[1])
async def turn(name):
    async with sessions.turn(name) as turn:
        await turn.end(turn.with_history([{"role": "user", "content": "Hello"}]))
for i in range(20):
    asyncio.run(turn(sys.argv[2]))
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(file), name]) for name in ("a", "b")
    ]
    assert [process.wait() for process in processes] == [0, 0]
    sessions = Sessions(file)
    assert [len(sessions.messages(name)) for name in ("a", "b")] == [20, 20]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_opens_the_file_anew(tmp_path: Path) -> None:
    code = """
import os, sys
from structgen.runner.sessions import Sessions
sessions = Sessions(sys.argv[1])
before = sessions._file._connection
child = os.fork()
sessions.ids()
if not child:
    os._exit(0 if sessions._file._connection is not before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert sessions._file._connection is before
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "sessions.db")], check=True)


# -- out and in -------------------------------------------------------------------------------

WHOLE = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'Ünïcode "quoted" \n'},
    {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "abcdefghi",
                "type": "function",
                "function": {"name": "add", "arguments": '{"a": 1}'},
            }
        ],
    },
    {"role": "tool", "content": "2", "tool_call_id": "abcdefghi"},
    HI,
]


def test_a_session_goes_out_and_comes_in() -> None:
    sessions, others = Sessions(clock=Clock()), Sessions()
    say(sessions, "a", *WHOLE)
    exported = sessions.export("a")
    assert json.loads(exported)["version"] == 1
    assert others.load(exported) == "a"
    assert others.messages("a") == [*WHOLE, HI]
    assert others.export("a") == exported
    assert others.load(exported.encode(), "b") == "b"
    assert others.load(json.loads(exported), "c") == "c"
    assert others.export("c") == exported.replace('"id": "a"', '"id": "c"')
    with pytest.raises(SessionError, match="A session 'a' already"):
        others.load(exported)
    say(others, "a", HELLO)
    others.load(exported, replace=True)
    assert others.messages("a") == [*WHOLE, HI]


def exported(**changes: Any) -> dict[str, Any]:
    made = {
        "format": "structgen.session",
        "version": 1,
        "id": "a",
        "created": 1.0,
        "messages": [HELLO],
    }
    return {key: value for key, value in (made | changes).items() if value is not ...}


@pytest.mark.parametrize(
    ("garbage", "told"),
    [
        ("", "EOF"),
        ("{", "EOF"),
        ("null", "object"),
        ("[]", "object"),
        (b"\xff\x00", "JSON"),
        ("\ud800", "not an exported session"),
        ("[" * 100_000, "recursion"),
        (3, "got int"),
        (None, "got NoneType"),
        ({}, "format"),
        (exported(version=2), "version"),
        (exported(format="other"), "format"),
        (exported(more=1), "more"),
        (exported(created="now"), "created"),
        (exported(created=float("inf")), "not a valid time"),
        (exported(id=""), "1 to 200"),
        (exported(id=3), "id"),
        (exported(messages="x"), "messages"),
        (exported(messages=[{"role": "king", "content": "x"}]), r"messages\[0\].role"),
        (exported(messages=[{"role": "user"}]), r"messages\[0\]"),
        (exported(messages=[{"role": "user", "content": 3}]), r"messages\[0\].content"),
        (exported(messages=[HELLO | {"more": 1}]), r"messages\[0\].more"),
        (exported(messages=[{"role": "user", "content": "a\0b"}]), "NUL"),
        (exported(messages=[{"role": "user", "content": "\ud800"}]), "surrogate"),
        (exported(messages=[{"role": "user", "content": "x" * 2_000_000}]), "limit is 1,000,000"),
        (
            json.dumps(exported(messages=[{"role": "user", "content": "x" * 3_000_000}])),
            "limit is 2,010,000",
        ),
        (exported(messages=...), "messages"),
    ],
)
def test_garbage_is_refused_by_its_place(garbage: Any, told: str) -> None:
    sessions = Sessions()
    with pytest.raises(SessionError, match=told):
        sessions.load(garbage)
    assert sessions.ids() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=200)
@given(st.binary() | st.text() | JSON | st.dictionaries(st.sampled_from([*exported()]), JSON))
def test_any_garbage_is_refused(garbage: Any) -> None:
    sessions = Sessions()
    with pytest.raises(SessionError):
        sessions.load(garbage)


@settings(max_examples=200)
@given(
    st.sampled_from(["id", "created", "messages"]), JSON, st.sampled_from([*HELLO, "tool_calls"])
)
def test_what_comes_in_goes_on(field: str, value: Any, key: str) -> None:
    sessions = Sessions()
    changed = exported(**{field: value})
    if field == "messages":
        changed = exported(messages=[HELLO, HELLO | {key: value}])
    try:
        name = sessions.load(changed)
    except SessionError:
        assert sessions.ids() == []
        return
    assert say(sessions, name, HELLO)[-1] == HELLO
    assert Sessions().load(sessions.export(name)) == name


def test_a_session_without_messages_may_come_in() -> None:
    sessions = Sessions()
    sessions.load(exported(messages=[]))
    assert sessions.messages("a") == []


# -- files that are not as they should be -----------------------------------------------------


def test_a_file_that_is_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("These are my notes, and no database at all." * 100)
    with pytest.raises(SessionError, match=r"(?s)notes\.txt.*damaged"):
        Sessions(text)
    assert text.read_text().startswith("These are my notes")
    with contextlib.closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()
    before = other.read_bytes()
    with pytest.raises(SessionError, match="another program"):
        Sessions(other)
    assert other.read_bytes() == before


def test_a_file_of_a_later_form_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    Sessions(file).close()
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(SessionError, match="format 9"):
        Sessions(file)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 cannot be told")
def test_a_row_without_measure_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structgen.runner.sessions._LONGEST_ROW", 100_000)
    path = tmp_path / "kept.sqlite"
    Sessions(path).load(
        {"format": "structgen.session", "version": 1, "id": "a", "created": 1.0, "messages": []}
    )
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE sessions SET messages = ?", (" " * 200_000,))
        file.commit()
    with pytest.raises(SessionError, match="A row has, or would have, more than 100,000"):
        Sessions(path).messages("a")


def test_a_file_that_is_damaged_is_told(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    sessions = Sessions(file)
    say(sessions, "a", {"role": "user", "content": "x" * 50_000})
    sessions.close()
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"CREATE TABLE sessions", b"CREATE TABL\xcf sessions"))
    with pytest.raises(SessionError, match="is damaged"):
        Sessions(file)
    damaged = bytearray(whole)
    damaged[4096:8192] = b"\xff" * 4096
    file.write_bytes(damaged)
    with pytest.raises(SessionError, match="damaged"):
        Sessions(file).ids()


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER more AFTER UPDATE ON sessions BEGIN DELETE FROM sessions; END",
        "ALTER TABLE sessions RENAME TO others; CREATE VIEW sessions AS SELECT * FROM others",
        "CREATE INDEX more ON sessions (instr(zeroblob(200000000), zeroblob(100000000) || x'01'))",
        "CREATE TABLE responses (id TEXT CHECK (instr(zeroblob(200000000), zeroblob(100000000))))",
    ],
)
def test_code_in_a_file_is_not_run(tmp_path: Path, planted: str) -> None:
    """A query without an end stopped all sessions for ever."""
    file = tmp_path / "sessions.db"
    Sessions(file).close()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.executescript(planted)
    with pytest.raises(SessionError, match="views, triggers, indexes or a table"):
        Sessions(file)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("messages", b"[]"),
        ("messages", "[" * 100_000),
        ("messages", '[{"role": "user", "content": "\\ud800"}]'),
        ("turn", "x"),
        ("created", "x"),
    ],
)
def test_a_row_that_somebody_changed_is_told(tmp_path: Path, column: str, value: object) -> None:
    file = tmp_path / "sessions.db"
    sessions = Sessions(file)
    say(sessions, "a", HELLO)
    sessions.close()
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"UPDATE sessions SET {column} = ?", (value,))
    sessions = Sessions(file)
    with pytest.raises(SessionError, match=r"damaged\. Delete it"):
        say(sessions, "a", HELLO)
    assert sessions.delete("a")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="folder exists"):
        Sessions(tmp_path / "nowhere" / "sessions.db")


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    sessions = Sessions(file)
    say(sessions, "a", HELLO)
    connection = sessions._file._connection
    assert connection is not None
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")  # as if the disk had no more
    with pytest.raises(SessionError, match=r"Nothing was changed. The disk is full"):
        say(sessions, "a", {"role": "user", "content": "x" * 50_000})
    assert sessions.messages("a") == [HELLO, HI]
    connection.execute("PRAGMA max_page_count = 1000000")
    assert len(say(sessions, "a", {"role": "user", "content": "x" * 50_000})) == 3


def test_a_file_that_another_holds_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structgen.runner.sessions._BUSY_SECONDS", 0.01)
    file = tmp_path / "sessions.db"
    sessions = Sessions(file)
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SessionError, match="Another process has locked it"):
        sessions.ids()
    holder.execute("ROLLBACK")
    holder.close()
    assert sessions.ids() == []


def test_any_failure_in_a_transaction_undoes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions()
    say(sessions, "a", HELLO)

    def broken(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(sessions, "_make_room", broken)
    with pytest.raises(MemoryError):
        say(sessions, "b", HELLO)
    assert sessions.ids() == ["a"]
