"""``python -m evals.bench worker_overhead``: measure the cost of running a recogniser or a voice in a worker.

The same engine runs once as the bot embeds it (a recogniser in a child process, a voice in two threads) and
once in a worker of this machine, by the worker link. Both are measured with 1 and 8 callers at a time. Prints
JSON.
"""

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from parley.configs.engines import checked_settings
from parley.evals.bench.speech_waits import heard, spoken
from parley.evals.harness.command import exit_code, machine, positive
from parley.evals.harness.launcher import ROOT
from parley.evals.harness.progress import say
from parley.evals.harness.report import as_json
from parley.evals.harness.voices import synthesised
from parley.models.stt import STT, Transcript
from parley.models.stt.hosted.engine import WorkerStt, WorkerSttSettings
from parley.models.tts import TTS
from parley.models.tts.hosted.engine import WorkerTts, WorkerTtsSettings
from parley.pipelines.engines.loading import SPEECH_THREADS
from parley.processors.perception.engine_stt import transcript_from_fields
from parley.runtime.engine_pool import EnginePool
from parley.runtime.engine_process import EngineProcess
from parley.runtime.stream_threads import StreamThreads

SECRET_ENV = "PARLEY_EVALS_WORKER_SECRET"
CALLER_VOICE = "rms"
SENTENCES = (
    "how much is a replacement card",
    "can i change my pin",
    "what is the monthly fee of the account",
    "i have lost my card",
)
CLAUSES = (
    "The monthly fee is five dollars, and you can cancel it whenever you want to.",
    "A replacement card is free of charge.",
    "You can change your pin at any cash machine.",
)
# For pocketsphinx: with open vocabulary, eight callers are too many for a core.
LIGHT: dict[str, dict[str, Any]] = {
    "pocketsphinx": {"language_model": "documents", "sentences": list(SENTENCES)}
}


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m evals.bench worker_overhead", description=__doc__)
    parser.add_argument("--stt", default="pocketsphinx", help="recogniser that this environment can load")
    parser.add_argument("--tts", default="flite", help="voice that this environment can load")
    parser.add_argument(
        "--stt-settings",
        type=json.loads,
        help="settings of the recogniser as JSON; default: a small vocabulary",
    )
    parser.add_argument("--tts-settings", type=json.loads, default={}, help="settings of the voice as JSON")
    parser.add_argument("--streams", type=positive, nargs="+", default=[1, 8], help="concurrent callers")
    parser.add_argument("--each", type=positive, default=20, help="utterances and clauses per caller")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    given = build_parser().parse_args(argv)
    if given.stt_settings is None:
        given.stt_settings = LIGHT.get(given.stt, {})
    return exit_code(lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    print(as_json(asyncio.run(_measure(given)) | {"machine": machine()}), end="")
    return 0


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    utterances = await asyncio.to_thread(_utterances)
    streams: list[int] = given.streams
    found: dict[str, Any] = {"stt": {"engine": given.stt}, "tts": {"engine": given.tts}}
    for count in streams:
        stt, tts = found["stt"], found["tts"]
        say(f"embedded engines, {count} callers")
        stt[f"{count} embedded"] = await _embedded_stt(given, utterances, count)
        tts[f"{count} embedded"] = await _embedded_tts(given, count)
        say(f"engines in a worker, {count} callers")
        with _worker("stt", given.stt, given.stt_settings, count) as url:
            stt[f"{count} hosted"] = await _hosted_stt(given, url, utterances, count)
        with _worker("tts", given.tts, given.tts_settings, count) as url:
            tts[f"{count} hosted"] = await _hosted_tts(given, url, count)
    return found


async def _embedded_stt(
    given: argparse.Namespace, utterances: list[bytes], streams: int
) -> dict[str, object]:
    settings = checked_settings(STT, given.stt, given.stt_settings, where="--stt-settings")
    child = EngineProcess[Transcript](
        STT.row(given.stt).target, settings, decode=transcript_from_fields, name=given.stt
    )
    pool = EnginePool([child])
    await pool.start()
    try:
        await heard(pool, utterances, streams=streams, each=2)
        return (await heard(pool, utterances, streams=streams, each=given.each)).summary()
    finally:
        await pool.close()


async def _hosted_stt(
    given: argparse.Namespace, url: str, utterances: list[bytes], streams: int
) -> dict[str, object]:
    settings = WorkerSttSettings(url=url, secret_env=SECRET_ENV)
    engine: StreamThreads[Transcript] = StreamThreads(
        await asyncio.to_thread(WorkerStt, settings), name="worker"
    )
    await heard(engine, utterances, streams=streams, each=2)
    await asyncio.sleep(0.5)
    return (await heard(engine, utterances, streams=streams, each=given.each)).summary()


async def _embedded_tts(given: argparse.Namespace, streams: int) -> dict[str, object]:
    settings = checked_settings(TTS, given.tts, given.tts_settings, where="--tts-settings")
    voice = await asyncio.to_thread(TTS.create, given.tts, settings)
    with ThreadPoolExecutor(SPEECH_THREADS) as executor:
        await spoken(voice, executor, CLAUSES, streams=streams, each=2)
        return (await spoken(voice, executor, CLAUSES, streams=streams, each=given.each)).summary()


async def _hosted_tts(given: argparse.Namespace, url: str, streams: int) -> dict[str, object]:
    settings = WorkerTtsSettings(url=url, secret_env=SECRET_ENV)
    voice = await asyncio.to_thread(WorkerTts, settings)
    with ThreadPoolExecutor(settings.clauses) as executor:
        await spoken(voice, executor, CLAUSES, streams=streams, each=2)
        waits = await spoken(voice, executor, CLAUSES, streams=streams, each=given.each)
    voice.close()
    return waits.summary()


@contextmanager
def _worker(kind: str, engine: str, settings: dict[str, Any], streams: int) -> Iterator[str]:
    os.environ.setdefault(SECRET_ENV, secrets.token_hex(32))
    command = [sys.executable, "runner.py", "--role", "worker", "--kind", kind, "--engine", engine]
    for name, value in settings.items():
        command += ["--set", f"{name}={json.dumps(value)}"]
    command += ["--limit", f"streams={max(8, streams)}", "--port", "0", "--print-url"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PARLEY_WORKER_SECRET": os.environ[SECRET_ENV]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _utterances() -> list[bytes]:
    """Return utterances of callers, followed by the silence that an endpoint waits for."""
    settings = checked_settings(TTS, "flite", {"voice": CALLER_VOICE}, where="the caller's voice")
    voice = TTS.create("flite", settings)
    return [bytes(6_400) + synthesised(voice, sentence) + bytes(6_400) for sentence in SENTENCES]


if __name__ == "__main__":
    raise SystemExit(main())
