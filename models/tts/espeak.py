"""espeak-ng in this process: many languages, robotic, the fallback of flite.

The library holds one voice and one utterance for the whole process, so one lock covers it, and every clause
sets its own voice and speed before it speaks. It runs in the calling thread (synchronous mode, no threads of
its own) and calls back with 20 ms buffers and word events. A word's end is the start of the next one, so
audio leaves when the words in it are known. That costs the length of one word of *synthesis*, about a
millisecond. A sink that returns False stops espeak at the next buffer; a sink that blocks delays all calls.
"""

import ctypes
import threading
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_short, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from functools import cache

import numpy as np
from pydantic import Field

from parley.core.errors import ConfigError, EngineError
from parley.core.media import WordTime, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.language import text_rules
from parley.language.text_normalization import PronouncedWord
from parley.models.tts import SpeechPiece
from parley.models.tts.edges import EdgeTrimmer

ENGINE = "espeak"
APT_PACKAGE = "libespeak-ng1"

# Constants of espeak-ng's speak_lib.h.
_AUDIO_OUTPUT_SYNCHRONOUS = 2
_INITIALIZE_DONT_EXIT = 0x8000
_EVENT_LIST_TERMINATED = 0
_EVENT_WORD = 1
_CHARS_UTF8 = 1
_POS_CHARACTER = 1
_PARAMETER_RATE = 1
_PARAMETER_PITCH = 3
_CONTINUE = 0
_STOP = 1
_BUFFER_MS = 20


class EspeakSettings(StrictModel):
    """Settings of the espeak-ng voice.

    Attributes:
        voice: a language or voice name as ``espeak-ng --voices`` lists it: "en-us", "de", "fr-fr",
            "en-us+f3".
        words_per_minute: speed of speech.
        pitch_percent: 50 is the voice's own.
        gain_percent: level of the samples; 100 is espeak's own, higher is clipped at full scale.
        lead_ms: silence kept before the first audible sample.
        tail_ms: silence kept, at most, after the last audible sample: the pause between two clauses.
    """

    voice: str = Field(default="en-us", min_length=2, max_length=40, pattern=r"^[A-Za-z0-9+_-]+$")
    words_per_minute: int = Field(default=165, ge=80, le=450)
    pitch_percent: int = Field(default=50, ge=0, le=99)
    gain_percent: int = Field(default=100, ge=1, le=400)
    lead_ms: int = Field(default=10, ge=0, le=200)
    tail_ms: int = Field(default=150, ge=0, le=500)


class _EventId(ctypes.Union):
    _fields_ = [("number", c_int), ("name", c_char_p), ("string", ctypes.c_char * 8)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("unique_identifier", c_uint),
        ("text_position", c_int),
        ("length", c_int),
        ("audio_position", c_int),
        ("sample", c_int),
        ("user_data", c_void_p),
        ("id", _EventId),
    ]


_SYNTH_CALLBACK = ctypes.CFUNCTYPE(c_int, POINTER(c_short), c_int, POINTER(_Event))

_PROTOTYPES: dict[str, tuple[object, tuple[object, ...]]] = {
    "espeak_Initialize": (c_int, (c_int, c_int, c_char_p, c_int)),
    "espeak_SetSynthCallback": (None, (c_void_p,)),
    "espeak_SetVoiceByName": (c_int, (c_char_p,)),
    "espeak_SetParameter": (c_int, (c_int, c_int, c_int)),
    "espeak_Synth": (
        c_int,
        (c_char_p, c_size_t, c_uint, c_int, c_uint, c_uint, c_void_p, c_void_p),
    ),
}

# espeak_Initialize is not thread-safe; this lock holds no data, it serialises the first use.
_LOADING = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Library:
    """espeak-ng library of this process."""

    functions: ctypes.CDLL
    rate_hz: int
    lock: threading.Lock


