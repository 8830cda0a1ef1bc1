"""attrs and msgspec classes: like dataclasses, with the constraints of their libraries.

`Record` turns their fields, names, defaults and constraints into a Pydantic core schema. An
instance is made by calling the class. Code such as a user's validator runs then, and is reported as
code. Imports neither library: a class that exists has imported its own. `modern` first rebuilds
``typing.TypedDict`` with ``typing_extensions``, because Pydantic accepts the former only from
Python 3.12 on. Knows no JSON Schema and no grammar.
"""

from __future__ import annotations

import datetime as dt
import enum
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import pydantic
import typing_extensions
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from structgen.errors import OutputTypeError

from .names import annotated, changed_within, name_of, with_arguments
from .regexes import Regex
from .user import NAMES


def modern(output_type: Any) -> Any:
    """Return ``output_type`` with every ``typing.TypedDict`` in it rebuilt for Pydantic.

    A TypedDict that refers to itself is left alone: Pydantic's error then says to use the one from
    ``typing_extensions``.
    """
    return _modern(output_type, ()) if sys.version_info < (3, 12) else output_type


def _modern(value: Any, parents: tuple[Any, ...]) -> Any:
    if (
        isinstance(value, type)
        and type(value).__module__ == "typing"
        and typing.is_typeddict(value)
    ):
        return _rebuilt(value, parents)
    return changed_within(value, lambda inner: _modern(inner, parents))


def _rebuilt(cls: Any, parents: tuple[Any, ...]) -> Any:
    if cls in parents:
        return cls
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: dict[str, Any] = {}
    for key, hint in hints.items():
        # A marker in a string annotation (`from __future__ import annotations`) is missing from
        # __required_keys__, so check the marker first.
        marker = get_origin(hint)
        if marker in (typing_extensions.Required, typing_extensions.NotRequired):
            hint = get_args(hint)[0]
        elif key in cls.__required_keys__:
            marker = typing_extensions.Required
        else:
            marker = typing_extensions.NotRequired
        fields[key] = marker[_modern(hint, (*parents, cls))]
    make: Any = typing_extensions.TypedDict  # type checkers only know it as a class statement
    rebuilt = make(cls.__name__, fields)
    rebuilt.__doc__ = cls.__doc__
    rebuilt.__module__ = cls.__module__
    config = getattr(cls, "__pydantic_config__", None)
    if config is not None:
        rebuilt.__pydantic_config__ = config
    return rebuilt


_FLAGS = re.compile(r"^\(\?[aiLmsux]+\)")
_OPEN: ContextVar[Mapping[Any, str] | None] = ContextVar("open records", default=None)
"""The classes being read, with the names of their schemas, to find classes that refer to
themselves."""


def is_record(value: Any) -> bool:
    """Return whether ``value`` is a class of attrs or msgspec, perhaps with arguments."""
    cls = get_origin(value) or value
    is_struct = hasattr(cls, "__struct_config__") and hasattr(cls, "__struct_fields__")
    return isinstance(cls, type) and (is_struct or _is_attrs(cls))


def _is_attrs(cls: type) -> bool:
    return hasattr(cls, "__attrs_attrs__")


class _Member(NamedTuple):
    """A field: its name in JSON, its name in the constructor, its type, and whether it is
    required."""

    key: str
    parameter: str
    hint: Any
    is_required: bool


@dataclass(frozen=True)
class Record:
    """Marks, in `Annotated`, an instance of such a class.

    Attributes:
        cls: the class, perhaps with type arguments.
        mark: marks the types of its fields.
    """

    cls: Any
    mark: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        known = _OPEN.get() or {}
        if self.cls in known:
            return core_schema.definition_reference_schema(known[self.cls])
        cls = get_origin(self.cls) or self.cls
        reference = f"{cls.__module__}.{cls.__qualname__}:{id(cls)}"
        if arguments := get_args(self.cls):  # in Pydantic's format, which makes names of it
            reference += f"[{','.join(f'{name_of(one)}:{id(one)}' for one in arguments)}]"
        token = _OPEN.set({**known, self.cls: reference})
        try:
            return self._schema(cls, reference, handler)
        finally:
            _OPEN.reset(token)

    def _schema(self, cls: Any, reference: str, handler: GetCoreSchemaHandler) -> CoreSchema:
        code: list[str] = []
        if _is_attrs(cls):
            members, tag = list(_of_attrs(self.cls, cls, code)), None
            is_array = False
        else:
            members = list(_of_struct(self.cls, cls, code))
            config = cls.__struct_config__
            tag = None if config.tag is None else (config.tag_field, config.tag)
            is_array = config.array_like
        schemas = [handler.generate_schema(self.mark(modern(one.hint))) for one in members]
        make = _constructor(cls, [(one.key, one.parameter) for one in members], code, is_array, tag)
        if is_array:
            items: list[CoreSchema] = [core_schema.literal_schema([tag[1]])] if tag else []
            shape: CoreSchema = core_schema.tuple_schema([*items, *schemas])
        else:
            fields = {
                one.key: core_schema.typed_dict_field(schema, required=one.is_required)
                for one, schema in zip(members, schemas, strict=True)
            }
            if tag:
                written = core_schema.typed_dict_field(core_schema.literal_schema([tag[1]]))
                fields = {tag[0]: written, **fields}
            shape = core_schema.typed_dict_schema(fields, extra_behavior="forbid")
        return core_schema.no_info_after_validator_function(make, shape, ref=reference)


