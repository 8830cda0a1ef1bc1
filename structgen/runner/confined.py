"""A script that the interpreter of a model's code runs first: it drops rights, then runs the code.

    python -I confined.py '{"folder": …}'     reads the code from standard input, like `python -`

It sets up what the operating system enforces: namespaces without a network, other processes and
other files; Landlock; limits on time, memory, processes and files. It writes what is in force to
the file descriptor ``told`` as JSON. It imports only the standard library, and never runs inside
the program's own process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys
from typing import Any

_USER, _PROCESSES, _NETWORK, _MEMORY = 0x10000000, 0x20000000, 0x40000000, 0x08000000
_MOUNTS, _BIND, _DETACH = 0x00020000, 0x5000, 2
_SET_MOUNT, _RECURSIVE, _READ_ONLY = 442, 0x8000, struct.pack("QQQQ", 1, 0, 0, 0)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every machine
_KEYS, _JOIN_SESSION = {"x86_64": 250, "aarch64": 219}, 1
_NO_NEW_RIGHTS, _DIE_WITH_PARENT, _ADOPT, _SECURE_BITS = 38, 1, 36, 28

_FILTER, _ALLOW, _REFUSE, _CANNOT, _LACKS = 22, 0x7FFF0000, 0x00050001, 0x0005005F, 0x00050026
_CALLS = {
    "x86_64": (
        *(0xC000003E, 41, 285, 16, 272, 56),
        (29, 64, 68, 319, 321, 425, 447),
        (188, 189, 190, 463),
    ),
    "aarch64": (
        *(0xC00000B7, 198, 47, 29, 97, 220),
        (194, 190, 186, 279, 280, 425, 447),
        (5, 6, 7, 463),
    ),
}
"""The machine's number, those of ``socket``, ``fallocate``, ``ioctl``, ``unshare`` and ``clone``,
and those of what takes memory, or room on disk, that no limit counts:
``shmget``, ``semget``, ``msgget``, ``memfd_create``, ``bpf``, ``io_uring_setup`` (which makes
sockets, too) and ``memfd_secret``; and ``setxattr`` and its kin, which programs that copy files do
without where a file system has no attributes."""
_CLONE3 = 435  # on every machine; its flags cannot be seen, and libraries do without it
_RESERVES = (0x40305828, 0x4030582A, 0x40305839)  # room on disk that no file's size tells of
_FAMILIES = (1, 2, 10, 16)  # of sockets that a namespace keeps to itself: not VSOCK, to a host

_READ = 0b1101  # execute and read files, list folders
_OF_FILES = 0b1100000000000111  # what may be done to what is no folder
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/opt")
_SETTINGS = (
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/ssl", "/etc/passwd"),
    *("/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/fonts"),
    "/etc/alternatives",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def main() -> None:
    """Confine this process, and become the interpreter."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    has = {"processes": False, "network": False, "files": False}
    flags = _USER | _PROCESSES | _MEMORY | (0 if given["network"] else _NETWORK)
    user, group = os.getuid(), os.getgid()
    if sys.platform == "linux":
        if libc.unshare(flags) == 0:
            has["processes"], has["network"] = True, True
            with contextlib.suppress(OSError):
                for name, text in (
                    *(("setgroups", "deny"), ("uid_map", f"{user} {user} 1")),
                    ("gid_map", f"{group} {group} 1"),
                ):
                    with open(f"/proc/self/{name}", "w") as file:
                        file.write(text)
        libc.prctl(_ADOPT, 1, 0, 0, 0)
        child = os.fork()
        if child:
            with contextlib.suppress(OSError):
                os.close(given["told"])
            status = _wait(child)
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if os.uname().machine in _KEYS:  # without the keys of the caller's session
            libc.syscall(_KEYS[os.uname().machine], _JOIN_SESSION, None)
    for name, most in given["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        if name == "RLIMIT_NPROC" and sys.platform == "linux" and not has["processes"]:
            most += _tasks(user)  # without a namespace, those of the user elsewhere count
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    if sys.platform != "linux":
        os.chdir(given["folder"])
    else:
        python = [sys.executable]
        while os.path.islink(python[-1]):
            python.append(os.path.join(os.path.dirname(python[-1]), os.readlink(python[-1])))
        prefixes = {sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}
        readable = [*_SYSTEM, *_SETTINGS, *prefixes, *python, *given["readable"]]
        writable = [given["folder"], *given["writable"]]
        with contextlib.suppress(OSError):
            has["files"] = has["processes"] and _has_own_root(
                libc, [*readable, *_DEVICES], writable
            )
        os.chdir(given["folder"])
        writable += _DEVICES
        has["files"] &= _bound_files(libc, readable, writable, has_network=given["network"])
        _bound_calls(libc, has_network=given["network"])
    with os.fdopen(given["told"], "w") as told:
        json.dump(has, told)
    asked = has.keys() - ({"network"} if given["network"] else set())
    lacking = sorted(name for name in asked if not has[name])
    if given["strict"] and lacking:
        print(f"This system cannot confine {' and '.join(lacking)}, and strict=True.")
        sys.exit(125)
    os.execve(sys.executable, [sys.executable, "-I", "-u", "-"], given["environment"])


def _wait(child: int) -> int:
    """How a child ended; what it has left running, which is this process's by then, is killed."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            break
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            left = list(map(int, file.read().split()))
        if not left:
            return status
        for one in left:
            os.kill(one, signal.SIGKILL)
        os.waitpid(-1, 0)


def _tasks(user: int) -> int:
    """How many processes and threads a user has, of which the system's limit is."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    found += len(os.listdir(f"/proc/{name}/task"))
    return found


def _has_own_root(libc: Any, readable: list[str], writable: list[str]) -> bool:
    """Have this process see these paths and no others; whether it does.

    Landlock leaves to code what opens no file: it may change modes and times of the user's files,
    and connect to sockets of other programs, such as Docker's.
    """
    real = {path: os.path.realpath(path) for path in (*readable, *writable) if os.path.exists(path)}
    may_write = {real.get(path) for path in writable}

    # In place of a folder that is always there and holds none of the paths.
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
    os.chdir("/proc")
    if libc.pivot_root(b".", b".") or libc.umount2(b".", _DETACH):
        return False
    for path, target in real.items():
        with contextlib.suppress(OSError):  # it is seen already
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)
    # Root, too, has no rights to undo this.
    has_no_rights: bool = libc.prctl(_SECURE_BITS, 3, 0, 0, 0) == 0
    return has_no_rights


