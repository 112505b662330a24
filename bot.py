"""One conversation: a Pipecat bot module (``async def bot(runner_args)``) and a command.

``python bot.py`` serves a browser page with the engines of a deployment; ``--transport file`` and
``--transport local`` hold one call on this machine and end. Decides which transport meets which pipeline;
everything else lives below. Owns the engines of the process: they are loaded once, before the first call, and
closed when the server ends.
"""

import argparse
import asyncio
import gc
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger

from configs.deployment import Deployment
from configs.load import known_deployments, load_deployment, parse_settings
from core.errors import ConfigError, MediaError
from runtime import event_loop
from serving.gateway.settings import ServerSettings

if TYPE_CHECKING:
    from loguru import Record
    from pipecat.runner.types import RunnerArguments
    from pipecat.transports.base_transport import BaseTransport

    from pipelines.engines import Engines
    from telemetry.turns import TurnLog

EXIT_USAGE = 2
FILE_RATE_HZ = 16_000
EXPECTED_WARNINGS = ("ideo transceiver is available", "Media stream error while reading the audio")
MODES = ("cascade", "text")
TRANSPORTS = ("webrtc", "file", "local")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bot.py", description="Talk to Parley in a browser, from a file, or in this terminal."
    )
    parser.add_argument(
        "--mode", choices=MODES, default="cascade", help="cascade: speech; text: type in this terminal"
    )
    parser.add_argument("--transport", choices=TRANSPORTS, default="webrtc")
    parser.add_argument(
        "--config",
        default=os.environ.get("PARLEY_CONFIG", "embedded"),
        help=f"a YAML file or one of: {', '.join(known_deployments())}",
    )
    parser.add_argument("--host", help="address to listen on (default: of the deployment)")
    parser.add_argument("--port", type=int, help="port to listen on (default: of the deployment)")
    parser.add_argument("--input", type=Path, help="file transport: the caller's WAV")
    parser.add_argument(
        "--output", type=Path, help="file transport: stereo WAV to write, call.json goes beside it"
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="more log; twice for every frame")
    return parser


def configure_log(verbosity: int) -> None:
    """One line per event on stderr. Pipecat's default (DEBUG) costs a noticeable share of a call's CPU."""
    logger.remove()
    level = ("WARNING", "INFO", "DEBUG", "TRACE")[min(verbosity, 3)]
    logger.add(sys.stderr, level=level, filter=None if verbosity else _is_news)