class EspeakTts:
    """Voices in many languages by espeak-ng.

    Args:
        settings: the voice and its manner; the default is US English.

    Raises:
        ConfigError: espeak-ng is not installed (names the apt package) or lacks the voice.
    """

    def __init__(self, settings: EspeakSettings | None = None) -> None:
        self._settings = settings or EspeakSettings()
        with _LOADING:
            self._library = _load_library()
        with self._library.lock:
            if self._library.functions.espeak_SetVoiceByName(self._settings.voice.encode()) != 0:
                raise ConfigError(
                    f"espeak-ng has no voice {self._settings.voice!r}: run `espeak-ng --voices` for a list"
                )
        self.rate_hz = self._library.rate_hz

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Speak ``text`` into ``sink``; see ``models.tts.TextToSpeech``.

        Raises:
            EngineError: espeak-ng refused the text or the voice.
        """
        words = text_rules(self._settings.voice).spoken_words(text)
        if not words:
            return True
        synthesis = _Synthesis(self._settings, self.rate_hz, words, sink)
        with self._library.lock:
            synthesis.run(self._library.functions)
        return synthesis.finish()


@dataclass(frozen=True, slots=True)
class _Span:
    """Written word in espeak's own samples, before the leading silence is cut."""

    written: str
    begin: int
    end: int
    estimated: bool


