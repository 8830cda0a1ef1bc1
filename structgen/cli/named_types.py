"""``--type module:Class``: an output type by its name in a Python module or file.

It owns finding it, and what is said when it is not there. What may be an output type is
`structgen.types`' business.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from structgen.errors import OptionError


def named_type(text: str) -> Any:
    """Return what ``module:Name`` or ``file.py:Name`` stands for. The module's code is run.

    Modules are looked for in the current folder, too.

    Raises:
        OptionError: it is not so written, there is no such module, file or name, or its code fails.
    """
    module_name, separator, name = text.rpartition(":")
    if not separator or not module_name or not name:
        raise OptionError(
            f"--type {text}: write MODULE:NAME or FILE.py:NAME, such as shop.py:Order."
        )
    found: Any
    try:
        is_file = module_name.endswith(".py")
        found = _file(text, Path(module_name)) if is_file else _module(text, module_name)
    except OptionError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise OptionError(f"--type {text}: {_failure(error)}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            names = [known for known in vars(found) if not known.startswith("_")]
            near = difflib.get_close_matches(part, names, 3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise OptionError(f"--type {text}: {module_name} has no {part!r}.{hint}")
        found = getattr(found, part)
    return found


def _failure(error: BaseException) -> str:
    """What code raised while it was imported, and the line of the module that did."""
    shown = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, SyntaxError) and error.filename is not None:
        shown = f"{type(error).__name__}: {error.msg}"
        file, number, line = error.filename, error.lineno, error.text
    else:
        own = (__file__, importlib.__file__)
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename not in own and not frame.filename.startswith("<frozen ")
        ]
        if not frames:
            return shown
        # What it calls elsewhere says less to who wrote it.
        last = [frame for frame in frames if frame.filename == frames[0].filename][-1]
        file, number, line = last.filename, last.lineno, last.line
    return f"{shown}\n  {file}, line {number}: {(line or '').strip()}"


def _file(text: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise OptionError(f"--type {text}: there is no file {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where annotations are looked up
    sys.path.insert(0, str(path.parent.absolute()))
    spec.loader.exec_module(module)
    return module


def _module(text: str, name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # another module, which this one imports
        raise OptionError(
            f"--type {text}: there is no module {name}, neither here nor on Python's path."
        ) from None
