"""Python types as JSON: Pydantic writes the schema and parses the text.

`json_type` turns anything a ``pydantic.TypeAdapter`` understands into a JSON Schema and a parser
such that *the parser accepts what the schema allows*. Pydantic's own schema is looser than its
parser in many places (dates have no pattern, ``dict[int, T]`` takes any key, bounds on dates
vanish, …). `ExactSchema` closes each of them, or marks the place as refused. Only the user's own
code, such as custom validators, runs only in the parser. Knows no grammar.

Pydantic first reads a JSON number with a point as a 64-bit float, so a nested Decimal would keep
about 16 digits. If a text has such numbers, a second validator reads it (`exactly`). There, each
Decimal rounded from such a number is replaced by the exact one before its constraints are checked.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, NamedTuple

import pydantic
from pydantic import TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic_core import (
    PydanticCustomError,
    SchemaError,
    SchemaValidator,
    ValidationError,
    core_schema,
)

from structgen.errors import OutputTypeError, ParseError, UnsupportedFeature
from structgen.storage import IdentityMap, fork_safe

from .exact_schema import CHECKED, REFUSED, ExactSchema
from .patterns import OwnPatterns, core_nodes, with_parts
from .regexes import FOR_MASKS
from .signatures import CALL_OF, marked, without_calls
from .user import ValueSchema

_MAY_BE_LONG = re.compile(r"[0-9][0-9.]{15}|[0-9][eE]")
"""Texts without a match have only numbers that floats represent uniquely."""

STRING_OR_NUMBER = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*"?)|-?[0-9]+(?P<float>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)'
)
"""The strings and numbers of JSON. Also matches unfinished strings and integers, so that no text is
read twice."""


class _LongNumbers(NamedTuple):
    """The numbers of a text before they were rounded.

    Attributes:
        decimals: the exact values, by the rounded Decimals.
        floats: the original floats, by the floats that replace them in the text.
    """

    decimals: Mapping[Decimal, Decimal]
    floats: Mapping[float, float]


_LONG_NUMBERS: ContextVar[_LongNumbers] = ContextVar("long numbers")


def exactly(
    read: Callable[[str], Any], core: Any, make: Callable[[Any], Callable[[str], Any]]
) -> Callable[[str], Any]:
    """Return a reader like ``read``, which makes values by ``core``, that keeps all digits of
    Decimals.

    Args:
        read: reads texts without long numbers.
        core: its core schema.
        make: returns a reader for another core schema; called when a text has long numbers.
    """
    exact: Callable[[str], Any] | None = None

    def read_exactly(text: str) -> Any:
        nonlocal exact
        if exact is read or _MAY_BE_LONG.search(text) is None:
            return read(text)
        apart, long = _separated(text)
        if not long.decimals:
            return read(text)
        if exact is None:
            has_decimals = any(node.get("type") == "decimal" for node in core_nodes(core))
            exact = make(_as_written(core)) if has_decimals else read
            if exact is read:
                return read(text)
        token = _LONG_NUMBERS.set(long)
        try:
            return exact(apart)
        finally:
            _LONG_NUMBERS.reset(token)

    return read_exactly


def _separated(text: str) -> tuple[str, _LongNumbers]:
    """Return ``text`` and its long numbers. If two different values would be read as one float,
    another float replaces one of them."""
    known: dict[Decimal, Decimal] = {}  # the Decimal as read → the exact one
    long: list[tuple[re.Match[str], Decimal, float]] = []
    for match in STRING_OR_NUMBER.finditer(text):
        exact = _decimal(_string(match[0]) if match["string"] else match[0])
        if exact is None:
            continue
        if match["float"]:
            rounded = float(match[0])
            if exact != Decimal(repr(rounded)):
                long.append((match, exact, rounded))
                continue
        known[exact] = exact
    floats: dict[float, float] = {}
    replaced: dict[Decimal, float] = {}
    last: dict[float, float] = {}  # the last replacement of each float
    out: list[str] = []
    done = 0
    for match, exact, rounded in long:
        as_read = Decimal(repr(rounded))
        if exact in replaced:
            other = replaced[exact]
        elif known.setdefault(as_read, exact) == exact:
            continue
        else:
            other = last.get(rounded, rounded)
            towards = 0.0 if abs(rounded) > 1 else math.inf  # towards which there are enough floats
            while (as_read := Decimal(repr(other))) in known:
                other = math.nextafter(other, towards)
            replaced[exact] = last[rounded] = other
            known[as_read] = exact
            floats[other] = rounded
        out += [text[done : match.start()], repr(other)]
        done = match.end()
    decimals = {as_read: exact for as_read, exact in known.items() if as_read != exact}
    return "".join([*out, text[done:]]), _LongNumbers(decimals, floats)


def _string(text: str) -> str:
    """Return the value of a JSON string; "" if it is invalid, which parsing reports."""
    try:
        return str(json.loads(text))
    except ValueError:
        return ""


def _decimal(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return None if value.is_nan() else value


def _as_written(schema: Any) -> Any:
    """Return a core schema that reads the exact numbers."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, str) and kind in _RESTORED:
        return _chained(schema, _RESTORED[kind])
    return with_parts(schema, _as_written)


