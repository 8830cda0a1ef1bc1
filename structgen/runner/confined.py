"""A script that the interpreter of a model's code runs first: it drops rights, then runs the code.

    python -I -S confined.py '{"folder": …}'     reads the code from standard input, like `python -`

It sets up what the operating system enforces: namespaces without a network, other processes and
other files; Landlock, where the kernel has it; a list of allowed system calls; limits on time,
memory, processes and files. It writes what is in force to the file descriptor ``report`` as JSON.
It imports only the standard library, and never runs inside the program's own process.

    structgen ─▶ this process ─▶ the namespace's first process ─▶ the code, in a session of its own

Each process ends with the one before it. Without namespaces the second is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import struct
import sys
from typing import Any

_USER, _PROCESSES, _NETWORK, _MEMORY = 0x10000000, 0x20000000, 0x40000000, 0x08000000
_MOUNTS, _BIND, _DETACH = 0x00020000, 0x5000, 2
_SET_MOUNT, _RECURSIVE, _READ_ONLY = 442, 0x8000, struct.pack("QQQQ", 1, 0, 0, 0)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every machine
_NO_NEW_RIGHTS, _DIE_WITH_PARENT, _ADOPT, _SECURE_BITS = 38, 1, 36, 28

_FILTER, _ALLOW, _CANNOT, _LACKS = 22, 0x7FFF0000, 0x0005005F, 0x00050026
_CALLS = {
    "x86_64": (
        *(0xC000003E, (41, 53), 72, 16, 56, (188, 189, 190, 285)),
        "0-15 17-28 32-40 42-52 54-55 57-63 73-100 102 104-111 113-133 137-138 140-152 157-158 "
        "160 186-187 191-204 217-219 221-226 228-231 234-235 237-239 247 251-252 257-271 273-277 "
        "280 282-284 286-290 292-293 295-297 299 302 307 309 314-316 318 322 324-332 334 424 434 "
        "436-437 439 449 452-456",
    ),
    "aarch64": (
        *(0xC00000B7, (198, 199), 25, 29, 220, (5, 6, 7, 47)),
        "8-17 19 23-24 30-38 43-46 48-50 52-57 59 61-74 76-80 82-88 90-91 93-96 98-103 107-111 "
        "113-115 118-141 143-156 158-160 163-169 172-179 200-216 221-223 226-233 235-237 240 "
        "242-243 260-261 269 274-276 278 281 283-291 293 424 434 436-437 439 449 452-456",
    ),
}
"""The machine's number, those of ``socket`` and ``socketpair``, ``fcntl``, ``ioctl``, ``clone``,
and of ``setxattr``, its kin and ``fallocate``; and of all other system calls that code has.

