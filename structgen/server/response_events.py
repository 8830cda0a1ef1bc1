"""The typed events of a Responses stream, made of the chunks of a chat as they come.

Owns their order: an item is added, its parts are added, grow and are done, the item is done; then
comes the next, and at the end the whole answer. A whole answer is made by the same steps, without
anybody listening.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, final

from structgen.runner import ChatChunk

from .errors import ApiError
from .output_items import call_item, message_item, new_id, reasoning_item, text_part, usage_of
from .sse import event

_BEGUN: dict[str, Any] = {
    "status": "in_progress",
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "output": [],
    "usage": None,
}
"""What is different in an answer that has only begun."""


@final
class Events:
    """The events of one answer.

    Attributes:
        response: the answer as far as it is there.
    """

    def __init__(self, response: dict[str, Any]) -> None:
        self.response = response
        self._number = 0
        self._kind: str | None = None
        self._item: dict[str, Any] = {}
        self._text = ""
        self._logprobs: list[Any] = []
        self._reason: str | None = None

    def begin(self) -> Iterator[bytes]:
        """Those before the first chunk."""
        yield self._event("response.created", response=self._copy())
        yield self._event("response.in_progress", response=self._copy())

    def feed(self, chunk: ChatChunk) -> Iterator[bytes]:
        """Those of a chunk."""
        if chunk.usage is not None:
            self.response["usage"] = usage_of(chunk.usage)
        for choice in chunk.choices:
            delta = choice.delta
            scores: list[Any] = []
            if choice.logprobs is not None:
                scores = [one.model_dump(mode="json") for one in choice.logprobs.content or ()]
            if delta.reasoning_content:
                yield from self._reasoning(delta.reasoning_content)
            if delta.content:
                yield from self._message(delta.content, scores)
            for call in delta.tool_calls or ():
                if call.id is not None:
                    yield from self._call(call.id, call.function.name or "")
                if call.function.arguments:
                    yield from self._arguments(call.function.arguments)
            if self._kind == "message" and not delta.content:
                self._logprobs += scores  # of tokens without text of their own
            if choice.finish_reason is not None:
                self._reason = choice.finish_reason

    def end(self) -> Iterator[bytes]:
        """Those after the last chunk."""
        is_cut = self._reason == "length"
        status = "incomplete" if is_cut else "completed"
        if not self.response["output"] and self._kind is None:
            yield from self._message("")  # an answer of no text is a message of no text
        yield from self._close(status)
        self.response["status"] = status
        self.response["completed_at"] = None if is_cut else int(time.time())
        if is_cut:
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        yield self._event(f"response.{status}", response=self._copy())

    def again(self) -> Iterator[bytes]:
        """All of an answer that was finished before, each text in one piece."""
        whole = self.response
        self.response = {**whole, **_BEGUN}
        yield from self.begin()
        for item in whole["output"]:
            if item["type"] == "function_call":
                skeleton = {**item, "arguments": "", "status": "in_progress"}
                yield from self._open("call", skeleton)
                yield from self._arguments(item["arguments"])
            else:
                yield from self._said_again(item)
            yield from self._close(item["status"])
        self.response = whole
        kind = {"completed": "completed", "failed": "failed"}.get(whole["status"], "incomplete")
        yield self._event(f"response.{kind}", response=self._copy())

    def _said_again(self, item: dict[str, Any]) -> Iterator[bytes]:
        """An item of text."""
        text = "".join(part["text"] for part in item["content"])
        kind: str = item["type"]
        yield from self._open(kind, {**item, "content": [], "status": "in_progress"})
        if kind == "reasoning":
            yield self._part("added", {"type": "reasoning_text", "text": ""})
            yield from self._reasoning(text)
            return
        self._logprobs = item["content"][0]["logprobs"] if item["content"] else []
        yield self._part("added", text_part(""))
        yield from self._message(text)

    def cancel(self) -> Iterator[bytes]:
        """Those after the last chunk that came, where nobody wants more."""
        yield from self._close("incomplete")
        self.response["status"] = "cancelled"
        yield self._event("response.incomplete", response=self._copy())

    def fail(self, error: ApiError) -> bytes:
        """The last event, where something went wrong."""
        self.response["status"] = "failed"
        self.response["error"] = {"code": error.code or "server_error", "message": error.message}
        return self._event("response.failed", response=self._copy())

    # -- items ------------------------------------------------------------------------------

    def _reasoning(self, text: str) -> Iterator[bytes]:
        if self._kind != "reasoning":
            yield from self._open("reasoning", reasoning_item(new_id("rs_"), None, "in_progress"))
            yield self._part("added", {"type": "reasoning_text", "text": ""})
        self._text += text
        yield self._of_item("response.reasoning_text.delta", content_index=0, delta=text)

    def _message(self, text: str, scores: Sequence[Any] = ()) -> Iterator[bytes]:
        if self._kind != "message":
            yield from self._open("message", message_item(new_id("msg_"), [], "in_progress"))
            yield self._part("added", text_part(""))
        self._text += text
        self._logprobs += scores
        if text:
            yield self._of_item(
                "response.output_text.delta", content_index=0, delta=text, logprobs=[*scores]
            )

    def _call(self, call_id: str, name: str) -> Iterator[bytes]:
        yield from self._open("call", call_item(new_id("fc_"), call_id, name, "", "in_progress"))

    def _arguments(self, text: str) -> Iterator[bytes]:
        self._text += text
        yield self._of_item("response.function_call_arguments.delta", delta=text)

    def _open(self, kind: str, item: dict[str, Any]) -> Iterator[bytes]:
        yield from self._close("completed")
        self._kind, self._item, self._text, self._logprobs = kind, item, "", []
        yield self._event("response.output_item.added", output_index=self._index, item=item)

    def _close(self, status: str) -> Iterator[bytes]:
        if self._kind is None:
            return
        item, text = self._item, self._text
        part: dict[str, Any]
        if self._kind == "call":
            item = {**item, "arguments": text, "status": status}
            yield self._of_item(
                "response.function_call_arguments.done", arguments=text, name=item["name"]
            )
        elif self._kind == "reasoning":
            part = {"type": "reasoning_text", "text": text}
            yield self._of_item("response.reasoning_text.done", content_index=0, text=text)
            yield self._part("done", part)
            item = {**item, "content": [part], "status": status}
        else:
            part = text_part(text, self._logprobs)
            yield self._of_item(
                "response.output_text.done",
                content_index=0,
                text=text,
                logprobs=self._logprobs,
            )
            yield self._part("done", part)
            item = {**item, "content": [part], "status": status}
        yield self._event("response.output_item.done", output_index=self._index, item=item)
        self.response["output"] = [*self.response["output"], item]
        self._kind = None

    # -- events -----------------------------------------------------------------------------

    @property
    def _index(self) -> int:
        return len(self.response["output"])

    def _part(self, what: str, part: dict[str, Any]) -> bytes:
        return self._of_item(f"response.content_part.{what}", content_index=0, part=part)

    def _of_item(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._item["id"], output_index=self._index, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        said = {"type": kind, "sequence_number": number, **fields}
        return event(json.dumps(said, ensure_ascii=False), kind)

    def _copy(self) -> dict[str, Any]:
        return dict(self.response)
