"""Code of models: what it prints and leaves; it can neither stay nor take more than it may."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_agent import Scripted

from structgen import OptionError, RequestError, Runner
from structgen.errors import UnenforcedWarning
from structgen.runner import CodeExecutionConfig, SandboxPolicy
from structgen.runner import code as code_module
from structgen.runner.agent import Conversations, ToolRequest
from structgen.runner.code import CodeExecution, CodeSession
from structgen.runner.requests import ChatRequest
from structgen.runner.sessions import Sessions
from structgen.runner.telemetry import Metrics, Traces
from structgen.runner.tools import ToolFailure

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

SMALL = SandboxPolicy(max_memory_mb=256, max_procs=8, max_file_sz_mb=1, max_open_fds=64)


def session(**fields: Any) -> CodeSession:
    policy = fields.pop("sandbox_policy", SMALL)
    config = CodeExecutionConfig(
        sandbox_policy=policy, **{"timeout_secs": 20, "permission": "auto", **fields}
    )
    return CodeSession(CodeExecution(config))


@pytest.fixture
def here() -> Iterator[CodeSession]:
    made = session()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnenforcedWarning)
        yield made
    made.close()
    assert not os.path.exists(made._folder)


def told(made: CodeSession, code: str) -> str:
    return asyncio.run(made._called(code))


def has(made: CodeSession) -> dict[str, bool]:
    """What this system keeps away from code."""
    _, found = code_module._Run(made).result("pass")
    assert found is not None
    return found


def test_what_it_prints_and_how_it_ends(here: CodeSession) -> None:
    assert told(here, "if True:\r\n\tprint('é\u200d')\r\n") == "é\u200d"
    assert told(here, "print(6 * 7)") == "42"
    # Also what it says of errors, and that its input is empty.
    assert "ZeroDivisionError" in (failed := told(here, "print('é')\n1 / 0"))
    assert failed.startswith("é")
    assert failed.endswith("It exited with code 1.")
    assert "EOFError" in told(here, "input()")
    assert told(here, "pass") == ""
    assert told(here, "import sys; sys.exit(7)") == "It exited with code 7."
    # A character may have four bytes.
    assert told(here, "print('\U0001f600' * 20_001)") == "\U0001f600" * 20_000 + "… (truncated)"


def test_what_it_prints_last_is_read(here: CodeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had ended before this thread ran again, and what it had written meanwhile was lost."""
    read = os.read

    def late(*arguments: int) -> bytes:
        found = read(*arguments)
        time.sleep(0.5)
        return found

    monkeypatch.setattr(os, "read", late)
    code = "import time; print('first'); time.sleep(0.2); print('last')"
    assert told(here, code) == "first\nlast"


@pytest.mark.parametrize(
    "hides", [*"\r\b\x9b\u202e\u2066\u200f\u2028\u200b\u3164\ufe00\U000e0041", "\x1b[2K"]
)
def test_code_that_hides_from_who_approves_it_does_not_run(here: CodeSession, hides: str) -> None:
    """A terminal showed ``print(1)`` alone."""
    with pytest.raises(ToolFailure, match="can hide code"):
        told(here, f"open('x', 'w')  #{hides}print(1)")
    assert here.files == []


@pytest.mark.parametrize(
    ("encoding", "hides"), [("utf-7", "+AAo-print(1)"), ("unicode_escape", r"\nprint(1)")]
)
def test_a_comment_cannot_make_code_of_comments(
    here: CodeSession, encoding: str, hides: str
) -> None:
    """Whoever approved it has read two comments."""
    assert "SyntaxError" in told(here, f"# coding: {encoding}\n# {hides}")
    assert told(here, "# coding: utf-8\nprint('é')") == "é"


