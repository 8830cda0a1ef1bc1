"""Download a model folder from a Hugging Face repository: ``org/name`` or ``org/name/subfolder``.

It finds the folder with a ``genai_config.json`` and downloads only that folder. For an embedder it
downloads one graph and its settings, because repositories have the same graph in several precisions
and for other runtimes.

A download continues where it stopped, and its digest is checked. Newer versions of the hub's own
client (``hf_hub_download``) write to a new file each time, so an interrupted process loses its
data, which may be gigabytes. So `download` calls the client's ``http_get``. Knows no catalogue, and
converts nothing.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import io
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar, cast

from structgen.errors import (
    DownloadError,
    ModelError,
    ModelNotFound,
    OptionError,
    failure,
    printable,
)
from structgen.storage.user_folder import WRONG, inside, root

from . import apart, cache
from .progress import Progress, bytes_under, megabytes

_T = TypeVar("_T")
_USUAL = ("onnx/model.onnx", "model.onnx")


def wanted(name: str, inside: str, files: Sequence[str]) -> list[str] | None:
    """Return the files to download; None: the repository has no embedder.

    Args:
        name: ``org/name``, with or without the path of a graph, for messages.
        inside: that path; ``""``: the usual graph.
        files: all files of the repository.

    Raises:
        ModelNotFound: it has graphs, but not the named one or a usual one.
    """
    graphs = sorted(file for file in files if file.endswith(".onnx"))
    if "tokenizer.json" not in files or not graphs:
        return None
    usual = [file for file in _USUAL if file in graphs] or (graphs if len(graphs) == 1 else [])
    chosen = [inside] if inside in graphs else [] if inside else usual[:1]
    if not chosen:
        repository, _ = _parts(name)
        names = _names(repository, graphs)
        raise ModelNotFound(
            f"{name} is ambiguous: {repository} has several ONNX files. Pass one of them:{names}"
        )
    (graph,) = chosen
    data = (f"{graph}_data", f"{graph}.data")
    return [
        file
        for file in files
        if file == graph
        or file.startswith(data)
        or _is_settings(path := PurePosixPath(file))
        # A tensor that torch wrote beside the graph, such as onnx/Constant_7_attr__value.
        or (path.parts[:-1] == ("onnx",) and "." not in path.name)
    ]


def _is_settings(file: PurePosixPath) -> bool:
    """Return whether a file has settings of the model, at the top or in one of its modules."""
    if len(file.parts) == 1:
        return file.suffix == ".json" and not file.name.endswith(".index.json")
    return len(file.parts) == 2 and file.name == "config.json"


_PART = ".part"
_LEFT_FREE = 1 << 30  # bytes of disk that a file of unknown size leaves free
_MOST_LISTING = 8 << 20  # bytes
_MOST_SAID = 1 << 20  # bytes of an error
_MOST_FILES = 10_000
_LISTING_SECONDS = 60
_ANSWER_SECONDS = 2
_POLL_SECONDS = 0.1
_SILENT_SECONDS = 330
"""Seconds in which some data of a file must arrive. The hub's client sleeps as long as a server
asks; the hub's own limits on requests last 300 s."""
_SHA256 = re.compile("[0-9a-f]{64}")
_SHA1 = re.compile("[0-9a-f]{40}")
_COMMIT = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_TOKEN_FORM = re.compile("[!-~]+")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository at one commit.

    Attributes:
        path: its path in the repository.
        size: its bytes; None: the hub does not tell.
        sha256: the digest of a large file; ``""``: the hub does not tell.
        git_id: git's id of a small file; ``""``: the hub does not tell.
    """

    path: str
    size: int | None
    sha256: str = ""
    git_id: str = ""


def download(
    file: HubFile, url: str, target: Path, headers: dict[str, str], report: Callable[[], object]
) -> None:
    """Download a file unless it is there. An interrupted transfer keeps its data.

    The file appears only when it is complete and correct. ``report`` is called during the download.

    Raises:
        DownloadError: its digest is wrong; the file is deleted.
        Exception: exceptions of the hub's client, which depend on its version.
    """
    from huggingface_hub.file_download import http_get

    if target.is_file() and file.size in (None, target.stat().st_size):
        return  # It got its name only after the check.
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + _PART)
    arrived = part.stat().st_size if part.is_file() else 0
    if file.size is None or arrived > file.size:
        part.unlink(missing_ok=True)
        arrived = 0
    most = file.size
    if most is None:
        cache.need_space(_LEFT_FREE)
        most = shutil.disk_usage(part.parent).free - _LEFT_FREE
    try:
        with _Sink(io.FileIO(part, "ab"), most) as sink:
            fetch = functools.partial(
                http_get,
                url,
                cast("BinaryIO", sink),
                resume_size=arrived,
                headers=headers,
                expected_size=file.size,
                displayed_filename=file.path,
            )
            _answered(fetch, _SILENT_SECONDS, f"sent more of {file.path}", sink.tell, report)
    except _TooMuch:
        part.unlink()
        problem = f"more than {most:,} bytes"
        raise cache.wrong_file(file.path, problem, "at most that many") from None
    _check(file, part)
    part.replace(target)


class _TooMuch(Exception):
    """The server sends more than the file's size."""


