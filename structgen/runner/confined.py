"""Run as a script, by the interpreter of a model's code: gives up rights, then becomes it.

    python -I confined.py '{"folder": …}'     the code is standard input, as of `python -`

Owns what the operating system bounds: namespaces without a network and without other processes,
files by Landlock, and limits on time, memory, processes and files. What holds of it is written to
the file descriptor ``told`` as JSON. It imports the standard library alone, and nothing of it runs
in the program's own process.
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
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every machine
_NO_NEW_RIGHTS, _DIE_WITH_PARENT, _ADOPT = 38, 1, 36

_READ = 0b1101  # execute and read files, list folders
_OF_FILES = 0b1100000000000111  # what may be done to what is no folder
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/opt")
_SETTINGS = (
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/ssl", "/etc/passwd"),
    *("/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/fonts"),
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
    for name, most in given["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        if name == "RLIMIT_NPROC" and sys.platform == "linux" and not has["processes"]:
            most += _tasks(user)  # without a namespace, those of the user elsewhere count
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    os.chdir(given["folder"])
    if sys.platform == "linux":
        has["files"] = _bound_files(libc, given)
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


def _bound_files(libc: Any, given: dict[str, Any]) -> bool:
    """Let code write in the folder alone, and read that and what is the system's or Python's."""
    abi = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return False
    rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    sockets = 0 if abi < 4 or given["network"] else 0b11
    attributes = struct.pack("QQ", rights, sockets)[: 16 if abi >= 4 else 8]
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    prefixes = {sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}
    readable = [*_SYSTEM, *_SETTINGS, *prefixes, *given["readable"]]
    writable = [given["folder"], *given["writable"], *_DEVICES]
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


if __name__ == "__main__":
    main()