def _chained(schema: Any, restore: Callable[[Any], Any]) -> Any:
    """Return a schema that restores the exact value, then checks the schema's constraints."""
    first = {"type": schema["type"]}
    if schema["type"] != "any":
        first["allow_inf_nan"] = True
        if "strict" in schema:
            first["strict"] = schema["strict"]
    last = {key: part for key, part in schema.items() if key not in ("ref", "serialization")}
    steps: list[Any] = [first, core_schema.no_info_plain_validator_function(restore), last]
    chain: dict[str, Any] = dict(core_schema.chain_schema(steps))
    if "ref" in schema:
        chain["ref"] = schema["ref"]
    return chain


def _float_as_written(value: float) -> float:
    return _LONG_NUMBERS.get().floats.get(value, value)


def _any_as_written(value: Any) -> Any:
    if isinstance(value, float):
        return _float_as_written(value)
    if isinstance(value, list):
        return [_any_as_written(part) for part in value]
    if isinstance(value, dict):
        return {key: _any_as_written(part) for key, part in value.items()}
    return value


_RESTORED: Mapping[Any, Callable[[Any], Any]] = {
    "decimal": lambda value: (
        value if value.is_nan() else _LONG_NUMBERS.get().decimals.get(value, value)
    ),
    "float": _float_as_written,
    "any": _any_as_written,
}


@dataclass(frozen=True, slots=True)
class JsonType:
    """A JSON Schema and its parser.

    Attributes:
        schema: a JSON Schema (2020-12).
        checked: code that checks the parsed text: paths, and the names of the code.
        parse: JSON text → value; raises `ParseError`.
        parse_string: bare text → value, for types whose JSON is one string.
        values: the Pydantic schema of the value, for readers of parts of its JSON.
    """

    schema: dict[str, Any]
    checked: tuple[tuple[str, str], ...]
    parse: Callable[[str], Any]
    parse_string: Callable[[str], Any]
    values: ValueSchema


_MOST_PROBLEMS = 5
"""The most problems in an error, and the most places of each."""
_MOST_READ = 1_000
"""The most errors of Pydantic that are read: it lists all or none, and a million takes 1 GB."""

_FOREIGN = (
    " A class of attrs or msgspec cannot be inside a Pydantic class, dataclass or TypedDict. "
    "Define the outer class with the same library."
)
"""Added to messages about a class that Pydantic does not know."""


