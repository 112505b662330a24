"""Files of deploy/ that run Parley: their commands, settings, paths, ports and variables are real.

Commands are parsed by the real parsers, and the deployments that they name are loaded and checked by the real
loader. What is checked by programs of others (systemd-analyze, promtool) is skipped where these are missing.
"""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml

from parley.command.calls import serve_parser
from parley.command.check import main as check_main
from parley.command.check import problems
from parley.command.main import SUBCOMMANDS
from parley.command.worker_line import worker_parser
from parley.command.worker_options import HOSTED
from parley.configs.deployment import Deployment
from parley.configs.load import load_deployment
from parley.core.tuning import tuned
from parley.serving.gateway.auth.route_access import ROUTES
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.webrtc.turn_credentials import turn_credentials
from parley.serving.gateway.webrtc.turn_settings import TURN_SECRET_ENV
from tests.peers.server import ROOT, free_port
from tests.peers.test_turn import allocate
from tests.unpacked import program, surroundings

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "parley.yaml").read_text())
)
UNIT = (DEPLOY / "systemd" / "parley.service").read_text()
# Where the files of a deployment are in containers and on a machine.
CONFIG = "/etc/parley/parley.yaml"
SECRETS = {
    "PARLEY_CALL_KEYS": "k" * 48,
    "PARLEY_WORKER_SECRET": "w" * 48,
    "PARLEY_ADMIN_TOKEN": "a" * 48,
}


@dataclass(frozen=True)
class Start:
    """Command of a file that starts Parley.

    Attributes:
        place: of the command.
        command: name after ``parley``.
        arguments: of it.
    """

    place: str
    command: str
    arguments: tuple[str, ...]


def stages() -> dict[str, dict[str, list[str]]]:
    """Return the instructions of each stage of the Dockerfile, by their names."""
    joined = re.sub(r"\\\n", " ", DOCKERFILE)
    found: dict[str, dict[str, list[str]]] = {}
    stage: dict[str, list[str]] = {}
    for line in joined.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            base, _, own = rest.partition(" AS ")
            stage = found[own] = {"FROM": [base]}
        else:
            stage.setdefault(name, []).append(rest.strip())
    return found


def starts() -> Iterator[Start]:
    """Yield all commands that start Parley."""
    for name in ("gateway", "worker"):
        stage = stages()[name]
        entry, arguments = json.loads(stage["ENTRYPOINT"][0]), json.loads(stage["CMD"][0])
        yield start(f"Dockerfile {name}", [*entry, *arguments])
        entry_of = entry
        yield start(f"compose {name}", [*entry_of, *COMPOSE["services"][name]["command"]])
        for container in containers():
            if container["name"] == name:
                yield start(f"kubernetes {name}", [*entry_of, *container["args"]])
    for line in UNIT.splitlines():
        if line.startswith("ExecStart="):
            yield start("systemd", shlex.split(line.partition("=")[2]))


def start(place: str, command: list[str]) -> Start:
    assert Path(command[0]).name == "parley", place
    return Start(place, command[1], tuple(command[2:]))


def containers() -> Iterator[dict[str, Any]]:
    for each in KUBERNETES:
        if each["kind"] == "Deployment":
            yield from each["spec"]["template"]["spec"]["containers"]


def pods() -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in KUBERNETES
        if each["kind"] == "Deployment"
    }


def deployments(folder: Path) -> dict[str, Deployment]:
    """Return the deployments that come with the files, by their place."""
    [mapped] = [each["data"]["parley.yaml"] for each in KUBERNETES if each["kind"] == "ConfigMap"]
    path = folder / "parley.yaml"
    path.write_text(mapped)
    return {
        "compose": load_deployment(str(DEPLOY / "compose" / "parley.yaml")),
        "kubernetes": load_deployment(str(path)),
    }


def stops_within_s(deployment: Deployment) -> float:
    """Return how long a server of a deployment takes to stop at most."""
    server = tuned(ServerTuning, deployment.server)
    return server.drain_s + server.goodbye_s + 2 * server.hang_up_s + server.stop_requests_s


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


