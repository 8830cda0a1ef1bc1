"""Recognise Pydantic's own types by their validator functions.

A table maps these functions to the language of the type, or to the reason why the type is refused.
Other functions of Pydantic are refused, so that a type of a later version cannot pass as a plain
string. User functions are recognised here, too: only parsing can run them. Knows no grammar.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from structgen.grammar.json_schema import DIGITS_ONLY
from structgen.types import networks, quotes, regexes

Schema = dict[str, Any]

FUNCTIONS = frozenset(("function-before", "function-after", "function-wrap", "function-plain"))
"""The core schemas with a function."""


class Kind(enum.Enum):
    """Whose function checks a value, and the consequence for masks."""

    FINE = enum.auto()
    """Pydantic's; the schema around it is complete without it."""
    LIMIT = enum.auto()
    """Pydantic's; a constraint that is not in the inner schema."""
    CODE = enum.auto()
    """A user's or library's code."""


class Refusal(NamedTuple):
    """Why a type cannot be masked, and the fix."""

    message: str
    fix: str


_ON_DISK = Refusal(
    "A path that must or must not exist depends on this machine's files",
    "Use pathlib.Path and check the parsed value.",
)
_REGEX = Refusal(
    "A type for compiled regular expressions is not supported: the patterns that Python's re "
    "accepts are not a regular language",
    "Use str and compile the parsed value.",
)

_FINE = frozenset(
    (
        "pydantic.networks._BaseUrl.__get_pydantic_core_schema__.<locals>.wrap_val",
        "pydantic.networks._BaseMultiHostUrl.__get_pydantic_core_schema__.<locals>.wrap_val",
        "pydantic.types.SecretStr",
        "pydantic.types.SecretBytes",
        "pydantic.types.Secret.__get_pydantic_core_schema__.<locals>.validate_secret_value",
        "pydantic.types.Secret.__get_pydantic_core_schema__.<locals>.<lambda>",
        "pydantic.types._SecretField.__get_pydantic_core_schema__.<locals>.<lambda>",
        "pydantic._internal._generate_schema.GenerateSchema._path_schema.<locals>.path_validator",
        "pydantic._internal._generate_schema.GenerateSchema._literal_schema.<locals>.<lambda>",
        "pydantic._internal._validators.sequence_validator",
        "pydantic._internal._validators.defaultdict_validator",
        "pydantic._internal._validators.deque_validator",
        "pydantic._internal._validators.forbid_inf_nan_check",
    )
)
_LIMITS = {
    f"pydantic._internal._validators.{name}_validator"
    for name in (
        *("greater_than", "greater_than_or_equal", "less_than", "less_than_or_equal"),
        *("multiple_of", "min_length", "max_length", "max_digits", "decimal_places"),
    )
} | {
    "pydantic._internal._known_annotated_metadata.apply_known_metadata.<locals>"
    "._apply_constraint_with_incompatibility_info"
}
_CODE_IN = (
    "pydantic.functional_validators.",
    "pydantic.experimental.",
    "pydantic._internal._decorators_v1.",
    "pydantic._internal._known_annotated_metadata.apply_known_metadata.<locals>.val_func",
)
"""Pydantic's wrappers of other people's functions."""

_STANDARD = ("collections", "types", "operator", "ipaddress", "pathlib")
"""Modules whose classes Pydantic uses to make values."""

_BY_FUNCTION: Mapping[str, Callable[[Any], Schema | Refusal]] = {
    "pydantic.networks.EmailStr._validate": lambda owner: networks.email(),
    "pydantic.networks.NameEmail._validate": lambda owner: networks.name_email(),
    "pydantic.networks.IPvAnyAddress._validate": lambda owner: networks.address(None),
    "pydantic.networks.IPvAnyInterface._validate": lambda owner: networks.interface(None),
    "pydantic.networks.IPvAnyNetwork._validate": lambda owner: networks.network(None),
    "pydantic._internal._validators.ip_v4_address_validator": lambda owner: networks.address(4),
    "pydantic._internal._validators.ip_v6_address_validator": lambda owner: networks.address(6),
    "pydantic._internal._validators.ip_v4_interface_validator": lambda owner: networks.interface(4),
    "pydantic._internal._validators.ip_v6_interface_validator": lambda owner: networks.interface(6),
    "pydantic._internal._validators.ip_v4_network_validator": lambda owner: networks.network(4),
    "pydantic._internal._validators.ip_v6_network_validator": lambda owner: networks.network(6),
    "pydantic._internal._validators.fraction_validator": lambda owner: fraction(),
    "pydantic.types.ByteSize._validate": lambda owner: byte_size(),
    "pydantic.types.EncodedBytes.decode": lambda owner: _encoded(owner, is_text=False),
    "pydantic.types.EncodedStr.decode_str": lambda owner: _encoded(owner, is_text=True),
    "pydantic.types.PathType.validate_file": lambda owner: _ON_DISK,
    "pydantic.types.PathType.validate_directory": lambda owner: _ON_DISK,
    "pydantic.types.PathType.validate_new": lambda owner: _ON_DISK,
    "pydantic.types.PathType.validate_socket": lambda owner: _ON_DISK,
    "pydantic.types.PaymentCardNumber.validate": lambda owner: _payment_card(),
    "pydantic.color.Color._validate": lambda owner: Refusal(
        "A Color can be written in too many ways and is not supported",
        'Use Annotated[str, Field(pattern="^#[0-9a-f]{6}$")], or a Literal of names.',
    ),
    "pydantic._internal._validators.import_string": lambda owner: Refusal(
        "An ImportString would let the model import and run any code",
        "Use a Literal of the names that you allow.",
    ),
    "pydantic._internal._validators.validate_str_is_valid_iana_tz": lambda owner: Refusal(
        "The valid names of time zones depend on the machine",
        'Use a Literal of the names that you allow: Literal["Europe/Berlin", "UTC"].',
    ),
    "pydantic._internal._validators.pattern_either_validator": lambda owner: _REGEX,
    "pydantic._internal._validators.pattern_str_validator": lambda owner: _REGEX,
    "pydantic._internal._validators.pattern_bytes_validator": lambda owner: _REGEX,
}