def test_it_sees_no_secrets(here: CodeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    seen = told(
        here, "import os; print(sorted(os.environ)); print(os.getcwd() == os.environ['HOME'])"
    )
    assert "HF_TOKEN" not in seen
    assert seen.endswith("True")
    allowed = session(sandbox_policy=SandboxPolicy(extra_env=("HF_TOKEN",)))
    assert told(allowed, "import os; print(os.environ['HF_TOKEN'])") == "hf_secret"
    allowed.close()


def test_nobody_else_sees_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """All users of a machine may read the arguments of a program."""
    monkeypatch.setenv("HF_TOKEN", "hf_of_this_test")
    made = session(sandbox_policy=SandboxPolicy(extra_env=("HF_TOKEN",)))

    async def main() -> str:
        task = asyncio.ensure_future(
            made._called(
                "import os, time\nwhile not os.path.exists('seen'): time.sleep(0.01)\n"
                "print(os.environ)"
            )
        )
        while not left(made._folder):
            await asyncio.sleep(0.05)
        assert left("hf_of_this_test") == []
        Path(made._folder, "seen").touch()
        return await task

    assert "hf_of_this_test" in asyncio.run(main())
    made.close()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls the system by a number")
def test_it_has_no_keys_of_the_caller(here: CodeSession) -> None:
    """Kernel keyrings hold secrets of Kerberos, of mounts and of others."""
    if (own := ctypes.CDLL(None).syscall(250, 1, None)) == -1:
        pytest.skip("the system lets nobody join a keyring")
    theirs = "import ctypes; print(ctypes.CDLL(None).syscall(250, 0, ctypes.c_int(-3), 0))"
    assert told(here, theirs) != str(own)


def test_files_are_listed_read_and_found(here: CodeSession) -> None:
    first = told(here, "open('a.txt', 'w').write('one'); import os; os.mkdir('sub')")
    assert first.endswith("[file a.txt, 3 bytes]")
    # They stay for the next call, which lists only what is new or has changed.
    second = told(here, "print(open('a.txt').read()); open('sub/b.csv', 'w').write('x,y')")
    assert second == "one\n[file sub/b.csv, 3 bytes]"
    a, b = here.files
    assert (a.name, a.mime_type, a.data) == ("a.txt", "text/plain", b"one")
    assert here._owner.find(b.id) is b
    assert here._owner.find("file-none") is None
    assert a.model_dump().keys() == {"id", "name", "bytes", "mime_type"}


def test_what_is_no_plain_file_is_not_read(here: CodeSession, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret", encoding="utf-8")
    code = f"""
import os
for name, target in (("a", {str(secret)!r}), ("b", "/etc/passwd"), ("sub", {str(tmp_path)!r})):
    os.symlink(target, name)
try:
    os.link({str(secret)!r}, "hard")
except OSError:
    pass
os.mkfifo("pipe")
open("plain", "w").write("x")
os.mkdir(".cache")
for name in (".cache/fonts", ".hidden"):  # the answer with a plot had six files of fonts, too
    open(name, "w").write("x")
"""
    told(here, code)
    assert [one.name for one in here.files] == ["plain"]
    # A link that takes a file's place between looking and reading is not followed either.
    for name, _, read in code_module._plain_files(here._folder):
        assert name == "plain"
        os.unlink(os.path.join(here._folder, "plain"))
        os.symlink(secret, os.path.join(here._folder, "plain"))
        assert read() == b""


def test_a_folder_without_rights_is_deleted_all_the_same(here: CodeSession) -> None:
    told(here, "import os; os.makedirs('a/b/c'); open('a/b/c/d', 'w'); os.chmod('a/b', 0)")
    # The fixture looks whether it has gone.


def test_what_it_keeps_is_bounded(here: CodeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_module, "_MOST_FILES", 3)
    monkeypatch.setattr(code_module, "_KEPT_BYTES", 25)
    said = told(here, "for i in range(9): open(f'{i}', 'w').write('x' * 10)")
    assert said.endswith("\n[files not returned because they are too many or too large: 6]")
    assert len(here.files) == 3
    assert [here._owner.find(one.id) is not None for one in here.files] == [False, True, True]
    # Those that are empty are bounded, too.
    monkeypatch.setattr(code_module, "_MOST_KEPT", 2)
    told(here, "for i in range(3): open(f'empty{i}', 'w')")
    assert [here._owner.find(one.id) is not None for one in here.files[3:]] == [False, True, True]
    assert len(here._owner._files) == 2


def test_what_a_chat_hands_out_is_bounded_over_all_its_calls(here: CodeSession) -> None:
    """Its answer holds it: a file of 200 MB that was written six times took 1.2 GB."""
    assert told(here, "open('a', 'w').write('x' * 600_000)") == "\n[file a, 600,000 bytes]"
    left = "\n[files not returned because they are too many or too large: 1]"
    assert told(here, "open('a', 'w').write('y' * 600_000)") == left
    assert told(here, "open('b', 'w').write('x')") == "\n[file b, 1 bytes]"
    assert [one.bytes for one in here.files] == [600_000, 1]


def test_folders_in_each_other_are_bounded(tmp_path: Path) -> None:
    """Each was an open file of the program's: of 900, others' connections were refused. Names began
    with theirs: 15,000 took 3 GB."""
    for name, number in (("x", 100), ("y" * 250, 12)):
        folder = tmp_path
        for _ in range(number):
            folder /= name
            folder.mkdir()
            (folder / "file").touch()
    os.mkdir(tmp_path / "z")
    (tmp_path / "here").touch()
    seen = [path for path, _, _ in code_module._plain_files(str(tmp_path))]
    assert "here" in seen
    assert max(path.count("/") for path in seen) < 100
    assert max(map(len, seen)) < 1_300
    assert code_module._n_bytes(str(tmp_path)) == float("inf")


def test_a_pipe_in_place_of_a_folder_stops_nobody(tmp_path: Path) -> None:
    """To open one waits for somebody who writes: no limit of time or size held any more."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    seen: list[str] = []

    def look() -> None:
        for name, _, _ in code_module._plain_files(str(tmp_path)):
            seen.append(name)
            (tmp_path / "folder").rmdir()
            os.mkfifo(tmp_path / "folder")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert seen == ["file"]


def test_all_that_a_folder_holds_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"x" * 1_000)
    # A folder keeps its room when what was in it is gone.
    room = os.stat(tmp_path / "folder").st_size
    assert code_module._n_bytes(str(tmp_path)) == 1_000 + room
    # Links to folders are as many as any others.
    monkeypatch.setattr(code_module, "_MOST_ENTRIES", 2)
    for number in range(20):
        (tmp_path / str(number)).symlink_to(".")
    assert code_module._n_bytes(str(tmp_path)) == float("inf")


def test_looks_of_many_chats_have_few_folders_open(monkeypatch: pytest.MonkeyPatch) -> None:
    entries, most = code_module._entries, []
    free = threading.Semaphore(code_module._MOST_LOOKS)

    def walk(*arguments: Any, **named: Any) -> Iterator[Any]:
        most.append(free.acquire(blocking=False))
        time.sleep(0.05)
        try:
            yield from entries(*arguments, **named)
        finally:
            free.release()

    monkeypatch.setattr(code_module, "_entries", walk)
    owner = CodeExecution(CodeExecutionConfig())
    chats = [CodeSession(owner) for _ in range(9)]
    threads = [threading.Thread(target=chat.n_bytes) for chat in chats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for chat in chats:
        chat.close()
    assert most == [True] * 9


def test_a_folder_that_cannot_be_read_does_not_hide_files_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "out.csv").write_text("1")
    opened = os.open

    def refuses(path: Any, *arguments: Any, **named: Any) -> int:
        if path == "a":  # as for a user who may not; root may
            raise PermissionError(13, "no")
        return opened(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refuses)
    assert [name for name, *_ in code_module._plain_files(str(tmp_path))] == ["b/out.csv"]
    assert code_module._n_bytes(str(tmp_path)) == float("inf")


def test_calls_of_one_chat_look_at_their_folder_one_at_a_time(
    here: CodeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 calls with 64 folders in each other had 1,024 files of the program open. Each walk took as
    long as all of them: 2,420 MB were written where 256 were allowed."""
    entries, now, most, looks = code_module._entries, 0, 0, 0

    def walk(*arguments: Any, **named: Any) -> Iterator[Any]:
        nonlocal now, most, looks
        now, looks = now + 1, looks + 1
        most = max(most, now)
        time.sleep(0.2)
        try:
            yield from entries(*arguments, **named)
        finally:
            now -= 1

    async def calls() -> list[str]:
        return await asyncio.gather(*(here._called(f"print({number})") for number in range(6)))

    monkeypatch.setattr(code_module, "_entries", walk)
    assert asyncio.run(calls()) == [str(number) for number in range(6)]
    assert most == 1
    # Those that wait for a look share the next one.
    threads = [threading.Thread(target=here.n_bytes) for _ in range(9)]
    before = looks
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert looks - before <= 3


def test_it_runs_where_many_files_are_open(here: CodeSession) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1_200:
        pytest.skip("this process may not open as many")
    with contextlib.ExitStack() as stack:
        for _ in range(1_100):
            stack.enter_context(open(os.devnull, "rb"))
        assert told(here, "print(1)") == "1"


def test_files_elsewhere_are_neither_read_nor_written(here: CodeSession, tmp_path: Path) -> None:
    if not has(here)["files"]:
        pytest.skip("no namespaces")
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    for code in (
        f"open({str(tmp_path / 'secret')!r})",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"import os; os.symlink({str(tmp_path)!r}, 'way'); open('way/secret')",
        "open('/proc/1/environ')",
        f"import os; os.unlink({str(tmp_path / 'secret')!r})",
    ):
        seen = told(here, code)
        assert "PermissionError" in seen or "FileNotFoundError" in seen, code
    assert told(here, "import json, ssl, sqlite3, ctypes; print('ok')") == "ok"
    wide = session(sandbox_policy=SandboxPolicy(extra_fs_read=(str(tmp_path),)))
    assert told(wide, f"print(open({str(tmp_path / 'secret')!r}).read())") == "secret"
    wide.close()
    whole = session(sandbox_policy=SandboxPolicy(extra_fs_read=("/",)))
    assert has(whole)["files"]
    code = f"import os; print('sees it'); os.chmod({str(tmp_path / 'secret')!r}, 0o777)"
    assert "sees it" in (seen := told(whole, code))
    assert "Read-only file system" in seen
    whole.close()


def test_keys_of_the_machine_are_not_seen(here: CodeSession) -> None:
    """Root, and whoever is in their group, may read them."""
    if not has(here)["files"] or not os.path.exists("/etc/ssl/certs"):
        pytest.skip("no namespaces or no certificates")
    code = "import os; print(*map(os.path.exists, ('/etc/ssl/certs', '/etc/ssl/private')))"
    assert told(here, code) == "True False"


def test_processes_share_work() -> None:
    """Pools and queues need locks, and those files of /dev/shm."""
    made = session(sandbox_policy=SandboxPolicy())
    if not has(made)["files"]:
        pytest.skip("it sees this machine's")
    code = """
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, -2]))
with open("/dev/shm/kept", "w") as file: file.write("x")
"""
    assert told(made, code) == "[1, 2]\n[file kept, 1 bytes]"
    made.close()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_are_started_anew_read_the_code_again(method: str) -> None:
    """On Python 3.14 and on macOS all are, and code waited for them until its time was up."""
    made = session(sandbox_policy=SandboxPolicy())
    if not has(made)["files"]:
        pytest.skip("no namespaces")
    code = (
        f"import multiprocessing\ndef double(x):\n  return 2 * x\nif __name__ == '__main__':\n"
        f"  with multiprocessing.get_context({method!r}).Pool(2) as pool:\n"
        "    print(pool.map(double, [1, 2]))\n"
        "  open(__file__, 'w')\n"
    )
    said = told(made, code)
    assert said.startswith("[2, 4]\n")
    assert "Read-only file system" in said
    made.close()


def test_what_opens_no_file_reaches_none_either(here: CodeSession, tmp_path: Path) -> None:
    if not has(here)["files"]:
        pytest.skip("no namespaces")
    secret, agent = tmp_path / "secret", tempfile.mkdtemp()  # the name of a socket is short
    secret.write_text("secret", encoding="utf-8")
    secret.chmod(0o600)
    before = secret.stat()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{agent}/socket")
        server.listen()
        for code in (
            f"import os; os.chmod({str(secret)!r}, 0o777)",
            f"import os; os.utime({str(secret)!r}, (0, 0))",
            f"import os; os.stat({str(secret)!r})",
            f"import socket; socket.socket(socket.AF_UNIX).connect('{agent}/socket')",
            "import os; os.chmod(os.__file__, os.stat(os.__file__).st_mode)",
            "import os; os.chmod('/dev/null', os.stat('/dev/null').st_mode)",
        ):
            assert "It exited with code 1." in told(here, code), code
    shutil.rmtree(agent)
    assert (secret.stat().st_mode, secret.stat().st_mtime) == (before.st_mode, before.st_mtime)


def test_a_name_that_is_no_utf8_ends_no_answer(here: CodeSession) -> None:
    assert told(here, r"open(b'\xff', 'w').write('x')") == "\n[file \\udcff, 1 bytes]"
    # Nor does one that is a URL with a type in it.
    told(here, r"import os; os.mkdir(b'data:a\xff'); open(b'data:a\xff/b,', 'w')")
    assert [one.mime_type for one in here.files] == [None, None]
    assert [one.model_dump_json() for one in here.files]


def test_there_is_no_network(here: CodeSession) -> None:
    if not has(here)["network"]:
        pytest.skip("no namespaces")
    code = (
        "import socket; print(socket.if_nameindex()); socket.create_connection(('1.1.1.1', 53), 1)"
    )
    assert "Traceback" in (seen := told(here, code))
    assert "eth" not in seen
    whole = session(sandbox_policy=SandboxPolicy(network="full"))
    names = [name for _, name in socket.if_nameindex()]
    assert told(whole, "import socket; print([n for _, n in socket.if_nameindex()])") == str(names)
    whole.close()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("x = bytearray(1 << 30)", "MemoryError"),
        ("open('big', 'wb').write(b'x' * (2 << 20))", "OSError|too large"),
        ("[open('/dev/null') for _ in range(99)]", "Too many open files"),
        ("while True: print('x' * 999)", "it wrote too much output"),
        (
            "import os, time\nkept = []\nfor _ in range(9):\n"
            "    kept.append(open('x', 'wb', 0)); os.unlink('x'); kept[-1].write(b'x' * 999_999)\n"
            "time.sleep(60)",
            "its files are too many, too large in total",
        ),
        (
            "import time\nfor i in range(5000): open(f'{i:04}', 'w').close()\n"
            "for i in range(9): open(f'z{i}', 'wb').write(b'x' * 999_999)\ntime.sleep(60)",
            "its files are too many, too large in total",
        ),
        (
            "import os, time\nfor i in range(99): os.mkdir('d'); os.chdir('d')\ntime.sleep(60)",
            "its files are too many, too large in total, or nested too deeply",
        ),
        ("import os; os.memfd_create('x')", "Function not implemented"),
        ("import os; os.setsid()", "Function not implemented"),
        ("import os; print('niceness', min(os.nice(0), 10))", "niceness 10"),
        (
            "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
            "print([(call(0, 32_000, 0o1600), ctypes.get_errno())\n"
            "       for call in (libc.shmget, libc.semget, libc.msgget)])",
            "[(-1, 38), (-1, 38), (-1, 38)]",
        ),
        (
            "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
            "print(libc.syscall(425, 8, ctypes.create_string_buffer(120)), ctypes.get_errno())",
            "-1 38",
        ),
        (  # keys, and watches of files, whose number is that of all of the user's programs
            "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
            "print([(libc.syscall(call, 0), ctypes.get_errno()) for call in "
            f"{(248, 253, 291) if os.uname().machine == 'x86_64' else (217, 26, 20)}])",
            "[(-1, 38), (-1, 38), (-1, 38)]",
        ),
        (  # of which there is another, that asyncio chooses
            "import asyncio\nasync def main():\n"
            "    one = await asyncio.create_subprocess_exec('echo', 'heard', stdout=-1)\n"
            "    print(await one.communicate())\nasyncio.run(main())",
            "(b'heard\\n', None)",
        ),
        (
            "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
            "libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]\n"
            "file = os.open('x', os.O_CREAT | os.O_RDWR)\n"
            "os.posix_fallocate(file, 0, 1 << 16)\n"
            "print(libc.fallocate(file, 1, 0, 4 << 20), ctypes.get_errno())",
            "-1 95",
        ),
        ("import fcntl; fcntl.fcntl(open('x', 'w'), 1024, 1)", "Operation not supported"),
        (
            "import fcntl, struct\n"
            "room = struct.pack('hhqq24x', 0, 0, 0, 4 << 20)\n"
            "print(fcntl.ioctl(open('x', 'w'), 0x40305828, room))",
            "Operation not supported",
        ),
        (
            "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
            "print(libc.unshare(1 << 28), ctypes.get_errno())",
            "-1 38",  # no matter what /proc/sys says, which a pod of Kubernetes cannot write to
        ),
        (  # of which a user has so many
            "import ctypes; libc = ctypes.CDLL(None); timer = ctypes.c_void_p()\n"
            "made = [libc.timer_create(0, None, ctypes.byref(timer)) for _ in range(300)]\n"
            "print(made.count(0) <= 256)",
            "True",
        ),
        ("import os; os.setxattr('/', 'user.x', bytes(64))", "Operation not supported"),
        ("import os; open('x', 'w'); print(os.system('cp -a x y'))", "0"),  # as if there were none
        ("import socket; socket.socket(40, 1)", "Operation not supported"),
        ("for i in range(9): open(f'{i}', 'wb').write(b'x' * 999_999)\nimport time; time.sleep(60)",
         "its files are too many, too large in total"),
    ],
    ids=[
        *("memory", "file", "open", "output", "deleted files", "many files", "folders"),
        "files in memory",
        *("memory of System V", "io_uring", "keys", "asyncio", "room on disk"),
        *("leases, for which others wait", "room by ioctl"),
        *("namespaces of its own", "timers"),
        *("attributes", "copies", "sockets of machines", "files", "sessions", "niceness"),
    ],
)  # fmt: skip
def test_limits_hold(here: CodeSession, code: str, says: str) -> None:
    seen = told(here, code)
    assert any(one in seen for one in says.split("|")), seen
    assert len(seen) < 30_000