def _constructor(
    cls: Any,
    names: list[tuple[str, str]],
    code: list[str],
    is_array: bool,
    tag: tuple[str, Any] | None,
) -> Callable[[Any], Any]:
    """Return a function that makes an instance from a checked value; named after the user's code if
    it runs any."""
    parameters = dict(names)

    def make(value: Any) -> Any:
        if is_array:
            value = dict(zip(parameters, value[1:] if tag else value, strict=True))
        return cls(**{parameters[key]: value[key] for key in value if key in parameters})

    vars(make)[NAMES] = parameters
    if code:  # `own_types` identifies a function's author by its module
        make.__module__ = cls.__module__
        make.__name__ = make.__qualname__ = ", ".join(dict.fromkeys(code))
    return make


# -- attrs ------------------------------------------------------------------------------------


def _of_attrs(whole: Any, cls: Any, code: list[str]) -> Iterator[_Member]:
    hints = typing.get_type_hints(cls, include_extras=True)
    arguments = dict(zip(getattr(cls, "__parameters__", ()), get_args(whole), strict=False))
    if hasattr(cls, "__attrs_post_init__"):
        code.append("__attrs_post_init__")
    for field in cls.__attrs_attrs__:
        if not field.init:
            continue
        hint = _filled(hints.get(field.name, field.type or Any), arguments)
        if field.converter is not None:
            hint = _converted_from(field.converter, hint)
            code.append(_called(field.converter))
            if field.validator is not None:
                code.append(_called(field.validator))
        elif field.validator is not None:
            hint = _validated(hint, field.validator, code)
        # attrs' marker for no default, without importing its module.
        is_required = type(field.default).__name__ == "_Nothing"
        yield _Member(field.alias, field.alias, hint, is_required)


def _filled(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    """Return ``hint`` with type variables replaced; unknown ones become Any."""
    if isinstance(hint, typing.TypeVar):
        return arguments.get(hint, Any)
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(arguments.get(one, Any) for one in parameters)]


def _converted_from(converter: Any, hint: Any) -> Any:
    """Return the type that a converter accepts, if it is annotated."""
    inner = getattr(converter, "converter", converter)
    if not inspect.isfunction(inner):
        return hint
    hints = typing.get_type_hints(inner, include_extras=True)
    first = next(iter(inspect.signature(inner).parameters), None)
    return hints.get(first, hint) if first is not None else hint


def _called(code: Any) -> str:
    return str(getattr(code, "__name__", type(code).__name__)).lstrip("_")


_NUMBER_BOUNDS = {">=": "ge", ">": "gt", "<=": "le", "<": "lt"}


def _validated(hint: Any, validator: Any, code: list[str]) -> Any:
    """Return ``hint`` with the limits of an attrs validator; unknown validators are added to
    ``code``."""
    kind = type(validator).__name__
    if not type(validator).__module__.startswith(("attr.", "attrs.")):
        kind = ""
    if kind == "_AndValidator":
        for part in validator._validators:
            hint = _validated(hint, part, code)
        return hint
    if kind == "_OptionalValidator":
        inner, may_be_none = validator.validator, _takes_none(hint)
        hint = _without_none(hint)
        for part in inner if isinstance(inner, (list, tuple)) else [inner]:
            hint = _validated(hint, part, code)
        union: Any = Union
        return hint if not may_be_none or _takes_none(hint) else union[hint, None]
    if kind == "_NumberValidator" and validator.compare_op in _NUMBER_BOUNDS:
        bound = {_NUMBER_BOUNDS[validator.compare_op]: validator.bound}
        return _limited(_without_none(hint), Field(**bound))
    if kind == "_MaxLengthValidator":
        return _limited(_without_none(hint), Field(max_length=validator.max_length))
    if kind == "_MinLengthValidator":
        return _limited(_without_none(hint), Field(min_length=validator.min_length))
    if kind == "_MatchesReValidator":
        found = _matched(validator.pattern, validator.match_func.__name__)
        return _limited(_without_none(hint), found)
    if kind == "_InstanceOfValidator":
        if hint is Any and isinstance(validator.type, type):
            return validator.type
        if hint is validator.type:
            return hint
    if kind == "_InValidator":
        chosen = _one_of(validator.options)
        if chosen is not None:
            return chosen
    if kind in ("_DeepIterable", "_DeepMapping"):
        changed = _deeply(hint, validator, kind, code)
        if changed is not None:
            return changed
    code.append(_called(validator))
    return hint


