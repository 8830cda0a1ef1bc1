"""The endpoints of OpenAI's API for files and batches, if the server has a folder for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response
from pydantic import Field, StrictStr
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from ..batches import ENDPOINTS, Batches, Files, listed, none
from ..errors import ApiError
from ..exchange import sent
from ..gateway import Bodies
from ..openapi import answers, body
from ..settings import Settings
from ..shapes import BatchAnswer, BatchList, Body, Deleted, FileAnswer, FileList, Metadata
from ..wire import aside, check_form, fields_of, form_schema, json_object, read, refused

router = APIRouter(tags=["batches"])


def _files(request: Request) -> Files:
    files: Files | None = request.app.state.files
    if files is None:
        raise ApiError(
            404,
            "This server does not store files. Start it with --files FOLDER (setting files).",
            code="not_enabled",
        )
    return files


def _batches(request: Request) -> Batches:
    _files(request)
    batches: Batches = request.app.state.batches
    return batches


async def _known(request: Request, id_: str) -> dict[str, Any]:
    """Return the description of a file or batch of this client."""
    files, owner = _files(request), request.state.owner
    return await files.aside(owner, lambda: files.get(owner, id_))


async def _page(request: Request, kind: str) -> Response:
    """Return a page of the files or batches of this client."""
    files, owner, query = _files(request), request.state.owner, request.query_params
    page = await files.aside(
        owner, lambda: json.dumps(listed(files.all(owner, kind), query), ensure_ascii=False)
    )
    return sent(request, page)


_FIELDS = {"file": {"type": "string", "format": "binary"}, "purpose": {"enum": ["batch"]}}


def bodies(settings: Settings) -> dict[str, Bodies]:
    """Return the endpoints whose bodies are not JSON of the usual size, by path."""
    most = settings.max_body_bytes if settings.files is None else settings.max_file_bytes
    return {"/v1/files": Bodies(most, check_form)}


@router.post(
    "/v1/files", openapi_extra=form_schema([*_FIELDS], _FIELDS), responses=answers(FileAnswer)
)
async def upload(request: Request) -> dict[str, Any]:
    """Store a file of requests for a batch."""
    files, data = _files(request), await request.body()
    kind = request.headers.get("content-type", "")
    given = dict(await aside(request, lambda: fields_of(kind, data, _FIELDS), is_large=True))
    if "purpose" not in given or given["purpose"].content != b"batch":
        raise refused("purpose must be batch.", "purpose", "invalid_value")
    if "file" not in given or (name := given["file"].filename) is None:
        raise refused("The file is missing.", "file", "invalid_value")
    owner, content = request.state.owner, given["file"].content
    return await files.aside(owner, lambda: files.add(owner, content, name))


@router.get("/v1/files", responses=answers(FileList))
async def list_files(request: Request) -> Response:
    """Your files, the newest first."""
    return await _page(request, "file")


@router.get("/v1/files/{file_id}", responses=answers(FileAnswer))
async def file(file_id: str, request: Request) -> dict[str, Any]:
    """Return the description of a file."""
    return await _known(request, _of_kind(file_id, "file-"))


class _Content(FileResponse):
    """A file's content, or a range of it. It may be deleted before it is opened."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""

        async def sending(message: Message) -> None:
            if message.get("status", 200) >= 400:
                raise ApiError(
                    416,
                    "The file does not have these bytes. Use the header Range: bytes=FIRST-LAST, "
                    "counted from 0.",
                    code="invalid_range",
                    headers={
                        k: v for k, v in Headers(raw=message["headers"]).items() if "range" in k
                    },
                )
            await send(message)

        try:
            await super().__call__(scope, receive, sending)
        except (RuntimeError, OSError):
            if Path(self.path).exists():
                raise
            raise none(Path(self.path).stem) from None


@router.get("/v1/files/{file_id}/content", responses=answers())
async def content(file_id: str, request: Request) -> Response:
    """Return a file's content."""
    await _known(request, _of_kind(file_id, "file-"))
    path = _files(request).content(request.state.owner, file_id)
    return _Content(path, media_type="application/octet-stream")


@router.delete("/v1/files/{file_id}", responses=answers(Deleted))
async def remove(file_id: str, request: Request) -> dict[str, Any]:
    """Delete a file."""
    files, owner = _files(request), request.state.owner
    await files.aside(owner, lambda: files.remove(owner, _of_kind(file_id, "file-")))
    return {"id": file_id, "object": "file", "deleted": True}


class BatchBody(Body):
    """A batch to create.

    Attributes:
        input_file_id: id of a file whose lines are requests.
        endpoint: the endpoint of all requests.
        completion_window: accepted without effect: batches run as soon as they can.
        metadata: texts by name, which are returned with the batch.
    """

    input_file_id: StrictStr
    endpoint: Literal[ENDPOINTS]  # type: ignore[valid-type]
    completion_window: Literal["24h"] = "24h"
    metadata: Annotated[Metadata, Field(max_length=16)] | None = None


@router.post("/v1/batches", openapi_extra=body(BatchBody), responses=answers(BatchAnswer))
async def create(request: Request) -> dict[str, Any]:
    """Create a batch that answers all requests of a file. Other requests go first."""
    batches = _batches(request)
    given = read(BatchBody, await json_object(request))
    _of_kind(given.input_file_id, "file-")
    known = {name: getattr(given, name) for name in BatchBody.model_fields}
    return await batches.create(request.state.owner, known)


@router.get("/v1/batches", responses=answers(BatchList))
async def list_batches(request: Request) -> Response:
    """Your batches, the newest first."""
    return await _page(request, "batch")


@router.get("/v1/batches/{batch_id}", responses=answers(BatchAnswer))
async def batch(batch_id: str, request: Request) -> dict[str, Any]:
    """Return the state of a batch."""
    return await _known(request, _of_kind(batch_id, "batch-"))


@router.post("/v1/batches/{batch_id}/cancel", responses=answers(BatchAnswer))
async def cancel(batch_id: str, request: Request) -> dict[str, Any]:
    """Cancel a batch; the answers so far are its output."""
    return await _batches(request).cancel(request.state.owner, _of_kind(batch_id, "batch-"))


def _of_kind(id_: str, kind: str) -> str:
    if not id_.startswith(kind):
        raise none(id_)
    return id_