def test_few_descriptors_are_under_way_in_sockets() -> None:
    made = session(sandbox_policy=SandboxPolicy(max_memory_mb=256))
    seen = told(
        made,
        "import socket\nends, sent = [], 0\ntry:\n"
        "    while sent < 5_000:\n        ends += socket.socketpair()\n"
        "        sent += 253\n        socket.send_fds(ends[-1], [b'x'], [0] * 253)\n"
        "except OSError as error: print(sent < 1_024, error.strerror)",
    )
    made.close()
    assert seen.startswith("True Too many references"), seen


def left(mark: str) -> list[str]:
    """Processes with a mark in their command line."""
    found = []
    for name in os.listdir("/proc"):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if mark in line and name.isdigit():
            found.append(line)
    return found


def has_ended(mark: str) -> bool:
    """Whether what has a mark ends soon."""
    for _ in range(600):
        if not left(mark):
            return True
        time.sleep(0.05)
    return False


ENDS_ITS_GROUP = """
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # it does not end with its parent
if os.fork() == 0:
    time.sleep(0.5)
    os.kill(0, signal.SIGKILL)
try:
    os.setpgid(0, 0)
except PermissionError:
    pass
null = os.open(os.devnull, os.O_RDWR)
for i in range(3):
    os.dup2(null, i)
os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", "{mark}"])
"""

