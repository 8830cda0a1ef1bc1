"""The public surface: its names, and that importing it costs next to nothing."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import structgen
from structgen import errors

ERRORS = {
    "Abstained",
    "BatchError",
    "BudgetTooSmall",
    "CompileLimitExceeded",
    "ConversionError",
    "DownloadError",
    "GrammarError",
    "IncompleteOutput",
    "ModelError",
    "ModelNotFound",
    "OptionError",
    "OutputTypeError",
    "Overloaded",
    "ParseError",
    "PatternError",
    "PromptError",
    "Refused",
    "RemoteError",
    "RequestError",
    "SchemaError",
    "SessionError",
    "StructgenError",
    "TokenNotAllowed",
    "ToolServerError",
    "TruncationWarning",
    "UnenforcedWarning",
    "UninformativeWarning",
    "Unsatisfiable",
    "UnsupportedFeature",
    "ValidationFailed",
    "VocabularyError",
    "WorkerDied",
}
COMMON_ERRORS = {
    *("Abstained", "BatchError", "BudgetTooSmall", "IncompleteOutput", "ModelError"),
    *("OptionError", "OutputTypeError", "Overloaded", "ParseError", "PromptError", "Refused"),
    *("RemoteError", "RequestError", "StructgenError", "UnsupportedFeature"),
}
"""Those that programs catch; `structgen.errors` has all of them."""

NAMES = COMMON_ERRORS | {
    "errors",
    "insight",
    "AsyncTypedGenerator",
    "AsyncModel",
    "AsyncRemoteModel",
    "AsyncStream",
    "Call",
    "Cfg",
    "Choice",
    "Constraint",
    "Cursor",
    "Embedder",
    "Draft",
    "GenerationResult",
    "Partial",
    "Generator",
    "JsonSchema",
    "Quote",
    "Regex",
    "RemoteModel",
    "Runner",
    "Stream",
    "Tagged",
    "Template",
    "Text",
    "TextModel",
    "Think",
    "Tool",
    "ToolCalls",
    "Vocabulary",
    "__version__",
    "batch",
    "compile",
    "decisions",
    "fill_masks",
    "from_onnx_genai",
    "from_openai",
    "generate",
    "load",
    "load_async",
    "load_embedder",
    "models",
    "runner",
    "sample",
    "types",
    "warm_up",
}
MODEL_PACKAGES = (
    *("onnxruntime_genai", "onnxruntime", "onnx", "onnx_ir", "gguf", "huggingface_hub"),
    "openai",
)


def modules_after(code: str) -> set[str]:
    """Top-level names in ``sys.modules`` after ``code`` ran in a fresh interpreter."""
    code = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return {name.partition(".")[0] for name in json.loads(result.stdout.splitlines()[-1])}


def test_public_names_are_these() -> None:
    assert set(structgen.__all__) == NAMES
    assert len(NAMES) <= 61, "the public surface fits a page"
    assert list(structgen.__all__) == sorted(structgen.__all__)
    assert dir(structgen) == sorted(NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(structgen, name)
    if name != "__version__":
        assert inspect.getdoc(value)


def test_every_error_is_public() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert defined == ERRORS
    for name in ERRORS:
        assert name in (errors.__doc__ or "")


def test_type_checkers_know_every_name() -> None:
    """One that is missing is ``Any`` to them, without a word."""
    tree = ast.parse(inspect.getsource(structgen))
    known = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } | {
        node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert NAMES - {"__version__"} <= known


def test_overloads_are_few() -> None:
    """A type checker's message about one wrong call tells all of its overloads."""
    counts = {
        file: file.read_text(encoding="utf-8").count("@overload\n")
        for file in Path(structgen.__file__).parent.rglob("*.py")
    }
    assert sum(counts.values()) <= 60, {file: n for file, n in counts.items() if n}


def test_unknown_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="'structgen' has no attribute 'Generater'"):
        structgen.Generater  # noqa: B018


def test_import_loads_no_dependency() -> None:
    loaded = modules_after("import structgen")
    assert not loaded & {*MODEL_PACKAGES, "numpy", "pydantic", "tokenizers", "rich", "click"}


def test_engine_loads_no_model_runtime() -> None:
    loaded = modules_after("from structgen import compile, Vocabulary, Regex, Generator")
    assert "numpy" in loaded
    assert not loaded & set(MODEL_PACKAGES)


def test_schemas_and_patterns_load_only_what_they_use() -> None:
    """What is imported slows every full collection of garbage down for good."""
    loaded = modules_after(
        "from structgen import compile, JsonSchema, Regex, Vocabulary, warm_up\n"
        "tokens = [bytes([i]) for i in range(256)] + [b'']\n"
        "vocabulary = Vocabulary(tokens, eos_token_ids=[256])\n"
        "warm_up(vocabulary)\n"
        "compile(JsonSchema({'pattern': '^a+$', 'format': 'date'}), vocabulary).start()\n"
        "compile(Regex('[a-z]+'), vocabulary).start()\n"
    )
    assert "numpy" in loaded
    others = {"pydantic", "pydantic_core", "typing_extensions", "lark", "tokenizers", "jsonschema"}
    assert not loaded & {*MODEL_PACKAGES, *others, "asyncio", "http", "email", "ssl", "sqlite3"}


def test_warming_up_for_grammars_loads_what_they_use() -> None:
    prepare = (
        "from structgen import Cfg, Vocabulary, compile, warm_up\n"
        "vocabulary = Vocabulary([bytes([i]) for i in range(256)] + [b''], eos_token_ids=[256])\n"
        "warm_up(vocabulary, grammars=True)\n"
    )
    use = (  # never compiled before, so that nothing is kept of it
        "import os\n"
        "import numpy as np\n"
        "name = os.urandom(8).hex()\n"
        "for text in (f'root ::= [a-z]+ \"-{name}\"', f'start: X \"-{name}\"\\nX: /[a-z]+/\\n'):\n"
        "    cursor = compile(Cfg(text), vocabulary).start()\n"
        "    cursor.accept(ord('b'))\n"
        "    cursor.fill_mask(np.zeros((vocabulary.size + 31) // 32, np.uint32))\n"
    )
    assert modules_after(prepare) == modules_after(prepare + use)


def test_help_loads_no_model_runtime() -> None:
    loaded = modules_after(
        "import structgen.cli\n"
        "try:\n    structgen.cli.main(['--help'])\n"
        "except SystemExit as stop:\n    assert not stop.code"
    )
    assert not loaded & set(MODEL_PACKAGES)


def test_import_is_light() -> None:
    count = "import sys\n{}\nprint(len([m for m in sys.modules if m.startswith('structgen')]))"
    code = count.format("import structgen")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 2, "structgen and its errors; all else when it is used"
