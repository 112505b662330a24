"""Command line for one conversation or one server, and a Pipecat bot module (``async def bot(runner_args)``).

``python bot.py`` serves a browser page with the engines of a deployment; ``--transport file`` and
``--transport local`` hold one call on this machine and end. Decides which transport is used with which
pipeline; everything else is in the packages below. Owns the engines of the process: they are loaded once,
before the first call, and closed when the server ends.

This module imports Pipecat, and modules that import it, only after the command line is read. Pipecat logs
during its import, and the user chooses how much of the log is shown.
"""

import argparse
import asyncio
import gc
import json
import os
import socket
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Set before numpy is loaded. The event loop forks when an engine's process starts, and a fork waits for the
# threads of OpenBLAS. While another thread was at work in them, that wait did not end.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from loguru import logger

from parley.configs.load import known_deployments, load_deployment, parse_settings
from parley.core.client_rules import OPERATOR, ClientRules
from parley.core.errors import ConfigError, EngineError, MediaError, PeerError, StoreError
from parley.core.tuning import tuned
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.runtime import event_loop
from parley.runtime.heap import bound_heap, without_collection
from parley.runtime.process_exit import exit_process
from parley.runtime.stall_monitor import StallMonitor
from parley.serving.gateway.auth.admin_token import AdminToken, operator_token
from parley.serving.gateway.settings import ServerSettings, ServerTuning
from parley.transports.registry import TRANSPORTS, Command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import uvicorn
    from loguru import Record
    from pipecat.runner.types import RunnerArguments

    from parley.configs.deployment import Deployment
    from parley.pipelines.call import Call
    from parley.pipelines.engines.engines import Engines
    from parley.serving.gateway.phone.call_manager import CallManager
    from parley.session_store.conversation import Conversations


EXIT_ENGINE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
FILE_RATE_HZ = 16_000
EVERY_ADDRESS = ("0.0.0.0", "::")
SWITCH_S = 0.001
EXPECTED_WARNINGS = ("ideo transceiver is available", "Media stream error while reading the audio")
MODES = (CASCADE, DUPLEX, "text")
DEFAULT_TRANSPORT = "webrtc"
# Commands that take the flag.
WITH_FILES = (Command.RECORDING, Command.SIMULATION)
WITH_SESSION = (Command.RECORDING, Command.DEVICES, Command.ROOM)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="bot.py",
        description="Talk to Parley in a browser, from a file, or in this terminal.",
        epilog="Exit status: 0 when the conversation or the server has ended, 1 when an engine fails to "
        "load or to work, 2 when the command, the deployment or one of the user's files is "
        "wrong, 130 when interrupted.",
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="cascade",
        help="cascade: speech, one turn at a time; duplex: an engine that listens while it speaks; "
        "text: typed conversation in this terminal",
    )
    parser.add_argument(
        "--transport",
        choices=TRANSPORTS.held_by_command(),
        help=f"transport of the caller in --mode cascade or duplex (default: {DEFAULT_TRANSPORT}; "
        f"{', '.join(_held(Command.SIMULATION))}: with a simulated caller on this machine)",
    )
    parser.add_argument(
        "--config",
        default=os.environ.get("PARLEY_CONFIG", "embedded"),
        help=f"deployment: a YAML file or one of {', '.join(known_deployments())}",
    )
    parser.add_argument("--host", help="address to listen on (default: the deployment's)")
    parser.add_argument("--port", type=int, help="port to listen on (default: the deployment's)")
    parser.add_argument(
        "--input",
        type=Path,
        help="file and twilio transport: WAV of the caller (twilio: without it the simulated caller "
        "asks one question)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="file and twilio transport: stereo WAV to write; the call's record is written next to it "
        "as JSON",
    )
    parser.add_argument("--session", metavar="ID", help="id of an earlier session to resume")
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the deployment as YAML, with the meaning and default of every setting, and exit",
    )
    parser.add_argument(
        "--all", action="store_true", help="with --print-config: also print the settings of its engines"
    )
    parser.add_argument(
        "-v", "--verbose", action="count", default=0, help="log more; given twice, log every frame"
    )
    return parser


