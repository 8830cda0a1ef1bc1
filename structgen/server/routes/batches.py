"""Files and batches, as OpenAI's API has them, where the server has a folder for them."""

from __future__ import annotations

import asyncio
import io
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response
from pydantic import Field, StrictStr

from ..batches import ENDPOINTS, Batches, Files, listed
from ..errors import ApiError
from ..openapi import answers, body
from ..shapes import BatchAnswer, BatchList, Body, DeletedFile, FileAnswer, FileList
from ..wire import aside, json_object, read, refused

router = APIRouter(tags=["batches"])


def _files(request: Request) -> Files:
    files: Files | None = request.app.state.files
    if files is None:
        raise ApiError(
            404,
            "This server keeps no files. Start it with --files FOLDER (or the setting files).",
            code="not_enabled",
        )
    return files


def _batches(request: Request) -> Batches:
    _files(request)
    batches: Batches = request.app.state.batches
    return batches


_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"enum": ["batch"]},
                    },
                    "required": ["file", "purpose"],
                }
            }
        },
    }
}


@router.post("/v1/files", openapi_extra=_UPLOAD, responses=answers(FileAnswer))
async def upload(request: Request) -> dict[str, Any]:
    """Keep a file of requests for a batch."""
    files, data = _files(request), await request.body()
    kind = request.headers.get("content-type", "")
    fields, name, content = await aside(request, lambda: _form(kind, data), is_large=True)
    if fields.get("purpose") != "batch":
        raise refused("purpose has to be batch here.", "purpose", "invalid_value")
    if name is None:
        raise refused("There is no file.", "file", "invalid_value")
    owner = request.state.owner
    return await asyncio.to_thread(files.add, owner, content, name, "batch")


def _form(kind: str, data: bytes) -> tuple[dict[str, str], str | None, bytes]:
    """The fields of a form, and the name and content of its file.

    Raises:
        ApiError: it is no form.
    """
    from python_multipart import exceptions, parse_form

    fields: dict[str, str] = {}
    found: list[tuple[str, bytes]] = []

    def on_field(field: Any) -> None:
        if len(fields) < 20:
            name, value = (field.field_name or b""), (field.value or b"")
            fields[name.decode(errors="replace")] = value.decode(errors="replace")

    def on_file(file: Any) -> None:
        file.file_object.seek(0)
        if file.field_name == b"file" and not found:
            name = (file.file_name or b"file").decode(errors="replace")
            found.append((name[:200], file.file_object.read()))
        file.close()

    try:
        headers = {"Content-Type": kind.encode("latin-1", errors="replace")}
        parse_form(headers, io.BytesIO(data), on_field, on_file)
    except (exceptions.FormParserError, ValueError, KeyError) as error:
        raise ApiError(
            400, f"The body is no form with a file: {error}.", code="invalid_form"
        ) from None
    return fields, *(found[0] if found else (None, b""))


@router.get("/v1/files", responses=answers(FileList))
async def list_files(request: Request) -> dict[str, Any]:
    """Your files, the newest first."""
    found = await asyncio.to_thread(_files(request).all, request.state.owner)
    return listed(found, request.query_params)


@router.get("/v1/files/{file_id}", responses=answers(FileAnswer))
async def file(file_id: str, request: Request) -> dict[str, Any]:
    """What is known of a file."""
    return await asyncio.to_thread(_files(request).get, request.state.owner, _is_file(file_id))


@router.get("/v1/files/{file_id}/content", responses=answers())
async def content(file_id: str, request: Request) -> Response:
    """A file's content."""
    files, owner = _files(request), request.state.owner
    about = await asyncio.to_thread(files.get, owner, _is_file(file_id))
    return FileResponse(files.content(owner, about["id"]), media_type="application/octet-stream")


@router.delete("/v1/files/{file_id}", responses=answers(DeletedFile))
async def remove(file_id: str, request: Request) -> dict[str, Any]:
    """Delete a file."""
    await asyncio.to_thread(_files(request).remove, request.state.owner, _is_file(file_id))
    return {"id": file_id, "object": "file", "deleted": True}


class BatchBody(Body):
    """A batch to make.

    Attributes:
        input_file_id: of a file whose lines are requests.
        endpoint: what all of them ask for.
        completion_window: taken and not read: batches run as soon as they can.
        metadata: texts by name, which come back with the batch.
    """

    input_file_id: StrictStr
    endpoint: Literal[ENDPOINTS]  # type: ignore[valid-type]
    completion_window: Literal["24h"] = "24h"
    metadata: dict[StrictStr, StrictStr] | None = Field(default=None, max_length=16)


@router.post("/v1/batches", openapi_extra=body(BatchBody), responses=answers(BatchAnswer))
async def create(request: Request) -> dict[str, Any]:
    """Answer all requests of a file, when nobody else waits."""
    batches = _batches(request)
    given = read(BatchBody, await json_object(request))
    _is_file(given.input_file_id)
    known = {name: getattr(given, name) for name in BatchBody.model_fields}
    return await batches.create(request.state.owner, known)


@router.get("/v1/batches", responses=answers(BatchList))
async def list_batches(request: Request) -> dict[str, Any]:
    """Your batches, the newest first."""
    found = await asyncio.to_thread(_files(request).all, request.state.owner, "batch")
    return listed(found, request.query_params)


@router.get("/v1/batches/{batch_id}", responses=answers(BatchAnswer))
async def batch(batch_id: str, request: Request) -> dict[str, Any]:
    """What has become of a batch."""
    return await asyncio.to_thread(_files(request).get, request.state.owner, _is_batch(batch_id))


@router.post("/v1/batches/{batch_id}/cancel", responses=answers(BatchAnswer))
async def cancel(batch_id: str, request: Request) -> dict[str, Any]:
    """End a batch; what has been answered is its output."""
    return await _batches(request).cancel(request.state.owner, _is_batch(batch_id))


def _is_file(id_: str) -> str:
    return _of_kind(id_, "file-")


def _is_batch(id_: str) -> str:
    return _of_kind(id_, "batch-")


def _of_kind(id_: str, kind: str) -> str:
    if not id_.startswith(kind):
        raise ApiError(404, f"There is no {id_[:100]!r}.", code="not_found")
    return id_
