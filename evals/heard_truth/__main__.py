"""``python -m evals.heard_truth``: compare the record of an interrupted reply with the caller's recording.

Real calls are placed to a real server with the embedded engines; ``--interruptions`` answers are cut off at
random moments. The truth is in the callers' recordings. The command starts a server in a process of its own,
or uses the one at ``--url``; it must send ``heard`` messages and speak with the voice of ``--config``. Faults
end the run with one line and status 2.

``--speech human`` has recorded people interrupt. Every other question is theirs; the ones between are
synthetic and have long answers. Only interruptions by people are counted. ``--speech mixed`` counts both.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.configs.load import load_deployment
from parley.core.errors import PeerError
from parley.evals.harness.command import count, machine
from parley.evals.harness.launcher import ROOT, server_at
from parley.evals.harness.progress import say
from parley.evals.harness.questions import LONG_ANSWERS, Utterance
from parley.evals.harness.report import add_outputs, run_command
from parley.evals.harness.speech import Speakers, Spoken, of_turn
from parley.evals.heard_truth.calls import Judged, Plan, call
from parley.evals.heard_truth.deployed_voice import deployed_voice
from parley.evals.heard_truth.figures import by_speech, summary, table
from parley.evals.human.callers import CallerSpeech, SpeechKind, add_speech_option, open_callers
from parley.evals.human.hesitations import HesitationLaw
from parley.processors.playout.heard import PlayoutSettings

# The callers' voices.
VOICES = ("rms", "awb")
# An answer may be over before the interruption comes, or a question may not be recognised: percentage of
# extra questions.
SPARE_PERCENT = 40
MAX_ROUNDS = 4


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.heard_truth",
        description="Compare the last word heard as the session records it with the recording at the client.",
    )
    root.add_argument("--interruptions", type=int, default=100)
    root.add_argument("--per-call", type=int, default=20, help="interruptions per call")
    root.add_argument("--warmup", type=count, default=2, help="unjudged questions at the start of a call")
    root.add_argument("--config", type=Path, default=Path("configs/embedded.yaml"))
    root.add_argument("--url", help="address of a running server; default: start one")
    root.add_argument(
        "--system",
        choices=["product", "bare"],
        default="product",
        help="server to start: bot.py, or the cascade of evals.heard_truth.server, which also reports "
        "the result of Pipecat's own rule",
    )
    root.add_argument("--seed", type=int, default=1)
    add_speech_option(root)
    add_outputs(root)
    root.add_argument("--out-dir", type=Path, default=Path("out/heard_truth"))
    return root


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the calls and return the JSON.

    Raises:
        AgentError: a server does not start or answer, an engine is missing, too few answers were long enough.
    """
    arguments.out_dir.mkdir(parents=True, exist_ok=True)
    deployment = load_deployment(ROOT / arguments.config)
    voice = deployed_voice(deployment)
    speakers = Speakers(arguments.out_dir / "voices")
    callers = None
    if arguments.speech is not SpeechKind.SYNTHETIC:
        law = HesitationLaw(per_turn=0.0)
        callers = open_callers(SpeechKind.HUMAN, law=law, own=arguments.own_speech)
    judged = Judged()
    log = arguments.out_dir / "server.log"
    system = "bare" if arguments.system == "bare" else "parley"
    async with server_at(arguments.url, system, arguments.config, log) as server:
        if arguments.warmup:
            # An engine's first sentence may find cold caches.
            plan = _plan(speakers, arguments.warmup, arguments.seed + 900, 50)
            await call(server.url, plan, voice, arguments.out_dir / "warmup.wav")
        for number in range(MAX_ROUNDS * -(-arguments.interruptions // arguments.per_call)):
            missing = arguments.interruptions - len(judged.interruptions)
            if missing <= 0:
                break
            questions = min(arguments.per_call, missing + -(-missing * SPARE_PERCENT // 100))
            plan = _plan(
                speakers, questions + 1, arguments.seed + number, PlayoutSettings().word_due_percent, callers
            )
            heard = await call(server.url, plan, voice, arguments.out_dir / f"call-{number:02d}.wav")
            judged.interruptions += [
                one
                for one in heard.interruptions
                if arguments.speech is not SpeechKind.HUMAN or one.speech == SpeechKind.HUMAN.value
            ]
            judged.left_out += heard.left_out
            errors = [one.word_error for one in heard.interruptions]
            say(f"{len(judged.interruptions)} of {arguments.interruptions}: {errors}")
    surplus = len(judged.interruptions) - arguments.interruptions
    if surplus < 0:
        raise PeerError(
            f"only {len(judged.interruptions)} answers were interrupted, {judged.left_out.total()} were not; "
            f"see {arguments.out_dir}"
        )
    settings = {
        "seed": arguments.seed,
        "config": str(arguments.config),
        "url": arguments.url,
        "system": arguments.system,
        "speech": arguments.speech.value,
    }
    counted = judged.interruptions[: arguments.interruptions]
    figures = summary(counted, left_out=judged.left_out, surplus=surplus)
    if arguments.speech is not SpeechKind.SYNTHETIC:
        figures["by_speech"] = by_speech(counted)
    return {**figures, "settings": settings, "machine": machine()}


def _plan(
    speakers: Speakers, questions: int, seed: int, due_percent: int, callers: CallerSpeech | None = None
) -> Plan:
    texts = [LONG_ANSWERS[(seed + n) % len(LONG_ANSWERS)] for n in range(questions)]
    asked = [_ask(speakers, text, seed) for text in texts]
    if callers is not None:
        # Recorded people hardly ask about the documents, so their answers are too short to be interrupted.
        people = [of_turn(turn, gap_ms=0) for turn in callers.turns(questions // 2, seed)]
        asked[1::2] = people
    return Plan(asked, seed, due_percent)


def _ask(speakers: Speakers, text: str, seed: int) -> Spoken:
    return speakers.speak(Utterance((text,), 0, "flite", VOICES[seed % len(VOICES)], 0))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: asyncio.run(measure(arguments)), table)


if __name__ == "__main__":
    raise SystemExit(main())
