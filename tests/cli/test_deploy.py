"""Files of deploy/: schemas, linters, and their commands. Neither systemd nor containers nor Kubernetes run here."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = ["rocketpy-namesrv.service", "rocketpy-broker@a.service", "rocketpy-server.service"]
MANIFESTS = ["namesrv.yaml", "broker-a.yaml"]
INSTALLED = "/opt/rocketpy/bin/rocketpy"
MAX_EXPOSURE = 2.0
"""Of `systemd-analyze security`: from 0 (locked) to 10."""


def run(*line: str | Path, **options: Any) -> tuple[int, str]:
    result = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, **options)
    return result.returncode, result.stdout


def tool(name: str) -> str:
    """A command of the tested environment."""
    return str(Path(sys.executable).with_name(name))


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of units, as installed, with the tested executable."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("`systemd-analyze` is missing: install systemd")
    folder = tmp_path / "units"
    shutil.copytree(DEPLOY / "systemd", folder)
    for unit in folder.glob("*.service"):
        assert unit.read_text().count(INSTALLED) == 1
        unit.write_text(unit.read_text().replace(INSTALLED, tool("rocketpy")))
    monkeypatch.setenv("SYSTEMD_UNIT_PATH", f"{folder}:")  # the colon appends the system's units
    return folder


def complaints(unit: str, folder: Path) -> list[str]:
    _, printed = run("systemd-analyze", "verify", "--man=no", unit)
    return [line for line in printed.splitlines() if str(folder) in line or line.startswith("rocketpy-")]


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_valid_and_hardened(unit: str, units: Path):
    assert complaints(unit, units) == []
    code, report = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", report)
    assert (code, float(exposure) <= MAX_EXPOSURE) == (0, True), report


def test_an_unknown_key_of_a_unit_is_noticed(units: Path):
    with (units / "rocketpy-.service.d/common.conf").open("a") as file:
        file.write("ProtectEverything=yes\n")
    assert any("ProtectEverything" in line for line in complaints(UNITS[0], units))


def test_commands_of_units_start_servers(start, tmp_path: Path):
    """In the folders of the test, on free ports."""
    names = ""
    for unit in UNITS:
        text = (DEPLOY / "systemd" / unit.replace("@a.", "@.")).read_text().replace("%i", "a")
        (state,) = re.findall(r"^StateDirectory=(\S+)$", text, re.MULTILINE)
        (line,) = re.findall(rf"^ExecStart={INSTALLED} (.*)$", text, re.MULTILINE)
        assert "broker" not in unit or f"/var/lib/{state} " in line
        kept = re.findall(r"^Environment=ROCKETPY_KV_CONFIG_PATH=(\S+)/kvConfig.json$", text, re.MULTILINE)
        assert kept == ([f"/var/lib/{state}"] if "namesrv" in unit else [])
        arguments = [word.replace("/var/lib", str(tmp_path)).replace("/etc", str(tmp_path)) for word in line.split()]
        config = Path(arguments[-1])
        config.parent.mkdir(exist_ok=True)
        ports = "listenPort=0\n" + ("nameServerPort=0\n" if "namesrv" not in unit else "")
        config.write_text(ports + (f"namesrvAddr={names}\n" if names else ""))
        ready = start(*arguments).ready
        names = names or ready["name_server"]


INSTRUCTIONS = {"ARG", "FROM", "RUN", "USER", "VOLUME", "WORKDIR", "ENV", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def instructions(text: str) -> list[tuple[str, str]]:
    """Instructions of a Containerfile with their arguments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ").splitlines()
    return [(line.split()[0], " ".join(line.split()[1:])) for line in lines if line.strip()]


