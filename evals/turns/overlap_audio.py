"""Sounds over the bot's voice, processed by the engines that ship, against barge-in policies.

In simulated speakerphone calls (``evals.echo.rooms``) the bot's voice is played, comes back as an echo, and
passes the product's echo control. So does the caller, who interrupts with a sentence, a short command or a
stop word, hums along, coughs, or is silent while another person in the room talks. After echo control, Silero
reports voices, the check for the bot's own voice looks every 320 ms, PocketSphinx recognises words, and the
command spotter recognises short voices (only ``barge-in-stop-words`` uses it). All have the settings that
ship, with one state for a whole call. An engine's results are delayed by its computing time (its processor
time), one after the other.

The reports of the engines are recorded as events on the clock of the audio, and policies replay the events,
reply by reply. A policy that ducks gets calls of its own (``DuckingBot``). The quieter bot has a quieter
echo, and the canceller, which takes high frequencies from a caller as long as the bot is loud, leaves more of
them. The others get calls in which the bot goes on at full volume. The product's policies get these as well,
which measures the effect of ducking. A stop is measured from the first audible sample of the sound to the
decision; flushing and the network come on top.

Voices, rooms, hums and coughs are synthetic: no recording of people.
"""

import asyncio
import math
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from parley.audio.gain import RampedGain
from parley.evals.echo.rooms import RATE_HZ
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import percentile
from parley.evals.turns import audio
from parley.evals.turns.barge_in_policies import BargeInPolicy, Decided, VoiceTimer, cut_before, is_cut
from parley.evals.turns.overlap_calls import CALLERS, GAP_MS, OF_A_CALL, CallScript, Reply, Sound
from parley.evals.turns.overlap_ears import PIECE_MS, Ears, Event, ears, listen
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.table import Duck, Restore

REPLY_ID = "reply"


@dataclass(frozen=True, slots=True)
class Trial:
    """A reply and the engines' reports during it.

    Attributes:
        sound: kind of the sound over it.
        text: spoken words. Empty without any.
        voice: name of the speaker.
        onset_ms: first audible sample of the sound, from the first sound of the reply.
        says: text of the reply.
        events: in order, until the reply is over.
    """

    sound: Sound
    text: str
    voice: str
    onset_ms: int
    says: str
    events: tuple[Event, ...]


def measure(
    calls: int,
    seed: int,
    *,
    processes: int,
    shared_by: int = 1,
    ducked_by: str | None = None,
    script: type[CallScript] = CallScript,
) -> list[Trial]:
    """Simulate calls in several processes; return the trials of all.

    Args:
        calls: number of calls.
        seed: of all that is drawn.
        processes: number at a time, each with engines of its own.
        shared_by: number of calls that share the sounds of one call (``OF_A_CALL``).
        ducked_by: the policy that lowers and ends the bot's voice in them. None leaves it at full volume.
        script: builder of the calls.

    Raises:
        ConfigError: an engine is not installed.
        EngineError: an engine does not load, or failed.
    """
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(
                _measured_there, place, seed, OF_A_CALL[place % shared_by :: shared_by], ducked_by, script
            )
            for place in range(calls)
        ]
        progress = Progress(f"calls, bot ducked by {ducked_by or 'no policy'}", calls)
        trials = []
        for each in waiting:
            trials += each.result()
            progress.step()
        return trials


def _measured_there(
    place: int, seed: int, kinds: Sequence[Sound], ducked_by: str | None, script: type[CallScript]
) -> list[Trial]:
    chosen, speakers = _own_listeners()
    return call_trials(place, seed, chosen, speakers, kinds, ducked_by=ducked_by, build=script)


@cache
def _own_listeners() -> tuple[Ears, audio.Speakers]:
    """Return the engines of this process of the pool; they cannot be sent between processes."""
    return ears(), audio.Speakers()


def call_trials(
    place: int,
    seed: int,
    chosen: Ears,
    speakers: audio.Speakers,
    kinds: Sequence[Sound] = OF_A_CALL,
    *,
    ducked_by: str | None = None,
    build: type[CallScript] = CallScript,
) -> list[Trial]:
    """Simulate one call; return the engines' reports over each reply.

    Args:
        place: index of the call. It selects the voice and the random draws.
        seed: of all calls.
        chosen: engines.
        speakers: voices.
        kinds: sounds, one over each reply.
        ducked_by: see ``measure``.
        build: the ``script`` of ``measure``.
    """
    rng = np.random.default_rng([seed, place, 7])
    voice = CALLERS[place % len(CALLERS)]
    script = build(rng, voice, speakers)
    for sound in rng.permutation(np.array(kinds, dtype=object)):
        script.add(sound)
    bot = None if ducked_by is None else DuckingBot(script.replies, POLICIES[ducked_by])
    events = asyncio.run(listen(script.room(), chosen, bot))
    return [
        Trial(
            reply.sound,
            reply.text,
            " ".join(voice),
            _ms(reply.onset - reply.began),
            reply.says,
            tuple(events_over(events, reply)),
        )
        for reply in script.replies
    ]


