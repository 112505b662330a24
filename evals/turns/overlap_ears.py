"""Recognition chain of a call over the bot's voice, with the engines that ship.

The chain consists of echo control, voice activity detection, recogniser, command spotter, and the check for
the bot's own voice. Inputs: the played signal of a call and the microphone signal. Output: the reports of the
engines, as events on the clock of the audio. A ``Bot`` gets the reports and answers with its volume: a ducked
bot has less echo in the microphone, and the caller is recognised better.

An engine's results are delayed by its computing time (its processor time), one after the other; the two
recognisers run in parallel.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from pipecat.audio.vad.vad_analyzer import VADState

from parley.core.call_events import VoicePaused, VoiceSuspected
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16, pcm16_to_float
from parley.evals.echo.rooms import RATE_HZ
from parley.evals.turns import audio
from parley.evals.turns.overlap_calls import Room
from parley.models.echo import EchoCanceller
from parley.models.echo.control import EchoControl
from parley.models.echo.webrtc import WebRtcEcho
from parley.models.keyword_spotting import COMMANDS
from parley.models.stt import SpeechStream, SpeechToText, Transcript
from parley.models.stt.looks import BEFORE_MS as LOOK_BEFORE_MS
from parley.models.stt.looks import LOOKS_MS, LookJudge
from parley.models.stt.moonshine_tiny import MoonshineTinyStt
from parley.models.vad import VAD
from parley.processors.front_end.vad import SharedVadAnalyzer, VadSettings
from parley.processors.perception.engine_stt import EngineSttSettings
from parley.processors.turns.stop_words import BEFORE_MS, LONGEST_MS
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.self_voice import SelfVoice, SelfVoiceSettings
from parley.turn_taking.barge_in.speaker_level import SpeakerLevel

Result = TypeVar("Result")
PIECE_MS = 20
PIECE_SAMPLES = PIECE_MS * RATE_HZ // 1000
LOUDER_DB = 0.5
# The echo of the bot is over after this time.
SILENT_MS = 200
# The session's clock does not begin at zero.
BEGAN_US = 40_000_000


@dataclass(frozen=True, slots=True)
class Ears(audio.Listeners):
    """``audio.Listeners`` with command spotter, echo canceller and an optional judge of the beginnings of
    voices.
    """

    commands: SpeechToText
    canceller: EchoCanceller
    looks: LookJudge | None = None


def ears() -> Ears:
    """Load all four; raise as ``evals.turns.audio.listeners``."""
    chosen = audio.listeners()
    return Ears(chosen.vad, chosen.stt, COMMANDS.create("pocketsphinx"), WebRtcEcho())


def default_ears() -> Ears:
    """Load the engines of ``configs/embedded.yaml``: Moonshine tiny as recogniser, its encoder for the looks.

    Raises:
        ConfigError: as ``evals.turns.audio.listeners``.
        EngineError: as ``evals.turns.audio.listeners``, or Moonshine's files are missing.
    """
    stt = MoonshineTinyStt()
    looks = LookJudge(stt.network)
    return Ears(VAD.create("silero"), stt, COMMANDS.create("pocketsphinx"), WebRtcEcho(), looks)


@dataclass(frozen=True, slots=True)
class Event:
    """A report, in ms from the first sound of the reply.

    Attributes:
        at_ms: time at which a policy gets it.
        method: method of a policy.
        facts: its arguments without the time, by name.
    """

    at_ms: int
    method: str
    facts: dict[str, Any] = field(default_factory=dict)


class Bot(Protocol):
    """Bot whose volume, piece by piece, follows the reports."""

    def play(self, pcm: bytes) -> bytes:
        """Return the next piece of its speech as it is played, 16-bit: lowered, or silent."""
        ...

    def hear(self, now_ms: int, events: Sequence[Event]) -> None:
        """Take the reports since the last call, in order."""
        ...


async def listen(room: Room, chosen: Ears, bot: Bot | None = None) -> list[Event]:
    """Return the reports of voice activity, recogniser, spotter and the check for the bot's voice, in order.

    Args:
        room: a new one, because its echo path holds the reverberation.
        chosen: engines.
        bot: answers with its volume. None speaks on at full volume.
    """
    control = EchoControl(canceller=chosen.canceller)
    chain = _Chain(chosen)
    told = 0
    try:
        for at in range(0, len(room.bot) - PIECE_SAMPLES + 1, PIECE_SAMPLES):
            began_us = BEGAN_US + at * 1_000_000 // RATE_HZ
            played = float_to_pcm16(room.bot[at : at + PIECE_SAMPLES])
            if bot is not None:
                played = bot.play(played)
            heard = float_to_pcm16(room.hear(at, pcm16_to_float(played)))
            control.played(played, RATE_HZ, began_us)
            piece, levels = control.process(heard, began_us + PIECE_MS * 1_000)
            for level in levels:
                chain.own.on_frame(left_db=level.left_db, far_db=level.far_db)
            cancelled = [level.cancelled for level in levels]
            await chain.hear(
                piece, float_to_pcm16(np.concatenate(cancelled)) if cancelled else b"", over_bot=any(played)
            )
            if bot is not None:
                now_ms = (at + PIECE_SAMPLES) * 1_000 // RATE_HZ
                chain.events.sort(key=lambda event: event.at_ms)
                until = bisect_right(chain.events, now_ms, key=lambda event: event.at_ms)
                bot.hear(now_ms, chain.events[told:until])
                told = until
    finally:
        control.close()
        chain.close()
    return sorted(chain.events, key=lambda event: event.at_ms)


class _Chain:
    """Chain after echo control: one call's voice activity, words, commands and looks for the
    bot's own voice.
    """

    def __init__(self, chosen: Ears) -> None:
        self.events: list[Event] = []
        self.own = SelfVoice()
        self._settings, self._stt_settings = VadSettings(), EngineSttSettings()
        self._words = _Engine(chosen.stt.open_stream())
        self._commands = _Engine(chosen.commands.open_stream())
        events = CallEvents()
        events.subscribe(VoiceSuspected, lambda _event: self._note("on_maybe_voice"))
        events.subscribe(VoicePaused, lambda _event: self._note("on_maybe_quiet"))
        self._analyzer = SharedVadAnalyzer(
            chosen.vad,
            executor=None,
            params=self._settings.params(),
            pause_ms=self._settings.pause_ms,
            events=events,
        )
        self._analyzer.set_sample_rate(RATE_HZ)
        self._now_ms = 0
        self._before = bytearray()
        # Signal for the spotter: of a voice, and of the time before it during silence.
        self._cancelled = bytearray()
        # Index of the next look at the present voice, and the position of its beginning in ``_cancelled``.
        self._judge, self._look = chosen.looks, len(LOOKS_MS)
        self._onset_bytes = 0
        self._speaks = False
        self._voices = 0
        self._look_ms: int | None = None
        self._partial_ms = 0
        self._usual = SpeakerLevel()
        self._level_db: float | None = None
        # Time of the bot's last sound, and of the beginning of the present voice.
        self._bot_ms = self._began_ms = 0

    async def hear(self, piece: bytes, cancelled: bytes, *, over_bot: bool) -> None:
        """Take 20 ms of the signal after echo control, the canceller's own output, and whether the bot was
        audible.
        """
        self._now_ms += PIECE_MS
        self._bot_ms = self._now_ms if over_bot else self._bot_ms
        self._cancelled += cancelled
        state = await self._analyzer.analyze_audio(piece)
        if self._speaks:
            self._feed(piece)
        else:
            self._before += piece
        keep_ms = self._stt_settings.pre_speech_ms + self._settings.start_ms
        del self._before[: max(0, len(self._before) - _bytes(keep_ms))]
        if not self._speaks:
            del self._cancelled[: max(0, len(self._cancelled) - _bytes(BEFORE_MS + self._settings.start_ms))]
        if state is VADState.SPEAKING and not self._speaks:
            self._start()
        elif state is VADState.QUIET and self._speaks:
            self._stop()
        if self._speaks:
            self._report_level()
            self._look_at_voice()
        if self._look_ms is not None and self._now_ms >= self._look_ms:
            self._look_ms += SelfVoiceSettings().look_ms
            self._note("on_self_voice", own=self.own.is_own())

    def close(self) -> None:
        """Release the streams."""
        self._words.stream.close()
        self._commands.stream.close()

    def _start(self) -> None:
        self._speaks = True
        self._voices += 1
        start_ms = self._settings.start_ms
        self._began_ms, self._level_db = self._now_ms - start_ms, None
        self._note("on_voice_started", voiced_ms=start_ms)
        self._look_ms = self._now_ms - start_ms + SelfVoiceSettings().look_ms
        self._onset_bytes, self._look = len(self._cancelled) - _bytes(start_ms), 0
        self._words.stream.start()
        self._feed(bytes(self._before))
        self._before.clear()

    def _feed(self, pcm: bytes) -> None:
        said, at_ms = self._words.run(self._now_ms, lambda stream: stream.feed(pcm))
        if said is not None and at_ms >= self._partial_ms:
            self._partial_ms = at_ms + self._stt_settings.partial_interval_ms
            # No confidence is reported before the end: such words confirm nothing.
            self.events.append(
                Event(at_ms, "on_partial", {"text": said.text, "confidences": (said.confidence,)})
            )

    def _stop(self) -> None:
        self._speaks, self._look_ms = False, None
        self._learn_level()
        self._note("on_voice_stopped", silence_ms=self._settings.stop_ms)
        voice = bytes(self._cancelled)
        self._cancelled.clear()
        if len(voice) <= _bytes(LONGEST_MS):
            self._note("on_spotting")
            command, at_ms = self._commands.run(self._now_ms, partial(_spot, pcm=voice))
            if command is not None:
                facts = {"text": command.text, "voice": self._voices}
                facts["floor_log_odds"] = command.floor_log_odds
                self.events.append(Event(at_ms, "on_spotted", facts))
        final, at_ms = self._words.run(self._now_ms, lambda stream: stream.finish())
        if final is not None:
            confidences = tuple(word.confidence for word in final.words)
            self.events.append(Event(at_ms, "on_final", {"text": final.text, "confidences": confidences}))

    def _look_at_voice(self) -> None:
        """Run the last look that is due, between two pieces of the recogniser's work."""
        voiced = len(self._cancelled) - self._onset_bytes
        due = self._look
        while due < len(LOOKS_MS) and voiced >= _bytes(LOOKS_MS[due]):
            due += 1
        if self._judge is None or due == self._look:
            return
        self._look, look, judge = due, due - 1, self._judge
        end = self._onset_bytes + _bytes(LOOKS_MS[look])
        first = max(0, self._onset_bytes - _bytes(LOOK_BEFORE_MS))
        pcm = bytes(self._cancelled[first:end])
        log_odds, at_ms = self._words.run(
            self._now_ms, lambda _stream: judge.log_odds(pcm16_to_float(pcm), look)
        )
        facts = {"look": look, "log_odds": log_odds, "voice": self._voices}
        self.events.append(Event(at_ms, "on_look", facts))

    def _report_level(self) -> None:
        """Report the level whenever the voice has become louder by more than ``LOUDER_DB``."""
        level_db = self._analyzer.voice_level_db
        if level_db is None or (self._level_db is not None and level_db < self._level_db + LOUDER_DB):
            return
        self._level_db, above_usual_db = level_db, self._usual.above_usual_db(level_db)
        if above_usual_db is not None:
            self._note("on_level", level_db=above_usual_db)

    def _learn_level(self) -> None:
        level_db, voiced_ms = self._analyzer.voice_level_db, self._now_ms - self._settings.stop_ms
        if level_db is not None and self._began_ms - self._bot_ms > SILENT_MS:
            self._usual.learn(level_db, voiced_ms=voiced_ms - self._began_ms)

    def _note(self, method: str, **facts: Any) -> None:
        self.events.append(Event(self._now_ms, method, facts))


class _Engine:
    """Stream whose results are delayed by its computing time."""

    def __init__(self, stream: SpeechStream) -> None:
        self.stream = stream
        self._busy_until_ms = 0.0

    def run(self, now_ms: int, work: Callable[[SpeechStream], Result]) -> tuple[Result, int]:
        """Return the result and the time at which it is available."""
        began_s = time.thread_time()
        result = work(self.stream)
        took_ms = (time.thread_time() - began_s) * 1000
        self._busy_until_ms = max(self._busy_until_ms, float(now_ms)) + took_ms
        return result, int(self._busy_until_ms)


def _spot(stream: SpeechStream, pcm: bytes) -> Transcript:
    """Recognise a voice in one piece, as ``processors.turns.stop_words`` passes it to the spotter."""
    stream.start()
    stream.feed(pcm)
    return stream.finish()


def _bytes(ms: int) -> int:
    return ms * RATE_HZ // 1000 * PCM_BYTES_PER_SAMPLE
