"""``BargeIn`` with inputs in any order, and its visible state after each step."""

import random
from collections.abc import Callable

from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.settings import BargeInTuning

STEPS = 160
TEXTS = (
    "",
    "",
    "mhm",
    "yeah",
    "okay",
    "okay i",
    "them",
    "um",
    "stop",
    "okay wait",
    "no",
    "yes",
    "what",
    "who",
    "well",
    "account",
    "how much",
    "what about the fees",
    "a mortgage then",
)
SURE = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)
MOST_DEADLINES = 1_000

Step = Callable[[BargeIn, random.Random, int], object]


def _voice_of(machine: BargeIn, rng: random.Random) -> int:
    return max(0, machine.voice_number - rng.choice((0, 0, 0, 1, 2)))


def _reply_of(rng: random.Random) -> str:
    return f"r{rng.randrange(5)}"


def _words(rng: random.Random) -> tuple[str, tuple[float, ...]]:
    text = rng.choice(TEXTS)
    count = rng.choice((0, 1, len(text.split())))
    return text, tuple(rng.choice(SURE) for _ in range(count))


def _partial(machine: BargeIn, rng: random.Random, at_ms: int) -> object:
    text, confidences = _words(rng)
    return machine.on_partial(at_ms, text, confidences=confidences)


def _final(machine: BargeIn, rng: random.Random, at_ms: int) -> object:
    text, confidences = _words(rng)
    return machine.on_final(at_ms, text, confidences=confidences)


def _spotted(machine: BargeIn, rng: random.Random, at_ms: int) -> object:
    odds = rng.choice((None, None, -3.0, -0.5, 0.0, 0.5, 2.0))
    voice = rng.choice((None, _voice_of(machine, rng)))
    return machine.on_spotted(at_ms, rng.choice(TEXTS), voice=voice, floor_log_odds=odds)


def _look(machine: BargeIn, rng: random.Random, at_ms: int) -> object:
    odds = rng.choice((-9.0, -2.5, 0.0, 1.5, 9.0))
    return machine.on_look(at_ms, rng.randrange(6), odds, voice=_voice_of(machine, rng))


STEPS_OF: dict[str, tuple[int, Step]] = {
    "reply": (3, lambda m, r, t: m.on_reply(t, _reply_of(r), protected=r.random() < 0.2)),
    "started": (6, lambda m, r, t: m.on_bot_started(t, _reply_of(r), protected=r.random() < 0.2)),
    "stopped": (2, lambda m, r, t: m.on_bot_stopped(t, _reply_of(r))),
    "protected": (1, lambda m, r, t: m.on_protected(t, r.random() < 0.4)),
    "question": (1, lambda m, _r, t: m.on_question(t)),
    "heard": (2, lambda m, r, _t: m.on_heard(_reply_of(r), r.randrange(9), is_rest_heard=r.random() < 0.2)),
    "saying": (2, lambda m, r, _t: m.on_saying(_reply_of(r), r.choice(TEXTS))),
    "maybe": (6, lambda m, _r, t: m.on_maybe_voice(t)),
    "voice": (12, lambda m, r, t: m.on_voice_started(t, voiced_ms=r.choice((0, 96, 128)))),
    "pause": (4, lambda m, _r, t: m.on_maybe_quiet(t)),
    "silence": (10, lambda m, r, t: m.on_voice_stopped(t, silence_ms=r.choice((96, 160)))),
    "partial": (8, _partial),
    "final": (12, _final),
    "spotting": (9, lambda m, _r, _t: m.on_spotting()),
    "spotted": (7, _spotted),
    "look": (5, _look),
    "turn": (1, lambda m, _r, _t: m.on_turn_ended()),
    "own": (3, lambda m, r, t: m.on_self_voice(t, own=r.random() < 0.4)),
    "level": (4, lambda m, r, t: m.on_level(t, r.choice((-40.0, -16.0, -9.0, 0.0, 9.0)))),
    "path": (1, lambda m, _r, t: m.on_echo_path_changed(t)),
    "verdict": (3, lambda m, _r, _t: m.take_verdict()),
}


def _settings(rng: random.Random) -> BargeInTuning:
    return BargeInTuning(
        warm_up_ms=rng.choice((0, 0, 3_000)),
        early_ms=rng.choice((0, 1_000)),
        maybe_ms=rng.choice((0, 200, 200)),
        protected_yields_to_stop=rng.random() < 0.7,
        duck_longest_ms=rng.choice((500, 3_000)),
        looks=rng.choice((False, True)),
    )


def _shown(machine: BargeIn) -> str:
    facts = (
        machine.state.name,
        machine.voice_number,
        machine.holds_words,
        machine.last_is_guess,
        machine.spotted_command,
        machine.is_ducked,
        machine.caller_has_floor,
        machine.last_kind,
        machine.next_deadline_ms(),
    )
    return " ".join(str(fact) for fact in facts)


def machine_trace(rng: random.Random) -> list[str]:
    """Return the decisions and the visible state of one call."""
    machine, lines = BargeIn(_settings(rng)), list[str]()
    names = list(STEPS_OF)
    weights = [STEPS_OF[name][0] for name in names]
    at_ms = 0

    def keep_deadlines(until_ms: int) -> int:
        now_ms = at_ms
        for _ in range(MOST_DEADLINES):
            due_ms = machine.next_deadline_ms()
            if due_ms is None or due_ms > until_ms:
                return until_ms
            now_ms = max(due_ms, now_ms)
            lines.append(f"{now_ms} deadline {machine.on_deadline(now_ms)} | {_shown(machine)}")
        raise AssertionError("deadlines without end")

    for _ in range(STEPS):
        at_ms = keep_deadlines(at_ms + rng.choice((0, 20, 60, 120, 250, 500, 1_200)))
        [name] = rng.choices(names, weights)
        decided = STEPS_OF[name][1](machine, rng, at_ms)
        lines.append(f"{at_ms} {name} {decided} | {_shown(machine)}")
    keep_deadlines(at_ms + 10_000_000)
    return lines