DETACHED = """
import os, subprocess, sys
def detach():
    try:
        os.setsid()
    except OSError:
        os.setpgrp()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "{mark}"],
                 preexec_fn=detach, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


@pytest.mark.parametrize("end", ["", "import time; time.sleep(600)"], ids=["by itself", "late"])
def test_nothing_of_it_stays(end: str, here: CodeSession) -> None:
    made = session(timeout_secs=1 if end else 20)
    mark = f"structgen-mark-{os.getpid()}-{len(end)}"
    seen = told(made, DETACHED.format(mark=mark) + end)
    assert seen == ("It timed out after 1 s." if end else "")
    assert has_ended(mark)
    made.close()


def test_what_a_chat_that_ends_runs_is_ended(
    here: CodeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output was closed while another thread read it."""
    read, heard = os.read, threading.Event()

    def noted(*arguments: int) -> bytes:
        found = read(*arguments)
        if found == b"1\n":
            heard.set()
        return found

    async def run() -> str:
        task = asyncio.create_task(here._called("import time; print(1); time.sleep(600)"))
        assert await asyncio.to_thread(heard.wait, 60)
        await asyncio.to_thread(here.close)
        return await task

    monkeypatch.setattr(os, "read", noted)
    assert asyncio.run(run()).startswith("1\nIt ")