def _bound_files(libc: Any, readable: list[str], writable: list[str], *, has_network: bool) -> bool:
    """Let code write to some paths alone, and read these and others."""
    abi = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return False
    rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    sockets = 0 if abi < 4 or has_network else 0b11
    attributes = struct.pack("QQ", rights, sockets)[: 16 if abi >= 4 else 8]
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    for paths, allowed in ((readable, _READ), (writable, rights)):
        for path in paths:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed_here = allowed & rights if os.path.isdir(path) else allowed & rights & _OF_FILES
            libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed_here, place), 0)
            os.close(place)
    libc.prctl(_NO_NEW_RIGHTS, 1, 0, 0, 0)
    is_bound: bool = libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return is_bound


def _bound_calls(libc: Any, *, has_network: bool) -> None:
    """Refuse memory and room on disk that no limit counts, and sockets that leave the namespace,
    where the system can.

    Code has no user namespace of its own: in one it could make networks, whose memory no limit
    counts.
    """
    if os.uname().machine not in _CALLS:
        return
    machine, socket, allocate, control, unshare, clone, calls, attributes = _CALLS[
        os.uname().machine
    ]
    refuse = (0x06, 0, 0, _REFUSE)
    steps = [(0x20, 0, 0, 4), (0x15, 1, 0, machine), refuse, (0x20, 0, 0, 0)]
    steps += [(0x35, 0, 1, 0x40000000), refuse]  # numbers of another kind of programs
    for some, answer in ((calls, _REFUSE), (attributes, _CANNOT), ((_CLONE3,), _LACKS)):
        for call in some:
            steps += [(0x15, 0, 1, call), (0x06, 0, 0, answer)]
    equals, has_bits = 0x15, 0x45
    for call, place, test, values, one_of_them, another in (
        (allocate, 24, equals, (0,), _ALLOW, _CANNOT),
        (control, 24, equals, _RESERVES, _CANNOT, _ALLOW),
        (socket, 16, equals, _FAMILIES, _ALLOW, _ALLOW if has_network else _REFUSE),
        (unshare, 16, has_bits, (_USER,), _REFUSE, _ALLOW),
        (clone, 16, has_bits, (_USER,), _REFUSE, _ALLOW),
    ):
        steps += [(0x15, 0, len(values) + 3, call), (0x20, 0, 0, place)]
        steps += [(test, len(values) - i, 0, value) for i, value in enumerate(values)]
        steps += [(0x06, 0, 0, another), (0x06, 0, 0, one_of_them)]
    steps.append((0x06, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    libc.prctl(_NO_NEW_RIGHTS, 1, 0, 0, 0)
    libc.prctl(_FILTER, 2, struct.pack("HP", len(steps), ctypes.addressof(code)), 0, 0)


if __name__ == "__main__":
    main()
