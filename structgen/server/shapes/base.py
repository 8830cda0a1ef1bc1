"""What all shapes have in common: nothing is in them that they do not name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from structgen.runner import few

Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class Strictly(BaseModel):
    """A body, or a part of one, with the fields that it names and no others."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, given: Any) -> Any:
        return few(cls, given)


class Body(Strictly):
    """A part of a body. What it does not name may be there as null, which says nothing."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, None]


class Answer(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid")


def kind_of(given: Any, kinds: tuple[str, ...]) -> Any:
    """Check the ``type`` of a part before the class for it is chosen; give the part back.

    Raises:
        PydanticCustomError: it is none of ``kinds``; ``at`` says where that stands.
    """
    if isinstance(given, BaseModel):
        return given
    if not isinstance(given, Mapping):
        raise PydanticCustomError("shape", "This is no object.")
    if given.get("type") not in kinds:
        raise PydanticCustomError(
            "shape",
            "{got} is not supported. It is one of {known}.",
            {"at": "type", "got": repr(given.get("type"))[:80], "known": ", ".join(kinds)},
        )
    return given


def tag_of(given: Any) -> str:
    """Which class a part is of. No name of a field, so that paths do not have it."""
    kind = given.get("type") if isinstance(given, Mapping) else getattr(given, "type", None)
    return f"{kind}-part"
