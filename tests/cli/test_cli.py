"""The command line as its user meets it: in a process of its own, without a terminal.

What needs no model runs in forks of one process, which has imported the command; most of what needs
one runs in this process, with the model that the tests share. A few start as a user starts them.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from typing import get_args

import pytest
from fakes import FakeModel
from forking import Done, Forks, serve
from rich.cells import cell_len
from rich.console import Console

import structgen
from structgen.cli import batch, commands, demo, generation, model_commands, terminal
from structgen.cli.generation import Form
from structgen.decisions import Debias
from structgen.errors import OptionError
from structgen.grammar.cfg import library as grammars
from structgen.jobs import job, parts
from structgen.models import genai
from structgen.models.conversion import convert
from structgen.server import Settings

PLAIN = {"NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "PYTHONPATH"}


def run(*arguments, stdin=None, timeout=300):
    return subprocess.run(
        [sys.executable, "-m", "structgen", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
        env=_environment(),
    )


def _environment():
    plain = {name: value for name, value in os.environ.items() if name not in PLAIN}
    return {**plain, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="module")
def quick():
    """Runs a command that needs no model."""
    with Forks(__file__, _environment()) as forks:
        yield lambda *arguments, stdin="": forks.run(arguments, stdin)


@pytest.fixture
def here(model, monkeypatch, capfd):
    """Runs a command in this process, with the model that is loaded already."""
    for name in PLAIN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(genai, "load", lambda folder, kind: model)

    def run(*arguments):
        code = commands._run(arguments)
        return Done(code, *capfd.readouterr())

    return run


def test_version():
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, f"structgen {structgen.__version__}\n")


@pytest.mark.parametrize("group", [(), ("models",), ("grammars",)])
def test_no_summary_of_a_command_is_cut(quick, group):
    assert "..." not in quick(*group, "--help").stdout.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["dmeo"], 2, "No such command 'dmeo'"),
        (["chat"], 2, "No such command 'chat'. Did you mean 'generate'?"),
        (["pull", "x"], 2, "Did you mean 'models pull'?"),
        (["models", "remove", "x"], 2, "Did you mean 'rm'?"),
        (["grammars", "show", "jsn"], 1, "Did you mean json"),
        (["grammars", "show", "sql"], 1, "Did you mean sql-select"),
        (["generate"], 2, "Missing argument 'PROMPT'"),
        (["generate", "x", "--grammar", "sql"], 1, "Did you mean sql-select"),
        (["generate", "x", "--type", "shop"], 1, "--type shop: write MODULE:NAME"),
        (["generate", "x", "--type", "no.such:T"], 1, "there is no module no.such"),
        (["generate", "x", "--type", "no/such.py:T"], 1, "the file no/such.py does not exist"),
        (["generate", "x", "--type", "decimal:Decimla"], 1, "Did you mean 'Decimal'"),
        (["generate", "x", "--type", "datetime:date", "--choice", "a"], 2, "--grammar and --type"),
        (["generate", "x", "--top-p", "2"], 1, "Error: top_p=2 is out of range"),
        (["generate", "x", "--min-p", "2"], 1, "Error: min_p=2 is out of range"),
        (["generate", "x", "--presence-penalty", "3"], 1, "Error: presence_penalty=3 is out of"),
        (["generate", "x", "--frequency-penalty", "-3"], 1, "Error: frequency_penalty=-3 is out"),
        (
            ["generate", "x", "--grammar", "none.gbnf"],
            1,
            "--grammar none.gbnf: the file does not exist",
        ),
        (["generate", "x", "--grammar", "json", "--regex", "a"], 2, "--grammar and --type"),
        (["generate", "x", "--regex", "a", "--choice", "b"], 2, "one of --schema, --regex"),
        (["generate", "x", "--choice", "a", "--whitespace", "spaced"], 2, "requires JSON"),
        (["generate", "x", "--type", "builtins:dict", "--whitespace", "x"], 1, "whitespace='x'"),
        (["generate", "x", "--raw", "--system", "s"], 2, "--system requires a chat"),
        (["generate", "x", "--regex", "["], 1, "Error: --regex '[': Python regular"),
        (["trace", "x", "--choice", "a", "-o", "no/such/folder/t.html"], 1, "does not exist"),
        (["trace"], 2, "Missing argument 'PROMPT'"),
        (["generate", "x", "--temperature", "-1"], 1, "Error: temperature=-1 is out of range"),
        (["generate", "x", "--model", "no-such-model"], 1, "no-such-model"),
        (["demo", "--model", "no-such-model"], 1, "no-such-model"),
    ],
)
def test_mistakes_are_a_short_message_and_an_exit_code(quick, arguments, code, message):
    result = quick(*arguments)
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("x = (\n", "SyntaxError: '(' was never closed"),
        ("def deep():\n    raise ValueError('no')\ndeep()\n", "ValueError: no"),
        ("import json\njson.loads('x')\n", "JSONDecodeError: Expecting value"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("named", ["own_type.py:T", "own_type:T"])
def test_a_module_that_fails_is_told_by_its_own_line(tmp_path, monkeypatch, code, told, named):
    (tmp_path / "own_type.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_type", raising=False)
    importlib.invalidate_caches()
    with pytest.raises(structgen.OptionError) as caught:
        generation.named_type(named)
    first, place = str(caught.value).split("\n")
    assert first.startswith(f"--type {named}: {told}")
    assert re.search(r"own_type\.py, line \d: (x = |raise |json\.loads|import no)", place)
    sys.modules.pop("own_type", None)


@pytest.mark.parametrize(
    ("option", "name", "content", "told"),
    [
        ("--grammar", "broken.lark", 'start: "a" )', "Unexpected ')'"),
        ("--schema", "bad.json", '{"type": "objekt"}', "objekt"),
        ("--schema", "bad.json", "{", "is not valid JSON"),
        ("--schema", "bad.json", '{"type": "string", "type": "null"}', "'type' appears twice"),
        ("--schema", "bad.json", "[" * 100_000, "is not valid JSON"),
        ("--regex", None, "(", "--regex '(': "),
    ],
)
def test_errors_name_the_option_and_the_file(tmp_path, capsys, option, name, content, told):
    given = content
    if name is not None:
        (tmp_path / name).write_text(content)
        given = str(tmp_path / name)
    assert commands._run(["generate", "x", option, given]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"Error: {option} {given if name else repr(given)}")
    assert told.format(given) in shown


@pytest.mark.parametrize("is_terminal", [True, False])
def test_foreign_texts_steer_no_terminal(tmp_path, capsys, monkeypatch, is_terminal):
    record = {"source": "\x1b]0;mine\x07\x9b2J", "commit": "", "files": {}}
    (tmp_path / "genai_config.json").write_text("{}")
    (tmp_path / ".structgen.json").write_text(json.dumps(record))
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    assert commands._run(["models", "info", str(tmp_path)]) == 0
    assert commands._run(["models", "info", "\x1b[2J"]) == 1
    shown = capsys.readouterr()
    assert not {"\x1b", "\x9b"} & {*shown.out}
    assert r"\x1b" in shown.err
    schema, grammar = tmp_path / "s.json", tmp_path / "g.lark"
    schema.write_text('{"const": "\x9b2J", "\x9bminLenght": 1}')
    grammar.write_text('start: "\x1b[2J" \x1b\n')
    for read in (["sample", "-n", "1", str(schema)], ["grammars", "check", str(grammar)]):
        commands._run(read)
        shown = capsys.readouterr().out
        assert is_terminal is not bool({"\x1b", "\x9b"} & {*shown})
    assert terminal.harmless("a\tb\n\x7f") == ("a\tb\n\\x7f" if is_terminal else "a\tb\n\x7f")


def test_a_schema_that_is_not_json(quick, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text("{")
    result = quick("generate", "x", "--schema", str(schema))
    assert result.returncode == 1
    assert "schema.json is not valid JSON" in result.stderr


def test_generate(here, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "array", "items": {"type": "boolean"}, "maxItems": 3}')
    result = run("generate", "-", "--schema", str(schema), "--system", "Be brief.", stdin="Hi")
    assert result.returncode == 0, result.stderr
    assert isinstance(json.loads(result.stdout), list)
    assert "\x1b" not in result.stdout + result.stderr
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text('root ::= ("a" | "b") "c"')
    result = here("generate", "It is", "--grammar", str(grammar))
    assert result.stdout in ("ac\n", "bc\n")
    result = here("generate", "It is", "--raw", "--choice", "é", "--choice", "ü")
    assert result.stdout in ("é\n", "ü\n")
    result = here("generate", "Tea?", "--choice", "yes", "--choice", "no", "--think", "24")
    assert result.stdout in ("yes\n", "no\n")
    assert result.stderr.strip(), "what it thought"
    result = here("generate", "Tea?", "--think", "3")
    assert "think= allows 3 tokens" in result.stderr


def test_generate_of_a_type_by_its_name(here, tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from typing import Literal\n"
        "@dataclass\nclass Order:\n    product: str\n    size: Size\n"
        "Size = Literal['small', 'large']\n"
        "class Types:\n    Size = Size\n"
        "@dataclass\nclass Large:\n    size: Size\n"
        "    def __post_init__(self):\n        assert self.size == 'large'\n"
    )
    result = here(
        *("generate", "A mug", "--type", f"{file}:Order", "--top-p", "0.9", "--seed", "1"),
        *("--max-new-tokens", "16"),
    )
    assert result.returncode == 0, result.stderr
    assert set(json.loads(result.stdout)) == {"product", "size"}
    result = here("generate", "A small mug", "--type", f"{file}:Large", "--retries", "5")
    assert json.loads(result.stdout) == {"size": "large"}
    result = here("generate", "A mug", "--type", f"{file}:Types.Size")
    assert result.stdout in ("small\n", "large\n")
    result = here("generate", "On", "--type", "datetime:date")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\n", result.stdout)


def test_what_a_budget_cut_is_told(here):
    letters = ("--regex", "[a-z ]{20,}")
    result = here("generate", "Tell me a story.", *letters, "--max-new-tokens", "24")
    assert result.returncode == 0
    assert "(Shortened to end within 24 tokens. Raise --max-new-tokens.)" in result.stderr
    result = here("generate", "Tell me a long story.", "--max-new-tokens", "3")
    assert "(Cut off after 3 tokens. Raise --max-new-tokens.)" in result.stderr


def test_nobody_asked_for_as_many_tokens_as_are_usual(monkeypatch):
    for context_length, most in [(300, 280), (2_000, 512), (20, 1)]:
        model = FakeModel("x", context_length=context_length)
        monkeypatch.setattr(generation, "load", lambda name, model=model: model)
        _, _, options = generation.prepare(
            "x" * 20, model="x", form=Form(), system=None, raw=True, max_new_tokens=None
        )
        assert options["max_new_tokens"] == most


def test_a_grammar_from_standard_input(quick):
    result = quick("grammars", "check", "-", stdin='start: "a"\n')
    assert (result.returncode, result.stdout) == (0, "standard input: 0 errors, 0 warnings.\n")
    result = quick("grammars", "check", "-", stdin='root ::= itm\nitem ::= "a"\n')
    assert "'itm' is used but not defined. Did you mean 'item'? Define it" in result.stdout
    result = quick("grammars", "check", "-", stdin='root ::= "a" b\n')
    assert result.returncode == 1
    assert "'b' is used but not defined" in result.stdout


def test_trace(here, tmp_path):
    page = tmp_path / "page.html"
    arguments = ("Is water wet?", "--choice", "yes", "--choice", "no", "--table", "-o", str(page))
    result = here("trace", *arguments)
    assert result.returncode == 0, result.stderr
    answer, _, header, *steps = result.stdout.splitlines()
    assert answer in ("yes", "no")
    assert header.split() == ["step", "token", "allowed", "removed", "instead", "of", "path"]
    assert steps
    assert f"Wrote {page}" in result.stderr
    shown = page.read_text(encoding="utf-8")
    assert answer in shown
    assert "<h1>One of yes, no, from smollm2-135m-instruct</h1>" in shown
    assert "&lt;|im_start|&gt;user\nIs water wet?&lt;|im_end|&gt;" in shown


def test_the_demo_reads_well_in_a_plain_log(here):
    result = here("demo")
    assert result.returncode == 0, result.stderr
    out = result.stdout
    assert "\x1b" not in out + result.stderr
    assert "\r" not in out + result.stderr
    headings = re.findall(r"^== (\d) of 4: .* ==$", out, re.MULTILINE)
    assert headings == ["1", "2", "3", "4"]
    outputs = re.findall(r"^output +(.+)$", out, re.MULTILINE)
    assert len(outputs) == 4
    demo.Talk.model_validate_json(outputs[0])
    assert outputs[1] in ("positive", "negative")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", outputs[2])
    figures = re.findall(r"^ +\d+ tokens? in \d+\.\d\d s.*; (.+)$", out, re.MULTILINE)
    assert len(figures) == 4
    for line in figures[:3]:
        assert re.fullmatch(r"the mask allowed [\d,]+ of 49,152 tokens on average", line)
    assert figures[3] == "no mask: all 49,152 tokens were allowed"


def started(*arguments, program=("-m", "structgen")):
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
        # A shell starts background jobs with Ctrl-C ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_ctrl_c_ends_quietly():
    with started("generate", "x", "--raw", "--regex", "(ab?){300}") as process:
        assert process.stdout.read(1)  # it is generating
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.strip() == "Stopped."


LOADING = """
from structgen.cli import commands
load = commands.load
commands.load = lambda name: (print("loading", flush=True), load(name))[1]
commands.main()
"""


def test_ctrl_c_while_starting_is_quiet_too():
    with started("demo", program=("-c", LOADING)) as process:
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr
    # CPython may turn an interrupt that passed through exec() into death by the signal itself,
    # which a shell reports as 130 too.
    assert process.returncode in (130, -signal.SIGINT), stderr


def test_a_reader_that_goes_away_is_no_error():
    with started("generate", "x", "--raw", "--regex", "(ab?){300}") as process:
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 1


def test_models_commands(quick, tmp_path):
    listed = quick("models", "list")
    assert listed.returncode == 0
    assert re.search(r"^\* smollm2-135m-instruct +135M 1\d\d MB", listed.stdout, re.MULTILINE)
    folder = quick("models", "path", "smollm2-135m-instruct").stdout
    assert folder == f"{structgen.models.path('smollm2-135m-instruct')}\n"
    assert quick("models", "pull", "smollm2-135m-instruct").stdout == folder
    assert quick("models", "path", folder.strip()).stdout == folder
    for command in ("path", "pull", "rm"):
        result = quick("models", command, "smollm2")
        assert result.returncode == 1
        assert "smollm2-135m-instruct" in result.stderr
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    result = quick("models", "convert", str(broken), str(tmp_path / "out"))
    assert result.returncode == 1
    assert "broken.gguf" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


# The demo's growing text


def shown(chunks, width, *, terminal=True):
    console = Console(
        force_terminal=terminal, width=width, color_system=None, highlight=False, file=io.StringIO()
    )
    with demo._growing(console, "label") as write:
        for chunk in chunks:
            write(chunk)
    told = console.file.getvalue()
    if not terminal:
        return told
    last = told.rpartition("\x1b[2K")[2].removesuffix(
        "\x1b[?25h"
    )  # each frame clears the one before
    return "\n".join(line.rstrip() for line in last.split("\n"))


def test_growing_text_wraps_between_words_and_keeps_its_indentation():
    assert shown(["one two", " three", " four"], 21).splitlines() == [
        "label      one two",
        "           three four",
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("width", [30, 47, 80])
def test_no_word_is_broken_however_it_comes(size, width):
    text = "Explicit   masks, token by token,\nnever break words; not even “ümlauts” or 日本. " * 4
    chunks = [text[i : i + size] for i in range(0, len(text), size)]
    lines = shown(chunks, width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert " ".join(line[11:] for line in lines).split() == text.split()


def test_a_word_too_long_for_a_line_is_broken():
    assert shown(["x " + "a" * 25], 21).splitlines() == [
        "label      x",
        "           aaaaaaaaaa",
        "           aaaaaaaaaa",
        "           aaaaa",
    ]


def test_new_lines_in_the_text_are_indented():
    assert shown(["a\nb", "\nc"], 40).splitlines() == [
        "label      a",
        "           b",
        "           c",
    ]


def test_wide_characters_count_twice():
    assert shown(["日本日本日本"], 19).splitlines() == ["label      日本日本", "           日本"]


def test_nothing_is_wrapped_in_a_log():
    assert shown(["word " * 40], 20, terminal=False) == f"label      {'word ' * 40}\n"


def test_every_character_is_shown():
    text = "  two  spaces, tabs\tand\n\nempty lines  "
    lines = shown([text[i : i + 3] for i in range(0, len(text), 3)], 200, terminal=False).split(
        "\n"
    )
    assert "\n".join(line[11:] for line in lines[:-1]) == text


def test_grammars(quick):
    listed = quick("grammars", "list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == grammars.names()
    assert "json   " in listed[9]
    assert listed[9].endswith("JSON texts (RFC 8259).")
    assert quick("grammars", "show", "json").stdout == grammars.text("json")


if __name__ == "__main__":
    serve(commands.main, 300, {})


def test_a_file_without_an_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "MOST_BYTES", 1_000)
    with pytest.raises(OptionError, match="more than 1,000 bytes"):
        terminal.bytes_in("/dev/zero", "FILE")


def test_choices_are_those_of_the_code():
    """They are written out in the commands, because the imports would slow --help down."""

    def choices(command, name):
        return [*next(one.type.choices for one in command.params if one.name == name)]

    assert choices(commands.decide, "debias") == [*get_args(Debias)]
    assert choices(commands.serve, "log_format") == [
        *get_args(Settings.model_fields["log_format"].annotation)
    ]
    assert choices(batch.batch, "format") == [*parts.FORMATS]
    assert choices(batch.batch, "on_error") == [*job.ON_ERROR]
    assert choices(model_commands.convert, "dtype") == [*filter(None, convert._DTYPES)]