class _Sink(io.BufferedWriter):
    """A file to write to, up to a size, because the client writes all that comes."""

    def __init__(self, file: Any, most: int) -> None:
        super().__init__(file)
        self._most = most

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._most:
            raise _TooMuch
        return super().write(data)


def _check(file: HubFile, part: Path) -> None:
    """Compare the download with the hub's size and digest, which some mirrors do not tell."""
    if file.size is not None and part.stat().st_size != file.size:
        expected, actual = f"{file.size:,} bytes", f"{part.stat().st_size:,} bytes"
    elif _SHA256.fullmatch(file.sha256):
        expected, actual = f"SHA-256 {file.sha256}", f"SHA-256 {cache.sha256(part)}"
    elif _SHA1.fullmatch(file.git_id):
        expected, actual = f"git's id {file.git_id}", f"git's id {cache.git_id(part)}"
    else:
        return
    if actual != expected:
        part.unlink()
        raise cache.wrong_file(file.path, actual, expected)


_NAME = re.compile(r"[\w][\w.-]*/[\w][\w.-]*(/[^/\\]+)*", re.ASCII)
_UNUSABLE = (".safetensors", ".gguf", ".pt", ".pth", ".h5", ".msgpack")
"""Weights that ONNX Runtime GenAI cannot use, which are often beside those that it can."""


_TOKEN: ContextVar[str | bool | None] = ContextVar("token", default=None)
"""The token in huggingface_hub's form: a token; False: none; None: ``HF_TOKEN`` or the login."""


@contextmanager
def token_from(source: str | None) -> Iterator[None]:
    """Download from the hub with a token from a source; the names are those of mistral.rs.

    Args:
        source: ``literal:TOKEN``, ``env:VARIABLE``, ``path:FILE``, ``cache`` (``HF_TOKEN``, or the
            login of ``hf auth login``) or ``none``; None: ``cache``.

    Raises:
        OptionError: it is not a source, or there is no token.
    """
    kind, _, value = (source or "cache").partition(":")
    token: str | bool | None = None
    if kind == "none":
        token = False
    elif kind != "cache":
        token = _token_of(kind, value)
    given = _TOKEN.set(token)
    try:
        yield
    finally:
        _TOKEN.reset(given)


def _token_of(kind: str, value: str) -> str:
    """Return the token of a source. Messages show only the kind of source."""
    found: str | None = value
    if kind == "env":
        found = os.environ.get(value)
    elif kind == "path":
        try:
            found = Path(value).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = failure(error)
            raise OptionError(f"Cannot read token_source= (path {value!r}): {why}.") from None
    elif kind != "literal":
        raise OptionError(
            "token_source= must be 'literal:TOKEN', 'env:VARIABLE', 'path:FILE', 'cache' or 'none'."
        )
    token = str(found or "").strip()
    if not _TOKEN_FORM.fullmatch(token):  # HTTP clients repeat a malformed header in their errors
        where = kind if kind == "literal" else f"{kind} {value!r}"
        raise OptionError(
            f"token_source= ({where}) must contain one token of printable ASCII without spaces."
        )
    return token


def looks_like(name: str) -> bool:
    """Return whether a name can be that of a repository or a folder in one."""
    return _NAME.fullmatch(name) is not None and ".." not in name.split("/")


