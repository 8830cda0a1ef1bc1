"""Outputs of a type: which request asks for it, and what reads the answer.

Owns the methods that LangChain knows for this, and the dict of an answer with its message beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Literal

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.output_parsers import BaseOutputParser, JsonOutputParser, PydanticOutputParser
from langchain_core.output_parsers.openai_tools import JsonOutputKeyToolsParser, PydanticToolsParser
from langchain_core.outputs import Generation
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, ValidationError

from structgen.errors import OptionError

Method = Literal["json_schema", "function_calling", "json_mode"]


def structured(
    model: BaseChatModel,
    schema: Any,
    *,
    method: Method,
    include_raw: bool,
    fields: Mapping[str, Any],
) -> Runnable[LanguageModelInput, Any]:
    """A chain of the model, bound to the type, and of a parser.

    Raises:
        OptionError: the method is unknown, or LangChain can read no JSON Schema from the type.
    """
    told = {"ls_structured_output_format": {"kwargs": {"method": method}, "schema": schema}}
    is_class = isinstance(schema, type) and is_basemodel_subclass(schema)
    parser: Runnable[Any, Any]
    if method == "function_calling":
        name = _json_schema(schema)["title"]
        one = {"tool_choice": name, "parallel_tool_calls": False}
        bound = model.bind_tools([tool_of(schema)], **{**one, **fields, **told})
        if is_class:
            parser = PydanticToolsParser(tools=[schema], first_tool_only=True)
        else:
            parser = JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)
    elif method in ("json_schema", "json_mode"):
        form: dict[str, Any]
        if is_class and issubclass(schema, BaseModel):
            form, parser = {"output_type": schema}, _Parser(pydantic_object=schema)
        else:  # the mask is of its JSON Schema, as LangChain reads it
            json_schema = _json_schema(schema)
            named = {"name": json_schema["title"], "schema": json_schema}
            form = {"response_format": {"type": "json_schema", "json_schema": named}}
            reader: BaseOutputParser[Any] = JsonOutputParser()
            parser = PydanticOutputParser(pydantic_object=schema) if is_class else reader
        bound = model.bind(**{**form, **fields, **told})
    else:
        raise OptionError(
            f"method={method!r} is none of json_schema, function_calling and json_mode."
        )
    if not include_raw:
        return bound | parser
    parsed = RunnablePassthrough.assign(
        parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
    )
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    return RunnableMap(raw=bound) | parsed.with_fallbacks([failed], exception_key="parsing_error")


def _is_json_schema(given: Any) -> bool:
    """Whether this is a dict that is a JSON Schema with a title, and no tool."""
    return isinstance(given, Mapping) and "title" in given and "name" not in given


def tool_of(given: Any) -> dict[str, Any]:
    """A tool of OpenAI's shape.

    Of a JSON Schema LangChain keeps nothing but title and description where it has no
    ``properties`` of its own, but a ``$ref``, ``anyOf`` or ``additionalProperties``.
    """
    made: dict[str, Any] = convert_to_openai_tool(given)
    if _is_json_schema(given):
        kept = {key: value for key, value in given.items() if key not in ("title", "description")}
        made["function"].setdefault("parameters", kept)
    return made


def _json_schema(schema: Any) -> dict[str, Any]:
    """The JSON Schema of a class, a function or a dict, as LangChain reads it."""
    if _is_json_schema(schema):
        return dict(schema)
    try:
        return convert_to_json_schema(schema)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"schema={schema!r} is no Pydantic class, TypedDict or JSON Schema with a title. For "
            "other types there is model.bind(output_type=...), whose answers are texts."
        ) from error


class _Parser(PydanticOutputParser[Any]):
    """Reads a text as JSON of a class, as the mask has it: dates of strict classes are texts."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        """An instance; of an unfinished text None where it is none yet."""
        if partial:
            return super().parse_result(result, partial=True)
        text = result[0].text
        try:
            return self.pydantic_object.model_validate_json(text)
        except ValidationError as error:
            name = self.pydantic_object.__name__
            raise OutputParserException(
                f"{text!r} is no {name}: {error}", llm_output=text
            ) from error
