"""Row of a system: its output in each clip in, figures out. Pure.

The figures are grouped by part of Full-Duplex-Bench (v1: pause, turn, backchannel, interruption; v1.5: speech
over the bot), with the panel of tau2-bench over all clips. Each clip's verdict is kept, so that a figure can
be traced to the sound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.evals.duplex_bench import backchannels, figures
from parley.evals.duplex_bench.clips import Clip, Kind, Part
from parley.evals.duplex_bench.overlaps import Behaviour, Overlap, overlap, talked_into
from parley.evals.duplex_bench.panel import Counted, count, counts, panel
from parley.evals.duplex_bench.spoken import (
    TALK_GAP_MS,
    Segment,
    Spoken,
    Word,
    first_talk,
    is_backchannel,
    takes_turn,
)

# A bot that begins to talk sooner than this after the end of a pause cannot have reacted to the voice.
REACTION_MS = 200
OVER = (Part.USER_BACKCHANNEL, Part.TALKING_TO_OTHERS, Part.BACKGROUND, Part.TICS)


@dataclass(frozen=True, slots=True)
class Heard:
    """A clip and the bot's output in it.

    Attributes:
        clip: the clip.
        spoken: the bot's output.
        clean: words of the bot in the same call without the event. None when they are not needed or not
            known.
    """

    clip: Clip
    spoken: Spoken
    clean: tuple[str, ...] | None = None


def row(name: str, heard: Sequence[Heard], *, seed: int = 1) -> dict[str, Any]:
    """Return all figures of one system; None for each that cannot be measured."""
    of = {part: [each for each in heard if each.clip.part is part] for part in Part}
    pauses = [takes_turn(each.spoken) for each in of[Part.PAUSE]]
    in_pauses = [begins for each in of[Part.PAUSE] for begins in _starts_in_pauses(each)]
    turns = [takes_turn(each.spoken) for each in of[Part.TURN]]
    turn_ms = [ms for each in of[Part.TURN] if (ms := _turn_latency_ms(each)) is not None]
    over = {part: [_overlap(each) for each in of[part]] for part in (Part.INTERRUPTION, *OVER)}
    interruptions = [_takes_interruption(each) for each in of[Part.INTERRUPTION]]
    interruption_ms = [
        ms for each in of[Part.INTERRUPTION] if (ms := _interruption_latency_ms(each)) is not None
    ]
    answered = [_answers(each) for each in of[Part.INTERRUPTION]]
    listening = _listening(of[Part.BACKCHANNEL], seed)
    counted = Counted()
    for each in heard:
        count(each.clip.events, each.spoken, counted)
    resumes = {part: _resumes(over[part]) for part in OVER}
    stops = [each.stop_ms for each in over[Part.INTERRUPTION] if each.stop_ms is not None]
    return {
        "name": name,
        "pause_tor": figures.share(pauses),
        "pause_starts": figures.share(in_pauses),
        "turn_tor": figures.share(turns),
        "turn_latency_ms": figures.spread_ms(turn_ms),
        "joint": figures.joint(pauses, turns),
        "interruption_tor": figures.share(interruptions),
        "interruption_latency_ms": figures.spread_ms(interruption_ms),
        "interruption_answered": figures.share(answered),
        "interruption_stop_ms": figures.spread_ms(stops),
        **listening,
        "resume_after_backchannel": figures.share(resumes[Part.USER_BACKCHANNEL]),
        "resume_after_background": figures.share(resumes[Part.BACKGROUND]),
        "resume_after_talking_to_others": figures.share(resumes[Part.TALKING_TO_OTHERS]),
        "resume_after_tic": figures.share(resumes[Part.TICS]),
        "interruption": _behaviours(over[Part.INTERRUPTION]),
        "user_backchannel": _behaviours(over[Part.USER_BACKCHANNEL]),
        "talking_to_others": _behaviours(over[Part.TALKING_TO_OTHERS]),
        "background": _behaviours(over[Part.BACKGROUND]),
        "tics": _behaviours(over[Part.TICS]),
        "panel": panel(counted),
        "intervals": {
            "pause_tor": figures.interval(pauses),
            "turn_tor": figures.interval(turns),
            "turn_latency_ms_p50": figures.median_interval(turn_ms),
            "interruption_tor": figures.interval(interruptions),
            "interruption_answered": figures.interval(answered),
            "interruption_latency_ms_p50": figures.median_interval(interruption_ms),
            "interruption_stop_ms_p50": figures.median_interval(stops),
            "resume_after_backchannel": figures.interval(resumes[Part.USER_BACKCHANNEL]),
            "resume_after_background": figures.interval(resumes[Part.BACKGROUND]),
            "resume_after_talking_to_others": figures.interval(resumes[Part.TALKING_TO_OTHERS]),
            "resume_after_tic": figures.interval(resumes[Part.TICS]),
        },
        "counts": {
            **{part.value: len(of[part]) for part in Part if of[part]},
            "panel": counts(counted),
        },
        "per_clip": [_verdict(each) for each in heard],
    }


def _is_in(word: Word, talk: Segment) -> bool:
    """Return whether any part of a word is audible in a stretch of voice."""
    return word.began_ms < talk.ended_ms and word.ended_ms > talk.began_ms


def _starts_in_pauses(each: Heard) -> list[bool]:
    """Return for each labelled pause whether the bot begins to say something in it, however little.

    A stretch of voice without a word is a backchannel. For an engine that writes no words each stretch
    counts.
    """
    pauses = [event for event in each.clip.events if event.kind is Kind.PAUSE]
    words = each.spoken.words
    begun_ms = [
        talk.began_ms
        for talk in each.spoken.joined(TALK_GAP_MS)
        if words is None or any(_is_in(word, talk) for word in words)
    ]
    return [
        any(pause.began_ms <= at_ms < pause.ended_ms + REACTION_MS for at_ms in begun_ms) for pause in pauses
    ]


def _turn_latency_ms(each: Heard) -> int | None:
    """Return the time from the end of the turn to the first talk, negative before it; None without a turn."""
    talk = first_talk(each.spoken)
    if each.clip.event is None or talk is None or not takes_turn(each.spoken):
        return None
    return talk.began_ms - each.clip.event.ended_ms


def _takes_interruption(each: Heard) -> bool:
    """Apply the rule of v1: a turn in the output after the interruption, whatever it is."""
    assert each.clip.event is not None
    return takes_turn(each.spoken.since(each.clip.event.ended_ms))


def _answers(each: Heard) -> bool:
    """Return whether the bot begins anew after the beginning of the interruption, rather than going on."""
    event = each.clip.event
    assert event is not None
    talk = _talk_after(each)
    return talk is not None and talk.began_ms >= event.began_ms and _takes_interruption(each)


def _talk_after(each: Heard) -> Segment | None:
    """Return the first talk that begins after the begin of the interruption, or else the one that never
    ended.
    """
    event = each.clip.event
    assert event is not None
    talks = [
        talk
        for talk in each.spoken.joined(TALK_GAP_MS)
        if not is_backchannel(talk, each.spoken.words_in(talk))
    ]
    new = next((talk for talk in talks if talk.began_ms >= event.began_ms), None)
    return new or next((talk for talk in talks if talk.ended_ms > event.ended_ms), None)


def _interruption_latency_ms(each: Heard) -> int | None:
    """Return the time from the end of the interruption to the talk after it.

    It is far below zero for a bot that never stopped.
    """
    event = each.clip.event
    assert event is not None
    talk = _talk_after(each)
    return None if talk is None or not _takes_interruption(each) else talk.began_ms - event.ended_ms


def _overlap(each: Heard) -> Overlap:
    assert each.clip.event is not None
    return overlap(each.clip.event, each.spoken, each.clean)


def _resumes(found: Sequence[Overlap]) -> list[bool]:
    """Return, for bots that were speaking, whether each resumed."""
    return [
        each.behaviour is Behaviour.RESUME for each in found if each.behaviour is not Behaviour.NOT_SPEAKING
    ]


def _behaviours(found: Sequence[Overlap]) -> dict[str, Any]:
    """Return the shares of reactions of those that were speaking, and the times of stop and response."""
    speaking = [each for each in found if each.behaviour is not Behaviour.NOT_SPEAKING]
    kinds = (kind for kind in Behaviour if kind is not Behaviour.NOT_SPEAKING)
    return {
        "events": len(found),
        "speaking": len(speaking),
        **{kind.value: figures.share([each.behaviour is kind for each in speaking]) for kind in kinds},
        "stop_ms": figures.spread_ms([each.stop_ms for each in speaking if each.stop_ms is not None]),
        "response_ms": figures.spread_ms(
            [each.response_ms for each in speaking if each.response_ms is not None]
        ),
    }


def _listening(heard: Sequence[Heard], seed: int) -> dict[str, Any]:
    """Return the figures of backchannels: turns taken, frequency, distance, and skill."""
    listened = [(each.clip, backchannels.listened(each.spoken)) for each in heard]
    distances: list[tuple[float, float, float]] = []
    rng = np.random.default_rng(seed)
    for clip, one in listened:
        if clip.shares is not None:
            arguments = (one.hums, clip.shares, one.length_ms)
            distances.append(
                (
                    backchannels.jsd(*arguments),
                    backchannels.random_jsd(*arguments, rng),
                    backchannels.oracle_jsd(*arguments),
                )
            )
    found, by_chance, at_best = (
        (float(np.mean(values)) for values in zip(*distances, strict=True))
        if distances
        else (None, None, None)
    )
    seconds = sum(one.length_ms for _, one in listened) / 1000
    worth = None
    if found is not None and by_chance is not None and at_best is not None:
        worth = backchannels.skill(found, by_chance, at_best)
    return {
        "backchannel_tor": figures.share([one.takes_turn for _, one in listened]),
        "backchannel_per_s": _rounded(sum(len(one.hums) for _, one in listened) / seconds)
        if seconds
        else None,
        "backchannel_jsd": _rounded(found),
        "backchannel_jsd_random": _rounded(by_chance),
        "backchannel_jsd_oracle": _rounded(at_best),
        "backchannel_skill": _rounded(worth),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _verdict(each: Heard) -> dict[str, Any]:
    """Return the verdict on one clip, for diagnosis."""
    clip, spoken = each.clip, each.spoken
    verdict: dict[str, Any] = {
        "clip": clip.name,
        "talk_s": [[talk.began_ms / 1000, talk.ended_ms / 1000] for talk in spoken.joined(TALK_GAP_MS)],
        "said": None if spoken.words is None else " ".join(word.text for word in spoken.words),
    }
    if clip.part in (Part.PAUSE, Part.TURN):
        verdict["takes_turn"] = takes_turn(spoken)
        verdict["latency_ms"] = _turn_latency_ms(each) if clip.part is Part.TURN else None
    elif clip.part is Part.BACKCHANNEL:
        one = backchannels.listened(spoken)
        verdict |= {"takes_turn": one.takes_turn, "hums": len(one.hums)}
    elif clip.event is not None:
        was = _overlap(each)
        verdict |= {
            "event_s": [clip.event.began_ms / 1000, clip.event.ended_ms / 1000],
            "speaking": talked_into(clip.event, spoken) is not None,
            "behaviour": was.behaviour.value,
            "stop_ms": was.stop_ms,
            "response_ms": was.response_ms,
        }
        if clip.part is Part.INTERRUPTION:
            verdict |= {"answers": _answers(each), "latency_ms": _interruption_latency_ms(each)}
    return verdict