def json_type(output_type: Any, name: str) -> JsonType:
    """Return the JSON Schema and parser of ``output_type``.

    Raises:
        OutputTypeError: Pydantic does not know the type, or it has no JSON form.
        UnsupportedFeature: some part of it cannot be masked exactly; has the JSON path.
    """
    adapter = output_type if isinstance(output_type, TypeAdapter) else adapter_of(output_type, name)
    try:
        core = without_calls(adapter.core_schema)
        token = FOR_MASKS.set(True)
        try:
            schema = ExactSchema().generate(core, mode="validation")
        finally:
            FOR_MASKS.reset(token)
    except pydantic.errors.PydanticInvalidForJsonSchema as error:
        raise OutputTypeError(
            f"{name} has a part that cannot be written as JSON: {_first_line(error)}. Change the "
            "type of that field, or remove it from the output type."
            + (_FOREIGN if "IsInstanceSchema" in str(error) else "")
        ) from error
    except pydantic.errors.PydanticUserError as error:
        raise OutputTypeError(f"{name} cannot be used: {_first_line(error)}.") from error
    checked = _without_marks(schema, name)

    config = _core_config(adapter)
    # The adapter's own validator, if its schema is unchanged.
    own = adapter if core is adapter.core_schema else _without_classes(core, config)
    validate = exactly(
        own.validate_json, core, lambda one: _without_classes(one, config).validate_json
    )

    def parse(text: str) -> Any:
        return _parse(validate, text, text, name)

    def parse_string(text: str) -> Any:
        return _parse(validate, json.dumps(text), text, name)

    def parser(part: Any, config: Any) -> Callable[[str], Any]:
        # parts refer to these
        if part is not core and core["type"] == "definitions":
            part = {**core, "schema": part}
        make = SchemaValidator if core is adapter.core_schema else _without_classes
        read = exactly(
            make(part, config).validate_json,
            part,
            lambda one: _without_classes(one, config).validate_json,
        )
        return lambda text: _parse(read, text, text, name)

    values = ValueSchema(core, config, parser)
    return JsonType(schema, checked, parse, parse_string, values)


def _without_classes(core: Any, config: Any) -> SchemaValidator:
    """Return a validator of ``core`` without the prebuilt ones of its classes, which would call
    functions."""
    try:
        return SchemaValidator(core, config, _use_prebuilt=False)
    except TypeError:  # older versions of pydantic-core use those of complete classes
        pass
    made = [one["cls"] for one in core_nodes(core) if one.get("type") in ("model", "dataclass")]
    classes = [cls for cls in made if vars(cls).get("__pydantic_complete__") is True]
    with _BUILDING:
        try:
            for cls in classes:
                cls.__pydantic_complete__ = False
            return SchemaValidator(core, config)
        finally:
            for cls in classes:
                cls.__pydantic_complete__ = True


_BUILDING = fork_safe(threading.Lock())


def _core_config(adapter: TypeAdapter[Any]) -> Any:
    """Return the ``config=`` of a `TypeAdapter` in the form of pydantic-core."""
    given = getattr(adapter, "_config", None)
    if not given:
        return None
    return pydantic.create_model("Config", __config__=given).__pydantic_core_schema__["config"]


def adapter_of(output_type: Any, name: str) -> TypeAdapter[Any]:
    """Return Pydantic's adapter of ``output_type``; patterns that Pydantic cannot check are checked
    here.

    Raises:
        OutputTypeError: Pydantic cannot make one.
    """
    output_type = marked(output_type)
    try:
        try:
            return _complete(TypeAdapter(output_type))
        except SchemaError:  # a pattern with lookarounds, or a malformed one
            return _complete(TypeAdapter(Annotated[output_type, OwnPatterns()]))
    except SchemaError as error:
        reason = " ".join(str(error).split())
        raise OutputTypeError(f"{name} cannot be used: {reason.rstrip('.')}.") from error
    except (PydanticUndefinedAnnotation, NameError) as error:
        raise OutputTypeError(
            f"{name} refers to a name that is not defined: {_first_line(error)}. Define it first, "
            "in the same module. Write a type that contains itself as a class, or as "
            'TypeAliasType("Name", ...) of typing_extensions.'
        ) from error
    except pydantic.errors.PydanticSchemaGenerationError as error:
        match = re.search(r"schema for (.+?)\. Set", str(error))
        culprit = match[1] if match else name
        inside, hint = f" (output type {name})", _FOREIGN
        if culprit == repr(output_type):
            inside = hint = ""
        raise OutputTypeError(
            f"{culprit} is not a type that structgen can generate{inside}. Use a dataclass or a "
            f"Pydantic model, or see docs/output-types.md.{hint}"
        ) from error
    except (pydantic.errors.PydanticUserError, ImportError) as error:  # of an optional package
        raise OutputTypeError(f"{name} cannot be used: {_first_line(error)}.") from error
    except (TypeError, AttributeError, RuntimeError, SyntaxError) as error:
        raise OutputTypeError(f"{name} is not a valid type: {error}.") from error