def fetch(name: str, progress: Progress, task: str | None = None) -> Path:
    """Download a repository's model, unless another process has just done it.

    Args:
        name: ``org/name``, or ``org/name/folder`` if it has several models; for an embedder the
            path of its ONNX file.
        progress: called as bytes arrive.
        task: ``"generate"`` for a language model, ``"embed"`` for an embedder; None: a language
            model if there is one.

    Returns:
        The model's folder in the cache.

    Raises:
        ModelNotFound: there is no such repository, or it has no ``genai_config.json`` at that
            place, or several.
        DownloadError: the hub cannot be reached or refuses, the transfer broke off (its data is
            kept for the next try), or the disk is full.

    Environment: ``HF_TOKEN``, ``HF_ENDPOINT`` and ``HF_HUB_OFFLINE``, as in huggingface_hub.
    """
    repo_id, subfolder = _parts(name)
    with cache.installing(name, progress) as work:
        folder = cache.find(name)
        if folder is not None:
            return folder
        with _explained(repo_id):
            listing = _listing(repo_id)
        chosen, where = _chosen(name, subfolder, list(listing.files), task)
        # Not just per commit: a mirror may list other files, which must not mix with the hub's.
        arriving = work / hashlib.sha256(ascii(listing).encode()).hexdigest()[:40]
        model = _inside(arriving, where, repo_id) if where else arriving
        targets = {file: _inside(arriving, file, repo_id) for file in chosen}
        if both := {up for one in targets.values() for up in one.parents} & {*targets.values()}:
            raise DownloadError(
                f"The hub's listing of {repo_id} is not allowed: {min(both).name!r} is a file and "
                "a folder. structgen downloaded nothing."
            )
        for stale in work.iterdir():
            if stale != arriving:
                shutil.rmtree(stale, ignore_errors=True)
        _fetch_files(repo_id, listing, targets, arriving, name, progress)
        find = "structgen.models.damage:problems"
        try:  # in a process of its own, because a Runner fetches in its own
            problem: str = apart.call(find, str(model), limits=apart.Limits.reading(0))
        except apart.Ended as error:
            raise ModelNotFound(f"{repo_id} cannot be used: checking it {error}.") from None
        if problem:
            shutil.rmtree(arriving, ignore_errors=True)  # A retry would fail again.
            problem = problem.replace(f"{arriving}{os.sep}", "")
            raise ModelNotFound(f"{repo_id} cannot be used: {problem} Look for another conversion.")
        source = f"Hugging Face: {name}"
        return cache.install(name, model, source, listing.commit)


def fetch_files(
    place: str, files: Sequence[HubFile], folder: Path, name: str, progress: Progress
) -> None:
    """Download files with known digests; a silent hub costs two seconds.

    ``place`` is ``org/name@commit``; the files have the same paths there.

    Raises:
        ModelNotFound, DownloadError: as for `fetch`; or the hub was silent for two seconds; or a
            file is not the expected one.
    """
    repo_id, _, commit = place.partition("@")
    listing = _Listing(commit, {file.path: file for file in files})
    url = _url(repo_id, files[0].path, commit)
    with _explained(repo_id):
        _answered(lambda: _ask_first_byte(url), _ANSWER_SECONDS, f"answered for {repo_id}")
    targets = {file.path: _inside(folder, file.path, repo_id) for file in files}
    _fetch_files(repo_id, listing, targets, folder, name, progress)


def describe(name: str) -> tuple[str, int, str]:
    """Return the hub's commit, the bytes to download, and the task of a model that is not
    installed.

    Raises:
        ModelNotFound, DownloadError: as for `fetch`; if the repository has several models, the
            error lists them.
    """
    repo_id, subfolder = _parts(name)
    with _explained(repo_id):
        listing = _listing(repo_id)
    files = list(listing.files)
    chosen, _ = _chosen(name, subfolder, files, None)
    size = sum(listing.files[file].size or 0 for file in chosen)
    return listing.commit, size, "generate" if any(map(_is_config, files)) else "embed"


def _parts(name: str) -> tuple[str, str]:
    """Return the repository's id and the path in it."""
    organisation, repository, *rest = name.split("/")
    return f"{organisation}/{repository}", "/".join(rest)