The others fail as in a kernel that lacks them, and so do numbers that are not given yet. They take
memory, room or watches that no limit counts, or one of all programs of the user (shared memory,
``memfd_create``, keys, ``inotify``, ``epoll``, ``io_uring``), look into other processes, make
sessions, each of which gets a share of the processor, or change the system: mounts, namespaces, the
clock. Programs that copy files do without attributes, and those that reserve room write.
"""
_LOCAL, _INTERNET = 1, (2, 10, 16)  # socket families: no VSOCK, which reaches the host
_COMMANDS = (*range(12), 15, 16, 36, 37, 38, *range(1030, 1035))  # of fcntl: no leases, for which
# others who open the file, such as a system program, wait until they are released.
_GROUPS = (0x5400, 0x8900)  # of ioctl: of terminals, pipes and sockets. Those of files can
# reserve disk space that file sizes do not show.
_NEW_NAMESPACES = 0x7E020000

_READ = 0b1101  # execute and read files, list folders
_OF_FILES = 0b1100000000000111  # what may be done to anything but a folder
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/opt")
_SETTINGS = (
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/passwd"),
    *("/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/fonts"),
    *("/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf"),  # not the keys in /etc/ssl
)
_MOST_TASKS = 4_096
_SCRIPT = "/structgen_code.py"  # processes of `multiprocessing` read it
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def main() -> None:
    """Confine this process, and become the interpreter."""
    os.nice(10)  # many busy processes would keep a model waiting
    given: dict[str, Any] = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    has = dict.fromkeys(("processes", "network", "files", "system calls"), False)
    flags = _USER | _PROCESSES | _MEMORY | (0 if given["network"] else _NETWORK)
    user, group = os.getuid(), os.getgid()
    if sys.platform == "linux":
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out, the system kills this process first
        if libc.unshare(flags) == 0:
            has["processes"], has["network"] = True, True
            with contextlib.suppress(OSError):
                for name, text in (
                    *(("setgroups", "deny"), ("uid_map", f"{user} {user} 1")),
                    ("gid_map", f"{group} {group} 1"),
                ):
                    with open(f"/proc/self/{name}", "w") as file:
                        file.write(text)
            _fork_child(libc, given["report"])
            _bound_processes()
        _fork_child(libc, given["report"])
        os.setsid()  # signals to its group do not reach the processes above it
    for name, most in given["limits"].items():
        kind = getattr(resource, name, None)
        if kind is None:  # which only Linux has
            continue
        hard = resource.getrlimit(kind)[1]
        if name == "RLIMIT_NPROC" and sys.platform == "linux":
            # The namespace already has two; without a namespace all of the user's count.
            most += 2 if has["processes"] else _tasks(user)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    if sys.platform != "linux":
        os.chdir(given["folder"])
    else:
        python = [sys.executable]
        while os.path.islink(python[-1]):
            python.append(os.path.join(os.path.dirname(python[-1]), os.readlink(python[-1])))
        above = os.path.dirname(os.path.dirname(sys.executable))
        prefixes = {sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}
        if os.path.exists(f"{above}/pyvenv.cfg"):
            prefixes.add(above)
        readable = [*_SYSTEM, *_SETTINGS, *prefixes, *python, *given["readable"]]
        writable = [given["folder"], *given["writable"]]
        with contextlib.suppress(OSError):
            has["files"] = has["processes"] and _has_own_root(
                libc, [*readable, *_DEVICES], writable
            )
        os.chdir(given["folder"])
        writable += _DEVICES
        readable += [_SCRIPT] * has["files"]
        libc.prctl(_SECURE_BITS, 3, 0, 0, 0)  # not even root can undo this
        libc.prctl(_NO_NEW_RIGHTS, 1, 0, 0, 0)
        _bound_files(libc, readable, writable, has_network=given["network"])
        has["system calls"] = _bound_calls(libc, has_network=given["network"])
        has["network"] |= has["system calls"]  # through its sockets
    with os.fdopen(given["report"], "w") as report:
        json.dump(has, report)
    asked = has.keys() - ({"network"} if given["network"] else set())
    lacking = sorted(name for name in asked if not has[name])
    if given["strict"] and lacking:
        print(f"strict=True, but this system cannot isolate {' and '.join(lacking)}.")
        sys.exit(125)
    script = "-"
    if has["files"] and os.path.exists(_SCRIPT):
        script = _SCRIPT
        os.lseek(0, 0, os.SEEK_END)
    os.execv(sys.executable, [sys.executable, "-I", "-u", script])


def _fork_child(libc: Any, report: int) -> None:
    """Fork, and return in the child, which is killed if this process ends. This process waits,
    kills what the child leaves running, and ends with the child's status; it ends, too, if its
    parent does."""
    child = 0
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child or os.getpid(), signal.SIGKILL))
    libc.prctl(_DIE_WITH_PARENT, signal.SIGTERM, 0, 0, 0)
    libc.prctl(_ADOPT, 1, 0, 0, 0)
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        return
    os.close(report)
    pid = 0
    while pid != child:
        pid, status = os.waitpid(-1, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the rest is needed all the same
    code = os.waitstatus_to_exitcode(status)
    while os.getpid() != 1:  # when a namespace's first process ends, the system ends the others
        with open("/proc/thread-self/children") as file:
            left = list(map(int, file.read().split()))
        if not left:
            break
        for one in left:
            os.kill(one, signal.SIGKILL)
        for _ in left:
            os.waitpid(-1, 0)
    os._exit(code if code >= 0 else 128 - code)


def _bound_processes() -> None:
    """Limit the processes and threads of this namespace, also for root, to whom RLIMIT_NPROC does
    not apply."""
    release = re.match(r"(\d+)\.(\d+)\.", os.uname().release)
    if release and (int(release[1]), int(release[2])) >= (6, 14):  # before 6.14 it is the machine's
        with contextlib.suppress(OSError), open("/proc/sys/kernel/pid_max", "w") as file:
            file.write(str(_MOST_TASKS))


def _tasks(user: int) -> int:
    """Return how many processes and threads a user has; RLIMIT_NPROC counts these."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    found += len(os.listdir(f"/proc/{name}/task"))
    return found


