"""What an application of Ray Serve is made of, without Ray."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from structgen.errors import OptionError
from structgen.ray import deployment


@pytest.fixture
def _without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = SimpleNamespace(
        multiplexed=lambda **_: lambda function: function,
        ingress=lambda: lambda server: server,
        deployment=lambda **_: lambda server: SimpleNamespace(bind=lambda: server),
    )
    ray = ModuleType("ray")
    ray.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)


@pytest.mark.usefixtures("_without_ray")
@pytest.mark.parametrize("name", ["sessions", "files"])
def test_replicas_share_no_file_of_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = deployment(replicas=2)
    monkeypatch.setenv(f"STRUCTGEN_SERVER_{name.upper()}", "x")
    deployment(replicas=1)
    for make in (lambda: deployment(replicas=(1, 2)), server):  # here, and where a replica begins
        with pytest.raises(OptionError, match=f"{name}= requires one server, but there are 2"):
            make()