def configure_log(verbosity: int) -> None:
    """Log to stderr, one line per event. Pipecat's default (DEBUG) costs a noticeable share of the CPU."""
    logger.remove()
    level = ("WARNING", "INFO", "DEBUG", "TRACE")[min(verbosity, 3)]
    # ``diagnose`` is off: the values of variables in a traceback would include callers' words.
    logger.add(sys.stderr, level=level, filter=None if verbosity else is_news, diagnose=False)


def is_news(record: "Record") -> bool:
    """Return False for Pipecat's expected warnings: about every audio-only call, and about every hang-up."""
    return not any(text in record["message"] for text in EXPECTED_WARNINGS)


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns the exit status: 2 for an error that the user can correct and 1 when an engine fails, both with
    one line that names the cause; 130 after Ctrl-C.
    """
    parser = build_parser()
    options = parser.parse_args(arguments)
    configure_log(options.verbose)
    try:
        check_flags(options)
        with without_collection():
            deployment = with_flags(load_deployment(options.config), options)
        if options.print_config:
            return print_config(deployment, with_engines=options.all)
        if options.mode == "text":
            from parley.pipelines.text.terminal import talk_in_terminal

            return asyncio.run(talk_in_terminal(deployment, session_id=options.session))
        return hold(deployment, options)
    except (ConfigError, MediaError, StoreError) as error:
        print(f"bot.py: {error}", file=sys.stderr)
        return EXIT_USAGE
    except EngineError as error:
        print(f"bot.py: {error}", file=sys.stderr)
        return EXIT_ENGINE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def hold(deployment: "Deployment", options: argparse.Namespace) -> int:
    """Serve, or hold one call, as the row of the transport specifies.

    Returns the exit status.
    """
    mode, session_id = options.mode, options.session
    match _command(options.transport):
        case Command.RECORDING:
            return call_from_file(deployment, options.input, options.output, session_id=session_id, mode=mode)
        case Command.SIMULATION:
            return call_by_telephone(
                deployment, options.input, options.output, mode=mode, port=options.port or 0
            )
        case Command.DEVICES:
            return asyncio.run(call_from_microphone(deployment, session_id=session_id, mode=mode))
        case Command.ROOM:
            return asyncio.run(call_in_room(deployment, options.transport, session_id=session_id, mode=mode))
        case _:
            return serve(deployment, mode=mode)


def _command(transport: str | None) -> Command | None:
    return TRANSPORTS.row(transport or DEFAULT_TRANSPORT).command


def _held(*commands: Command) -> list[str]:
    """Return the names of the transports with one of these commands."""
    return [row.name for row in TRANSPORTS.rows() if row.command in commands]


def print_config(deployment: "Deployment", *, with_engines: bool) -> int:
    """Print the effective deployment, on request with the settings of the engines that it names."""
    from parley.configs.print_config import as_yaml
    from parley.pipelines.engines.settings import effective_settings

    engine_settings = partial(effective_settings, deployment) if with_engines else None
    print(as_yaml(deployment, engine_settings=engine_settings), end="")
    return 0


def check_flags(options: argparse.Namespace) -> None:
    """Refuse flags that would be ignored.

    Raises:
        ConfigError: flags do not belong together, or one is missing.
    """
    command = _command(options.transport)
    given = [f"--{name}" for name in ("input", "output") if getattr(options, name) is not None]
    if options.mode == "text" and options.transport is not None:
        raise ConfigError(f"--mode text talks in this terminal: --transport {options.transport} has no place")
    if command is Command.RECORDING and len(given) < 2:
        raise ConfigError(f"--transport {options.transport} needs --input WAV and --output WAV")
    if options.session and options.mode != "text" and command not in WITH_SESSION:
        raise ConfigError(
            "--session can only be used with --mode text or --transport "
            f"{' or '.join(_held(*WITH_SESSION))}; a browser page keeps its own session"
        )
    if options.all and not options.print_config:
        raise ConfigError("--all can only be used with --print-config")
    if command not in WITH_FILES and given:
        raise ConfigError(
            f"{' and '.join(given)} can only be used with --transport {' or '.join(_held(*WITH_FILES))}"
        )
    if command is Command.SIMULATION and options.host is not None:
        raise ConfigError(f"--transport {options.transport} is a call on this machine: leave out --host")


def with_flags(deployment: "Deployment", options: argparse.Namespace) -> "Deployment":
    """Return the deployment with the settings of the command line, which override its own."""
    changed = {
        name: getattr(options, name) for name in ("host", "port") if getattr(options, name) is not None
    }
    if not changed:
        return deployment
    server = parse_settings(
        ServerSettings, {**deployment.server.model_dump(exclude_unset=True), **changed}, where="command line"
    )
    return deployment.model_copy(update={"server": server})


def serve(deployment: "Deployment", *, mode: str = CASCADE) -> int:
    """Serve the page until a signal ends it; ``mode`` holds for callers who request none."""
    from parley.serving.gateway.auth.exposure import check_exposure

    check_phone(deployment, mode)
    public_url = None if deployment.phone is None else deployment.phone.public_url
    check_exposure(deployment.server, public_url=public_url)
    token = operator_token(deployment.operations.data_dir)
    # Bounded before anything large is loaded.
    bound_heap()
    listener = claim_port(deployment.server.host, deployment.server.port)
    return event_loop.run(_serve(deployment, listener, mode, token))


def check_phone(deployment: "Deployment", mode: str) -> None:
    """Raise ConfigError when the deployment's telephone calls cannot be held in a server of this mode."""
    if deployment.phone is not None:
        try:
            deployment.phone.check_mode(mode)
        except ValueError as error:
            raise ConfigError(f"phone: {error}") from error