def function_of(schema: Any) -> Callable[..., Any]:
    """Return the function of one of `FUNCTIONS`, without arguments bound to it."""
    function: Any = schema["function"]["function"]
    while isinstance(function, functools.partial):
        function = function.func
    return function  # type: ignore[no-any-return]


def known(schema: Any) -> Kind | Schema | Refusal:
    """Return the `Kind`, language or refusal of one of `FUNCTIONS`."""
    function = function_of(schema)
    is_class = isinstance(function, type)
    module = str(getattr(function, "__module__", None) or type(function).__module__)
    if isinstance(function, quotes.ListCheck):
        return Kind.CODE
    if module.split(".")[0] == "structgen":
        return Kind.FINE  # masked; the check matters only for other texts
    if module.split(".")[0] in _STANDARD and (is_class or not hasattr(function, "__qualname__")):
        return Kind.FINE
    if module.split(".")[0] != "pydantic":
        return Kind.CODE
    name = f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    make = _BY_FUNCTION.get(name)
    if make is not None:
        return make(getattr(function, "__self__", None))
    if name in _FINE:
        return Kind.FINE
    if name in _LIMITS:
        return Kind.LIMIT
    if name.startswith(_CODE_IN):
        return Kind.CODE
    return Refusal(
        f"This version of Pydantic checks a type with {name}, which structgen does not support",
        "Use a simpler type, such as str with a pattern.",
    )


_LIMITED = frozenset(("date", "time", "datetime", "timedelta"))
_BOUNDS = ("le", "ge", "lt", "gt")


def looked_at_by(schema: Any) -> list[str]:
    """List code that checks a core schema's own values, not those of its parts, and that no mask
    can enforce.

    These are the user's functions and constructors, the clock, and bounds on times, which can be
    written in many ways.
    """
    kind = schema["type"]
    if kind in FUNCTIONS:
        return [title(schema)] if known(schema) is Kind.CODE else []
    found: list[str] = []
    if kind in _LIMITED:
        if kind != "date":
            found += [f"{key}={schema[key]}" for key in _BOUNDS if schema.get(key) is not None]
            if isinstance(schema.get("tz_constraint"), int):
                found.append(f"UTC offset of {schema['tz_constraint']} seconds")
        if schema.get("now_op"):
            found.append(f"in the {schema['now_op']}")
    elif kind == "dataclass" and schema.get("post_init"):
        found.append("__post_init__")
    elif kind == "model":
        if schema.get("custom_init"):
            found.append("__init__")
        post = getattr(schema["cls"], schema.get("post_init") or "", None)
        if post is not None and post.__name__ != "init_private_attributes":
            found.append(post.__name__)
    return found


def is_check_of_text(schema: Any) -> bool:
    """Return whether a function of `FUNCTIONS` checks a text and returns it unchanged."""
    return function_of(schema).__module__ in (regexes.__name__, quotes.__name__)


def title(schema: Any) -> str:
    """Return the name of the function of one of `FUNCTIONS` for messages."""
    function = function_of(schema)
    return str(getattr(function, "__name__", type(function).__name__))


def _payment_card() -> Schema:
    """Return the schema of payment card numbers of known issuers, with their check digit."""
    from structgen.types.ready import payment_card

    return networks.expression(payment_card())


def fraction() -> Schema:
    """Return the schema of fractions: a number, or ``-3/4``."""
    whole = "[1-9][0-9]{0,39}"  # the limit for numbers of 20 digits before and after the point
    return {"anyOf": [{"type": "number"}, networks.text(f"-?(?:0|{whole})(?:/{whole})?")]}


def byte_size() -> Schema:
    """Return the schema of sizes: bytes as an integer, or with a unit: ``1.5 GiB``. Excluded: units
    in other cases."""
    whole = {"type": "integer", DIGITS_ONLY: True, "minimum": 0}
    units = "B|[KMGTPE]i?B|(?:[KMGTPE]i?)?bit"
    sizes = rf"(?:0|[1-9][0-9]{{0,17}})(?:\.[0-9]{{1,6}})? ?(?:{units})"
    return {"anyOf": [whole, networks.text(sizes)]}


def _encoded(owner: Any, *, is_text: bool) -> Schema | Refusal:
    encoder = owner.encoder
    name = f"{encoder.__module__}.{getattr(encoder, '__qualname__', '')}"
    if name not in ("pydantic.types.Base64Encoder", "pydantic.types.Base64UrlEncoder"):
        return Refusal(
            f"A type that is decoded by {getattr(encoder, '__name__', encoder)!s} is not supported",
            "Use Base64Bytes or Base64Str, or str with a pattern, and decode the parsed value.",
        )
    return networks.base64(is_url=name.endswith("UrlEncoder"), is_text=is_text)
