"""What may import what: one way through the stages, no circles, folders through their faces.

Every import statement counts, those inside functions and those for type checkers too.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent / "structgen"

_DESCRIBED = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
STAGES = tuple(re.findall(r"\*\*`([a-z_]+)(?:\.py|/)`\*\*", _DESCRIBED))
"""A stage may import itself and those before it; the public face, ``structgen``, imports all."""

SUBFOLDERS = {
    "grammar": ("reading", "ir", "regex", "formats", "quotes", "json_schema", "cfg"),
    "automaton": (
        "work",
        "bits",
        "texts",
        "liveness",
        "regex",
        "core",
        "sequence",
        "schema",
        "json",
        "cfg",
        "dispatch",
    ),
}
"""The same within a stage, where its subfolders depend on one another in one direction."""

OPEN_MODULES = {
    "structgen.grammar.ir": "the language that all stages after it speak",
    "structgen.grammar.formats": "one module in place of a folder, and its own face",
    "structgen.grammar.quotes": "another such",
    "structgen.automaton.bits": "sets of small numbers, in every stage after it",
    "structgen.automaton.texts": "what texts are, however long",
    "structgen.automaton.work": "what a call may do, counted in all stages",
    "structgen.storage.user_folder": "where the folder is, and whose",
    "structgen.models.base": "what models are to the rest, without what fetches them",
    "structgen.models.listening": "what a transcript is, likewise",
    "structgen.models.progress": "a bar, wherever something is slow",
    "structgen.types.tools": "brings Pydantic, which those who have schemas only do not load",
    "structgen.masks.cfg.masks": "imported when the first grammar is compiled",
    "structgen.constraint.check_grammar": "for the command line only",
    "structgen.types.written": "output types as bytes, imported when there are such",
    "structgen.integrations.connections": "of both servers, of which one may not be installed",
    "structgen.integrations.mcp": "imported by its name, for the package that it needs",
    "structgen.asgi": "a module of its own",
    "structgen.generator": "a module of its own",
    "structgen.asking": "a module of its own",
    "structgen.notebook": "a module of its own",
    "structgen.options": "a module of its own",
    "structgen.text_model": "a module of its own",
    "structgen.errors": "a module of its own",
    "structgen.media": "a module of its own",
}
"""Modules that other stages import directly, not through their folder's face, and why."""


class Import(NamedTuple):
    by: str
    of: str
    line: int


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("structgen", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports() -> Iterator[Import]:
    for name, path in MODULES.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.partition(".")[0] == "structgen":
                        yield Import(name, alias.name, node.lineno)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) - node.level + 1]
                    base = ".".join([*above, *([node.module] if node.module else [])])
                if base.partition(".")[0] != "structgen":
                    continue
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    yield Import(name, whole if whole in MODULES else base, node.lineno)


IMPORTS = list(imports())