def _has_own_root(libc: Any, readable: list[str], writable: list[str]) -> bool:
    """Give this process a root folder with only these paths; return whether that worked."""
    real = {path: os.path.realpath(path) for path in (*readable, *writable) if os.path.exists(path)}
    may_write = {real.get(path) for path in writable}

    # Mounted over a folder that always exists and contains none of the paths.
    if libc.unshare(_MOUNTS) or libc.mount(b"tmpfs", b"/proc", b"tmpfs", ctypes.c_ulong(0), None):
        return False
    seen: list[str] = []
    for path in sorted(set(real.values())):  # a folder before what is in it
        if path not in may_write and any(f"{path}/".startswith(one) for one in seen):
            continue
        place = f"/proc{path}"
        if os.path.isdir(path):
            os.makedirs(place, exist_ok=True)
        elif not os.path.exists(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.close(os.open(place, os.O_CREAT, 0o600))
        if libc.mount(os.fsencode(path), os.fsencode(place), None, ctypes.c_ulong(_BIND), None):
            return False
        if path not in may_write and libc.syscall(
            _SET_MOUNT, -1, os.fsencode(place), _RECURSIVE, _READ_ONLY, ctypes.c_size_t(32)
        ):
            return False
        seen.append(f"{path.rstrip('/')}/")
    with contextlib.suppress(OSError), open(f"/proc{_SCRIPT}", "wb") as script:  # "/" is read-only
        script.write(os.pread(0, os.fstat(0).st_size, 0))
    os.chdir("/proc")
    if libc.pivot_root(b".", b".") or libc.umount2(b".", _DETACH):
        return False
    # Locks of multiprocessing are files in /dev/shm, which here count as files of the folder.
    for path, target in (*real.items(), ("/dev/shm", real[writable[0]])):
        with contextlib.suppress(OSError):  # it is visible already
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)
    only_read: int = libc.syscall(_SET_MOUNT, -1, b"/", 0, _READ_ONLY, ctypes.c_size_t(32))
    return only_read == 0


def _bound_files(libc: Any, readable: list[str], writable: list[str], *, has_network: bool) -> None:
    """Let code write only to some paths, and read only these and some others, if the system has
    Landlock.

    With a root folder of its own this is a second wall. Without one it does not stop what opens no
    file: changing modes and times of the user's files, and connecting to sockets of other programs,
    such as Docker's.
    """
    abi = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return
    rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    sockets, others = 0 if has_network else 0b11, 0b11  # abstract sockets, and signals
    attributes = struct.pack("QQQ", rights, sockets, others)
    attributes = attributes[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    for paths, allowed in ((readable, _READ), (writable, rights)):
        for path in paths:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed_here = allowed & rights if os.path.isdir(path) else allowed & rights & _OF_FILES
            libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed_here, place), 0)
            os.close(place)
    libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _bound_calls(libc: Any, *, has_network: bool) -> bool:
    """Allow only the system calls of `_CALLS`; return whether the system can enforce it."""
    if os.uname().machine not in _CALLS:
        return False
    machine, sockets, command, control, clone, without, others = _CALLS[os.uname().machine]
    families = (_LOCAL, *_INTERNET) if has_network else (_LOCAL,)
    steps = [(0x20, 0, 0, 4), (0x15, 1, 0, machine), (0x06, 0, 0, _LACKS), (0x20, 0, 0, 0)]
    for call in without:
        steps += [(0x15, 0, 1, call), (0x06, 0, 0, _CANNOT)]
    equals, has_bits = 0x15, 0x45
    for call, place, bits, test, values, one_of_them, another in (
        *((call, 16, ~0, equals, families, _ALLOW, _CANNOT) for call in sockets),
        (command, 24, ~0, equals, _COMMANDS, _ALLOW, _CANNOT),
        (control, 24, 0xFF00, equals, _GROUPS, _ALLOW, _CANNOT),
        (clone, 16, ~0, has_bits, (_NEW_NAMESPACES,), _LACKS, _ALLOW),
    ):
        steps += [(0x15, 0, len(values) + 4, call), (0x20, 0, 0, place)]
        steps += [(0x54, 0, 0, bits & 0xFFFFFFFF)]
        steps += [(test, len(values) - i, 0, value) for i, value in enumerate(values)]
        steps += [(0x06, 0, 0, another), (0x06, 0, 0, one_of_them)]
    for part in others.split():
        first, _, last = part.partition("-")
        steps += [(0x35, 0, 2, int(first)), (0x25, 1, 0, int(last or first)), (0x06, 0, 0, _ALLOW)]
    steps.append((0x06, 0, 0, _LACKS))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    is_bound: bool = (
        libc.prctl(_FILTER, 2, struct.pack("HP", len(steps), ctypes.addressof(code)), 0, 0) == 0
    )
    return is_bound


if __name__ == "__main__":
    main()
