"""Sounds over the bot's voice, heard by the engines that ship, against barge-in policies.

Simulated speakerphone calls (``evals.echo.rooms``): the bot's voice is played, comes back as an echo, and
goes through the product's echo control; so does the caller, who interrupts with a sentence, a short command
or a stop word, hums along, coughs, or says nothing while somebody else in the room talks. Behind echo control
Silero reports voices, the check for the bot's own voice looks every 320 ms, PocketSphinx understands what was
said, and the command spotter what was short (``barge-in-stop-words`` alone goes by it); all with the settings
that ship, one state for a whole call. An engine's results come as late as it computes (its processor time),
one after the other.

What they reported is written down, as events on the clock of the audio, and policies are played events, reply
by reply. A policy that ducks hears calls of its own (``DuckingBot``): what it lowers comes back lower, and
the canceller, which takes high frequencies from a caller as long as the bot is loud, leaves more of them.
The others hear calls in which the bot goes on at full volume; so do ours once more, which tells what ducking
is worth. A stop is measured from the first audible sample of the sound to the decision; the time to flush and
the network come on top.

Synthetic voices, rooms, hums and coughs: no recording of people.
"""

import asyncio
import hashlib
import json
import math
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from audio.gain import RampedGain
from evals.echo.rooms import RATE_HZ
from evals.latency.figures import percentile
from evals.turns import audio
from evals.turns.overlap_calls import CALLERS, GAP_MS, OF_A_CALL, CallScript, Reply, Sound
from evals.turns.overlap_ears import PIECE_MS, Ears, Event, ears, listen
from evals.turns.overlaps import BargeInPolicy, Decided, VoiceTimer, cut_before, is_cut
from models.commands.floor import LINE_FILE
from models.commands.pocketsphinx import CommandSettings
from processors.front_end.vad import VadSettings
from processors.perception.engine_stt import EngineSttSettings
from turn_taking.barge_in import BargeIn
from turn_taking.barge_in_settings import BargeInTuning
from turn_taking.barge_in_table import Duck, Restore
from turn_taking.self_voice import SelfVoiceSettings

REPLY_ID = "reply"


@dataclass(frozen=True, slots=True)
class Trial:
    """One reply and what was heard over it.

    Attributes:
        sound: what it was.
        text: its words, as said; empty without.
        voice: whose.
        onset_ms: its first audible sample, from the first sound of the reply.
        says: the reply.
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
    held_out: bool = True,
    shared_by: int = 1,
    ducked_by: str | None = None,
) -> list[Trial]:
    """So many calls by so many processes; ``OF_A_CALL`` trials of each, or of so many together.

    Args:
        calls: how many.
        seed: of all that is drawn.
        processes: at a time, each with engines of its own.
        held_out: whether the callers say what nothing was chosen on.
        shared_by: so many calls have the sounds of one among them.
        ducked_by: the policy that lowers and ends the bot's voice in them; None leaves it at full volume.

    Raises:
        ConfigError: an engine is not installed.
        EngineError: an engine does not load, or failed.
    """
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(
                _measured_there, place, seed, held_out, OF_A_CALL[place % shared_by :: shared_by], ducked_by
            )
            for place in range(calls)
        ]
        return [trial for each in waiting for trial in each.result()]


def _measured_there(
    place: int, seed: int, held_out: bool, kinds: Sequence[Sound], ducked_by: str | None
) -> list[Trial]:
    chosen, speakers = _own_ears()
    return call_trials(place, seed, chosen, speakers, kinds, held_out=held_out, ducked_by=ducked_by)


@cache
def _own_ears() -> tuple[Ears, audio.Speakers]:
    """One set for each process of the pool: they cannot be sent there."""
    return ears(), audio.Speakers()


def call_trials(
    place: int,
    seed: int,
    chosen: Ears,
    speakers: audio.Speakers,
    kinds: Sequence[Sound] = OF_A_CALL,
    *,
    held_out: bool = True,
    ducked_by: str | None = None,
) -> list[Trial]:
    """One call: what its engines reported over each reply.

    Args:
        place: of the call; chooses the voice, and what is drawn.
        seed: of all calls.
        chosen: engines.
        speakers: voices.
        kinds: what is heard, one over each reply.
        held_out: see ``measure``.
        ducked_by: see ``measure``.
    """
    rng = np.random.default_rng([seed, place, 7])
    voice = CALLERS[place % len(CALLERS)]
    script = CallScript(rng, voice, speakers, held_out=held_out)
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
    """The events of a reply, on its clock, its first voice number 1; words may come a little later than its
    last sound.
    """
    asked = () if reply.asked is None else (Event(_ms(reply.asked), "on_question"),)
    voices_before = 0
    for event in sorted((*asked, *events), key=lambda event: event.at_ms):
        if event.at_ms < _ms(reply.began):
            voices_before += event.tell == "on_voice_started"
        elif event.at_ms < _heard_until_ms(reply):
            yield _over(event, reply, voices_before)


def _heard_until_ms(reply: Reply) -> int:
    return _ms(reply.ended) + GAP_MS - 2 * PIECE_MS


def _over(event: Event, reply: Reply, voices_before: int) -> Event:
    """The event on the reply's clock."""
    facts = event.facts
    if "voice" in facts:
        facts = facts | {"voice": facts["voice"] - voices_before}
    return Event(event.at_ms - _ms(reply.began), event.tell, facts)


