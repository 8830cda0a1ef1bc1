"""Write tests/slow.txt: the tests that `pytest` leaves to `pytest --rest`. Run it when they change.

    pytest --everything -n 2 --durations=0 -vv | tee log && python .ci/slow_tests.py log

A test function whose calls take more than `_LIMIT` seconds together is slow, and so is a whole file
whose fixtures take more than `_SETUP` seconds, because the time of a fixture moves on to whichever
test is left. Of each stage that needs a model, a server or a process, one file stays (`_STAY`).
"""

import re
import sys
from collections import Counter
from pathlib import Path

_LIMIT, _SETUP = 0.5, 1.5
_STAY = {
    "tests/generator/test_end_to_end.py",
    "tests/server/test_http_chat.py",
    "tests/workers/test_async_model.py",
    "tests/decisions/test_real_model.py",
}
_LINE = re.compile(r"^([\d.]+)s (call|setup|teardown) +(tests/\S+?\.py)::([^\[\s]+)")

calls: Counter[tuple[str, str]] = Counter()
fixtures: Counter[str] = Counter()
for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
    if found := _LINE.match(line):
        seconds, when, file, function = found.groups()
        if when == "call":
            calls[file, function] += float(seconds)
        else:
            fixtures[file] += float(seconds)
files = {file for file, seconds in fixtures.items() if seconds > _SETUP} - _STAY
slow = files | {
    f"{file}::{function}"
    for (file, function), seconds in calls.items()
    if seconds > _LIMIT and file not in files
}
Path("tests/slow.txt").write_text("".join(f"{name}\n" for name in sorted(slow)), encoding="utf-8")
left = sum(s for (f, name), s in calls.items() if not {f, f"{f}::{name}"} & slow)
print(f"{len(slow)} names; the calls of the others take {left:.0f} s")