def _chosen(name: str, subfolder: str, files: list[str], task: str | None) -> tuple[list[str], str]:
    """Return the files of the model of a name, and their folder."""
    repo_id, _ = _parts(name)
    if task == "embed" or (task is None and not any(map(_is_config, files))):
        chosen = wanted(name, subfolder, files)
        if chosen is not None:
            return chosen, ""
    if task == "embed":
        raise ModelNotFound(
            f"{repo_id} has no embedder, which needs an ONNX file and a tokenizer.json. Use "
            "another repository, or export the model with `optimum-cli export onnx --model "
            f"{repo_id} OUT` and pass the folder OUT."
        )
    inside = _model_folder(name, subfolder, files)
    top = f"{inside}/" if inside else ""
    chosen = [file for file in files if file.startswith(top) and not file.endswith(_UNUSABLE)]
    lacking = [] if any(file.endswith(".onnx") for file in chosen) else ["an ONNX file"]
    if f"{top}tokenizer.json" not in chosen:
        lacking.append("tokenizer.json")
    if lacking:  # before gigabytes are downloaded
        raise ModelNotFound(
            f"{name} has {cache.CONFIG} but lacks {' and '.join(lacking)}. Look for another "
            "conversion, or download the files, add what is missing, and pass your folder."
        )
    return chosen, inside


def _fetch_files(
    repo_id: str,
    listing: _Listing,
    targets: Mapping[str, Path],
    folder: Path,
    name: str,
    progress: Progress,
) -> None:
    """Download the files that are not in the folder yet."""
    total = sum(listing.files[file].size or 0 for file in targets)
    cache.need_space(total - bytes_under(folder))
    stage = f"Downloading {name} ({megabytes(total)})"

    def report() -> None:
        progress(stage, min(bytes_under(folder), total), total)

    with _explained(repo_id):
        progress(stage, 0, total)
        headers = _headers()
        for file in sorted(targets, key=lambda file: listing.files[file].size or 0):
            url = _url(repo_id, file, listing.commit)
            download(listing.files[file], url, targets[file], headers, report)
        progress(stage, total, total)


def _utils() -> Any:
    """Return the client's documented helpers, which its type hints do not export."""
    return importlib.import_module("huggingface_hub.utils")


class _Headers(dict[str, str]):
    """The headers of a request. The client copies them before each try, which may have a new
    session; that session is then watched, too."""

    def __deepcopy__(self, _: Any) -> dict[str, str]:
        _watch_answers()
        return dict(self)


def _headers(**more: str) -> _Headers:
    headers = _utils().build_hf_headers(token=_TOKEN.get(), library_name="structgen")
    return _Headers({**headers, "Accept-Encoding": "identity", **more})


def _url(repo_id: str, file: str, commit: str) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(repo_id, file, revision=commit, endpoint=_endpoint())


def _inside(folder: Path, path: str, repo_id: str) -> Path:
    """Return the local path for a path from the hub.

    Raises:
        DownloadError: it is outside of the folder.
    """
    try:
        return inside(folder, path)
    except ValueError as error:
        raise DownloadError(
            f"The hub's listing of {repo_id} is not allowed: {error}. structgen downloaded "
            "nothing. Do not use the repository, or report this to its owner."
        ) from None


@dataclass(frozen=True, slots=True)
class _Listing:
    """A repository at one commit, with its files by path."""

    commit: str
    files: dict[str, HubFile]


def _listing(repo_id: str) -> _Listing:
    """Return the hub's listing of a repository."""
    listing = _answered(lambda: _listed(repo_id), _LISTING_SECONDS, f"listed {repo_id}")
    try:
        info = json.loads(listing)
        commit, files = info["sha"], info["siblings"]
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise DownloadError(f"The hub does not say which commit of {repo_id} is the newest.")
        if len(files) > _MOST_FILES:
            raise DownloadError(
                f"{repo_id} has more than {_MOST_FILES:,} files, so structgen does not download "
                "it. Download the model yourself and pass its folder."
            )
        return _Listing(commit, {file["rfilename"]: _hub_file(file) for file in files})
    except WRONG as error:
        raise DownloadError(
            f"The hub's listing of {repo_id} cannot be parsed: {error!r:.200}."
        ) from None