def _complete(adapter: TypeAdapter[Any]) -> TypeAdapter[Any]:
    """Return ``adapter``, built even if its model defers that, so that errors are raised here."""
    if not adapter.pydantic_complete:
        try:
            adapter.rebuild(force=True)  # raises an error with the undefined name
        except PydanticUndefinedAnnotation:
            raise
        except (pydantic.errors.PydanticUserError, NameError):
            pass  # reported later
    return adapter


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")


def _parse(validate: Callable[[str], Any], json_text: str, text: str, name: str) -> Any:
    try:
        try:
            return validate(json_text)
        except ValidationError:
            # JSON Schema's integers include 1.0 and 1e30, which Pydantic's strict or large ones
            # do not. Only on failure, since the rewriting costs more than the parsing.
            rewritten = _integers_in_full(json_text)
            if rewritten == json_text:
                raise
            return validate(rewritten)
    except ValidationError as error:
        found = f"it has {error.error_count():,} errors"
        if error.error_count() <= _MOST_READ:
            problems = error.errors(include_url=False, include_context=False)
            found = "; ".join(_in_words(problems, json_text)[:_MOST_PROBLEMS])
        raise ParseError(
            f"The text does not match {name}: {found}. Text: {_excerpt(text)}", text=text
        ) from error
    except (PydanticCustomError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        # Custom validators may raise anything; these are what careless ones raise.
        raise ParseError(
            f"The text does not match {name}: {error}. Text: {_excerpt(text)}", text=text
        ) from error


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "…")


def _in_words(problems: Sequence[Any], json_text: str) -> list[str]:
    """List each problem once, with its place; of several functions, only those of the named one."""
    try:
        value = json.loads(json_text)
    except (ValueError, RecursionError):
        value = None
    # By the place of a choice: the function tried, and the other name found instead, if any.
    tried: dict[Any, dict[Any, Any]] = {}
    for problem in problems:
        place, call, rest = _parted(problem["loc"])
        if call:
            names = tried.setdefault(place, {})
            if rest == ("name",) and problem["type"] == "literal_error":
                names[call] = problem["input"]
            else:
                names.setdefault(call, None)
    found: dict[str, list[str]] = {}
    for problem in problems:
        place, call, rest = _parted(problem["loc"])
        message = problem["msg"]
        wrong = [name for name, got in tried.get(place, {}).items() if got is not None]
        if call in wrong:
            known = tried[place]
            if len(wrong) < len(known) or rest != ("name",):
                continue
            message = f"no function {known[call]!r} (known functions: {', '.join(known)})"
        found.setdefault(message, []).append(_path(problem, value))
    return [
        f"{message} at {', '.join([*dict.fromkeys(paths)][:_MOST_PROBLEMS])}"
        for message, paths in found.items()
    ]


def _parted(location: tuple[int | str, ...]) -> tuple[Any, str, tuple[int | str, ...]]:
    """Split a location into a choice among functions, the function tried, and the place in its
    call."""
    for index, part in enumerate(location):
        if isinstance(part, str) and part.startswith(CALL_OF):
            return location[:index], part[len(CALL_OF) :], location[index + 1 :]
    return location, "", ()