def events_over(events: Sequence[Event], reply: Reply) -> Iterator[Event]:
    """Yield the events of a reply on its clock, with its first voice as number 1.

    Words may arrive a little later than the last sound of the reply.
    """
    asked = () if reply.asked is None else (Event(_ms(reply.asked), "on_question"),)
    voices_before = 0
    for event in sorted((*asked, *events), key=lambda event: event.at_ms):
        if event.at_ms < _ms(reply.began):
            voices_before += event.method == "on_voice_started"
        elif event.at_ms < _heard_until_ms(reply):
            yield _over(event, reply, voices_before)


def _heard_until_ms(reply: Reply) -> int:
    return _ms(reply.ended) + GAP_MS - 2 * PIECE_MS


def _over(event: Event, reply: Reply, voices_before: int) -> Event:
    """Return the event on the reply's clock."""
    facts = event.facts
    if "voice" in facts:
        facts = facts | {"voice": facts["voice"] - voices_before}
    return Event(event.at_ms - _ms(reply.began), event.method, facts)


class DuckingBot:
    """Bot whose volume follows a policy: a new policy object for each reply lowers and ends it.

    Args:
        replies: of the call, in order.
        build: factory of the policy.
    """

    def __init__(self, replies: Sequence[Reply], build: Callable[[], BargeInPolicy]) -> None:
        self._replies, self._build = deque(replies), build
        self._reply: Reply | None = None
        self._policy: BargeInPolicy | None = None
        self._gain = RampedGain()
        self._voices = self._voices_before = 0
        self._is_asked = False

    def play(self, pcm: bytes) -> bytes:
        """Return the next piece at its volume; silence after a cut."""
        return bytes(len(pcm)) if self._reply and self._policy is None else self._gain.apply(pcm)

    def hear(self, now_ms: int, events: Sequence[Event]) -> None:
        """Pass the events up to now to the policy and apply its decisions."""
        for event in events:
            self._advance(event.at_ms)
            self._voices += event.method == "on_voice_started"
            self._apply_event(event)
        self._advance(now_ms + 1)

    def _advance(self, at_ms: int) -> None:
        """Run deadlines that are due before, and begin and end replies by then."""
        while (reply := self._reply or self._next(at_ms)) is not None:
            ended_ms = _heard_until_ms(reply)
            asked_ms = None if reply.asked is None or self._is_asked else _ms(reply.asked)
            until_ms = min(at_ms, ended_ms, at_ms if asked_ms is None else asked_ms)
            self._until(until_ms)
            if asked_ms is not None and asked_ms <= at_ms:
                self._is_asked = True
                self._apply_event(Event(asked_ms, "on_question"))
            elif ended_ms <= at_ms:
                self._reply = self._policy = None
                self._gain.set_db(0.0)
            else:
                return

    def _next(self, at_ms: int) -> Reply | None:
        if not self._replies or _ms(self._replies[0].began) > at_ms:
            return None
        reply = self._replies.popleft()
        self._reply, self._policy = reply, self._build()
        self._voices_before, self._is_asked = self._voices, False
        self._gain.set_db(0.0)
        self._policy.on_bot_started(0, REPLY_ID)
        self._policy.on_saying(REPLY_ID, reply.says)
        return reply

    def _until(self, at_ms: int) -> None:
        while self._policy is not None and self._reply is not None:
            due_ms = self._policy.next_deadline_ms()
            if due_ms is None or due_ms >= at_ms - _ms(self._reply.began):
                return
            self._obey(self._policy.on_deadline(due_ms))

    def _apply_event(self, event: Event) -> None:
        if self._policy is None or self._reply is None:
            return
        own = _over(event, self._reply, self._voices_before)
        self._obey(getattr(self._policy, own.method)(**_arguments(own)))

    def _obey(self, decision: Decided) -> None:
        if is_cut(decision):
            self._policy = None
            self._gain.reset()
        elif isinstance(decision, Duck):
            self._gain.set_db(decision.gain_db)
        elif isinstance(decision, Restore):
            self._gain.set_db(0.0)