@pytest.mark.parametrize("begun", list(starts()), ids=lambda begun: begun.place)
def test_a_command_is_one_of_the_products_with_options_that_there_are(begun: Start):
    assert begun.command in SUBCOMMANDS
    if begun.command == "serve":
        given = serve_parser().parse_args(begun.arguments)
        assert given.config in (CONFIG, "embedded") and given.port == 7860
    else:
        assert begun.command == "worker"
        given = worker_parser().parse_args(begun.arguments)
        assert given.engine in HOSTED[given.kind or "stt"]
        assert (given.host, given.port) == ("0.0.0.0", 22400)


@pytest.mark.parametrize("place", ["compose", "kubernetes"])
def test_a_deployment_is_complete_with_the_secrets_of_its_files(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    deployment = deployments(tmp_path)[place]
    assert list(problems(deployment, "cascade")) == []
    # A worker is a service of the same files, under the name and the port of its address.
    [worker] = deployment.workers.workers
    workers = [begun for begun in starts() if begun.place == f"{place} worker"]
    given = worker_parser().parse_args(workers[0].arguments)
    host, port = str(worker.url).removeprefix("ws://").split(":")
    assert (given.name, given.port) == (worker.name, int(port))
    services = COMPOSE["services"] if place == "compose" else {s["metadata"]["name"] for s in KUBERNETES}
    assert host in services


def test_a_supervisor_waits_until_calls_have_ended(tmp_path: Path):
    known = deployments(tmp_path)
    assert seconds(COMPOSE["services"]["gateway"]["stop_grace_period"]) >= stops_within_s(known["compose"])
    pod = pods()["parley"]
    [gateway] = pod["containers"]
    pause_s = float(gateway["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= pause_s + stops_within_s(known["kubernetes"])
    [stop] = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert float(stop) >= stops_within_s(Deployment())


def test_probes_and_scrapes_ask_routes_that_any_client_or_the_operator_may_use():
    asked = {"/metrics"}
    for container in containers():
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            if "httpGet" in container.get(name, {}):
                asked.add(container[name]["httpGet"]["path"])
    asked |= set(re.findall(r"http://127\.0\.0\.1:7860(/\w+)", DOCKERFILE))
    assert asked == {"/health", "/ready", "/metrics"}
    assert all(("GET", path) in ROUTES for path in asked)


def test_probes_of_kubernetes_come_with_a_name_that_the_server_knows(tmp_path: Path):
    known = deployments(tmp_path)["kubernetes"].server.allowed_hosts
    [gateway] = pods()["parley"]["containers"]
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        [header] = gateway[name]["httpGet"]["httpHeaders"]
        assert header["name"] == "Host" and header["value"] in known


def test_readiness_takes_a_pod_out_and_only_health_restarts_it():
    [gateway] = pods()["parley"]["containers"]
    assert gateway["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert gateway["livenessProbe"]["httpGet"]["path"] == "/health"


def test_every_variable_is_one_that_the_product_or_the_image_of_its_service_reads():
    source = "\n".join(
        path.read_text()
        for folder in ("serving", "configs", "models", "pipelines")
        for path in (ROOT / folder).rglob("*.py")
    )
    own = set(re.findall(r"\b(?:PARLEY|TWILIO)_[A-Z_]+\b", "\n".join(text_of_files())))
    assert len(own) >= 5
    # Compose puts the machine's address into the command line of coturn.
    assert "--external-ip=${PARLEY_PUBLIC_IP:?}" in COMPOSE["services"]["coturn"]["command"]
    for name in own - {"PARLEY_PUBLIC_IP"}:
        assert f'"{name}"' in source, name
    # The database's password is read by its driver.
    assert set(COMPOSE["services"]["gateway"]["environment"]) - own == {"PGPASSWORD"}


def text_of_files() -> Iterator[str]:
    for path in (
        DEPLOY / "compose.yaml",
        DEPLOY / "kubernetes" / "parley.yaml",
        DEPLOY / "systemd" / "parley.service",
    ):
        yield path.read_text()


def test_every_file_that_is_mounted_or_copied_is_there():
    for name, service in COMPOSE["services"].items():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), f"{name}: {source}"
            else:
                assert source in COMPOSE["volumes"], f"{name}: {source}"
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
            assert service["build"]["target"] in stages()
    copied = [each.split()[0] for each in stages()["build"]["COPY"]]
    required = re.findall(r"requirements/[\w.]+", DOCKERFILE)
    assert all((ROOT / path).exists() for path in (*copied, *required)) and required


def test_containers_run_without_rights():
    known = stages()
    assert known["base"]["USER"] == ["parley"] and list(known)[-1] == "gateway"
    for name in ("gateway", "worker"):
        assert known[name]["FROM"] == ["base"] and known[name]["HEALTHCHECK"]
        service = COMPOSE["services"][name]
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
    for pod in pods().values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            limits = container["securityContext"]
            assert limits["readOnlyRootFilesystem"] and not limits["allowPrivilegeEscalation"]
    # The user of the image is that of the pods.
    assert "--uid 10001" in DOCKERFILE


def test_ports_are_those_that_the_commands_listen_on():
    assert stages()["gateway"]["EXPOSE"] == ["7860"] and stages()["worker"]["EXPOSE"] == ["22400"]
    services = {each["metadata"]["name"]: each for each in KUBERNETES if each["kind"] == "Service"}
    for container in containers():
        [port] = container["ports"]
        [given] = [each for each in starts() if each.place == f"kubernetes {container['name']}"]
        assert str(port["containerPort"]) in given.arguments
    assert [port["targetPort"] for each in services.values() for port in each["spec"]["ports"]] == [
        "http",
        "worker",
    ]
    assert COMPOSE["services"]["gateway"]["ports"] == ["7860:7860"]


def test_traces_and_stun_go_to_services_of_the_same_file():
    deployment = load_deployment(str(DEPLOY / "compose" / "parley.yaml"))
    traces = deployment.telemetry.traces
    assert traces is not None and traces.endpoint.startswith("http://collector:4318/")
    collector = yaml.safe_load((DEPLOY / "compose" / "collector.yaml").read_text())
    [pipeline] = collector["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) <= set(collector[kind])
    assert collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")
    [url] = deployment.server.ice_servers
    listening = re.search(
        r"^listening-port=(\d+)$", (DEPLOY / "compose" / "turnserver.conf").read_text(), re.M
    )
    assert listening is not None and url.endswith(f":{listening[1]}")
    assert f"{listening[1]}:{listening[1]}/udp" in COMPOSE["services"]["coturn"]["ports"]


def test_coturn_relays_with_the_secret_of_the_gateway_and_to_public_addresses_alone():
    deployment = load_deployment(str(DEPLOY / "compose" / "parley.yaml"))
    settings = (DEPLOY / "compose" / "turnserver.conf").read_text().splitlines()
    coturn, gateway = COMPOSE["services"]["coturn"], COMPOSE["services"]["gateway"]
    assert deployment.server.turn is not None and "use-auth-secret" in settings
    assert "stun-only" not in settings and "no-tcp-relay" in settings
    networks = gateway["networks"]["default"]
    assert f"allowed-peer-ip={networks['ipv4_address']}" in settings
    secret = gateway["environment"][TURN_SECRET_ENV]
    assert f"--static-auth-secret={secret}" in coturn["command"]
    given = dict(line.split("=", 1) for line in settings if "-port=" in line)
    ports = f"{given['min-port']}-{given['max-port']}"
    assert f"{ports}:{ports}/udp" in coturn["ports"]
    denied = [line.partition("=")[2].split("-") for line in settings if line.startswith("denied-peer-ip=")]
    for address in (
        "127.0.0.1",
        "10.1.2.3",
        "172.20.0.2",
        "192.168.1.1",
        "169.254.169.254",
        "::1",
        "fd00::1",
    ):
        named = ip_address(address)
        ranges = [(ip_address(each[0]), ip_address(each[-1])) for each in denied]
        assert any(
            first.version == named.version and int(first) <= int(named) <= int(last) for first, last in ranges
        )


async def test_coturn_starts_with_the_file_of_the_containers_and_relays(tmp_path: Path):
    text, port = (DEPLOY / "compose" / "turnserver.conf").read_text(), free_port()
    (tmp_path / "turnserver.conf").write_text(text.replace("listening-port=3478", f"listening-port={port}"))
    secret = "a-secret-of-both-servers"
    arguments = [
        *("-c", str(tmp_path / "turnserver.conf"), f"--static-auth-secret={secret}"),
        *("--realm=talk.example.org", "--listening-ip=127.0.0.1", "--relay-ip=127.0.0.1"),
        *(f"--userdb={tmp_path}/turndb", f"--pidfile={tmp_path}/turn.pid"),
    ]
    with (tmp_path / "log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            program("turnserver"), *arguments, stdout=log, stderr=log, env=surroundings()
        )
        try:
            given = turn_credentials(secret, int(time.time()) + 60, "ann")
            transport = await allocate(("127.0.0.1", port), given)
            assert 49160 <= transport.get_extra_info("sockname")[1] <= 49360
            transport.close()
        finally:
            server.terminate()
            await server.wait()


def test_grafana_finds_its_data_and_the_dashboard():
    provisioning = DEPLOY / "grafana" / "provisioning"
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in COMPOSE["services"]
    [provider] = yaml.safe_load((provisioning / "dashboards" / "parley.yml").read_text())["providers"]
    mounts = COMPOSE["services"]["grafana"]["volumes"]
    assert f"./grafana/parley.json:{provider['options']['path']}/parley.json:ro" in mounts


def test_prometheus_takes_the_configuration_of_the_containers(tmp_path: Path):
    promtool = program("promtool")
    text = (DEPLOY / "compose" / "prometheus.yml").read_text()
    shutil.copytree(DEPLOY / "prometheus", tmp_path / "rules")
    (tmp_path / "token").write_text("token")
    text = text.replace("/etc/prometheus/rules", str(tmp_path / "rules"))
    text = text.replace("/run/secrets/operator_token", str(tmp_path / "token"))
    (tmp_path / "prometheus.yml").write_text(text)
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_the_rules_and_the_token_that_are_mounted():
    config = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())
    service = COMPOSE["services"]["prometheus"]
    assert "./prometheus:/etc/prometheus/rules:ro" in service["volumes"]
    assert all((DEPLOY / "prometheus" / Path(path).name).exists() for path in config["rule_files"])
    [job] = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["gateway:7860"]}]
    token = Path(job["authorization"]["credentials_file"])
    assert token.parent == Path("/run/secrets") and token.name in service["secrets"]
    assert COMPOSE["secrets"][token.name] == {"environment": "PARLEY_ADMIN_TOKEN"}
    # The gateway answers to the name by which it is scraped.
    assert "gateway" in load_deployment(str(DEPLOY / "compose" / "parley.yaml")).server.allowed_hosts


def test_systemd_takes_the_unit_and_finds_it_little_exposed(tmp_path: Path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not on this machine")
    # The program is not installed where the unit expects it.
    unit = tmp_path / "parley.service"
    unit.write_text(UNIT.replace("/opt/parley/bin/parley", "/bin/true"))
    for arguments in (["verify"], ["security", "--offline=true", "--threshold=30"]):
        command = [analyze, *arguments, str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0 and not done.stderr.strip(), done.stdout[-500:] + done.stderr


def test_the_unit_checks_its_deployment_before_it_starts(tmp_path: Path):
    [check] = re.findall(r"^ExecStartPre=\S+/parley check (.*)$", UNIT, re.MULTILINE)
    path = tmp_path / "parley.yaml"
    path.write_text("name: here\n")
    arguments = shlex.split(check)
    assert arguments[-1] == CONFIG
    assert check_main([*arguments[:-1], str(path)]) == 0
