"""Models from Hugging Face repositories, against a stand-in hub on this machine."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import threading
import time
from types import SimpleNamespace

import hub_server
import numpy as np
import onnx
import pytest
from huggingface_hub import file_download, get_session
from huggingface_hub.utils import _http

from structgen import Runner, models
from structgen.errors import DownloadError, ModelNotFound, OptionError
from structgen.models import apart, cache, damage
from structgen.models import hub as hub_module
from structgen.runner import ModelConfig

CONFIG = b'{"model": {"decoder": {"filename": "model.onnx"}}}'
_NEW_SESSION = getattr(_http, "close_session", None) or _http.reset_sessions
"""Of huggingface_hub 1, and of 0."""
FILES = {
    "genai_config.json": CONFIG,
    "tokenizer.json": b"{}",
    "model.onnx": b"\n\5graph",
    "model.onnx.data": bytes(range(256)) * 40,
    "model.safetensors": b"of no use here",
}


@pytest.fixture(autouse=True)
def small_and_quick(monkeypatch):
    """The client writes after 10 MB and waits a second after a broken transfer; not in tests."""
    from huggingface_hub import constants, file_download

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 256)

    class Clock:
        sleep = staticmethod(lambda seconds: None)

        def __getattr__(self, name):
            import time

            return getattr(time, name)

    monkeypatch.setattr(file_download, "time", Clock())


def fetched(folder):
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != cache.RECORD
    }


def test_a_repository_is_fetched_once_and_then_needs_no_network(hub, cache_folder):
    hub.repositories["org/tiny-onnx"] = FILES
    reports = []
    folder = models.path("org/tiny-onnx", lambda *report: reports.append(report))
    wanted = {name: data for name, data in FILES.items() if not name.endswith(".safetensors")}
    assert fetched(folder) == wanted
    total = sum(map(len, wanted.values()))
    assert reports[0][1:] == (0, total)
    assert reports[-1][1:] == (total, total)
    assert "org/tiny-onnx" in reports[0][0]

    requests = hub.requests
    assert models.path("org/tiny-onnx") == folder
    assert hub.requests == requests
    (model,) = models.installed()
    assert (model.name, model.folder) == ("org/tiny-onnx", folder)
    assert model.bytes == total + (folder / cache.RECORD).stat().st_size
    assert list((cache_folder / "partial").iterdir()) == []


def test_the_only_model_of_a_repository_is_found_wherever_it_is(hub):
    hub.repositories["org/deep"] = {
        "README.md": b"# Deep",
        "cpu/int4/genai_config.json": CONFIG,
        "cpu/int4/model.onnx": b"\n\5graph",
        "cpu/int4/tokenizer.json": b"{}",
    }
    names = {"genai_config.json", "model.onnx", "tokenizer.json"}
    assert set(fetched(models.path("org/deep"))) == names


def test_several_models_are_listed_and_one_can_be_named(hub):
    hub.repositories["org/many"] = {
        "cpu/genai_config.json": CONFIG,
        "cpu/model.onnx": b"\n\5graph",
        "cuda/genai_config.json": CONFIG,
        "cuda/model.onnx": b"\n\x0egraph for cuda",
        "cuda/tokenizer.json": b"{}",
    }
    with pytest.raises(ModelNotFound, match=r"2 models(.|\n)*org/many/cpu\n *org/many/cuda"):
        models.path("org/many")
    assert hub.downloads == []
    folder = models.path("org/many/cuda")
    assert fetched(folder) == {
        "genai_config.json": CONFIG,
        "model.onnx": b"\n\x0egraph for cuda",
        "tokenizer.json": b"{}",
    }
    assert all(file.startswith("cuda/") for file, _ in hub.downloads)
    with pytest.raises(ModelNotFound, match=r"org/many/rocm(.|\n)*org/many/cpu"):
        models.path("org/many/rocm")
    models.remove("org/many/cuda")
    assert models.installed() == []


def test_a_transfer_that_is_cut_goes_on_where_it_stopped(hub):
    hub.repositories["org/cut"] = FILES
    hub.cuts["model.onnx.data"] = 1
    folder = models.path("org/cut")
    assert fetched(folder)["model.onnx.data"] == FILES["model.onnx.data"]
    starts = [first for file, first in hub.downloads if file == "model.onnx.data"]
    assert starts == [0, len(FILES["model.onnx.data"]) // 2]


def test_a_transfer_that_fails_for_good_is_an_error_and_the_next_try_succeeds(hub):
    hub.repositories["org/cut"] = FILES
    hub.cuts["model.onnx.data"] = 1000
    with pytest.raises(DownloadError, match=r"org/cut .*failed.*try again"):
        models.path("org/cut")
    assert models.installed() == []
    hub.cuts.clear()
    hub.downloads.clear()
    assert fetched(models.path("org/cut"))["model.onnx.data"] == FILES["model.onnx.data"]
    # What had arrived was kept: the other files, and most of this one.
    ((file, first),) = hub.downloads
    assert (file, first >= len(FILES[file]) // 2) == ("model.onnx.data", True)


def test_what_another_hub_lists_is_not_taken_for_this_ones(hub):
    """A mirror's files were checked by what the mirror says of them."""
    mine = {**FILES, "tokenizer.json": b"[]", "chat_template.jinja": b"of the mirror"}
    hub.repositories["org/cut"] = mine
    hub.cuts["model.onnx.data"] = 1000
    with pytest.raises(DownloadError, match=r"The download of .* failed"):
        models.path("org/cut")
    hub.repositories["org/cut"] = FILES
    hub.cuts.clear()
    folder = models.path("org/cut")
    assert fetched(folder) == {name: FILES[name] for name in fetched(folder)}