def _takes_none(hint: Any) -> bool:
    return hint is Any or hint is None or type(None) in get_args(hint)


def _without_none(hint: Any) -> Any:
    """Return ``hint`` without None, which attrs' own validators refuse by default."""
    parts = [part for part in get_args(hint) if part is not type(None)]
    if not parts or get_origin(hint) not in (Union, types.UnionType):
        return hint
    union: Any = Union
    return union[tuple(parts)]


def _matched(pattern: re.Pattern[str], how: str) -> Any:
    """Return the constraint for texts in which the ``re`` function of that name finds
    ``pattern``."""
    if how == "fullmatch":
        return Regex(pattern)
    if how == "match":
        source = _FLAGS.sub("", pattern.pattern)
        pattern = re.compile(rf"\A(?:{source})", pattern.flags)
    return Field(pattern=pattern)


def _one_of(options: Any) -> Any:
    """Return the type with the values ``options``; None if not all are plain."""
    if isinstance(options, enum.EnumMeta):
        return options
    if isinstance(options, Iterable) and not isinstance(options, str):  # of that all parts are in
        values = tuple(options)
        if values and all(one is None or isinstance(one, (str, int, enum.Enum)) for one in values):
            return Literal[values]
    return None


def _deeply(hint: Any, validator: Any, kind: str, code: list[str]) -> Any:
    """Return a container with limited items; None if ``hint`` has no item type."""
    arguments = get_args(hint)
    if kind == "_DeepMapping":
        if len(arguments) != 2 or get_origin(hint) is Union:
            return None
        of_parts = (validator.key_validator, validator.value_validator)
        of_whole = validator.mapping_validator
    else:
        items = [part for part in arguments if part is not ...]
        if not items or get_origin(hint) in (Union, types.UnionType, dict):
            return None
        of_parts = (validator.member_validator,) * len(items)
        of_whole = validator.iterable_validator
    changed = [
        part if one is None else _validated(part, one, code)
        for part, one in zip([part for part in arguments if part is not ...], of_parts, strict=True)
    ]
    rest = (...,) if ... in arguments else ()
    hint = with_arguments(hint, (*changed, *rest))
    return hint if of_whole is None else _validated(hint, of_whole, code)


def _limited(hint: Any, constraint: Any) -> Any:
    """Return ``hint`` with a constraint that does not apply to None."""
    if get_origin(hint) in (Union, types.UnionType):
        members = [
            part if part is type(None) else _limited(part, constraint) for part in get_args(hint)
        ]
        return with_arguments(hint, tuple(members))
    return annotated(hint, (constraint,))


# -- msgspec ----------------------------------------------------------------------------------


def _of_struct(whole: Any, cls: Any, code: list[str]) -> Iterator[_Member]:
    msgspec = sys.modules["msgspec"]
    structs = sys.modules["msgspec.structs"]
    if hasattr(cls, "__post_init__"):
        code.append("__post_init__")
    for field in structs.fields(whole):
        hint = _without_meta(field.type, msgspec, f"{name_of(whole)}.{field.name}")
        yield _Member(field.encode_name, field.name, hint, field.required)


def _without_meta(hint: Any, msgspec: Any, where: str) -> Any:
    """Return ``hint`` with msgspec's metadata in it translated to Pydantic's."""
    if isinstance(hint, typing.TypeVar):
        return Any
    if hint in (bytes, bytearray):
        return pydantic.Base64Bytes
    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        base = _without_meta(arguments[0], msgspec, where)
        for note in arguments[1:]:
            base = _meta(base, note, where) if isinstance(note, msgspec.Meta) else base
        return base
    if not arguments or get_origin(hint) is Literal:
        return hint
    kept = [part for part in arguments if part is not msgspec.UnsetType]
    parts = [
        part if part is ... or isinstance(part, list) else _without_meta(part, msgspec, where)
        for part in kept
    ]
    if len(parts) < len(arguments):
        union: Any = Union
        return union[tuple(parts)]
    return with_arguments(hint, tuple(parts))


_META = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")


def _meta(hint: Any, meta: Any, where: str) -> Any:
    """Return ``hint`` with the limits of one ``msgspec.Meta``."""
    if meta.tz is not None:
        if hint is not dt.datetime:
            raise OutputTypeError(
                f"msgspec.Meta(tz={meta.tz}) on {name_of(hint)} is not supported, at {where}. Use "
                "it on a datetime, or remove it and check the parsed value."
            )
        hint = pydantic.AwareDatetime if meta.tz else pydantic.NaiveDatetime
    limits = {name: getattr(meta, name) for name in _META if getattr(meta, name) is not None}
    for name, value in limits.items():
        hint = _limited(hint, Field(**{name: value}))
    if meta.pattern is not None:
        hint = _limited(hint, _matched(re.compile(meta.pattern), "search"))
    return hint