def _path(problem: Any, value: Any) -> str:
    """Return the path of a problem in ``value``, without Pydantic's internal steps."""
    out = ["$"]
    *_, last = (None, *enumerate(problem["loc"]))
    for step in enumerate(problem["loc"]):
        part = step[1]
        if isinstance(part, int):
            is_there = isinstance(value, list) and part < len(value)
            is_own = is_there
        else:
            is_there = isinstance(value, dict) and part in value
            is_own = is_there or part == "[key]" or (step == last and problem["type"] == "missing")
        if is_own:
            out.append(f"[{part}]" if isinstance(part, int) else f".{part}")
        if is_there:
            value = value[part]
    return "".join(out)


_MAX_EXPONENT = 4000  # Python refuses to parse integers of more than 4300 digits.
_MAX_DIGITS = 200_000
"""The most digits that are written in full for one text: four bytes (1e99) may need many."""


def _integers_in_full(text: str) -> str:
    """Return JSON ``text`` with every whole number written without point and exponent."""
    written = 0

    def rewrite(match: re.Match[str]) -> str:
        nonlocal written
        if not match["float"]:
            return match[0]
        try:
            value = Decimal(match[0])
        except InvalidOperation:  # its exponent is beyond all bounds
            return match[0]
        if value.adjusted() > _MAX_EXPONENT or value != value.to_integral_value():
            return match[0]
        full = f"{value.to_integral_value():f}"
        written += len(full)
        return full if written <= _MAX_DIGITS else match[0]

    return STRING_OR_NUMBER.sub(rewrite, text)


# A pattern implies these already, or Pydantic does not check them in the text.
_ANNOTATION_FORMATS = re.compile("uuid[1-8]?|binary|password|path|file-path|directory-path")


def _without_marks(schema: dict[str, Any], name: str) -> tuple[tuple[str, str], ...]:
    """Remove the marks of `ExactSchema` from ``schema``; return the places of `CHECKED`.

    The tag of every discriminated union becomes required: the parser reads it first, so even a
    variant whose tag has a default must write it.
    """
    checked: list[tuple[str, str]] = []
    for path, node in _nodes(schema, "$"):
        if REFUSED in node:
            message, fix = node[REFUSED]
            raise UnsupportedFeature(f"{message}, at {path} of {name}.", path=path, fix=fix)
        checked += [(path, named) for named in node.pop(CHECKED, ())]
        format_name, discriminator = node.get("format"), node.get("discriminator")
        if isinstance(format_name, str) and _ANNOTATION_FORMATS.fullmatch(format_name):
            del node["format"]
        if isinstance(node.get("anyOf"), list) and isinstance(discriminator, dict):
            for variant in node["anyOf"]:
                _require(variant, discriminator["propertyName"], schema, IdentityMap())
            del node["discriminator"]
    return tuple(checked)


def _nodes(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object in ``value`` with its path."""
    stack: list[tuple[str, Any]] = [(path, value)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, dict):
            yield where, item
            stack.extend((f"{where}.{key}", part) for key, part in reversed(item.items()))
        elif isinstance(item, list):
            stack.extend((f"{where}[{index}]", part) for index, part in enumerate(item))


def _require(
    variant: Any, tag: str, root: dict[str, Any], seen: IdentityMap[dict[str, Any], bool]
) -> None:
    if not isinstance(variant, dict) or variant in seen:
        return
    seen[variant] = True
    reference = variant.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        _require(root.get("$defs", {}).get(reference[len("#/$defs/") :]), tag, root, seen)
    for nested in variant.get("anyOf", ()):
        _require(nested, tag, root, seen)
    properties = variant.get("properties", {})
    if tag in properties and tag not in variant.get("required", ()):
        required = {*variant.get("required", ()), tag}
        variant["required"] = [key for key in properties if key in required]
