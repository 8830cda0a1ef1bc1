"""Run code that a model writes: off by default, with approval, in a sandbox.

Each call of the tool runs in a process of its own, within the limits of `SandboxPolicy`, which
`confined` has the operating system enforce. The result is the text that the process prints and the
files that it leaves. The process is killed when its time is up, when it writes too much, or when
the chat ends. Only plain files are read, no symbolic links.
"""

from __future__ import annotations

import contextlib
import json
import math
import mimetypes
import os
import re
import secrets
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, final

from structgen.errors import OptionError, UnenforcedWarning, printable
from structgen.options import Whole, Word

from .loops import in_thread
from .responses import File
from .tools import Tool, ToolFailure, check_seconds

NAME = "execute_python"
"""The name of the tool."""

_CONFINED = Path(__file__).with_name("confined.py")
_MOST_CODE = 100_000  # characters
_HIDES = re.compile(  # emoji contain \u200d and \ufe0f, and Persian \u200c
    r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
    r"|[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0d\uffa0]"  # in names, too
    r"|[\U000e0000-\U000e01ef]|\r(?!\n)"
)
_MOST_TEXT = 20_000  # characters of output that the model gets
_MOST_OUTPUT = 1 << 20  # bytes of output after which the process is killed
_MOST_FILES = 32  # files that one call returns
_MOST_ENTRIES = 4_096  # entries of the folder, and threads, that are looked at
_MOST_LOOKS = 4  # at folders at once: each has as many open as there are in each other
_DEEPEST = 64  # folders in each other: each is an open file while what is in it is looked at,
_LONGEST_PATH = 1_000  # and each name begins with all of theirs: 15,000 took 3 GB
_KEPT_BYTES = 256 << 20  # bytes of files of all chats that are kept,
_MOST_KEPT = 10_000  # and how many files
_MB = 1 << 20
_MOST_KILLS = 100  # of what was started; what is killed may just have started more
_TURN_SECONDS = 0.05
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """The limits of code that a model wrote. Each process has them; ``max_procs`` counts all
    processes together.

    Attributes:
        max_memory_mb: address space of a process.
        max_cpu_secs: seconds of processor time.
        max_procs: processes and threads together.
        max_open_fds: open files of a process.
        max_file_sz_mb: size of a file; also the total of all files and folders in the working
            folder, and of all files that one chat returns.
        network: ``"none"``, or ``"full"``: this machine's network.
        extra_fs_read: readable paths, beside Python's and the system's own.
        extra_fs_write: writable paths, beside the working folder.
        extra_env: environment variables for the code.
        strict: refuse to run on a system that cannot isolate network, other processes, files or
            system calls. Without it, a warning says what is missing.
    """

    max_memory_mb: int = 2048
    max_cpu_secs: int = 300
    max_procs: int = 64
    max_open_fds: int = 256
    max_file_sz_mb: int = 256
    network: Literal["none", "full"] = "none"
    extra_fs_read: tuple[str, ...] = ()
    extra_fs_write: tuple[str, ...] = ()
    extra_env: tuple[str, ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        Word(("none", "full"))("network", self.network)
        for one in fields(self):
            name, given = one.name, getattr(self, one.name)
            if name.startswith("max_"):
                Whole(1)(name, given)
            if not name.startswith("extra_"):
                continue
            if isinstance(given, (str, bytes, os.PathLike)):  # "/data" would give "/" and others
                raise OptionError(
                    f"{name}={given!r} is a single string. Pass a tuple: ({given!r},)."
                )
            if name != "extra_env":
                paths = tuple(map(os.path.abspath, given))
                object.__setattr__(self, name, paths)
                for path in paths:
                    if not os.path.exists(path):
                        raise OptionError(f"{name}: {path!r} does not exist.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeExecutionConfig:
    """How a Runner runs Python that models write.

    Attributes:
        python_path: the interpreter; None: the one of this process.
        timeout_secs: seconds for one call.
        working_directory: one folder for all chats, which is kept. None: a folder for each chat,
            deleted when the chat ends.
        sandbox_policy: the limits of the code.
        permission: ``"ask"``: requests must pass ``approve=``, which decides before each call;
            ``"auto"``: calls need no approval.
    """

    python_path: str | None = None
    timeout_secs: float = 60.0
    working_directory: str | os.PathLike[str] | None = None
    sandbox_policy: SandboxPolicy = field(default_factory=SandboxPolicy)
    permission: Literal["ask", "auto"] = "ask"

    def __post_init__(self) -> None:
        if os.name != "posix":
            raise OptionError("code_execution_config= requires Linux or macOS.")
        check_seconds("timeout_secs", self.timeout_secs or 0)
        Word(("ask", "auto"))("permission", self.permission)
        if not isinstance(self.sandbox_policy, SandboxPolicy):
            raise OptionError("sandbox_policy= must be a SandboxPolicy.")
        if self.python_path is not None and shutil.which(self.python_path) is None:
            raise OptionError(f"python_path={self.python_path!r} is not an executable.")
        if self.working_directory is not None and not Path(self.working_directory).is_dir():
            raise OptionError(
                f"working_directory={str(self.working_directory)!r} is not a directory."
            )
        policy, own = self.sandbox_policy, os.path.join(tempfile.gettempdir(), "structgen-code-")
        writable = set(policy.extra_fs_write)
        if self.working_directory is not None:
            own = os.path.abspath(self.working_directory)
            writable.add(own)
        for folder in writable:
            for path in {*self._unconfined(), own, *writable, *policy.extra_fs_read} - {folder}:
                for place in (os.path.abspath(path), os.path.realpath(path)):
                    if Path(place).is_relative_to(os.path.realpath(folder)):
                        raise OptionError(
                            f"Code may write to {folder!r}, which contains {path!r}. It could "
                            "replace files there that the next call runs or opens outside the "
                            "sandbox. Use folders that do not contain each other or the Python "
                            "that runs the code (python_path=)."
                        )

    @property
    def interpreter(self) -> str:
        """The path of the interpreter."""
        return os.path.abspath(shutil.which(self.python_path or sys.executable) or sys.executable)

    def _unconfined(self) -> list[str]:
        """Folders of what runs before the code is confined, and of what this program imports."""
        found = [str(_CONFINED), self.interpreter]
        while os.path.islink(found[-1]):
            found.append(os.path.join(os.path.dirname(found[-1]), os.readlink(found[-1])))
        return [*map(os.path.dirname, found), *sys.path]


@final
class CodeExecution:
    """Runs code for the chats of a Runner, and keeps the files that it made."""

    def __init__(self, config: CodeExecutionConfig) -> None:
        self.config = config
        self._files: OrderedDict[str, File] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._looks = threading.Semaphore(_MOST_LOOKS)
        self._has_warned = False

    def find(self, id_: str) -> File | None:
        """Return a file that code has made; None: it never existed, or newer files have replaced
        it."""
        with self._lock:
            return self._files.get(id_)

    def keep(self, file: File) -> None:
        """Keep a file, and drop the oldest ones if there is no room."""
        with self._lock:
            self._files[file.id] = file
            self._bytes += file.bytes
            while self._bytes > _KEPT_BYTES or len(self._files) > _MOST_KEPT:
                self._bytes -= self._files.popitem(last=False)[1].bytes

    def warn(self, has: dict[str, bool]) -> None:
        """Warn once about what this system cannot isolate from code."""
        lacking = [name for name, is_so in has.items() if not is_so]
        if self.config.sandbox_policy.network == "full":
            lacking = [name for name in lacking if name != "network"]
        with self._lock:
            if not lacking or self._has_warned:
                return
            self._has_warned = True
        warnings.warn(
            "The sandbox for model-written code cannot isolate this machine's "
            f"{' and '.join(lacking)}: the system does not let this user create namespaces or "
            "install system call filters. Use SandboxPolicy(strict=True) to raise an error "
            "instead.",
            UnenforcedWarning,
            stacklevel=2,
        )


@final
class CodeSession:
    """The code execution of one chat: its folder and the files made there. Close it after use.

    Attributes:
        files: the files that code made, in order.
    """

    def __init__(self, owner: CodeExecution) -> None:
        self.files: list[File] = []
        self._owner = owner
        config = owner.config
        kept = config.working_directory
        self._temporary = tempfile.mkdtemp(prefix="structgen-code-") if kept is None else None
        self._folder = os.path.realpath(self._temporary or str(kept))
        self._going: set[_Run] = set()
        self._lock = threading.Lock()  # several scans of one folder slow each other down
        self._begun, self._bytes = 0.0, 0.0

    @property
    def tool(self) -> Tool:
        """The tool that the model calls. It refers to this session; if the session also kept it,
        the cycle would keep files alive."""
        code = {"type": "string", "minLength": 1, "maxLength": _MOST_CODE}
        definition = {
            "name": NAME,
            "description": "Run Python code in a new process and return its output. "
            "Files in the current folder are kept.",
            "parameters": {"type": "object", "properties": {"code": code}, "required": ["code"]},
        }
        # `_Run` enforces the time limit.
        return Tool(definition, self._called, timeout=self._owner.config.timeout_secs + 10)

    async def _called(self, code: str) -> str:
        if _HIDES.search(code):  # who approved it in a terminal may have seen other code
            raise ToolFailure(
                "The code contains control or invisible characters, which can hide code. Write "
                "them as escapes, such as \\x1b."
            )
        run = _Run(self)
        self._going.add(run)
        try:
            text, has = await in_thread(lambda: self._ran(run, code), NAME)
        except BaseException:
            run.is_unwanted = True  # the thread that reads kills the process
            raise
        if has is not None:
            self._owner.warn(has)
        return text

    def _ran(self, run: _Run, code: str) -> tuple[str, dict[str, bool] | None]:
        try:
            with self._lock, self._owner._looks:
                before = {name: seen for name, seen, _ in _plain_files(self._folder)}
            text, has = run.result(code)
            with self._lock, self._owner._looks:
                return text + self._made(before), has
        finally:
            self._going.discard(run)

    def _made(self, before: dict[str, tuple[int, int]]) -> str:
        """Read files that are new or have changed, and return what to tell the model of them."""
        made: list[str] = []
        n_left = 0
        most = self._owner.config.sandbox_policy.max_file_sz_mb * _MB
        for name, seen, read in _plain_files(self._folder):
            size = seen[0]
            held = sum(one.bytes for one in self.files)  # files of all calls: the answer has them
            if before.get(name) == seen:
                continue
            if len(made) == _MOST_FILES or held + size > most:
                n_left += 1
                continue
            kind = mimetypes.guess_type(f"./{name}")[0]  # a name "data:…" would contain a type
            file = File(
                id=f"file-{secrets.token_hex(12)}", name=printable(name), bytes=size, mime_type=kind
            )
            self.files.append(file)  # counted before reading: other calls may read theirs meanwhile
            file._data = read()
            file.bytes = len(file.data)
            made.append(f"\n[file {file.name}, {file.bytes:,} bytes]")
            self._owner.keep(file)
        if n_left:
            made.append(
                f"\n[files not returned because they are too many or too large: {n_left:,}]"
            )
        return "".join(made)

    def n_bytes(self) -> float:
        """Return `_n_bytes` of the folder, measured after this was called."""
        asked = time.monotonic()
        with self._lock, self._owner._looks:
            if self._begun < asked:
                self._begun = time.monotonic()
                self._bytes = _n_bytes(self._folder)
            return self._bytes

    def close(self) -> None:
        """End all processes, and delete the folder unless it is the Runner's."""
        for run in tuple(self._going):
            run.kill()
        if self._temporary is not None:
            # Folders may lack permissions, or be nested too deep for Python.
            subprocess.run(["chmod", "-R", "u+rwx", self._temporary], check=False)
            subprocess.run(["rm", "-rf", self._temporary], check=False)


def _entries(
    folder: str, most: int, passed: type[OSError] = FileNotFoundError
) -> Iterator[tuple[str, str, int, os.stat_result]]:
    """Return the entries of a folder and of those in it: path, name, the open folder that holds the
    entry, and its status. Follows no links and opens only folders: a pipe may have replaced a file.

    Args:
        folder: the folder.
        most: the most entries it may have.
        passed: the errors on which an entry is skipped; by default those of entries that were
            deleted meanwhile.

    Raises:
        RecursionError: there are too many entries, or folders are nested too deep.
        OSError: a folder cannot be read.
    """
    left = most

    def inside(at: str, place: int | None, above: str) -> Iterator[Any]:
        nonlocal left
        opened = os.open(at, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
        try:
            with os.scandir(opened) as found:
                names = sorted(one.name for one in islice(found, left + 1))
            left -= len(names)
            folders = []
            for name in names:
                with contextlib.suppress(passed):
                    about = os.stat(name, dir_fd=opened, follow_symlinks=False)
                    yield above + name, name, opened, about
                    if stat.S_ISDIR(about.st_mode):
                        folders.append(name)
            if left < 0 or above.count(os.sep) > _DEEPEST or len(above) > _LONGEST_PATH:
                raise RecursionError
            for name in folders:
                with contextlib.suppress(passed):
                    yield from inside(name, opened, f"{above}{name}{os.sep}")
        finally:
            os.close(opened)

    return inside(folder, None, "")


def _plain_files(folder: str) -> Iterator[tuple[str, tuple[int, int], Callable[[], bytes]]]:
    """Yield the plain files of a folder: name, size, time of change, and a function that reads one.
    Hidden files, such as the caches of Matplotlib, are left out."""
    with contextlib.suppress(OSError, RecursionError):
        for path, name, place, about in _entries(folder, _MOST_ENTRIES, passed=OSError):
            is_plain = stat.S_ISREG(about.st_mode) and about.st_nlink == 1
            if is_plain and f"{os.sep}." not in f"{os.sep}{path}":
                seen = about.st_size, about.st_mtime_ns
                yield path, seen, partial(_read, name, about.st_size, place)


def _read(name: str, most: int, folder: int) -> bytes:
    """Return the content of a plain file in an open folder."""
    try:
        place = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return b""
    with open(place, "rb") as file:
        return file.read(most) if stat.S_ISREG(os.fstat(place).st_mode) else b""


@final
class _Run:
    """One process and all that it starts.

    Attributes:
        is_unwanted: whether it should end.
    """

    def __init__(self, session: CodeSession) -> None:
        self._config = session._owner.config
        self._folder = session._folder
        self._n_bytes = session.n_bytes
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.is_unwanted = False

    def result(self, code: str) -> tuple[str, dict[str, bool] | None]:
        """Return what it wrote, how it ended, and what it was isolated from."""
        policy = self._config.sandbox_policy
        reads, report = os.pipe()
        with (
            tempfile.TemporaryFile() as source,
            open(reads, "rb") as pipe,
            open(report, "wb") as report_file,
        ):
            # With a byte order mark, so that a comment cannot choose an encoding in which comments
            # are code.
            source.write(code.encode("utf-8-sig", errors="replace"))
            source.seek(0)
            with self._lock:
                if self.is_unwanted:
                    return "It was stopped.", None
                self._process = process = subprocess.Popen(
                    [
                        self._config.interpreter,
                        *("-I", "-S"),  # no sitecustomize.py from a folder on the path
                        str(_CONFINED),
                        json.dumps(self._arguments(policy, report)),
                    ],
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd=self._folder,
                    env=_environment(policy, self._folder),
                    pass_fds=(report,),
                    start_new_session=True,
                )
            report_file.close()
            try:
                output, why = self._read(process)
            finally:
                self.kill()
                if process.stdout is not None:
                    process.stdout.close()  # another thread might close what is being read
            os.set_blocking(reads, False)
            has = pipe.read(1_000)
        text = output.decode(errors="replace")
        if len(text) > _MOST_TEXT:
            text = f"{text[:_MOST_TEXT]}… (truncated)"
        if why is None and process.returncode:
            why = f"It exited with code {process.returncode}."
        return "\n".join(filter(None, [text.rstrip("\n"), why])), json.loads(has or b"null")

    def _arguments(self, policy: SandboxPolicy, report: int) -> dict[str, Any]:
        limits = {
            "RLIMIT_AS": policy.max_memory_mb * _MB,
            "RLIMIT_CPU": policy.max_cpu_secs,
            "RLIMIT_NOFILE": policy.max_open_fds,
            "RLIMIT_FSIZE": policy.max_file_sz_mb * _MB,
            "RLIMIT_NPROC": policy.max_procs,
            "RLIMIT_CORE": 1,  # 1 also keeps core dump handlers from running; 0 does not
            **{"RLIMIT_SIGPENDING": 256, "RLIMIT_MEMLOCK": _MB},  # shared by all programs of a user
            **{"RLIMIT_RTPRIO": 0, "RLIMIT_NICE": 0},  # a real-time process stops others
        }
        return {
            "folder": self._folder,
            "limits": limits,
            "network": policy.network == "full",
            "readable": list(policy.extra_fs_read),
            "writable": list(policy.extra_fs_write),
            "strict": policy.strict,
            "report": report,
        }

    def _read(self, process: subprocess.Popen[bytes]) -> tuple[bytes, str | None]:
        """Return what a process writes until it ends or is killed, and why it was killed."""
        assert process.stdout is not None
        policy = self._config.sandbox_policy
        output, size = bytearray(), 0
        end = time.monotonic() + self._config.timeout_secs
        looks = 0.0
        writes = select.poll()  # unlike `select.select`, it takes any file number
        writes.register(process.stdout, select.POLLIN)
        while True:
            with self._lock:
                has_ended = process.poll() is not None  # checked before the last output is read
            more = os.read(process.stdout.fileno(), 1 << 16) if writes.poll(0) else b""
            output += more[: 4 * _MOST_TEXT + 1 - len(output)]
            size += len(more)
            if not more:
                if has_ended:
                    return bytes(output), None
                time.sleep(_TURN_SECONDS)
            now = time.monotonic()
            if self.is_unwanted:
                return bytes(output), "It was stopped."
            if now > end:
                return bytes(output), f"It timed out after {self._config.timeout_secs:g} s."
            if size > _MOST_OUTPUT:
                return bytes(output), "It was stopped: it wrote too much output."
            processes, threads = _tree(process.pid, policy.max_procs + 2)
            if len(processes) > policy.max_procs + 2 or threads > _MOST_ENTRIES:
                return bytes(output), "It was stopped: it started too many processes."
            if now > looks:
                looks = now + _LOOK_SECONDS
                if self._n_bytes() + _deleted(processes) > policy.max_file_sz_mb * _MB:
                    problem = (
                        "It was stopped: its files are too many, too large in total, or nested "
                        "too deeply."
                    )
                    return bytes(output), problem

    def kill(self) -> None:
        """Kill the process and all that it has started."""
        with self._lock:
            self.is_unwanted = True
            process = self._process
            if process is None:
                return
            for _ in range(_MOST_KILLS):
                # The process id is not reused before `poll` has reported the end.
                if process.poll() is not None or _tree(process.pid, kills=True)[0] == [process.pid]:
                    break
                time.sleep(0.01)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _n_bytes(folder: str) -> float:
    """Return the bytes of a folder's files; infinity if there are too many to count."""
    try:
        return _size(about for *_, about in _entries(folder, 10 * _MOST_ENTRIES))
    except (OSError, RecursionError):  # a folder that cannot be read, or has too many entries
        return math.inf


def _deleted(processes: list[int]) -> int:
    """Return the bytes of deleted files that processes still have open."""
    found = []
    for pid in processes:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    found.append(os.stat(f"/proc/{pid}/fd/{name}"))
    return _size(one for one in found if stat.S_ISREG(one.st_mode) and not one.st_nlink)


def _size(files: Iterable[os.stat_result]) -> int:
    """Return the bytes of files; each file counts once."""
    return sum({(one.st_dev, one.st_ino): one.st_size for one in files}.values())


def _tree(pid: int, most: int = _MOST_ENTRIES, *, kills: bool = False) -> tuple[list[int], int]:
    """Return a process with all that it has started, as far as the system tells, and how many
    threads they have. Stops counting a little above the limit. ``kills`` kills each but the first
    as soon as it is found, because processes start others during the search."""
    found: list[int] = []
    threads = 0
    ahead = [pid]
    while ahead and threads <= _MOST_ENTRIES and len(found) <= most:
        found.append(ahead.pop())
        with contextlib.suppress(OSError):
            tasks = os.listdir(f"/proc/{found[-1]}/task")
            threads += len(tasks)
            for task in tasks:
                children = Path(f"/proc/{found[-1]}/task/{task}/children").read_text()
                ahead += map(int, children.split())
        with contextlib.suppress(OSError):
            if kills and found[-1] != pid:
                os.kill(found[-1], signal.SIGKILL)
    return found, threads


def _environment(policy: SandboxPolicy, folder: str) -> dict[str, str]:
    """Return the environment variables that code gets: none of the program's that may be secret."""
    names = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", *policy.extra_env)
    return {
        **{name: os.environ[name] for name in names if name in os.environ},
        "HOME": folder,
        "TMPDIR": folder,
        "MPLBACKEND": "Agg",
    }