def test_what_ends_its_group_ends_nothing_above_it(here: CodeSession) -> None:
    """It ended the process that watched it, and stayed."""
    mark = f"structgen-group-{os.getpid()}"
    told(here, ENDS_ITS_GROUP.format(mark=mark))
    assert has_ended(mark)


NO_NAMESPACES = [
    *("unshare", "-Urm", "sh", "-c"),
    *('echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh"),
]
"""Run a program as in a container of Docker."""


@pytest.mark.parametrize("before", [[], NO_NAMESPACES], ids=["namespaces", "none"])
def test_it_ends_with_the_program(before: list[str], tmp_path: Path) -> None:
    """Without namespaces, what had detached itself ran on, without an end."""
    if before and subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespace can be made here")
    mark = f"structgen-orphan-{os.getpid()}-{len(before)}"
    code = DETACHED.format(mark=mark) + "import time; time.sleep(600)"
    program = f"""
from structgen.runner.code import _Run, CodeExecution, CodeExecutionConfig, CodeSession
config = CodeExecutionConfig(working_directory={str(tmp_path)!r})
_Run(CodeSession(CodeExecution(config))).result({code!r})
"""
    # Its text has the mark, which its command line has not.
    with subprocess.Popen([*before, sys.executable, "-"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(program.encode())
        process.stdin.close()
        while not left(mark) and process.poll() is None:
            time.sleep(0.05)
        assert process.poll() is None
        process.kill()
    assert has_ended(mark)


def test_a_fork_bomb_ends(here: CodeSession) -> None:
    made = session(timeout_secs=3)
    mark = f"structgen-bomb-{os.getpid()}"
    bomb = f"mark = {mark!r}\nimport os, time\nfor _ in range(12):\n    os.fork()\ntime.sleep(60)"
    seen = told(made, bomb)
    assert "too many processes" in seen or "BlockingIOError" in seen or "timed out" in seen
    assert told(made, "print('next')") == "next"
    made.close()


def test_what_starts_more_is_killed_as_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork bomb of root's went on while all of it was looked for, until the system had no
    numbers of processes left for anybody."""
    with subprocess.Popen(["sh", "-c", "for i in 1 2 3 4 5; do sleep 60 & done; wait"]) as shell:
        while len(code_module._tree(shell.pid)[0]) < 6:
            time.sleep(0.01)
        assert len(code_module._tree(shell.pid, 2)[0]) == 3  # as many as are too many
        done: list[tuple[str, str]] = []
        looks, kills = os.listdir, os.kill

        def look(path: str) -> list[str]:
            done.append(("look", path.split("/")[2]))
            return looks(path)

        def kill(pid: int, number: int) -> None:
            done.append(("kill", str(pid)))
            kills(pid, number)

        with monkeypatch.context() as patch:
            patch.setattr(code_module.os, "listdir", look)
            patch.setattr(code_module.os, "kill", kill)
            code_module._tree(shell.pid, kills=True)
        assert [what for what, _ in done] == ["look", *(["look", "kill"] * 5)]
        assert [one for what, one in done[1:] if what == "look"] == [
            one for what, one in done if what == "kill"
        ]


def test_threads_are_bounded_for_root_too() -> None:
    """The system does not count those of root: the numbers of processes ran out for all."""
    made = session(sandbox_policy=SandboxPolicy(max_procs=1_000_000))
    seen = told(
        made,
        "import _thread, threading, time\nthreading.stack_size(32768)\n"
        "for _ in range(5000): _thread.start_new_thread(time.sleep, (60,))\ntime.sleep(60)",
    )
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    is_bounded = "can't start new thread" in seen
    if not (release >= (6, 14) and has(made)["processes"]):  # else it is counted, now and then
        is_bounded |= "too many processes" in seen
    assert is_bounded
    made.close()


def test_a_chat_that_ends_ends_its_code() -> None:
    made = session()
    mark = f"structgen-chat-{os.getpid()}"

    async def main() -> None:
        task = asyncio.ensure_future(
            made._called(DETACHED.format(mark=mark) + "import time; time.sleep(600)")
        )
        for _ in range(200):
            await asyncio.sleep(0.05)
            if left(mark):
                break
        assert left(mark)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert has_ended(mark)
    made.close()


# -- in a chat --------------------------------------------------------------------------------


def conversations(**fields: Any) -> Conversations:
    config = CodeExecutionConfig(sandbox_policy=SMALL, **fields)
    return Conversations(Sessions(None), Metrics(), Traces(False), None, CodeExecution(config))


@pytest.mark.filterwarnings("ignore::structgen.errors.UnenforcedWarning")
def test_a_chat_runs_code_with_leave() -> None:
    given = conversations()
    model = Scripted([("execute_python", {"code": "open('a.txt', 'w').write('hi')"})], "Done.")
    asked: list[ToolRequest] = []

    def approve(request: ToolRequest) -> bool | str:
        asked.append(request)
        return True

    request = ChatRequest(messages="Write.", enable_code_execution=True, approve=approve)

    async def run(request: ChatRequest) -> Any:
        return [piece async for piece in given.answer(request, model.ask, "it", None)][-1]

    response = asyncio.run(run(request))
    assert asked[0].arguments["code"].startswith("open(")
    (file,) = response.files
    assert (response.agentic_end, file.name) == ("answer", "a.txt")
    assert response.model_dump()["files"][0]["id"] == file.id
    assert given.code is not None
    assert given.code.find(file.id).data == b"hi"  # type: ignore[union-attr]
    assert model.asked[0].enable_code_execution is False
    with pytest.raises(RequestError, match=r"pass approve=, which is called before each tool call"):
        asyncio.run(run(ChatRequest(messages="Write.", enable_code_execution=True)))
    refused = Scripted([("execute_python", {"code": "print(1)"})], "Well.")
    request = request.model_copy(update={"approve": lambda call: "No."})

    async def again() -> Any:
        return [piece async for piece in given.answer(request, refused.ask, "it", None)][-1]

    response = asyncio.run(again())
    assert (response.agentic_tool_calls[0].status, response.files) == ("refused", [])


@pytest.mark.filterwarnings("ignore::structgen.errors.UnenforcedWarning")
def test_files_of_an_answer_that_nobody_has_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chat that had ended held its files, 256 MB, until a full garbage collection."""
    given = conversations(permission="auto")
    made: list[weakref.ref[Any]] = []
    monkeypatch.setattr(CodeExecution, "keep", lambda _, file: made.append(weakref.ref(file)))
    request = ChatRequest(messages="Write.", enable_code_execution=True)
    model = Scripted([("execute_python", {"code": "open('a', 'w').write('hi')"})], "Done.")

    async def run() -> None:
        async for _ in given.answer(request, model.ask, "it", None):
            pass

    gc.disable()
    try:
        asyncio.run(run())
        end = time.monotonic() + 60
        while made[0]() is not None and time.monotonic() < end:  # its thread is ending
            time.sleep(0.01)
        assert [file() for file in made] == [None]
    finally:
        gc.enable()


def test_it_is_off_unless_asked_for() -> None:
    with (
        Runner({"it": "smollm2-135m-instruct"}) as runner,
        pytest.raises(RequestError, match="this Runner cannot run code") as caught,
    ):
        runner.chat("Hi", enable_code_execution=True)
    assert (caught.value.param, caught.value.kind) == ("enable_code_execution", "unsupported")
    assert runner.find_file("file-x") is None
    assert conversations(permission="auto").running(ChatRequest(messages="Hi")) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"timeout_secs": 0}, "timeout_secs"),
        ({"timeout_secs": None}, "timeout_secs"),
        ({"permission": "never"}, "Pass 'ask' or 'auto'"),
        ({"sandbox_policy": None}, "must be a SandboxPolicy"),
        ({"python_path": "no-such-python"}, "is not an executable"),
        ({"working_directory": "no/such"}, "is not a directory"),
    ],
)
def test_what_is_wrong_in_the_configuration(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CodeExecutionConfig(**fields)
    for wrong in (
        *({"max_procs": 0}, {"network": "loopback"}, {"extra_fs_read": ("no/such",)}),
        *({"extra_fs_read": "/usr"}, {"extra_env": "PATH"}),  # not "/", "u" and so on
    ):
        with pytest.raises(OptionError):
            SandboxPolicy(**wrong)  # type: ignore[arg-type]


def test_code_cannot_change_the_python_that_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote a file into the environment in its folder, and the next call ran it unconfined."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "work").mkdir()
    for fields in (
        {"python_path": str(python), "working_directory": tmp_path},
        {
            "python_path": str(python),
            "sandbox_policy": SandboxPolicy(extra_fs_write=(str(tmp_path),)),
        },
        {"working_directory": sys.prefix},
        {"working_directory": Path(sys.prefix).parent},
    ):
        with pytest.raises(OptionError, match="Code may write to"):
            CodeExecutionConfig(**fields)
    CodeExecutionConfig(python_path=str(python), working_directory=tmp_path / "work")
    # A json.py beside the program's script is imported before the library's, by all its processes.
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(OptionError, match="Code may write to"):
        CodeExecutionConfig(python_path=str(python), working_directory=".")


def test_code_cannot_put_links_where_paths_of_the_policy_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It put a link to all files in their place, and the next call opened that."""
    for name in ("work", "data", "work/inner"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work" / "inner")
    monkeypatch.chdir(tmp_path)
    for folder, policy in (
        ("work", SandboxPolicy(extra_fs_read=("work/inner",))),
        ("work", SandboxPolicy(extra_fs_write=("link",))),
        ("work/inner", SandboxPolicy(extra_fs_write=("work",))),
        (None, SandboxPolicy(extra_fs_write=(tempfile.gettempdir(),))),
    ):
        with pytest.raises(OptionError, match="Use folders that do not contain each other"):
            CodeExecutionConfig(working_directory=folder, sandbox_policy=policy)
    # Paths are of the program's folder, and not of the code's.
    made = session(sandbox_policy=SandboxPolicy(extra_fs_write=("data",)))
    told(made, f"import os; os.symlink({str(tmp_path)!r}, 'data')")
    told(made, f"for name in 'new', 'data/new': open({str(tmp_path)!r} + '/' + name, 'w')")
    assert not (tmp_path / "new").exists()
    if has(made)["files"]:
        assert told(made, f"open({str(tmp_path / 'data' / 'new')!r}, 'w')") == ""
        assert (tmp_path / "data" / "new").exists()
    made.close()


def test_code_cannot_change_what_python_starts_with(tmp_path: Path) -> None:
    """A project that is installed to be edited is on the path: Python ran its sitecustomize.py."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {sys.base_exec_prefix}/bin\n")
    version = "python{}.{}".format(*sys.version_info)
    packages = tmp_path / "venv" / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (tmp_path / "project").mkdir()
    (packages / "project.pth").write_text(f"{tmp_path / 'project'}\n")
    (packages / "there.py").write_text("")
    made = session(python_path=str(python), working_directory=tmp_path / "project")
    if not has(made)["files"]:
        pytest.skip("no namespaces")
    hook = f"open({str(tmp_path / 'escaped')!r}, 'w')"
    told(made, f"open('sitecustomize.py', 'w').write({hook!r})")
    assert "Error in sitecustomize" in told(made, "print(1)")
    assert not (tmp_path / "escaped").exists()
    assert told(made, "import there, sys; print(sys.prefix)").endswith(str(tmp_path / "venv"))