def test_a_hub_that_has_us_wait_for_a_day_is_not_waited_for(tmp_path, monkeypatch):
    """Its client slept for as long as ``Retry-After`` said; what comes slowly is waited for."""
    over = threading.Event()

    def http_get(url, sink, **options):
        over.wait(60)

    monkeypatch.setattr("huggingface_hub.file_download.http_get", http_get)
    monkeypatch.setattr(hub_module, "_SILENT_SECONDS", 0.02)
    file = hub_module.HubFile("model.onnx", 100)
    arrived = [0, 5, 7, 7]
    reports = []
    target, report = tmp_path / "model.onnx", lambda: reports.append(None)
    try:
        with pytest.raises(DownloadError, match=r"not sent more of model.onnx within 0.02 s"):
            hub_module.download(file, "http://localhost", target, {}, report)
        with pytest.raises(DownloadError, match="not come"):
            hub_module._answered(lambda: over.wait(60), 0.02, "come", lambda: arrived.pop(0))

        def fails():
            raise TimeoutError("the disk")

        with pytest.raises(TimeoutError, match="the disk"):
            hub_module._answered(fails, 60, "come")
    finally:
        over.set()
    assert not arrived
    assert reports


@pytest.mark.parametrize("name", ["model.onnx.data", "model.onnx", "genai_config.json"])
def test_a_file_with_another_digest_is_refused_and_deleted(hub, cache_folder, name):
    hub.repositories["org/altered"] = FILES
    hub.altered[name] = FILES[name][::-1]
    with pytest.raises(DownloadError, match=rf"{name} is not the expected file"):
        models.path("org/altered")
    assert models.installed() == []
    assert [file for file in cache_folder.rglob("*") if file.name.startswith(name)] == []
    hub.altered.clear()
    assert fetched(models.path("org/altered"))[name] == FILES[name]


