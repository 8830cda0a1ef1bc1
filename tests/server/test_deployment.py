"""The Dockerfile, and the unit for systemd in the docs: what can be checked of them everywhere."""

from __future__ import annotations

import gc
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import uvicorn

from structgen import OptionError
from structgen.server import Settings, serving

ROOT = Path(__file__).resolve().parents[2]


def test_the_image_has_what_it_is_built_of() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [
        source
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name in re.findall(r'(?:readme = |license-files = \[)"(\S+?)"', project):
        assert name in copied
    assert any(re.fullmatch(r"USER \d+:\d+", line) for line in lines)
    assert any("/health/ready" in line for line in lines)


def test_a_port_in_use_is_told_before_models_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(settings: Settings) -> None:
        raise AssertionError("a Runner was made to serve with")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings(models={"a": "smollm2-135m-instruct"}, port=port)
        monkeypatch.setattr(serving, "create_app", loads)
        with pytest.raises(OptionError, match=f"listen on 127.0.0.1:{port}: "):
            serving.serve(settings)
    serving.check_address(settings)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, " "])
def test_a_host_that_can_be_none_is_told(host: str) -> None:
    with pytest.raises(OptionError, match=f"Cannot listen on {host}:1: "):
        serving.check_address(Settings(host=host, port=1))


@pytest.mark.parametrize("believed", [None, "10.0.0.9"])
def test_no_client_says_what_its_address_is_unless_it_is_a_known_proxy(
    monkeypatch: pytest.MonkeyPatch, believed: str | None
) -> None:
    class Made(Exception):
        """The server would begin."""

    def made(config: uvicorn.Config) -> None:
        assert config.proxy_headers == (believed is not None)
        assert believed is None or config.forwarded_allow_ips == believed
        raise Made

    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    if believed is not None:
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", believed)
    monkeypatch.setattr(serving, "_log_to_stderr", lambda settings: None)
    monkeypatch.setattr(uvicorn, "Server", made)
    try:
        model, longest = {"a": "smollm2-135m-instruct"}, float("inf")
        with pytest.raises(Made):
            serving.serve(Settings(models=model, port=0, lazy=True, drain_seconds=longest))
    finally:
        gc.unfreeze()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_unit_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    found = re.search(r"```ini\n(.*?)```", page, re.DOTALL)
    assert found is not None
    unit = tmp_path / "structgen.service"
    # The program has to be there.
    unit.write_text(found[1].replace("/opt/structgen/bin/structgen", sys.executable))
    told = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    wrong = [line for line in told.stderr.splitlines() if "structgen.service" in line]
    assert (told.returncode, wrong) == (0, [])
