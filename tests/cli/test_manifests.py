"""The manifests for Kubernetes say what the commands take.

Their schemas were checked by hand: `kubernetes-validate --strict` for Kubernetes' own kinds, and
for Ray's the definitions of KubeRay 1.7 (docs/scale.md says how).
"""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import click
import yaml

from structgen.cli.commands import cli
from structgen.ray import app, deployment
from structgen.server import Settings
from structgen.server.settings import PREFIX

ROOT = Path(__file__).resolve().parents[2]


def manifest(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy/kubernetes" / name).read_text("utf-8")))


def parsed(command: str, arguments: list[str]) -> dict[str, Any]:
    """Arguments as a command takes them."""
    found: click.Command = cli.commands[command]
    return found.make_context(command, list(arguments)).params


def ray_version() -> str:
    (version,) = re.findall(r'"ray\[data,serve\]>=([\d.]+)', (ROOT / "pyproject.toml").read_text())
    return version


def pods(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def check_pod(pod: dict[str, Any]) -> None:
    volumes = {one["name"] for one in pod.get("volumes", ())}
    for container in pod["containers"]:
        assert {one["name"] for one in container.get("volumeMounts", ())} == volumes
        for variable in container.get("env", ()):
            name = variable["name"]
            known = name.removeprefix(PREFIX).lower() in Settings.model_fields
            assert known or name in ("STRUCTGEN_API_KEY", "STRUCTGEN_CACHE"), name


def test_the_job() -> None:
    (job,) = manifest("batch.yaml")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"].startswith(ray_version())
    program, command, *arguments = shlex.split(job["spec"]["entrypoint"])
    assert (program, command) == ("structgen", "batch")
    asked = parsed(command, arguments)
    assert asked["ray"] == "auto"
    mounted = pods(cluster)[0]["containers"][0]["volumeMounts"]
    places = [mount["mountPath"] for mount in mounted]
    for path in (*asked["inputs"], str(asked["output"])):
        assert any(path.startswith(f"{place}/") for place in places), path
    worker = pods(cluster)[1]["containers"][0]["resources"]["requests"]
    most = cluster["workerGroupSpecs"][0]["maxReplicas"] * int(worker["cpu"])
    assert int(asked["actors"].partition(":")[2]) * asked["actor_cpus"] <= most
    for pod in pods(cluster):
        check_pod(pod)


def test_the_service() -> None:
    (service,) = manifest("service.yaml")
    cluster = service["spec"]["rayClusterConfig"]
    assert cluster["rayVersion"].startswith(ray_version())
    (served,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    module, _, name = served["import_path"].partition(":")
    assert getattr(importlib.import_module(module), name) is app
    known = inspect.signature(deployment).parameters.keys() | Settings.model_fields.keys()
    assert served["args"].keys() <= known
    Settings.of({"models": served["args"]["models"]})
    for pod in pods(cluster):
        check_pod(pod)


def test_the_deployment() -> None:
    made, service, budget = manifest("deployment.yaml")
    pod = made["spec"]["template"]["spec"]
    check_pod(pod)
    (container,) = pod["containers"]
    asked = parsed("serve", container["args"])
    Settings.of({"models": asked["models"], "max_queue": asked["max_queue"]})
    labels = made["spec"]["template"]["metadata"]["labels"]
    for selector in (
        made["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        budget["spec"]["selector"]["matchLabels"],
    ):
        assert selector == labels
    drain = Settings.model_fields["drain_seconds"].default
    assert pod["terminationGracePeriodSeconds"] > drain
    dockerfile = (ROOT / "Dockerfile").read_text()
    (port,) = container["ports"]
    assert f"EXPOSE {port['containerPort']}" in dockerfile
    assert f"USER {pod['securityContext']['runAsUser']}:" in dockerfile