class DuckingBot:
    """A policy that lowers and ends the replies of a call because of what is reported, a new one for each.

    Args:
        replies: of the call, in order.
        build: the policy.
    """

    def __init__(self, replies: Sequence[Reply], build: Callable[[], BargeInPolicy]) -> None:
        self._replies, self._build = deque(replies), build
        self._reply: Reply | None = None
        self._policy: BargeInPolicy | None = None
        self._gain = RampedGain()
        self._voices = self._voices_before = 0
        self._is_asked = False

    def play(self, pcm: bytes) -> bytes:
        """The next piece, at its volume; silent behind a cut."""
        return bytes(len(pcm)) if self._reply and self._policy is None else self._gain.apply(pcm)

    def hear(self, now_ms: int, events: Sequence[Event]) -> None:
        """Tell the policy what was reported by now, and do as it says."""
        for event in events:
            self._advance(event.at_ms)
            self._voices += event.tell == "on_voice_started"
            self._tell(event)
        self._advance(now_ms + 1)

    def _advance(self, at_ms: int) -> None:
        """Whatever is due before, and the replies that begin and end by then."""
        while (reply := self._reply or self._next(at_ms)) is not None:
            ended_ms = _heard_until_ms(reply)
            asked_ms = None if reply.asked is None or self._is_asked else _ms(reply.asked)
            until_ms = min(at_ms, ended_ms, at_ms if asked_ms is None else asked_ms)
            self._until(until_ms)
            if asked_ms is not None and asked_ms <= at_ms:
                self._is_asked = True
                self._tell(Event(asked_ms, "on_question"))
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

    def _tell(self, event: Event) -> None:
        if self._policy is None or self._reply is None:
            return
        own = _over(event, self._reply, self._voices_before)
        self._obey(getattr(self._policy, own.tell)(**_arguments(own)))

    def _obey(self, decision: Decided) -> None:
        if is_cut(decision):
            self._policy = None
            self._gain.reset()
        elif isinstance(decision, Duck):
            self._gain.set_db(decision.gain_db)
        elif isinstance(decision, Restore):
            self._gain.set_db(0.0)


def heard_with(barge_in: BargeInTuning | None = None) -> str:
    """Which settings and lines a call is heard with, in 8 hexadecimal digits; None: those that ship.

    What was measured with others says nothing about these: where a policy ducks and cuts is in what is heard.
    """
    ears = (CommandSettings(), VadSettings(), EngineSttSettings(), SelfVoiceSettings())
    settings = (barge_in or BargeInTuning(), *ears)
    told = "".join(each.model_dump_json() for each in settings).encode() + LINE_FILE.read_bytes()
    return hashlib.sha256(told).hexdigest()[:8]


def save(path: Path, trials: Sequence[Trial]) -> None:
    """What was measured, as JSON, one trial a line: measuring takes minutes."""
    lines = ",\n".join(json.dumps(asdict(trial) | {"sound": trial.sound.value}) for trial in trials)
    path.write_text(f"[\n{lines}\n]\n")


def load(path: Path) -> list[Trial]:
    """What ``save`` wrote."""
    return [
        Trial(**row | {"sound": Sound(row["sound"]), "events": tuple(_event(**e) for e in row["events"])})
        for row in json.loads(path.read_text())
    ]


def _event(at_ms: int, tell: str, facts: dict[str, Any]) -> Event:
    return Event(at_ms, tell, {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()})


class Unspotted(BargeIn):
    """Without the command spotter."""

    def on_spotting(self) -> None:
        """Nobody listens."""

    def on_spotted(
        self, at_ms: int, text: str, *, voice: int | None = None, floor_log_odds: float | None = None
    ) -> None:
        """Nobody spots any."""


POLICIES: dict[str, Callable[[], BargeInPolicy]] = {
    "never": lambda: VoiceTimer(None),
    "voice-0": lambda: VoiceTimer(0),
    "voice-300": lambda: VoiceTimer(300),
    "voice-700": lambda: VoiceTimer(700),
    "barge-in": Unspotted,
    "barge-in-stop-words": BargeIn,
}
# Those that lower the bot's voice.
DUCKING = ("barge-in", "barge-in-stop-words")


def cut_at_ms(policy: BargeInPolicy, trial: Trial) -> int | None:
    """When the policy cuts the reply, from its first sound; None when it does not."""
    return cut_in(policy, trial)[0]


def cut_in(policy: BargeInPolicy, trial: Trial) -> tuple[int | None, int | None]:
    """Return when the policy cuts the reply and when it first lowers the bot behind the sound's beginning,
    both from the reply's first sound; None for what it does not do.
    """
    policy.on_bot_started(0, REPLY_ID)
    policy.on_saying(REPLY_ID, trial.says)
    ducked_ms = None
    for event in trial.events:
        cut_ms = cut_before(policy, event.at_ms)
        if cut_ms is not None:
            return cut_ms, ducked_ms
        decision = getattr(policy, event.tell)(**_arguments(event))
        if is_cut(decision):
            return event.at_ms, ducked_ms
        if isinstance(decision, Duck) and ducked_ms is None and event.at_ms >= trial.onset_ms:
            ducked_ms = event.at_ms
    cut_ms = cut_before(policy, trial.events[-1].at_ms + GAP_MS) if trial.events else None
    return cut_ms, ducked_ms


def _arguments(event: Event) -> dict[str, Any]:
    return event.facts if event.tell == "on_spotting" else {"at_ms": event.at_ms, **event.facts}


def judge(name: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """Figures of a policy, as ``overlaps.BargeInRow.figures`` has them; a cut before the sound is the bot's.

    A reply that the bot cut itself says nothing about the sound behind it.
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
    """The 95 % interval of a share (Wilson 1927, without correction); None of nothing."""
    if not outcomes:
        return None
    count, share, z = len(outcomes), float(np.mean(outcomes)), 1.96
    scale = 1 + z * z / count
    centre = (share + z * z / (2 * count)) / scale
    half = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2) / scale
    return round(max(0.0, centre - half), 4), round(min(1.0, centre + half), 4)


def _ms(samples: int) -> int:
    return samples * 1000 // RATE_HZ