@pytest.mark.parametrize("name", ["model.onnx.data", "genai_config.json"])
def test_no_more_of_a_file_is_written_than_it_has(hub, cache_folder, name, monkeypatch):
    """The client writes what comes for as long as it comes."""
    written = []

    class Sink(hub_module._Sink):
        def write(self, data):
            size = super().write(data)
            written.append(size if isinstance(self.raw, io.FileIO) else 0)
            return size

    monkeypatch.setattr(hub_module, "_Sink", Sink)
    hub.repositories["org/endless"] = {name: FILES[name], **FILES}
    hub.altered[name] = FILES[name] + bytes(1 << 20)
    with pytest.raises(
        DownloadError, match=rf"{name} is not the expected file.* more than [\d,]+ bytes"
    ):
        models.path("org/endless")
    assert sum(written) <= sum(map(len, FILES.values()))
    assert [file for file in cache_folder.rglob("*") if file.name.startswith(name)] == []


@pytest.mark.parametrize(
    "said",
    [{"rfilename": 5}, {"size": "9"}, {"size": -1}, {"size": 1e300}, {"size": 10**400},
     {"blobId": ["x"]}, {"lfs": 3}],
)  # fmt: skip
def test_a_listing_that_lies(hub, monkeypatch, said):
    hub.repositories["org/lying"] = FILES
    of_file = hub_server._sibling
    monkeypatch.setattr(hub_server, "_sibling", lambda *file: of_file(*file) | said)
    with pytest.raises(DownloadError, match="cannot be parsed"):
        models.path("org/lying")


def listed(monkeypatch, send):
    """What the hub sends as a listing."""
    monkeypatch.setattr(hub_server._Handler, "_info", lambda handler, *_: send(handler))


@pytest.mark.parametrize(
    ("status", "to", "says"),
    [
        (200, None, "listing of org/endless has more than 8,388,608 byt"),
        (500, None, "an answer without a file has more than 1,048,576 b"),
        (404, None, "an answer without a file has more than 1,048,576 b"),
        (302, "/else", "an answer without a file has more than 1,048,576 b"),
    ],
)
def test_an_answer_without_an_end_is_not_read(hub, monkeypatch, status, to, says):
    """The client reads what comes with an error, or with a place elsewhere: 4 GB in six seconds."""
    taken = []

    def send(handler):
        handler.send_response(status)
        if to:
            handler.send_header("Location", to)
        handler.end_headers()
        handler.wfile.write(b'{"sha": "')
        while len(taken) < 200:
            handler.wfile.write(b"a" * (1 << 20))
            taken.append(1)

    hub.repositories["org/endless"] = FILES
    listed(monkeypatch, send)
    with pytest.raises(DownloadError, match=says):
        models.path("org/endless")
    assert len(taken) < 100
    taken[:] = [1] * 200


def test_an_answer_that_is_packed_is_not_unpacked(hub, monkeypatch):
    """The client's versions 1 and earlier unpack what has arrived at once: 3 kB were 6 GB."""
    asked = []

    def send(handler):
        asked.append(handler.headers["Accept-Encoding"])
        body = gzip.compress(gzip.compress(bytes(1 << 20)))
        handler._head(200, len(body), {"Content-Encoding": "gzip, gzip"})
        handler.wfile.write(body)

    hub.repositories["org/packed"] = FILES
    listed(monkeypatch, send)
    for _ in range(2):
        with pytest.raises(DownloadError, match=r"failed: an answer is compressed \(gzip, gzip\)"):
            models.path("org/packed")
    assert asked == ["identity"] * 2
    get_session().get(f"{hub.url}/api/models/org/packed")  # others may have what they like


