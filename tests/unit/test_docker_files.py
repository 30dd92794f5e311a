"""Dockerfile, compose.yaml and the files in deploy/: no image is built here, so what can be said without is said."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from docvino.machine.known_bad import known_problems
from docvino.machine.table import read_toml

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text("utf-8")))
DOCS = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
PORT = "8080"


def stages() -> dict[str, list[str]]:
    """Name of a stage -> its instructions, each on one line."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        if match := re.fullmatch(r"FROM \S+ AS (\w+)", line):
            found[match[1]] = []
        elif found:
            found[next(reversed(found))].append(line)
    return found


def deployment() -> dict[str, Any]:
    pod: dict[str, Any] = next(part for part in KUBERNETES if part["kind"] == "Deployment")["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_neither_image_runs_as_root(target: str) -> None:
    assert [line for line in stages()[target] if line.startswith("USER ")][-1] == "USER 10001:10001"


def test_each_file_that_is_fetched_has_a_checksum() -> None:
    fetched = [line for lines in stages().values() for line in lines if "://" in line and not line.startswith("CMD")]
    assert len(fetched) == 6
    assert all(
        re.match(r"ADD --checksum=sha256:[0-9a-f]{64} +https://github\.com/\S+\.deb /$", line) for line in fetched
    )


def test_the_drivers_are_of_one_release() -> None:
    assert len(set(re.findall(r"compute-runtime/releases/download/([\d.]+)/", DOCKERFILE))) == 1
    assert len(set(re.findall(r"intel-graphics-compiler/releases/download/v([\d.]+)/", DOCKERFILE))) == 1


def test_known_faults_of_the_pinned_driver_are_told() -> None:
    runtime = re.findall(r"compute-runtime/releases/download/([\d.]+)/", DOCKERFILE)[0]
    assert f"compute runtime {runtime}" in DOCS
    assert runtime.startswith("26.35")
    open_ended = [row["id"] for row in read_toml("known_bad.toml")["problem"] if open_from(row.get("runtime")) == "26"]
    assert len(open_ended) == 3
    assert {problem.id for problem in known_problems()} >= set(open_ended)
    assert [name for name in open_ended if f"`{name}`" not in DOCS] == []


def open_from(bounds: str | list[str] | None) -> str | None:
    """The year from which on a fault is in every release so far."""
    match = re.fullmatch(r">=(\d+)\.[\d.]+", bounds) if isinstance(bounds, str) else None
    return match[1] if match else None


def test_the_image_gets_the_newest_tested_versions() -> None:
    lines = (ROOT / "deploy" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pinned == {name: row["versions"][-1] for name, row in read_toml("tested.toml")["packages"].items()}


def test_what_is_copied_into_the_image_is_in_its_context() -> None:
    kept = [
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")
    ]
    copied = [name for line in stages()["build"] if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert copied
    for name in copied:
        assert any(fnmatch.fnmatch(name, pattern) for pattern in kept), name
        assert (ROOT / name).exists(), name


def test_no_secret_is_in_the_image_or_in_the_files() -> None:
    assert not re.search(r"^(ARG|ENV).*(KEY|TOKEN|PASSWORD|SECRET)", DOCKERFILE, re.MULTILINE)
    for service in COMPOSE["services"].values():
        assert service["environment"]["DOCVINO_API_KEY"].startswith("${DOCVINO_API_KEY:?")
    key = next(entry for entry in deployment()["containers"][0]["env"] if entry["name"] == "DOCVINO_API_KEY")
    assert "value" not in key
    assert key["valueFrom"]["secretKeyRef"]["key"] == "api-key"


def test_composed_services_have_no_more_rights_than_they_need() -> None:
    for service in COMPOSE["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
        assert all(port.startswith("127.0.0.1:") and port.endswith(f":{PORT}") for port in service["ports"])
        assert service["mem_limit"]
        assert service["restart"] == "unless-stopped"


def test_the_gpu_reaches_its_container_by_device_and_group() -> None:
    service = COMPOSE["services"]["docvino-gpu"]
    assert service["devices"] == ["/dev/dri:/dev/dri"]
    assert service["group_add"] == ["${RENDER_GID:-992}"]
    assert service["build"]["target"] == "gpu"
    assert "devices" not in COMPOSE["services"]["docvino"]


def test_volumes_lie_where_the_image_keeps_its_files() -> None:
    said = re.search(r'^VOLUME \["(\S+)", "(\S+)"\]$', DOCKERFILE, re.MULTILINE)
    assert said is not None
    assert f"DOCVINO_DATA_DIR={said[1]}" in DOCKERFILE
    assert f"DOCVINO_CACHE_DIR={said[2]}" in DOCKERFILE
    for service in COMPOSE["services"].values():
        assert [volume.partition(":")[2] for volume in service["volumes"]] == list(said.groups())
    mounted = [mount["mountPath"] for mount in deployment()["containers"][0]["volumeMounts"]]
    assert mounted == [*said.groups(), "/tmp"]


def test_health_is_asked_for_where_the_service_listens() -> None:
    lines = stages()["cpu"]
    check = next(line for line in lines if line.startswith("HEALTHCHECK"))
    assert f"C('127.0.0.1', {PORT}" in check
    assert "'/readyz'" in check
    assert f'CMD ["serve", "--host", "0.0.0.0", "--port", "{PORT}"]' in lines
    container = deployment()["containers"][0]
    assert container["ports"] == [{"name": "http", "containerPort": int(PORT)}]
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert probes == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}


def test_the_pod_does_not_run_as_root_and_owns_no_capability() -> None:
    pod = deployment()
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["initContainers"] + pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="needs hadolint on the path")
def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(["hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