def _answered(
    ask: Callable[[], _T],
    seconds: float,
    done: str,
    arrived: Callable[[], int] = int,
    report: Callable[[], object] = lambda: None,
) -> _T:
    """Wait for more of the hub's answer, with a limit that its own client lacks."""
    answer: Future[_T] = Future()
    before, last = arrived(), time.monotonic()

    def work() -> None:
        _IS_OURS.set(True)
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    importlib.import_module("huggingface_hub.file_download")  # This time is not the hub's.
    log = logging.getLogger("huggingface_hub.file_download")
    log.disabled = True  # Errors are raised.
    threading.Thread(
        target=copy_context().run, args=(work,), name="structgen-hub", daemon=True
    ).start()
    try:
        with _quiet():
            while True:
                wait([answer], _POLL_SECONDS)
                if answer.done():
                    return answer.result()
                report()
                if (now := arrived()) != before:
                    before, last = now, time.monotonic()
                elif time.monotonic() - last > seconds:
                    raise DownloadError(
                        f"The hub has not {done} within {seconds:,} s. Try again later."
                    )
    finally:
        log.disabled = False


_IS_OURS = ContextVar("is_ours", default=False)


# Encodings that no client unpacks.
_PLAIN = {"", "identity", "aws-chunked", "utf-8", "none", "binary"}


def _watch_answers() -> None:
    """Make the client's session refuse answers that could fill the memory.

    Some versions unpack all received data at once, and 3 kB became 10 GB. All versions read the
    bodies of errors and redirects without a limit.
    """
    session = _utils().get_session()
    hooks = session.event_hooks if hasattr(session, "event_hooks") else session.hooks
    if _watch not in hooks["response"]:
        hooks["response"].append(_watch)


def _watch(response: Any, *_: Any, **__: Any) -> None:
    if not _IS_OURS.get():
        return
    codings = response.headers.get("content-encoding", "").lower()
    if set(re.split(r"[\s,]+", codings)) - _PLAIN:
        raise ValueError(
            f"an answer is compressed ({codings[:40]}) although compression was not requested"
        )
    if response.status_code >= 300:  # The client reads the whole answer by one of these.
        read = "iter_raw" if hasattr(response, "iter_raw") else "iter_content"
        setattr(response, read, functools.partial(_short, getattr(response, read)))


def _short(read: Callable[..., Iterator[bytes]], *args: Any, **kwargs: Any) -> Iterator[bytes]:
    """Yield the body of an answer that is not a file, up to a limit."""
    size = 0
    for part in read(*args, **kwargs):
        size += len(part)
        if size > _MOST_SAID:
            raise ValueError(f"an answer without a file has more than {_MOST_SAID:,} bytes")
        yield part


def _listed(repo_id: str) -> bytes:
    from huggingface_hub import HfApi
    from huggingface_hub.file_download import http_get

    _utils().validate_repo_id(repo_id)
    url = f"{HfApi(endpoint=_endpoint()).endpoint}/api/models/{repo_id}?blobs=true"
    listing = io.BytesIO()
    sink = _Sink(listing, _MOST_LISTING)
    try:
        http_get(url, cast("BinaryIO", sink), headers=_headers(), _nb_retries=0)
    except _TooMuch:
        raise DownloadError(
            f"The hub's listing of {repo_id} has more than {_MOST_LISTING:,} bytes."
        ) from None
    sink.flush()
    return listing.getvalue()


def _ask_first_byte(url: str) -> None:
    """Request one byte of a file: large files are on another server, which may not answer."""
    from huggingface_hub.file_download import http_get

    sink = cast("BinaryIO", _Sink(io.BytesIO(), 1))
    headers = _headers(Range="bytes=0-0")
    with suppress(_TooMuch):  # The server does not support ranges.
        http_get(url, sink, headers=headers, expected_size=1, _nb_retries=0)


def _hub_file(file: dict[str, Any]) -> HubFile:
    path, size, lfs = file["rfilename"], file.get("size"), file.get("lfs")
    # A large file's git_id is that of its LFS pointer.
    sha256 = "" if lfs is None else str(lfs.get("sha256") or "").lower()
    git_id = (file.get("blobId") or "") if lfs is None else ""
    if not isinstance(path, str) or not isinstance(git_id, str):
        raise ValueError(f"it lists a file with the path {path!r} and the id {git_id!r}")
    if size is not None and not (type(size) is int and 0 <= size < 1 << 60):
        raise ValueError(f"it lists {path!r} with {size!r} bytes")
    return HubFile(path, size, sha256, git_id)