class _Synthesis:
    """Synthesis of one clause by espeak-ng.

    Args:
        settings: manner of the voice.
        rate_hz: samples per second.
        words: the written words of the clause.
        sink: receives the pieces.
    """

    def __init__(
        self,
        settings: EspeakSettings,
        rate_hz: int,
        words: tuple[PronouncedWord, ...],
        sink: Callable[[SpeechPiece], bool],
    ) -> None:
        self._settings = settings
        self._rate_hz = rate_hz
        self._words = words
        self._sink = sink
        self._trimmer = EdgeTrimmer(rate_hz, lead_ms=settings.lead_ms, tail_ms=settings.tail_ms)
        self._text, self._word_at = _text_and_words(words)
        # Samples that espeak made and that wait for the end of the word they lie in.
        self._waiting: list[np.ndarray] = []
        self._made_samples = 0
        self._sent_samples = 0
        # The written word that is being spoken, and the sample at which it began.
        self._word = 0
        self._word_begin = 0
        self._stopped = False
        self._error: BaseException | None = None

    def run(self, functions: ctypes.CDLL) -> None:
        """Synthesise the clause. The caller holds espeak's lock."""
        # Kept in a local variable: C holds only the address of the callback.
        callback = _SYNTH_CALLBACK(self._on_buffer)
        functions.espeak_SetSynthCallback(ctypes.cast(callback, c_void_p))
        failed = functions.espeak_SetVoiceByName(self._settings.voice.encode())
        functions.espeak_SetParameter(_PARAMETER_RATE, self._settings.words_per_minute, 0)
        functions.espeak_SetParameter(_PARAMETER_PITCH, self._settings.pitch_percent, 0)
        encoded = self._text.encode()
        failed = failed or functions.espeak_Synth(
            encoded, len(encoded) + 1, 0, _POS_CHARACTER, 0, _CHARS_UTF8, None, None
        )
        if failed and self._error is None and not self._stopped:
            self._error = EngineError(f"espeak-ng failed with status {failed}", engine=ENGINE)

    def finish(self) -> bool:
        """Deliver the rest; return whether all was spoken. Raises an error of the callback or of espeak."""
        if self._error is not None:
            raise self._error
        if self._stopped:
            return False
        words = self._words_until(self._made_samples, len(self._words))
        self._stopped = not self._send(self._made_samples, words, last=True)
        return not self._stopped

    def _on_buffer(self, samples: object, count: int, events: object) -> int:
        """Process a buffer in the synthesising thread; called by espeak. ``finish`` raises its errors."""
        try:
            # The library ends a text with a call without samples.
            if samples and count > 0:
                pcm = ctypes.string_at(samples, count * 2)  # type: ignore[arg-type]
                self._waiting.append(np.frombuffer(pcm, dtype=np.int16))
                self._made_samples += count
            self._read_events(events)
        except BaseException as error:  # noqa: B036 - ctypes would print and drop it; finish() raises it
            self._error = error
        return _STOP if self._stopped or self._error is not None else _CONTINUE

    def _read_events(self, events: object) -> None:
        index = 0
        while not self._stopped and events[index].type != _EVENT_LIST_TERMINATED:  # type: ignore[index]
            event = events[index]  # type: ignore[index]
            if event.type == _EVENT_WORD:
                at = round(event.audio_position * self._rate_hz / 1000)
                self._on_word(self._word_at.get(event.text_position), at)
            index += 1

    def _on_word(self, word: int | None, at: int) -> None:
        if word == 0 and self._word == 0:
            self._word_begin = self._word_begin or at
            return
        if word is None or word <= self._word:
            # Another spoken word of the same written one.
            return
        spans = self._words_until(at, word)
        self._word, self._word_begin = word, at
        # An event may name a time that lies in a later buffer.
        self._stopped = not self._send(min(at, self._made_samples), spans, last=False)

    def _words_until(self, at: int, word: int) -> list[_Span]:
        """Return the words that end when ``word`` begins at sample ``at``.

        espeak sends one event for words that it slurs together ("of the"): they share the span, marked as
        estimated.
        """
        count = word - self._word
        step = max(0, at - self._word_begin) / count
        return [
            _Span(
                self._words[self._word + i].written,
                round(self._word_begin + i * step),
                round(self._word_begin + (i + 1) * step),
                estimated=count > 1,
            )
            for i in range(count)
        ]

    def _send(self, until: int, spans: list[_Span], *, last: bool) -> bool:
        """Deliver the waiting samples up to ``until`` with the words whose times are now known."""
        waiting = np.concatenate(self._waiting) if self._waiting else np.zeros(0, dtype=np.int16)
        ready = max(0, until - self._sent_samples)
        self._sent_samples += ready
        self._waiting = [waiting[ready:]]
        audible = self._trimmer.feed(waiting[:ready])
        if last:
            audible = np.concatenate([audible, self._trimmer.finish()])
        if not len(audible) and not spans:
            return True
        if self._settings.gain_percent != 100:
            loud = audible.astype(np.int32) * self._settings.gain_percent // 100
            audible = np.clip(loud, -32768, 32767).astype(np.int16)
        # The duration of removed leading silence is known only now.
        words = tuple(self._word_time(span) for span in spans)
        return self._sink(SpeechPiece(audible.astype("<i2", copy=False).tobytes(), words))

    def _word_time(self, span: _Span) -> WordTime:
        dropped = self._trimmer.dropped_samples
        start_ms = samples_to_ms(max(0, span.begin - dropped), self._rate_hz)
        end_ms = samples_to_ms(max(0, span.end - dropped), self._rate_hz)
        return WordTime(span.written, start_ms, end_ms, estimated=span.estimated)


def _text_and_words(words: tuple[PronouncedWord, ...]) -> tuple[str, dict[int, int]]:
    """Return the text for espeak, and the written word at each of its characters (counted from 1)."""
    text = ""
    word_at: dict[int, int] = {}
    for index, word in enumerate(words):
        for token, mark in zip(word.spoken, word.marks(), strict=True):
            word_at[len(text) + 1] = index
            text += token + mark + " "
    return text.rstrip(), word_at


@cache
def _load_library() -> _Library:
    functions = _open("libespeak-ng.so.1")
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(functions, name)
        function.restype, function.argtypes = result, list(arguments)
    rate_hz = functions.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, _BUFFER_MS, None, _INITIALIZE_DONT_EXIT)
    if rate_hz <= 0:
        raise ConfigError("espeak-ng found no voice data: run apt-get install espeak-ng-data")
    return _Library(functions, rate_hz, threading.Lock())


def _open(file_name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(file_name)
    except OSError as error:
        raise ConfigError(f"{file_name} is missing: run apt-get install {APT_PACKAGE}") from error