def _is_news(record: "Record") -> bool:
    """Pipecat warns about every audio-only call, and about every hang-up."""
    return not any(text in record["message"] for text in EXPECTED_WARNINGS)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 2 for what the user can mend, with one line that says what."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    configure_log(options.verbose)
    try:
        deployment = with_flags(load_deployment(options.config), options)
        if options.mode == "text":
            from pipelines.text import talk_in_terminal

            return asyncio.run(talk_in_terminal(deployment))
        if options.transport == "file":
            if options.input is None or options.output is None:
                raise ConfigError("--transport file needs --input WAV and --output WAV")
            return call_from_file(deployment, options.input, options.output)
        if options.transport == "local":
            return asyncio.run(call_from_microphone(deployment))
        return serve(deployment)
    except (ConfigError, MediaError) as error:
        print(f"bot.py: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return 130


def with_flags(deployment: Deployment, options: argparse.Namespace) -> Deployment:
    """The deployment with what the command line says over it."""
    changed = {
        name: getattr(options, name) for name in ("host", "port") if getattr(options, name) is not None
    }
    if not changed:
        return deployment
    server = parse_settings(
        ServerSettings, {**deployment.server.model_dump(), **changed}, where="command line"
    )
    return deployment.model_copy(update={"server": server})


def serve(deployment: Deployment) -> int:
    """Serve the page until a signal ends it."""
    listener = claim_port(deployment.server.host, deployment.server.port)
    return event_loop.run(_serve(deployment, listener))


def claim_port(host: str, port: int) -> socket.socket:
    """Bind before anything is loaded, so that a port in use is said at once.

    Raises ConfigError when the address cannot be had.
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


async def _serve(deployment: Deployment, listener: socket.socket) -> int:
    import uvicorn

    from pipelines.engines import Engines
    from serving.gateway.app import create_app
    from transports.webrtc.signaling import Signaling

    async with await Engines.load(deployment) as engines:
        app = create_app(
            deployment.server,
            run_call=lambda arguments: converse(engines, arguments),
            describe=engines.describe,
            open_door=lambda on_call: Signaling(
                on_call,
                max_calls=deployment.server.max_calls,
                ice_servers=list(deployment.server.ice_servers),
            ),
        )
        host, port = listener.getsockname()[:2]
        config = uvicorn.Config(
            app, log_level="warning", lifespan="on", ws_max_size=1_000_000, access_log=False
        )
        server = uvicorn.Server(config)
        address = f"http://{'localhost' if host == '127.0.0.1' else host}:{port}"
        # What is loaded stays: full collections need not look at it again while people talk.
        gc.collect()
        gc.freeze()
        print(banner(engines.describe(), address), flush=True)
        await server.serve(sockets=[listener])
    return 0


def banner(names: dict[str, object], address: str) -> str:
    """What the server says when it is ready."""
    lines = [
        f"Parley is ready: {address}",
        "  ears {stt}, turns {turn}, answers {llm}, voice {tts} (deployment {deployment!r})".format(**names),
    ]
    if names["stt"] == "pocketsphinx":
        lines.append(
            "  pocketsphinx is an offline floor: it understands clear, simple English only. "
            "Switch: make models && make run ARGS='--config local'"
        )
    return "\n".join(lines)


async def converse(engines: "Engines", runner_args: "RunnerArguments") -> None:
    """Hold one conversation over whatever transport the arguments bring."""
    from pipelines.cascade import run_conversation
    from telemetry.turns import TurnLog

    turns = TurnLog()
    transport = await open_transport(engines, runner_args, turns)
    await run_conversation(engines, transport, turns=turns)


async def open_transport(
    engines: "Engines", runner_args: "RunnerArguments", turns: "TurnLog"
) -> "BaseTransport":
    """The transport for one set of runner arguments: ours for a browser, Pipecat's for everything else."""
    from pipecat.runner.types import SmallWebRTCRunnerArguments
    from pipecat.runner.utils import create_transport
    from pipecat.transports.base_transport import TransportParams

    from transports.webrtc.transport import PacedWebRTCTransport

    if isinstance(runner_args, SmallWebRTCRunnerArguments):
        return PacedWebRTCTransport(
            runner_args.webrtc_connection,
            TransportParams(audio_in_enabled=True, audio_out_enabled=True, audio_out_end_silence_secs=0),
            vanish_ms=engines.deployment.server.vanish_ms,
            on_packet=turns.played,
        )

    def eval_params() -> TransportParams:
        from pipecat.evals.transport import EvalTransportParams

        return EvalTransportParams(audio_in_enabled=True, audio_out_enabled=True)

    return await create_transport(runner_args, {"eval": eval_params})


def call_from_file(deployment: Deployment, source: Path, output: Path) -> int:
    """Play a WAV as the caller in real time; write the call in stereo and, beside it, as JSON.

    Raises:
        MediaError: the input is not audio.
        ConfigError: a file cannot be read or written.
    """
    from audio.wav import decode_wav

    try:
        data = source.read_bytes()
        output.parent.mkdir(parents=True, exist_ok=True)
        output.touch()
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    try:
        pcm = decode_wav(data, rate_hz=FILE_RATE_HZ)
    except MediaError as error:
        raise MediaError(f"{source}: {error}") from error
    document = asyncio.run(_call_from_pcm(deployment, pcm, output))
    written = output.with_suffix(".json")
    try:
        written.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{written}: {error.strerror}") from error
    print(f"{output} and {written}: {len(document['turns'])} turns")
    return 0


async def _call_from_pcm(deployment: Deployment, pcm: bytes, output: Path) -> dict[str, Any]:
    from pipecat.transports.base_transport import TransportParams

    from pipelines.cascade import run_conversation
    from pipelines.engines import Engines
    from telemetry.turns import TurnLog
    from transports.local.file import FileCall, FileTransport

    turns = TurnLog()
    async with await Engines.load(deployment) as engines:
        call = FileCall(pcm, rate_hz=FILE_RATE_HZ, output=output, on_packet=turns.played)
        params = TransportParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_in_sample_rate=FILE_RATE_HZ,
            audio_out_sample_rate=FILE_RATE_HZ,
            audio_out_end_silence_secs=0,
        )
        transport = FileTransport(call, params)

        try:
            await run_conversation(engines, transport, turns=turns, rtvi=False, finished=call.finished)
        finally:
            call.recording.close()
        return {
            "deployment": deployment.name,
            "recording": output.name,
            "duration_ms": call.recording.end_samples * 1000 // FILE_RATE_HZ,
            "engines": engines.describe(),
            "turns": [record.as_message() for record in turns.finished],
        }


async def call_from_microphone(deployment: Deployment) -> int:
    """Talk over this machine's microphone and loudspeaker until interrupted.

    Raises ConfigError when PortAudio or its binding is missing, or there is no device.
    """
    from pipelines.cascade import run_conversation
    from pipelines.engines import Engines
    from telemetry.turns import TurnLog
    from transports.local.microphone import open_microphone

    turns = TurnLog()
    transport = open_microphone()
    async with await Engines.load(deployment) as engines:
        print("Speak; end with Ctrl-C. Use a headset: there is no echo cancellation on this transport yet.")
        await run_conversation(engines, transport, turns=turns, rtvi=False, handle_sigint=True)
    return 0


class _ProcessEngines:
    """Engines for a runner that is not ours (Pipecat's imports this module and calls ``bot``).

    Such a runner has no place to keep what is loaded once, so this module keeps it: one deployment per
    process.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._engines: Engines | None = None

    async def get(self) -> "Engines":
        from pipelines.engines import Engines

        async with self._lock:
            if self._engines is None:
                self._engines = await Engines.load(
                    load_deployment(os.environ.get("PARLEY_CONFIG", "embedded"))
                )
            return self._engines


_process_engines = _ProcessEngines()


async def bot(runner_args: "RunnerArguments") -> None:
    """Pipecat's entry point: one conversation."""
    await converse(await _process_engines.get(), runner_args)


if __name__ == "__main__":
    sys.exit(main())