class Unspotted(BargeIn):
    """Barge-in without the command spotter."""

    def on_spotting(self) -> None:
        """Ignore it: there is no spotter."""

    def on_spotted(
        self, at_ms: int, text: str, *, voice: int | None = None, floor_log_odds: float | None = None
    ) -> None:
        """Ignore it: there is no spotter."""


POLICIES: dict[str, Callable[[], BargeInPolicy]] = {
    "never": lambda: VoiceTimer(None),
    "voice-0": lambda: VoiceTimer(0),
    "voice-300": lambda: VoiceTimer(300),
    "voice-700": lambda: VoiceTimer(700),
    "barge-in": Unspotted,
    "barge-in-stop-words": BargeIn,
}
# Policies that lower the bot's voice.
DUCKING = ("barge-in", "barge-in-stop-words")


def cut_at_ms(policy: BargeInPolicy, trial: Trial) -> int | None:
    """Return the time at which the policy cuts the reply, from its first sound; None when it does not."""
    return cut_in(policy, trial)[0]


def cut_in(policy: BargeInPolicy, trial: Trial) -> tuple[int | None, int | None]:
    """Return the times at which the policy cuts the reply and at which it first lowers the bot.

    Both are counted from the reply's first sound. Only ducking after the beginning of the sound counts. None
    means that it did not happen.
    """
    policy.on_bot_started(0, REPLY_ID)
    policy.on_saying(REPLY_ID, trial.says)
    ducked_ms = None
    for event in trial.events:
        cut_ms = cut_before(policy, event.at_ms)
        if cut_ms is not None:
            return cut_ms, ducked_ms
        decision = getattr(policy, event.method)(**_arguments(event))
        if is_cut(decision):
            return event.at_ms, ducked_ms
        if isinstance(decision, Duck) and ducked_ms is None and event.at_ms >= trial.onset_ms:
            ducked_ms = event.at_ms
    cut_ms = cut_before(policy, trial.events[-1].at_ms + GAP_MS) if trial.events else None
    return cut_ms, ducked_ms


def _arguments(event: Event) -> dict[str, Any]:
    return event.facts if event.method == "on_spotting" else {"at_ms": event.at_ms, **event.facts}


def judge(name: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return a policy's figures.

    A cut before the sound is caused by the bot. Such a reply gives no information on the sound after it.
    """
    cuts = [(trial, cut_at_ms(POLICIES[name](), trial)) for trial in trials]
    own = [
        (trial, cut)
        for trial, cut in cuts
        if cut is not None and (trial.sound is Sound.ECHO or cut < trial.onset_ms)
    ]
    rest = [(trial, cut) for trial, cut in cuts if trial.sound is not Sound.ECHO and (trial, cut) not in own]
    stops = [cut - trial.onset_ms for trial, cut in rest if cut is not None and trial.sound.is_meant]

    def cut_of(of: Callable[[Sound], bool]) -> list[bool]:
        return [cut is not None for trial, cut in rest if of(trial.sound)]

    def rate(of: Callable[[Sound], bool]) -> float | None:
        chosen = cut_of(of)
        return round(float(np.mean(chosen)), 4) if chosen else None

    return {
        "barge_in_recall": rate(lambda sound: sound.is_meant),
        "barge_in_stop_ms": {f"p{p}": percentile(stops, p) if stops else None for p in (50, 95)},
        "false_yield_rate": rate(lambda sound: sound.is_backchannel),
        "intervals": {
            "barge_in_recall": wilson(cut_of(lambda sound: sound.is_meant)),
            "false_yield_rate": wilson(cut_of(lambda sound: sound.is_backchannel)),
        },
        "self_interruptions": len(own),
        "yields": {kind.value: rate(partial(operator.is_, kind)) for kind in Sound},
        "stop_ms": {
            kind.value: {f"p{p}": percentile(of_kind, p) for p in (50, 95)}
            for kind in Sound
            if kind.is_meant
            and (of_kind := [cut - trial.onset_ms for trial, cut in rest if cut and trial.sound is kind])
        },
    }


def wilson(outcomes: Sequence[bool]) -> tuple[float, float] | None:
    """Return the 95 % interval of a share (Wilson 1927, without correction); None without outcomes."""
    if not outcomes:
        return None
    count, share, z = len(outcomes), float(np.mean(outcomes)), 1.96
    scale = 1 + z * z / count
    centre = (share + z * z / (2 * count)) / scale
    half = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2) / scale
    return round(max(0.0, centre - half), 4), round(min(1.0, centre + half), 4)


def _ms(samples: int) -> int:
    return samples * 1000 // RATE_HZ
