"""The files that people deploy us with: they fit each other, our settings and our times, and what they run, runs.

There is no container engine in a test run. So the Dockerfile is read, held against the rules that its linters have, and
its steps are taken outside of a container; the manifests are held against what they name.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
import shlex
import shutil
import signal
import site
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import limits
from holdfast.config import load_config
from holdfast.server.agents.source_directory import load_directory
from holdfast.store.store_url import InFile, InPostgres, parse_url
from tests import repository
from tests.deployment import Stage, read_stages
from tests.postgres import free_port

ROOT = repository.ROOT
KUBERNETES = ROOT / "deploy" / "kubernetes"
STOPPING_S = (
    limits.drain_grace_s
    + limits.cancel_grace_s
    + limits.drain_store_s
    + limits.resign_s
    + 2 * limits.ending_grace_s
)
"""What a server may take to stop, also while its store is away."""

SETTINGS = {f"HOLDFAST_{each.name.upper()}" for each in load_config({}, {}, ()).origins}


@cache
def stages() -> list[Stage]:
    return read_stages((ROOT / "Dockerfile").read_text(encoding="utf-8"))


# ── the image ────────────────────────────────────────────────────────────────────────────────


def test_images_are_named_with_a_version() -> None:
    for stage in stages():
        _, _, tag = stage.image.partition(":")
        assert tag and tag != "latest" and "${" not in stage.image


def test_the_image_is_nobodys_root_and_runs_us_and_no_shell() -> None:
    final = stages()[-1]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", final.last("USER").rest), (
        "by number: a name proves nothing"
    )
    after = final.steps[final.steps.index(final.last("USER")) :]
    assert not [each for each in after if each.word in ("RUN", "COPY")], (
        "what it has is not its own"
    )
    assert final.last("ENTRYPOINT").exec_form == ["holdfast"]
    assert final.last("CMD").exec_form == ["serve"]
    assert final.last("HEALTHCHECK").exec_form is not None
    assert final.last("STOPSIGNAL").rest == "SIGTERM"


def test_everything_that_is_installed_has_a_hash() -> None:
    installs = [
        step.rest
        for stage in stages()
        for step in stage.all("RUN")
        if "pip" in step.rest and " install" in step.rest
    ]
    assert len(installs) == 3
    for each in installs:
        assert "--require-hashes" in each or "--no-index" in each
    assert not any("apt" in step.rest for stage in stages() for step in stage.all("RUN"))


def test_only_what_is_there_is_copied_and_nothing_else_is_sent_to_the_engine() -> None:
    ignored = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied: set[str] = set()
    for step in stages()[0].all("COPY"):
        *sources, _ = step.rest.split()
        copied.update(sources)
    assert not any(step.word == "ADD" for stage in stages() for step in stage.steps)
    assert copied == allowed
    assert all((ROOT / each).exists() for each in copied)
    assert ignored[0] == "*"
    assert any(fnmatch.fnmatch("x/__pycache__", line.replace("**/", "*")) for line in ignored)


def test_its_settings_are_ours() -> None:
    final = stages()[-1]
    environment = final.environment
    assert {name for name in environment if name.startswith("HOLDFAST_")} <= SETTINGS
    config = load_config({}, environment, ())
    assert str(config.listen.port) == final.last("EXPOSE").rest
    assert f"127.0.0.1:{config.listen.port}/readyz" in final.last("HEALTHCHECK").rest
    assert config.store.startswith("sqlite:///" + final.last("VOLUME").rest)
    assert isinstance(parse_url(config.store), InFile)


def test_what_is_shipped_is_what_is_tested() -> None:
    """The image has the versions that the tests run with."""
    versions = [
        dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in (
            "requirements-dev.txt",
            "deploy/requirements.txt",
            "deploy/requirements-build.txt",
        )
    ]
    tested, *shipped = versions
    for lock in shipped:
        assert {name: tested.get(name) for name in lock} == lock
    assert {"asyncpg", "mcp", "opentelemetry-sdk"} <= shipped[0].keys()


@pytest.mark.slow
async def test_the_steps_of_the_image_make_a_server_that_its_own_check_finds_ready(
    tmp_path: Path,
) -> None:
    """Its build steps, but for what would be downloaded, and then what it runs."""
    build, final = stages()
    opt, data = tmp_path / "opt", tmp_path / "data"
    data.mkdir()
    (tmp_path / "src").mkdir()
    for step in build.steps:
        if step.word == "COPY":
            await asyncio.to_thread(_copy, step.rest, tmp_path / "src")
        elif step.word == "RUN":
            await _take(step.rest, opt, cwd=tmp_path / "src")
    moved = {
        "/opt/": f"{opt}/",
        "/data": str(data),
        ":8484": f":{free_port()}",
        "0.0.0.0": "127.0.0.1",
    }
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST")},
        **{name: _moved(value, moved) for name, value in final.environment.items()},
    }
    entry = [*(final.last("ENTRYPOINT").exec_form or ()), *(final.last("CMD").exec_form or ())]
    program = opt / "holdfast" / "bin" / entry[0]
    server = await asyncio.create_subprocess_exec(
        program, *entry[1:], cwd=data, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    while b"server.ready" not in (line := await server.stdout.readline()):
        assert line, "it has ended"
    check = [_moved(each, moved) for each in final.last("HEALTHCHECK").exec_form or ()]
    healthy = await asyncio.create_subprocess_exec(
        opt / "holdfast" / "bin" / check[0], *check[1:], env=environment
    )
    assert await healthy.wait() == 0
    server.send_signal(getattr(signal, final.last("STOPSIGNAL").rest))
    await server.communicate()
    assert server.returncode == 0
    sick = await asyncio.create_subprocess_exec(
        opt / "holdfast" / "bin" / check[0],
        *check[1:],
        env=environment,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await sick.wait() != 0


def _copy(line: str, here: Path) -> None:
    """A COPY step: files into a folder, or a folder as one."""
    *sources, to = line.split()
    for source in sources:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, here / to)
        else:
            (here / to).mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, here / to)


async def _take(line: str, opt: Path, *, cwd: Path) -> None:
    """A RUN step, elsewhere. What it would download is taken from the environment that runs the tests."""
    if "--require-hashes" in line:
        venv = opt / ("build" if "requirements-build" in line else "holdfast")
        (folder,) = venv.glob("lib/python*/site-packages")
        (folder / "tests.pth").write_text("\n".join(site.getsitepackages()))
        if venv.name == "build":
            (venv / "bin" / "hatchling").write_text(
                f"#!{venv}/bin/python\nimport sys\nfrom hatchling.cli import hatchling\nsys.exit(hatchling())\n"
            )
            (venv / "bin" / "hatchling").chmod(0o755)
        return
    moved = line.replace("/opt/", f"{opt}/").replace(
        "python -m venv", f"{shlex.quote(sys.executable)} -m venv"
    )
    process = await asyncio.create_subprocess_shell(
        f"set -e; {moved}",
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


def _moved(text: str, moved: dict[str, str]) -> str:
    for old, new in moved.items():
        text = text.replace(old, new)
    return text


# ── compose ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def services() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert isinstance(found, dict)
    return found


def test_replicas_on_compose_are_set_up_as_they_say(services: dict[str, Any]) -> None:
    ours = services["holdfast"]
    named = {name for name in ours["environment"] if name.startswith("HOLDFAST_")}
    assert named <= SETTINGS
    assert ours["deploy"]["replicas"] == 2
    assert ours["ports"][0].endswith(f":{stages()[-1].last('EXPOSE').rest}")
    first, last = ours["ports"][0].split(":")[1].split("-")
    assert int(last) - int(first) + 1 == ours["deploy"]["replicas"]
    assert _seconds(ours["stop_grace_period"]) >= STOPPING_S
    assert ours["read_only"] and ours["cap_drop"] == ["ALL"]
    assert [ours["command"], services["migrate"]["command"]] == [["serve"], ["db", "migrate"]]
    store = ours["environment"]["HOLDFAST_STORE"].partition(":-")[2][:-1]
    assert isinstance(parse_url(store.replace("${POSTGRES_PASSWORD}", "secret")), InPostgres)
    assert "@postgres/" in store and "postgres" in services


def test_whoever_is_waited_for_on_compose_is_there_and_can_say_so(services: dict[str, Any]) -> None:
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            needs_health = how["condition"] == "service_healthy"
            assert not needs_health or "healthcheck" in services[name]
        image = service["image"]
        assert image == "holdfast" or re.search(r":v?\d", image), "with a version"


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


# ── Kubernetes ───────────────────────────────────────────────────────────────────────────────


@cache
def manifests() -> dict[str, Any]:
    """By kind."""
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    files = {each.name for each in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(listed) == files
    documents = [
        each for name in listed for each in yaml.safe_load_all((KUBERNETES / name).read_text())
    ]
    found = {each["kind"]: each for each in documents}
    assert len(found) == len(documents)
    return found


def container() -> dict[str, Any]:
    (found,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def test_manifests_are_about_the_same_pods() -> None:
    deployment = manifests()["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert manifests()["Service"]["spec"]["selector"] == labels
    assert manifests()["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests()["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    target = manifests()["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    assert "replicas" not in deployment["spec"], "the autoscaler's business"
    pod = deployment["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == manifests()["ServiceAccount"]["metadata"]["name"]


def test_ports_and_probes_are_ours() -> None:
    port = int(stages()[-1].last("EXPOSE").rest)
    (named,) = container()["ports"]
    assert named == {"name": "http", "containerPort": port}
    assert manifests()["Service"]["spec"]["ports"] == [
        {"name": "http", "port": port, "targetPort": "http"}
    ]
    (ingress,) = manifests()["NetworkPolicy"]["spec"]["ingress"]
    assert ingress["ports"] == [{"protocol": "TCP", "port": "http"}]
    probes = {
        name: container()[name]["httpGet"]
        for name in ("livenessProbe", "readinessProbe", "startupProbe")
    }
    assert {each["path"] for each in probes.values()} == {"/healthz", "/readyz"}
    assert probes["livenessProbe"]["path"] == "/healthz"
    assert {each["port"] for each in probes.values()} == {"http"}


def test_a_pod_has_the_time_that_a_drain_takes() -> None:
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    command = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert command[0] == "sleep"
    readiness = container()["readinessProbe"]
    assert int(command[1]) >= readiness["periodSeconds"] + readiness["timeoutSeconds"]
    assert pod["terminationGracePeriodSeconds"] >= int(command[1]) + STOPPING_S


def test_a_pod_may_do_nothing_that_it_need_not() -> None:
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    user, group = stages()[-1].last("USER").rest.split(":")
    context = pod["securityContext"]
    assert context["runAsNonRoot"] and context["seccompProfile"]["type"] == "RuntimeDefault"
    assert (str(context["runAsUser"]), str(context["runAsGroup"])) == (user, group)
    assert pod["automountServiceAccountToken"] is False
    for each in (*pod["containers"], *pod["initContainers"]):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= each["resources"].keys()
    mounted = {each["mountPath"] for each in container()["volumeMounts"]}
    assert {"/tmp", stages()[-1].last("VOLUME").rest, container()["args"][1]} == mounted


def test_secrets_are_named_and_not_there() -> None:
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    for each in (*pod["containers"], *pod["initContainers"]):
        for variable in each["env"]:
            assert variable["name"] in SETTINGS
            assert set(variable) == {"name", "valueFrom"}
    assert "Secret" not in manifests()
    readme = (KUBERNETES / "README.md").read_text(encoding="utf-8")
    for name in ("holdfast-store", "holdfast-models"):
        assert f"create secret generic {name}" in readme


async def test_the_agents_of_the_manifests_can_be_served(tmp_path: Path) -> None:
    for name, text in manifests()["ConfigMap"]["data"].items():
        (tmp_path / name).write_text(text)
    directory = await load_directory([str(tmp_path)], environ={"OPENAI_API_KEY": "any"})
    assert directory.entries() and not directory.broken()
    await directory.close()


def test_what_the_guides_say_about_time_is_so() -> None:
    page = (ROOT / "docs/guides/replicas.md").read_text(encoding="utf-8")
    assert f"{limits.drain_grace_s:g} seconds for turns" in page
    assert f"{limits.lease_ttl_s:g} seconds after its last renewal" in page
    assert f"more than {limits.heartbeat_s:g} seconds" in page
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    assert f"| grace in all | {pod['terminationGracePeriodSeconds']} |" in page