def stage(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def told(found: list[Import]) -> list[str]:
    return [f"{by}, line {line}: imports {of}" for by, of, line in found]


def test_all_imports_are_seen():
    assert len(MODULES) > 200
    assert len(IMPORTS) > 1000
    inside = {one for one in IMPORTS if one.by == "structgen.types.regexes"}
    assert any(stage(one.of) == "automaton" for one in inside), "function-level imports count"


def test_slow_tests_are_there():
    """`conftest` leaves them out by name: a name that is stale would leave out nothing."""
    names = (PACKAGE.parent / "tests" / "slow.txt").read_text(encoding="utf-8").split()
    for path, group in itertools.groupby(names, lambda name: name.partition("::")[0]):
        tree = ast.parse((PACKAGE.parent / path).read_text(encoding="utf-8"))
        defined = {getattr(node, "name", None) for node in tree.body}
        for name in group:
            assert name == path or name.split("::")[1] in defined, name


def test_only_the_public_face_stands_beside_the_stages():
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    faces = {"__init__.py", "__main__.py", "py.typed"}
    assert faces <= files <= faces | {f"{name}.py" for name in STAGES}
    folders = {stage(module) for module in MODULES} - {"", "__main__"}
    assert folders == set(STAGES)


def test_tests_stand_where_what_they_test_does():
    beside = {
        "benchmarks": "measures, in no test run",
        "data": "what tests read",
        "engine": "automata, masks and cursors together, against brute force",
        "grammars": "samples for the grammar library",
        "static": "read by type checkers, never run",
    }
    here = Path(__file__).parent
    folders = {path.name for path in here.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders - set(beside) <= set(STAGES)
    whole = {
        "test_asgi.py",
        "test_errors.py",
        "test_layout.py",
        "test_media.py",
        "test_notebook.py",
        "test_public_names.py",
        "test_readme.py",
        "test_site.py",
    }
    assert {path.name for path in here.glob("test_*.py")} == whole


def test_imports_go_one_way():
    up = []
    for one in IMPORTS:
        by, of = stage(one.by), stage(one.of)
        if by in ("", "__main__"):
            continue
        if not of or STAGES.index(of) > STAGES.index(by):
            up.append(one)
    # The command line and its demo are users of the public face.
    assert told([one for one in up if stage(one.by) != "cli"]) == []


def test_subfolders_depend_on_one_another_in_one_direction():
    up = []
    for one in IMPORTS:
        by, of = one.by.split("."), one.of.split(".")
        order = SUBFOLDERS.get(stage(one.by))
        if order is None or by[1] != of[1] or len(by) < 3 or len(of) < 3:
            continue
        if order.index(of[2]) > order.index(by[2]):
            up.append(one)
    assert told(up) == []


def test_no_file_imports_itself_in_a_circle():
    graph: dict[str, set[str]] = {}
    for by, of, _ in IMPORTS:
        # A folder's face imports its modules; these import the folder by name alone.
        if by != of and MODULES[of].name != "__init__.py":
            graph.setdefault(by, set()).add(of)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(error.args[1])) from None


def test_folders_are_reached_through_their_faces():
    deep = []
    for one in IMPORTS:
        if stage(one.by) == stage(one.of) or one.of in OPEN_MODULES or "." not in one.of:
            continue
        if MODULES[one.of].name == "__init__.py":
            continue
        face, _, name = one.of.rpartition(".")
        tree = ast.parse(MODULES[face].read_text(encoding="utf-8"))
        lines = [line for line in ast.walk(tree) if isinstance(line, ast.ImportFrom)]
        lines = [line for line in lines if line.module in (None, face)]
        if name not in {alias.name for line in lines for alias in line.names}:
            deep.append(one)
    assert told(deep) == []


def test_the_open_modules_are_there_and_used():
    used = {one.of for one in IMPORTS if stage(one.by) != stage(one.of)}
    assert set(OPEN_MODULES) <= used


IN_MEMORY = tuple(
    f"structgen.storage.{name}"
    for name in ("GenerationalCache", "Numbers", "cached_method", "fork_safe", "in_child")
)


def test_the_automaton_does_no_input_or_output():
    found = []
    for module, path in MODULES.items():
        if stage(module) != "automaton":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [node.func.id] if node.func.id == "open" else []
            bad = (
                "os",
                "pathlib",
                "io",
                "structgen.storage",
                "structgen.grammar.cfg.cache",
                "open",
            )
            found += [f"{module}: {name}" for name in names if name.startswith(bad)]
    # `GenerationalCache` is a cache in memory, and locks are no input or output.
    assert [one for one in found if not one.endswith(IN_MEMORY)] == []


def test_one_folder_knows_the_runtime():
    for module, path in MODULES.items():
        text = path.read_text(encoding="utf-8")
        if not module.startswith(("structgen.models.genai", "structgen.models.trial")):
            tree = ast.parse(text)
            names = {
                alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.Import)
                for alias in node.names
            } | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            assert "onnxruntime_genai" not in names, module


def test_one_folder_makes_sessions_of_the_other_runtime():
    allowed = ("structgen.models.embedding", "structgen.models.loading")
    for module, path in MODULES.items():
        names = {
            alias.name.partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert module.startswith(allowed) or "onnxruntime" not in names, module


NOUNS = re.compile(
    r"(A|All|An|By|Each|Every|For|How|If|In|Its|No|None|Nothing|Of|On|One|Some|The|Those|What|Where"
    r"|Whether|Which|Who|With)\b"
)
DESCRIBED = re.compile("property|overload|contextmanager")
"""Decorators of functions that are described by what they are."""


def test_docstrings_say_what_a_module_owns_and_what_a_function_does():
    for module, path in MODULES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        first = (ast.get_docstring(tree) or "").split("\n")[0]
        assert len(first.split()) >= 3, module
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                doc = ast.get_docstring(node) or ""
                is_described = any(DESCRIBED.search(ast.unparse(d)) for d in node.decorator_list)
                assert is_described or not NOUNS.match(doc), (
                    f"{path}:{node.lineno}: {doc.split(chr(10))[0]!r}: begin with a verb"
                )