def _model_folder(name: str, subfolder: str, files: list[str]) -> str:
    """Return the folder in the repository for a name; ``""``: its root."""
    folders = sorted(f.removesuffix(cache.CONFIG).rstrip("/") for f in filter(_is_config, files))
    if subfolder in folders:
        return subfolder
    below = [folder for folder in folders if not subfolder or folder.startswith(subfolder + "/")]
    if len(below) == 1:
        return below[0]
    repo_id, _ = _parts(name)
    if below:
        names = _names(repo_id, below)
        raise ModelNotFound(f"{name} has {len(below)} models. Pass one of them:{names}")
    if folders:
        names = _names(repo_id, folders)
        raise ModelNotFound(f"There is no {cache.CONFIG} in {name}. The repository has:{names}")
    raise ModelNotFound(
        f"{repo_id} has no model for ONNX Runtime GenAI: it has no {cache.CONFIG}. Look for a "
        "repository with this file, often with -onnx in its name. To convert a GGUF file, use "
        "`structgen models convert FILE.gguf OUT`."
    )


def _names(repo_id: str, paths: list[str]) -> str:
    """Return lines with the first entries of a repository."""
    return "".join(f"\n  {printable(f'{repo_id}/{path}'.rstrip('/'))}" for path in paths[:50])


def _is_config(file: str) -> bool:
    return PurePosixPath(file).name == cache.CONFIG


def _endpoint() -> str | None:
    # Read in each call: huggingface_hub reads it only once, at import.
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn huggingface_hub's progress bars off while ours is on."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    shown = not are_progress_bars_disabled()
    if shown:
        disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            enable_progress_bars()


@contextmanager
def _explained(repo_id: str) -> Iterator[None]:
    """Turn exceptions of the hub's client into our errors, with the fix."""
    try:
        yield
    except (ModelError, KeyboardInterrupt):
        raise
    except Exception as error:
        # Broad on purpose: the HTTP library depends on huggingface_hub's version.
        raise _explanation(repo_id, error) from error


def _explanation(repo_id: str, error: Exception) -> ModelError:
    from huggingface_hub import errors

    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    hub = re.sub("//.*@", "//", _endpoint() or "https://huggingface.co")  # a mirror's password
    page = f"{hub}/{repo_id}"
    if isinstance(error, errors.GatedRepoError):
        return DownloadError(
            f"{repo_id} is gated. Accept its terms at {page}, then set HF_TOKEN to a token of "
            "your account (or run `hf auth login`)."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFound(
            f"There is no repository {repo_id} on {hub} that you may read. Check the spelling. "
            "For a private repository, set HF_TOKEN (or run `hf auth login`)."
        )
    if isinstance(error, errors.HFValidationError):
        return ModelNotFound(f"{repo_id!r} is not a valid repository id: {error}")
    if any(isinstance(link, errors.OfflineModeIsEnabled) for link in chain):
        return DownloadError(
            f"{repo_id} is not in the cache {root()}, and HF_HUB_OFFLINE forbids downloading it. "
            "Unset HF_HUB_OFFLINE, or pass a local folder."
        )
    for link in chain:
        if isinstance(link, errors.HfHubHTTPError):
            status = link.response.status_code
            hint = {
                401: "It may not exist, or be private. Check the spelling, or set HF_TOKEN to a "
                "valid token.",
                403: f"Your token may not read it: see {page}.",
                429: "Too many requests: wait a moment, or set HF_TOKEN.",
            }.get(status, "Try again later.")
            return DownloadError(f"The hub returned status {status} for {repo_id}. {hint}")
    for link in chain:
        if isinstance(link, OSError) and (link.filename is not None or link.errno in cache.FULL):
            return cache.disk_error(link)
    reason = (" ".join(str(error).split()) or type(error).__name__).rstrip(".")
    return DownloadError(
        f"The download of {repo_id} from {hub} failed: {reason}. Check the network and try again. "
        "The download will resume."
    )