def confined(
    folder: Path, before: list[str], code: str, **given: Any
) -> tuple[dict[str, bool] | None, str]:
    """What is in force where another program runs the script, and what code then prints."""
    reads, told = os.pipe()
    given = {
        **{"folder": str(folder), "limits": {}, "network": False, "readable": [], "writable": []},
        **{"strict": False, "report": told, **given},
    }
    command = [*before, sys.executable, "-I", "-S", str(code_module._CONFINED), json.dumps(given)]
    done = subprocess.run(
        command, input=code, pass_fds=[told], capture_output=True, text=True, check=False
    )
    os.close(told)
    with open(reads) as pipe:
        said = pipe.read()
    return json.loads(said or "null"), done.stdout + done.stderr


def test_without_namespaces_it_says_so_and_keeps_what_it_can(tmp_path: Path) -> None:
    """As in a container of Docker."""
    kept, seen = confined(tmp_path, NO_NAMESPACES, "import socket; socket.socket()")
    if kept is None or kept["processes"] or not kept["system calls"]:
        pytest.skip("the system cannot make one")
    assert kept == {"processes": False, "network": True, "files": False, "system calls": True}
    assert "Operation not supported" in seen
    _, seen = confined(tmp_path, NO_NAMESPACES, "print(1)", strict=True)
    assert seen == "strict=True, but this system cannot isolate files and processes.\n"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs a machine with another")
def test_a_machine_whose_system_calls_are_not_known_is_told(tmp_path: Path) -> None:
    """It ran without the filter, and said nothing."""
    kept, _ = confined(tmp_path, ["setarch", "i686"], "print(1)")
    assert kept is not None
    assert not kept["system calls"]
    _, seen = confined(tmp_path, ["setarch", "i686"], "print(1)", strict=True)
    assert "strict=True, but this system cannot isolate" in seen


def test_a_system_that_cannot_confine_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = session(working_directory=tmp_path)
    with pytest.warns(UnenforcedWarning, match=r"cannot isolate this machine's network and files"):
        made._owner.warn({"processes": True, "network": False, "files": False})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made._owner.warn({"processes": True, "network": False, "files": False})  # once
    made.close()
    assert tmp_path.exists()  # a folder of the program's stays
