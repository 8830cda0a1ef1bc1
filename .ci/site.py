"""What the site adds to docs/ when mkdocs builds it (``hooks`` in mkdocs.yml).

README.md, CONTRIBUTING.md and the like become pages. Links to files outside of
docs/ lead to the repository. ``<!-- commands -->`` and ``<!-- endpoints -->`` in a page become the
reference of the command line, from click, and of HTTP, from the server's OpenAPI document;
``<!-- example: NAME -->`` becomes the code of an example, ``<!-- automaton: TYPE -->`` a drawing.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import tomllib
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the repository's root, and the pages that they become."""

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)([^)]*\))")


def on_config(config: Any) -> Any:
    """Take the addresses from pyproject.toml, as the index has them."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    config.site_url, config.repo_url = urls["Documentation"], urls["Source"]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the repository's root."""
    for name, page in PAGES.items():
        made = File.generated(config, page, abs_src_path=str(ROOT / name))
        made.edit_uri = f"../{name}"
        files.append(made)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn what GitHub reads into what the site reads."""
    source = Path(page.file.abs_src_path)
    home = page.file.src_uri

    def linked(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = (source.parent / target).resolve().relative_to(ROOT).as_posix()
        if path in PAGES:
            path = PAGES[path]
        elif path.startswith("docs/"):
            path = path.removeprefix("docs/")
        else:
            return f"{before}{config.repo_url}/blob/main/{path}{after}"
        return f"{before}{posixpath.relpath(path, posixpath.dirname(home) or '.')}{after}"

    markdown = _LINK.sub(linked, markdown)
    for mark, made in MADE.items():
        if mark in markdown:
            markdown = markdown.replace(mark, "\n".join(made()))
    markdown = re.sub(
        "^<!-- example: (.+) -->$",
        lambda name: f"```python\n{(ROOT / 'examples' / name[1]).read_text(encoding='utf-8')}```",
        markdown,
        flags=re.MULTILINE,
    )
    markdown = re.sub("^<!-- automaton: (.+) -->$", automaton, markdown, flags=re.MULTILINE)
    # GitHub wants a backslash before | in the code of a table, and Python-Markdown none.
    markdown = re.sub(
        r"^\|.*$",
        lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), row[0]),
        markdown,
        flags=re.MULTILINE,
    )
    markdown = re.sub(r"^<!--.*?-->\n", "", markdown, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^```text(?: model)?$", "```{.text .output}", markdown, flags=re.MULTILINE)


def automaton(expression: re.Match[str]) -> str:
    """Draw the automaton of a type, a Python expression, on one line of HTML."""
    import typing

    from structgen import Regex
    from structgen.insight import picture, svg
    from structgen.types import lower, regular

    known = {"Literal": typing.Literal, "Regex": Regex}
    regex = regular(lower(eval(expression[1], known)).grammar)
    assert regex is not None
    return f'<div class="automaton">{svg(picture(regex)).strip()}</div>'


def commands() -> Iterator[str]:
    """Yield the reference of every command."""
    from structgen.cli.commands import cli

    yield from _command(cli, "structgen", click.Context(cli, info_name="structgen"))


def _command(command: click.Command, name: str, context: click.Context) -> Iterator[str]:
    if isinstance(command, click.Group):
        for one in command.list_commands(context):
            child = command.get_command(context, one)
            assert child is not None
            yield from _command(child, f"{name} {one}", click.Context(child, context, one))
        return
    yield f"## {name}\n"
    yield f"{_prose(inspect.cleandoc(command.help or ''))}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{name} {usage}\n```\n"
    rows = [one.get_help_record(context) for one in command.get_params(context)]
    rows = [row for row in rows if row is not None and row[0] != "--help"]
    if rows:
        yield "| option | |\n|---|---|"
        for option, about in rows:
            yield f"| `{_cell(option)}` | {_cell(about)} |"
        yield ""


def endpoints() -> Iterator[str]:
    """Yield the reference of every path of the server."""
    from structgen import Runner
    from structgen.server import create_app

    with Runner({}) as runner:
        document = create_app(runner).openapi()
    shapes = document["components"]["schemas"]
    told = []
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            yield f"## {method.upper()} {path}\n"
            yield f"{_prose(one.get('description') or one.get('summary'))}\n"
            query = [
                (where["name"], where["schema"], where.get("required", False))
                for where in one.get("parameters", ())
                if where["in"] == "query"
            ]
            yield from _fields("query", query)
            body = one.get("requestBody", {}).get("content", {})
            for kind, content in body.items():
                schema = content["schema"]
                name = schema.get("$ref", "").rpartition("/")[2]
                if name:
                    yield f"Body: [`{name}`](#{name.lower()}) as `{kind}`.\n"
                    told.append(name)
                else:
                    yield from _fields(f"field, as `{kind}`", _properties(schema))
    yield "## Bodies\n"
    for name in dict.fromkeys(told):
        yield f"### {name}\n"
        yield from _fields("field", _properties(shapes[name]))


def _properties(schema: dict[str, Any]) -> list[tuple[str, Any, bool]]:
    needed = schema.get("required", ())
    return [(name, one, name in needed) for name, one in schema.get("properties", {}).items()]


def _fields(head: str, fields: list[tuple[str, Any, bool]]) -> Iterator[str]:
    if not fields:
        return
    yield f"| {head} | type | |\n|---|---|---|"
    for name, schema, needed in fields:
        about = [schema["description"]] if "description" in schema else []
        if needed:
            about.append("Required.")
        yield f"| `{name}` | `{_cell(_kind(schema))}` | {_cell(' '.join(about))} |"
    yield ""


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            kinds = [_kind(one) for one in schema[word]]
            return " | ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if "enum" in schema or "const" in schema:
        return " | ".join(map(repr, schema.get("enum", [schema.get("const")])))
    kind = schema.get("type", "any")
    if kind == "array" and "items" in schema:
        return f"array of {_kind(schema['items'])}"
    return kind if isinstance(kind, str) else " | ".join(kind)


def _prose(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", text)


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|").replace("\n", " ")


MADE: dict[str, Callable[[], Iterator[str]]] = {
    "<!-- commands -->": commands,
    "<!-- endpoints -->": endpoints,
}