def test_a_session_that_the_client_makes_anew_is_watched(hub, monkeypatch):
    """After a failure it goes on, in some versions with another session."""
    tries = []

    def send(handler, *_):
        tries.append(handler.path)
        coding = {} if len(tries) == 1 else {"Content-Encoding": "gzip"}
        handler._head(200, 5, coding)  # and none of them comes
        handler.close_connection = True

    waits = SimpleNamespace(sleep=lambda _: _NEW_SESSION())
    monkeypatch.setattr(file_download, "time", waits)
    monkeypatch.setattr(hub_server._Handler, "_file", send)
    hub.repositories["org/cut"] = FILES
    with pytest.raises(DownloadError, match=r"The download of .* failed") as caught:
        models.path("org/cut")
    if len(tries) == 1:
        pytest.skip("this version of the client does not try again")
    assert "an answer is compressed (gzip)" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{"])
def test_a_hub_that_never_ends_its_listing(hub, monkeypatch, data):
    over = threading.Event()

    def send(handler):
        handler._head(200, 100, {})
        handler.wfile.write(data)
        over.wait(20)

    hub.repositories["org/slow"] = FILES
    listed(monkeypatch, send)
    monkeypatch.setattr(hub_module, "_LISTING_SECONDS", 0.2)
    try:
        with pytest.raises(DownloadError, match=r"not listed org/slow within 0.2 s"):
            models.path("org/slow")
    finally:
        over.set()


@pytest.mark.parametrize("text", ["[]", "{}", "3", "[" * 100_000, '{"sha": 3, "siblings": []}',
    '{"sha": "a", "siblings": 3}', '{"sha": "a", "siblings": [3]}', '{"sha": "a"}'])  # fmt: skip
def test_a_listing_of_another_shape(hub, monkeypatch, text):
    def send(handler):
        handler._head(200, len(text), {})
        handler.wfile.write(text.encode())

    hub.repositories["org/odd"] = FILES
    listed(monkeypatch, send)
    with pytest.raises(DownloadError, match=r"listing of org/odd cannot|which commit of org/odd"):
        models.path("org/odd")


def test_a_repository_of_too_many_files_and_names(hub, monkeypatch):
    hub.repositories["org/many"] = {f"{n}\x1b/genai_config.json": b"" for n in range(1_000)}
    with pytest.raises(ModelNotFound, match="has 1000 models") as caught:
        models.path("org/many")
    assert len(str(caught.value)) < 2_000
    assert "\x1b" not in str(caught.value)
    monkeypatch.setattr(hub_module, "_MOST_FILES", 999)
    with pytest.raises(DownloadError, match="more than 999 files"):
        models.path("org/many")


def test_a_repository_that_is_not_there(hub, cache_folder):
    with pytest.raises(ModelNotFound, match=r"no repository org/nothing on .* spelling"):
        models.path("org/nothing")
    assert list((cache_folder / "partial").iterdir()) == []


def test_a_gated_repository_says_where_to_ask(hub):
    hub.gated.add("org/gated")
    with pytest.raises(DownloadError, match=r"Accept its terms at .*/org/gated, .* HF_TOKEN"):
        models.path("org/gated")


@pytest.mark.parametrize(("status", "hint"), [(403, "may not read"), (400, "Try again later")])
def test_other_refusals_are_told_with_their_status(hub, status, hint):
    hub.refused["org/closed"] = status
    with pytest.raises(DownloadError, match=f"returned status {status} for org/closed.*{hint}"):
        models.path("org/closed")


def test_a_refusal_without_a_token_may_be_a_wrong_name(hub):
    # The hub answers 401 to strangers, so that private names stay private.
    hub.refused["org/private"] = 401
    with pytest.raises((ModelNotFound, DownloadError), match="HF_TOKEN"):
        models.path("org/private")


def test_a_token_comes_from_where_it_is_said(hub, monkeypatch, tmp_path):
    hub.refused["org/private"] = 403
    (tmp_path / "token").write_text("hf_of_a_file\n", encoding="utf-8")
    monkeypatch.setenv("MINE", "hf_of_a_variable")
    monkeypatch.setenv("HF_TOKEN", "hf_usual")
    for source, token in (
        ("literal:hf_said", "Bearer hf_said"),
        ("env:MINE", "Bearer hf_of_a_variable"),
        (f"path:{tmp_path / 'token'}", "Bearer hf_of_a_file"),
        ("none", None),
    ):
        hub.tokens.clear()
        with models.token_from(source), pytest.raises(DownloadError, match="403"):
            models.path("org/private")
        assert hub.tokens == {token}
    (tmp_path / "lines").write_text("hf_secret\nfor the mirror\n", encoding="utf-8")
    for wrong in (
        *("hf_secret", "literal:", "env:NOT_THERE", f"path:{tmp_path}", "path:no"),
        *("literal:hf_secret\x00", f"path:{tmp_path / 'lines'}"),
    ):
        with pytest.raises(OptionError, match="token_source=") as caught, models.token_from(wrong):
            pass
        assert "secret" not in str(caught.value)


def test_a_runner_fetches_with_the_token_of_a_model(hub):
    hub.repositories["org/model"] = {"config.json": b"{}"}
    config = ModelConfig(source="org/model", kind="text", token_source="literal:hf_said")
    with Runner({"it": config}) as runner, pytest.raises(ModelNotFound, match="no genai_config"):
        runner.load()
    assert hub.tokens == {"Bearer hf_said"}
    assert "hf_said" not in repr(config)


def test_a_hub_that_cannot_be_reached(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://me:secret@127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"from http://127.0.0.1:9 .*Check the network"):
        models.path("org/far")


def test_a_repository_without_a_model(hub):
    hub.repositories["org/torch"] = {"config.json": b"{}", "model.safetensors": b"weights"}
    with pytest.raises(ModelNotFound, match=r"it has no genai_config\.json"):
        models.path("org/torch")
    assert hub.downloads == []


@pytest.mark.parametrize("name", ["tokenizer.json", "model.onnx"])
def test_a_repository_that_lacks_a_file_says_so_before_anything_is_fetched(hub, name):
    hub.repositories["org/lacking"] = {
        f"cpu/{file}": data for file, data in FILES.items() if file != name
    }
    says = {"tokenizer.json": r"tokenizer\.json", "model.onnx": "an ONNX file"}[name]
    with pytest.raises(
        ModelNotFound, match=rf"org/lacking has genai_config\.json but lacks {says}"
    ):
        models.path("org/lacking")
    assert hub.downloads == []


def test_a_repository_without_the_data_of_its_graph_is_refused(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_module, "apart", apart)
    monkeypatch.setattr(damage, "find", None)  # which another process calls
    hub.repositories["org/headless"] = {**FILES, "model.onnx": graph_with_data(tmp_path)}
    del hub.repositories["org/headless"]["model.onnx.data"]
    with pytest.raises(ModelNotFound, match=r"cannot be used: model\.onnx\.data is missing"):
        models.path("org/headless")
    assert models.installed() == []
    assert models.usage().unfinished == {}


@pytest.mark.parametrize(
    "name", ["../../evil.json", "/tmp/structgen-evil.json", "..\\evil.json", "C:\\evil.json",
             "a/../../../evil.json", "evil\x1b[2J.json", ""],
)  # fmt: skip
def test_a_listing_that_leads_out_of_the_cache_is_refused(hub, cache_folder, name):
    hub.repositories["org/evil"] = {**FILES, name: b"evil"}
    with pytest.raises(
        DownloadError, match=r"The hub's listing of org/evil .* structgen downloaded nothing"
    ):
        models.path("org/evil")
    assert hub.downloads == []
    assert not [file for file in cache_folder.parent.rglob("*") if "evil.json" in file.name]


def test_a_listing_with_files_in_a_file(hub):
    """The error was that the cache cannot be written."""
    hub.repositories["org/odd"] = {**FILES, "tokenizer.json/more": b"{}"}
    with pytest.raises(DownloadError, match=r"'tokenizer\.json' is a file and a folder"):
        models.path("org/odd")
    assert hub.downloads == []


@pytest.mark.parametrize("commit", ["..", "../../evil", "/tmp/structgen-evil", ".", "\x1b[2J"])
def test_a_commit_is_a_name(hub, monkeypatch, commit):
    """None that leads out of the cache, or that a terminal takes for an order."""
    hub.repositories["org/evil"] = FILES
    said = {"sha": commit, "siblings": []}
    monkeypatch.setattr(hub_server._Handler, "_info", lambda self, *_: self._json(said))
    for ask in (models.path, models.info):
        with pytest.raises(DownloadError, match="does not say which commit"):
            ask("org/evil")
    assert hub.downloads == []


def test_a_repository_with_code_of_its_own_is_refused(hub):
    config = json.loads(CONFIG)
    config["model"]["decoder"]["session_options"] = {"custom_ops_library": "evil.so"}
    hub.repositories["org/evil"] = {**FILES, "genai_config.json": json.dumps(config).encode()}
    with pytest.raises(ModelNotFound, match=r"genai_config\.json sets .*custom_ops_library"):
        models.path("org/evil")
    assert models.installed() == []


def test_what_is_resumed_is_not_abandoned(hub, cache_folder):
    hub.repositories["org/cut"] = FILES
    hub.cuts["model.onnx.data"] = 1000
    work = cache_folder / "partial" / "org--cut"
    (work / "x").mkdir(parents=True)
    old = time.time() - 6 * 24 * 3600
    os.utime(work, (old, old))
    with pytest.raises(DownloadError):
        models.path("org/cut")
    assert work.stat().st_mtime > old + 3600


def graph_with_data(folder):
    """A graph whose only weight is in ``model.onnx.data``."""
    weight = onnx.numpy_helper.from_array(np.arange(300, dtype=np.float32), "weight")
    graph = onnx.helper.make_graph([], "graph", [], [], [weight])
    onnx.save_model(
        onnx.helper.make_model(graph),
        folder / "model.onnx",
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=0,
    )
    return (folder / "model.onnx").read_bytes()


@pytest.mark.parametrize("said", [{}, {"size": None}])
def test_the_disk_must_have_room(hub, monkeypatch, said):
    hub.repositories["org/tiny-onnx"] = FILES
    of_file = hub_server._sibling
    monkeypatch.setattr(hub_server, "_sibling", lambda *file: of_file(*file) | said)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: SimpleNamespace(free=5000))
    with pytest.raises(DownloadError, match=r"Not enough space .* STRUCTGEN_CACHE"):
        models.path("org/tiny-onnx")
    assert hub.downloads == []


def test_a_disk_that_becomes_full_is_told_as_one(hub, monkeypatch):
    class Sink(hub_module._Sink):
        def write(self, data):
            if isinstance(self.raw, io.FileIO):
                raise OSError(errno.ENOSPC, "No space left on device")  # which has no file name
            return super().write(data)

    monkeypatch.setattr(hub_module, "_Sink", Sink)
    hub.repositories["org/tiny-onnx"] = FILES
    with pytest.raises(DownloadError, match=r"The disk of .* is full\. Free"):
        models.path("org/tiny-onnx")


@pytest.mark.skipif(os.name != "posix", reason="no such modes and links")
def test_nothing_is_fetched_to_where_others_can_put_links(hub, cache_folder, tmp_path):
    mine = tmp_path / "mine"
    mine.write_bytes(FILES["model.onnx.data"][:100])
    arriving = cache_folder / "partial" / "org--tiny-onnx"
    arriving.mkdir(parents=True)
    (arriving / "model.onnx.data.part").symlink_to(mine)
    cache_folder.chmod(0o777)
    hub.repositories["org/tiny-onnx"] = FILES
    with pytest.raises(DownloadError, match=r"can be written by others .*chmod go-w"):
        models.path("org/tiny-onnx")
    assert len(mine.read_bytes()) == 100
    assert hub.requests == 0


@pytest.mark.parametrize(
    "name", ["org", "org/", "/org/name", "org/../name", "a b/c", "org/name/.."]
)
def test_what_cannot_be_a_repository_is_not_taken_for_one(name):
    assert not hub_module.looks_like(name)


def test_the_clients_own_bars_are_shown_again_afterwards(hub):
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled

    before = are_progress_bars_disabled()
    hub.repositories["org/tiny-onnx"] = FILES
    models.path("org/tiny-onnx", lambda *report: None)
    assert are_progress_bars_disabled() == before