def claim_port(host: str, port: int) -> socket.socket:
    """Bind before anything is loaded, so that a port in use is reported at once.

    Raises ConfigError when the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with --port"
        ) from error
    return listener


@asynccontextmanager
async def gateway(
    engines: "Engines",
    conversations: "Conversations",
    *,
    mode: str,
    on_call: "Callable[[Call], None] | None" = None,
    desk: "CallManager | None" = None,
    token: "AdminToken | None" = None,
    stalls: "StallMonitor | None" = None,
) -> "AsyncIterator[uvicorn.Server]":
    """Yield the server of a deployment, ready to run; close its parts on exit.

    Args:
        engines: engines of the process.
        conversations: sessions of the process.
        mode: mode of callers who request none.
        on_call: called with each telephone call that begins; must not block.
        desk: operations on telephone calls; None for those that the environment has an account for.
        token: token of the operator; None for that of the environment or of the data folder.
        stalls: stalls of the event loop, for ``/status``.
    """
    from parley.pipelines.dispatch import run_session
    from parley.pipelines.phone.calls import open_desk
    from parley.pipelines.phone.sessions import PhoneSessions
    from parley.pipelines.sessions import TypedTurns
    from parley.serving.gateway.admin.operations import Operations
    from parley.serving.gateway.admission import AdmissionGate
    from parley.serving.gateway.app import create_app
    from parley.serving.gateway.auth.audit import AuditLog
    from parley.serving.gateway.auth.exposure import describe_exposure
    from parley.serving.gateway.http.idle_memory import returning_memory
    from parley.serving.gateway.http.server import http_server
    from parley.serving.gateway.phone.caller_directory import CallerDirectory
    from parley.transports.webrtc.signaling import Signaling

    deployment = engines.deployment
    server = tuned(ServerTuning, deployment.server)
    data_dir = deployment.operations.data_dir
    if token is None:
        token = await asyncio.to_thread(operator_token, data_dir)
    typed = TypedTurns(conversations, engines.answering)
    desk = open_desk(deployment.phone) if desk is None else desk
    book = None
    if (phone := deployment.phone) is not None:
        book = CallerDirectory(
            conversations.store, phone.remember_callers, phone.call_codes, number=phone.number
        )
    # The number for a page that offers to go on by telephone.
    number = book.number if book is not None and book.codes is not None else None
    telephone = {} if number is None else {"telephone": number}
    phones = None if book is None else PhoneSessions(conversations, book)
    gate = AdmissionGate(
        deployment.server.max_calls,
        hearing=engines.hearing,
        active=lambda: app.state.calls.active,
        heard=lambda: app.state.calls.heard,
        answers=engines.answers,
    )
    most_waiting = 0 if deployment.server.queue is None else deployment.server.queue.most
    is_bounded = deployment.server.admission == "auto"

    def not_ready() -> list[str]:
        """Return the reasons for which this process should get no new calls."""
        return [*engines.health(), *(gate.full() if is_bounded else [])]

    app = create_app(
        deployment.server,
        admitted=gate.admits if is_bounded else None,
        hears=lambda wanted: engines.hears(wanted or mode),
        usage=engines.answering.usage,
        readiness=not_ready,
        run_call=lambda arguments: run_session(
            engines, conversations, arguments, mode=mode, phones=phones, on_call=on_call
        ),
        conversations=conversations,
        type_turn=typed,
        modes=(CASCADE, DUPLEX),
        default_mode=mode,
        served=TRANSPORTS.served,
        phone=deployment.phone,
        desk=desk,
        book=book,
        operator_token=token.text,
        audit=AuditLog(data_dir / "audit.jsonl"),
        shutdown=engines.shutdown,
        operations=Operations.open(
            deployment.operations, pool=engines.pool, voice=deployment.duplex.tts_voice
        ),
        describe=lambda: {
            "mode": mode,
            **telephone,
            **engines.describe(),
            **({} if stalls is None else {"stalls": stalls.as_message()}),
            "admission": gate.describe() if is_bounded else None,
            "waiting": app.state.calls.waiting,
            "not_ready": not_ready(),
            "exposure": describe_exposure(
                deployment.server, public_url=None if phone is None else phone.public_url
            ),
        },
        open_door=lambda on_call: Signaling(
            on_call,
            # A caller in the queue for a line is connected too.
            max_calls=deployment.server.max_calls + most_waiting,
            ice_servers=list(deployment.server.ice_servers),
            hang_up_s=server.hang_up_s,
        ),
    )
    gate.start()
    try:
        async with returning_memory(app.state.calls):
            yield http_server(app, deployment.server)
    finally:
        await gate.close()
        await typed.close()
        await desk.close()


async def _serve(deployment: "Deployment", listener: socket.socket, mode: str, token: AdminToken) -> int:
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.sessions import open_conversations
    from parley.serving.gateway.auth.exposure import describe_exposure
    from parley.telemetry.stall_log import StallLog

    stalls = StallMonitor(StallLog())
    with without_collection():
        loaded = await Engines.load(deployment, duplex=True)
    async with (
        loaded as engines,
        open_conversations(deployment, engines.answering) as conversations,
        gateway(engines, conversations, mode=mode, token=token, stalls=stalls) as server,
    ):
        host, port = listener.getsockname()[:2]
        address = address_of(host, port)
        # Measured before other processes load, which would slow the measurement.
        await engines.measure_hearing()
        engines.host_front_end()
        engines.stand_by()
        settle()
        public_url = None if deployment.phone is None else deployment.phone.public_url
        exposure = describe_exposure(deployment.server, public_url=public_url)
        print(banner(engines.describe(), address, token, exposure), flush=True)
        # Loading blocked the loop while there was no call; stalls count from here on.
        async with stalls:
            await server.serve(sockets=[listener])
    return 0


def settle() -> None:
    """Configure the interpreter for calls, after everything is loaded."""
    # Loaded objects stay: full collections need not visit them again during calls.
    gc.collect()
    gc.freeze()
    # A full collection in the middle of a call stops the audio of all calls (12 ms were seen while calls
    # started). So they are rare here, and the gateway requests one when no call is held. A call that ends
    # needs none: reference counting frees it (``pipelines.release``).
    gc.set_threshold(2_000, 10, 500)
    # Threads (the session store's, voice activity's) hold the interpreter for this long until the loop has it
    # back. The default is 5 ms each time, and a call that starts reads and writes its session.
    sys.setswitchinterval(SWITCH_S)


def address_of(host: str, port: int) -> str:
    """Return the address at which a browser on this machine reaches a server that listens on ``host``."""
    if host in ("127.0.0.1", *EVERY_ADDRESS):
        return f"http://localhost:{port}"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def banner(
    names: dict[str, object], address: str, token: AdminToken | None = None, exposure: str = ""
) -> str:
    """Return the lines that the server prints when it is ready.

    Args:
        names: names of its engines (``Engines.describe``).
        address: address for a browser on this machine.
        token: token of the operator; shown when it was generated.
        exposure: description of the clients that may begin calls.
    """
    lines = [
        f"Parley is ready: {address}",
        "  recogniser {stt}, turn detection {turn}, language model {llm}, voice {tts} (deployment "
        "{deployment!r})".format(**names),
    ]
    if exposure:
        lines.append(f"  {exposure}")
    if names.get("omni"):
        lines.append(f"  full duplex: {names['omni']}, {address}/duplex")
    if token is not None and token.generated:
        # In the fragment, which is sent to no server: the page logs in with it and removes it.
        kept = f"kept in {token.path}" if token.path is not None else "until this process ends"
        lines.append(f"  operator: {address}/admin#token={token.text} ({kept})")
    if names["stt"] == "pocketsphinx":
        lines.append(
            "  pocketsphinx understands clear, simple English only. "
            "The neural recogniser: make models ARGS=moonshine_tiny"
        )
    return "\n".join(lines)


def call_from_file(
    deployment: "Deployment",
    source: Path,
    output: Path,
    *,
    session_id: str | None = None,
    mode: str = CASCADE,
) -> int:
    """Play a WAV as the caller in real time; write the call in stereo and, in the same folder, as JSON.

    Nothing is created before the engines are loaded, and the caller's WAV is never written to.

    Raises:
        MediaError: the input is not audio.
        ConfigError: a file cannot be read or written, or the output would replace the input.
        EngineError: an engine does not load.
    """
    pcm = _callers_pcm(source, output)
    document = asyncio.run(_call_from_pcm(deployment, pcm, output, session_id, mode))
    _write_document(document, output)
    return 0


def _callers_pcm(source: Path | None, output: Path | None) -> bytes:
    """Return the caller's speech from a file; empty without a file. First check that the call can be written.

    Raises:
        MediaError: the input is not audio.
        ConfigError: a file cannot be read or written, or the output would replace the input.
    """
    from parley.audio.wav import decode_wav

    if output is not None and output.suffix.lower() != ".wav":
        raise ConfigError(f"--output {output}: the recording is a WAV file, so its name must end in .wav")
    targets = () if output is None else (output, output.with_suffix(".json"))
    try:
        data = None if source is None else source.read_bytes()
        for target in targets:
            if source is not None and target.exists() and target.samefile(source):
                raise ConfigError(f"--output {output} would overwrite the caller's recording {source}")
            check_writable(target)
    except OSError as error:
        raise ConfigError(f"{error.filename or output}: {error.strerror}") from error
    if data is None:
        return b""
    try:
        return decode_wav(data, rate_hz=FILE_RATE_HZ)
    except MediaError as error:
        raise MediaError(f"{source}: {error}") from error


def _write_document(document: dict[str, Any], output: Path) -> None:
    """Write the call as JSON next to its recording. Raises ConfigError when it cannot be written."""
    written = output.with_suffix(".json")
    try:
        written.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{written}: {error.strerror}") from error
    print(f"{output} and {written}: {len(document['turns'])} turns")


def check_writable(target: Path) -> None:
    """Check that a file can be written, now or once its folder exists, without changing anything.

    Raises:
        OSError: it cannot be written.
    """
    if target.exists():
        # Neither truncates nor creates the file.
        target.open("r+b").close()
        return
    folder = next(parent for parent in target.absolute().parents if parent.exists())
    with tempfile.TemporaryFile(dir=folder):
        pass


async def _call_from_pcm(
    deployment: "Deployment", pcm: bytes, output: Path, session_id: str | None, mode: str
) -> dict[str, Any]:
    from pipecat.transports.base_transport import TransportParams

    from parley.pipelines.call import Call, LiveCall
    from parley.pipelines.dispatch import pipeline_of
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.sessions import open_conversations
    from parley.transports.local.file import FileCall, FileTransport

    async with (
        await Engines.load(deployment, duplex=mode == DUPLEX) as engines,
        open_conversations(deployment, engines.answering) as conversations,
        conversations.open(session_id) as conversation,
    ):
        live = LiveCall(conversation.clock, rate_hz=FILE_RATE_HZ)
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            played = FileCall(pcm, rate_hz=FILE_RATE_HZ, output=output, on_packet=live.on_packet)
        except OSError as error:
            raise ConfigError(f"{error.filename or output}: {error.strerror}") from error
        params = TransportParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_in_sample_rate=FILE_RATE_HZ,
            audio_out_sample_rate=FILE_RATE_HZ,
            audio_out_end_silence_secs=0,
        )
        transport = FileTransport(played, params, live.events)

        rules = ClientRules(OPERATOR)
        call = Call(conversation, "file", live, rules=rules, rtvi=False, finished=played.finished)
        try:
            await pipeline_of(mode)(engines, transport, call)
        finally:
            played.recording.close()
        return {
            "deployment": deployment.name,
            "mode": mode,
            "session": conversation.session_id,
            "recording": output.name,
            "duration_ms": played.recording.end_samples * 1000 // FILE_RATE_HZ,
            "engines": engines.describe(),
            "turns": [record.as_message() for record in call.live.turns.finished],
        }


def call_by_telephone(
    deployment: "Deployment",
    source: Path | None,
    output: Path | None,
    *,
    mode: str = CASCADE,
    port: int = 0,
) -> int:
    """Serve on this machine and call it as Twilio would, with a simulated caller; no credentials are needed.

    Args:
        deployment: deployment of the server.
        source: speech of the caller; None for a question.
        output: stereo WAV to write; None to print the call only.
        mode: mode of the call.
        port: port to listen on; 0 for any that is free.

    Raises:
        MediaError: the input is not audio.
        ConfigError: a file cannot be read or written, the port is taken, or the call is refused.
        EngineError: an engine does not load.
    """
    from parley.pipelines.phone.simulated_phone import simulated

    pcm = _callers_pcm(source, output)
    deployment = simulated(deployment)
    check_phone(deployment, mode)
    listener = claim_port(deployment.server.host, port)
    document = asyncio.run(_call_by_telephone(deployment, listener, pcm, output, mode))
    for turn in document["turns"]:
        print(
            *(
                f"{who}: {said}"
                for who, said in (("caller", turn["user_text"]), ("bot", turn["bot_text"]))
                if said
            ),
            sep="\n",
        )
    if output is not None:
        _write_document(document, output)
    return 0


async def _call_by_telephone(
    deployment: "Deployment", listener: socket.socket, pcm: bytes, output: Path | None, mode: str
) -> dict[str, Any]:
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.phone.simulated_phone import (
        asked_aloud,
        call_here,
        on_the_line,
        open_recording,
        record_of,
    )
    from parley.pipelines.sessions import open_conversations
    from parley.serving.gateway.phone.call_manager import CallManager

    calls: list[Call] = []
    async with (
        await Engines.load(deployment, duplex=mode == DUPLEX) as engines,
        open_conversations(deployment, engines.answering) as conversations,
        gateway(engines, conversations, mode=mode, on_call=calls.append, desk=CallManager(None)) as server,
    ):
        speech = on_the_line(pcm, FILE_RATE_HZ) if pcm else await asked_aloud(engines.voice)
        recording = open_recording(output)
        try:
            heard = await call_here(server, listener, speech, recording)
        except PeerError as error:
            raise ConfigError(str(error)) from error
        finally:
            if recording is not None:
                recording.close()
        return record_of(
            calls[-1] if calls else None,
            heard,
            deployment=deployment.name,
            mode=mode,
            recording=None if output is None else output.name,
            engines=engines.describe(),
        )


async def call_from_microphone(
    deployment: "Deployment", *, session_id: str | None = None, mode: str = CASCADE
) -> int:
    """Hold a call over this machine's microphone and loudspeaker until interrupted.

    Raises ConfigError when PortAudio or its binding is missing, or a device is missing or gets lost.
    """
    from parley.pipelines.call import Call, LiveCall
    from parley.pipelines.dispatch import pipeline_of
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.engines.plan import INPUT_RATE_HZ
    from parley.pipelines.sessions import open_conversations
    from parley.transports.local.microphone import AudioDevices

    async with (
        AudioDevices() as devices,
        await Engines.load(deployment, duplex=mode == DUPLEX) as engines,
        open_conversations(deployment, engines.answering) as conversations,
        conversations.open(session_id) as conversation,
    ):
        microphone, loudspeaker = await devices.choose(
            input_rate_hz=INPUT_RATE_HZ, output_rate_hz=engines.output_rate_hz
        )
        live = LiveCall(conversation.clock, rate_hz=loudspeaker.format.rate_hz)
        rules = ClientRules(OPERATOR)
        call = Call(conversation, "local", live, rules=rules, rtvi=False, handles_sigint=True)
        transport = await devices.connect(
            microphone,
            loudspeaker,
            input_rate_hz=INPUT_RATE_HZ,
            events=live.events,
            on_packet=live.on_packet,
        )
        has_echo_control = engines.echo is not None
        advice = "" if has_echo_control else " Use a headset: this deployment switches echo control off."
        print(f"Speak; end with Ctrl-C.{advice}", flush=True)
        await pipeline_of(mode)(engines, transport, call)
        if transport.lost:
            raise ConfigError(transport.lost)
    return 0


async def call_in_room(
    deployment: "Deployment", transport: str, *, session_id: str | None = None, mode: str = CASCADE
) -> int:
    """Join the room that the environment names, and hold a conversation until the caller leaves.

    Raises ConfigError when a package or a variable is missing, or the room cannot be joined.
    """
    from parley.pipelines.dispatch import run_session
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.sessions import open_conversations

    body = {"mode": mode, **({} if session_id is None else {"session": session_id})}
    arguments = replace(TRANSPORTS.arguments_from(transport, os.environ), body=body)
    async with (
        await Engines.load(deployment, duplex=mode == DUPLEX) as engines,
        open_conversations(deployment, engines.answering) as conversations,
    ):
        try:
            await run_session(engines, conversations, arguments)
        except PeerError as error:
            raise ConfigError(f"--transport {transport}: {error}") from error
    return 0


class _Process:
    """Shared state of a foreign runner's conversations (Pipecat's imports this module and calls ``bot``).

    Such a runner has no place for objects that are loaded once, so this module holds them: one deployment per
    process.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._open = AsyncExitStack()
        self._shared: tuple[Engines, Conversations] | None = None

    async def get(self) -> "tuple[Engines, Conversations]":
        from parley.pipelines.engines.engines import Engines
        from parley.pipelines.sessions import open_conversations

        async with self._lock:
            if self._shared is None:
                deployment = load_deployment(os.environ.get("PARLEY_CONFIG", "embedded"))
                engines = await Engines.load(deployment, duplex=True)
                opened = open_conversations(deployment, engines.answering)
                self._shared = engines, await self._open.enter_async_context(opened)
            return self._shared


_process = _Process()


async def bot(runner_args: "RunnerArguments") -> None:
    """Hold one conversation: Pipecat's entry point."""
    from parley.pipelines.dispatch import run_session

    engines, conversations = await _process.get()
    await run_session(engines, conversations, runner_args)


if __name__ == "__main__":
    exit_process(main())