def test_the_containerfile_has_a_base_of_choice_and_starts_a_server_without_root():
    found = instructions((DEPLOY / "Containerfile").read_text())
    names = [name for name, _ in found]
    assert {*names} <= INSTRUCTIONS
    assert names[:2] == ["ARG", "FROM"]
    assert found[1] == ("FROM", "${BASE}")
    last = dict(found)  # the last of a name counts
    assert last["USER"] == "10001:10001"
    assert names.index("USER") > names.index("RUN"), "pip installs as root"
    line = [*json.loads(last["ENTRYPOINT"]), *json.loads(last["CMD"])]
    assert line == ["rocketpy", "server", "/data"]
    assert run(tool(line[0]), line[1], "--help")[0] == 0
    assert "/livez" in last["HEALTHCHECK"]


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_the_compose_file_follows_its_schema_and_has_two_pairs(tmp_path: Path):
    check = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    assert run(*check, DEPLOY / "compose.yaml")[0] == 0
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((DEPLOY / "compose.yaml").read_text().replace("stop_grace_period", "stop_grace"))
    assert "stop_grace" in run(*check, wrong)[1]

    services = compose()["services"]
    roles = {name: service["command"][service["command"].index("--role") + 1]
             for name, service in services.items() if name != "namesrv"}  # fmt: skip
    masters = {"broker-a": "sync-master", "broker-b": "sync-master"}
    assert roles == masters | {"broker-a-slave": "slave", "broker-b-slave": "slave"}
    for name in roles:
        assert services[name]["environment"]["ROCKETPY_BROKER_IP1"] == name
        assert services[name]["volumes"] == [f"{name}:/data"]
    assert set(compose()["volumes"]) == set(services)


def documents(manifest: str) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / manifest).read_text())}


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_follows_the_schemas_and_its_parts_fit(manifest: str):
    found = documents(manifest)
    version = kubernetes_validate.latest_version()
    for document in found.values():
        kubernetes_validate.validate(document, version, strict=True)
    service, budget, workload = (found[kind]["spec"] for kind in ("Service", "PodDisruptionBudget", "StatefulSet"))
    labels = workload["template"]["metadata"]["labels"]
    assert service["selector"] == budget["selector"]["matchLabels"] == workload["selector"]["matchLabels"] == labels
    assert workload["serviceName"] == found["Service"]["metadata"]["name"]
    (container,) = workload["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        ((kind, target),) = ((key, value) for key, value in container[probe].items() if isinstance(value, dict))
        assert target["port"] in ports
        assert kind == "tcpSocket" or target["path"] == ("/readyz" if probe == "readinessProbe" else "/livez")

    workload["managementPolicy"] = workload.pop("podManagementPolicy")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found["StatefulSet"], version, strict=True)


@pytest.mark.parametrize(
    ("pod", "role"), [("broker-a-0", ["sync-master"]), ("broker-b-1", ["slave", "--broker-id", "1"])]
)
def test_the_number_of_a_pod_chooses_its_role(pod: str, role: list[str], tmp_path: Path):
    (container,) = documents("broker-a.yaml")["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    shown = tmp_path / "rocketpy"
    shown.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    shown.chmod(0o755)
    path = {"HOSTNAME": pod, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    code, printed = run(*container["command"], *container["args"], env=path)
    name = pod[:-2]
    expected = ["broker", "/data", "--broker-name", name, "--role", *role, "--set", f"brokerIP1={pod}.{name}"]
    assert (code, printed.split()) == (0, expected)


def test_keys_of_all_files_are_configuration_keys():
    """Environment variables are `ROCKETPY_` and the key in capitals, with underscores between its words."""
    text = "".join(file.read_text() for file in DEPLOY.rglob("*") if file.is_file())
    keys = re.findall(r"`(\w+)`", (DEPLOY.parent / "docs/configuration.md").read_text())
    known = {key.lower() for key in keys}
    variables = set(re.findall(r"\bROCKETPY_([A-Z0-9_]+)\b", text)) - {"IMAGE"}
    assert len(variables) >= 6
    assert {name for name in variables if name.replace("_", "").lower() not in known} == set()


def test_the_page_says_that_nothing_ran():
    page = (DEPLOY.parent / "docs/operations/deploy.md").read_text()
    rows = re.findall(r"^\| `(deploy/[\w.]+)` \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    assert {name for name, _ in rows} == {f"deploy/{file.name}" for file in DEPLOY.iterdir()}
    assert all(run.startswith(("no", "image not")) for _, run in rows)
