"""``python -m evals.turns.yielding``: measure which voices over the bot take the floor, and how soon.

Calls of ``yield_calls`` pass echo control and the engines of the default deployment (Silero, Moonshine tiny,
the command spotter, the early looks); the policy under test ducks and cuts the bot. Each sound of the set is
used once. Printed for each policy is the share of interruptions that cut the bot
(recall), with the time from the first audible sample to that decision (p50, p95) and to the duck. So is the
share of all other sounds that cut it (false interruptions), together and by kind.

Policies: ``looks``, ``words`` (the settings that ship, without looks), and stock Pipecat's rules: ``vad``
(any voice that voice activity detection reports) and ``min-words`` (three words of a partial or final
transcript while the bot speaks). An engine's results are delayed by its computing time, so decisions are
later on a busy machine.

``--speech human`` has recordings of people alone; ``mixed`` adds voice generators, printed separately.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np

from parley.core.errors import ConfigError
from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, percentile, run_command
from parley.evals.turns import audio
from parley.evals.turns.barge_in_policies import BargeInPolicy, VoiceTimer
from parley.evals.turns.overlap_audio import DuckingBot, Trial, cut_in, events_over, wilson
from parley.evals.turns.overlap_calls import Sound
from parley.evals.turns.overlap_ears import Ears, default_ears, listen
from parley.evals.turns.yield_calls import (
    SoundMaterial,
    SpokenSound,
    YieldScript,
    report_material,
)
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.settings import BargeInTuning

OF_A_CALL = 12
# Sounds of each call that are made and not recorded.
OTHERS_OF_A_CALL = (Sound.SIDE_TALK, Sound.ECHO)
PIPECAT_MIN_WORDS = 3


class MinWords(VoiceTimer):
    """Pipecat's ``MinWordsUserTurnStartStrategy`` while the bot speaks: yields to that many words of any
    kind.
    """

    def __init__(self) -> None:
        super().__init__(None)

    def on_partial(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> bool:  # type: ignore[override]
        return len(text.split()) >= PIPECAT_MIN_WORDS

    def on_final(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> bool:  # type: ignore[override]
        return len(text.split()) >= PIPECAT_MIN_WORDS


# Policies that do not duck: both get the same calls, in which the bot goes on.
PLAIN = ("vad", "min-words")
POLICIES: Mapping[str, Callable[[], BargeInPolicy]] = {
    "looks": lambda: BargeIn(BargeInTuning(looks=True)),
    "words": BargeIn,
    "vad": lambda: VoiceTimer(0),
    "min-words": MinWords,
}


@dataclass(frozen=True, slots=True)
class YieldTrial:
    """Result of one sound over the bot.

    Attributes:
        trial: the reports of the engines.
        is_human: true for a recorded person.
    """

    trial: Trial
    is_human: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m evals.turns.yielding")
    root.add_argument("--speech", choices=("human", "mixed"), default="human")
    root.add_argument("--policies", nargs="+", choices=tuple(POLICIES), default=list(POLICIES))
    root.add_argument("--sounds", type=positive, help="number of sounds, drawn at random; default: all")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--processes", type=positive, default=2)
    add_outputs(root)
    arguments = root.parse_args(argv)
    return run_command(arguments, lambda: _run(arguments), lambda result: table(result["policies"]))


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    figures = judged(
        arguments.policies,
        mixed=arguments.speech == "mixed",
        seed=arguments.seed,
        most=arguments.sounds,
        processes=arguments.processes,
    )
    settings = {name: str(value) for name, value in vars(arguments).items()}
    return {"settings": settings, "policies": figures, "machine": machine()}


def judged(
    policies: Sequence[str] = tuple(POLICIES),
    *,
    mixed: bool = False,
    seed: int = 1,
    most: int | None = None,
    processes: int = 2,
) -> dict[str, Any]:
    """Return the figures of each policy.

    Args:
        policies: names in ``POLICIES``.
        mixed: voice generators speak as well as people.
        seed: of the order of the sounds.
        most: number of sounds; None for all.
        processes: in which the calls run.

    Raises:
        AgentError: recordings were not fetched, weights are missing, a side has no sounds.
    """
    drives = {name: None if name in PLAIN else name for name in policies}
    heard = measured(tuple(dict.fromkeys(drives.values())), mixed, seed, most=most, processes=processes)
    return {name: judge(name, heard[drive]) for name, drive in drives.items()}


def measured(
    policies: Sequence[str | None],
    mixed: bool,
    seed: int,
    *,
    most: int | None,
    processes: int,
) -> dict[str | None, list[YieldTrial]]:
    """Return the trials of each sound, with the bot ducked and cut by each policy; None: by none.

    Raises:
        ConfigError: recordings were not fetched, there are none, or an engine is not installed.
        EngineError: an engine failed.
    """
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        count = pool.submit(count_sounds, mixed).result()
        if not count:
            raise ConfigError("the report set has no sounds")
        calls = -(-min(count, most or count) // OF_A_CALL)
        waiting = {
            policy: [pool.submit(trials_of_call, policy, mixed, seed, place, most) for place in range(calls)]
            for policy in policies
        }
        progress = Progress("calls", calls * len(waiting))
        trials: dict[str | None, list[YieldTrial]] = {policy: [] for policy in waiting}
        for policy, each in waiting.items():
            for one in each:
                trials[policy] += one.result()
                progress.step()
        return trials


def count_sounds(mixed: bool) -> int:
    """Return the number of sounds."""
    return len(_material(mixed).sounds)


@cache
def _material(mixed: bool) -> SoundMaterial:
    return report_material(mixed=mixed)


@cache
def _own_listeners() -> tuple[Ears, audio.Speakers]:
    """Return the engines of this process of the pool; they cannot be sent between processes."""
    return default_ears(), audio.Speakers()


def _order(material: SoundMaterial, seed: int) -> list[SpokenSound]:
    rng = np.random.default_rng([seed, 13])
    return [material.sounds[place] for place in rng.permutation(len(material.sounds))]


def trials_of_call(
    policy: str | None, mixed: bool, seed: int, place: int, most: int | None
) -> list[YieldTrial]:
    """Return the trials of one call."""
    chosen, speakers = _own_listeners()
    material = _material(mixed)
    rng = np.random.default_rng([seed, place, 17])
    script = YieldScript(rng, speakers, material)
    first = place * OF_A_CALL
    said: list[SpokenSound | None] = list(_order(material, seed)[:most][first : first + OF_A_CALL])
    said += [script.drawn(kind) for kind in OTHERS_OF_A_CALL]
    for each in said:
        script.add(each)
    bot = DuckingBot(script.replies, POLICIES[policy]) if policy is not None else None
    events = asyncio.run(listen(script.room(), chosen, bot))
    return [
        YieldTrial(
            Trial(
                reply.sound,
                reply.text,
                spoken.speaker if spoken is not None else "",
                (reply.onset - reply.began) * 1000 // audio.RATE_HZ,
                reply.says,
                tuple(events_over(events, reply)),
            ),
            spoken.is_human if spoken is not None else False,
        )
        for reply, spoken in zip(script.replies, said, strict=True)
    ]


def judge(name: str, trials: Sequence[YieldTrial]) -> dict[str, Any]:
    """Return the figures of a policy.

    A cut before the sound was caused by the bot itself and is not attributed to the sound.
    """
    rows = [(each, *cut_in(POLICIES[name](), each.trial)) for each in trials]
    early = [row for row in rows if row[1] is not None and row[1] < row[0].trial.onset_ms]
    rows = [row for row in rows if row not in early]
    origins = {
        "human": [row for row in rows if row[0].is_human],
        "synthetic": [row for row in rows if not row[0].is_human and row[0].trial.sound is not Sound.ECHO],
        "all": rows,
    }
    return {origin: _figures(of) for origin, of in origins.items() if of} | {"before_a_sound": len(early)}


def _figures(rows: Sequence[tuple[YieldTrial, int | None, int | None]]) -> dict[str, Any]:
    def cuts(sounds: Sequence[Sound]) -> list[bool]:
        return [cut is not None for each, cut, _ in rows if each.trial.sound in sounds]

    meant = [sound for sound in Sound if sound.is_meant]
    others = [sound for sound in Sound if not sound.is_meant]
    decided = [
        cut - each.trial.onset_ms for each, cut, _ in rows if cut is not None and each.trial.sound.is_meant
    ]
    ducked = [duck - each.trial.onset_ms for each, _, duck in rows if duck is not None]
    return {
        "recall": _rate(cuts(meant)),
        "false": _rate(cuts(others)),
        "decided_ms": _times(decided),
        "ducked_ms": _times([ms for ms in ducked if ms >= 0]),
        "kinds": {sound.value: _rate(cuts([sound])) for sound in Sound if cuts([sound])},
    }


def _rate(outcomes: Sequence[bool]) -> dict[str, Any]:
    return {
        "share": round(float(np.mean(outcomes)), 4) if outcomes else None,
        "of": len(outcomes),
        "interval": wilson(outcomes),
    }


def _times(values: Sequence[int]) -> dict[str, int | None]:
    found = {p: percentile(list(values), p) for p in (50, 95)} if values else {50: None, 95: None}
    return {f"p{p}": None if value is None else round(value) for p, value in found.items()}


def table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures as a table of text."""
    lines = [
        f"{'policy':10} {'speech':10} {'recall':>14} {'decided p50/p95':>16} {'duck p50':>9} "
        f"{'false':>14}  by kind"
    ]
    for name, origins in figures.items():
        for origin, row in origins.items():
            if origin == "before_a_sound":
                continue
            kinds = ", ".join(f"{kind} {_share(rate)}" for kind, rate in row["kinds"].items())
            decided, ducked = row["decided_ms"], row["ducked_ms"]
            lines.append(
                f"{name:10} {origin:10} {_share(row['recall']):>14} "
                f"{decided['p50']!s:>7} / {decided['p95']!s:<6} {ducked['p50']!s:>9} "
                f"{_share(row['false']):>14}  {kinds}"
            )
    return "\n".join(lines)


def _share(rate: Mapping[str, Any]) -> str:
    return "-" if rate["share"] is None else f"{rate['share']:.1%} of {rate['of']}"


if __name__ == "__main__":
    sys.exit(main())
