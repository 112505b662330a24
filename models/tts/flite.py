"""flite in this process: Debian's libflite1 through ctypes, streamed, with exact word times.

Tokens are built here and not by flite's own tokenizer, so that each spoken word belongs to a known written
word. The times come from the Segment relation, which is complete before the first sample is made: they leave
with the first piece. The interpreter lock is released by ctypes while flite works, so synthesis does not
block the event loop. The sink is called from the synthesising thread with the voice's lock held, and a sink
that blocks delays all users of that voice. A sink that returns False stops flite at the next piece (a few
milliseconds of work).
"""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ctypes import POINTER, c_char_p, c_float, c_int, c_short, c_void_p
from functools import cache
from typing import Literal

import numpy as np
from pydantic import Field

from parley.core.errors import ConfigError
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, ms_to_samples, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.language import text_rules
from parley.language.text_normalization import PronouncedWord, ascii_token
from parley.models.tts import SpeechPiece
from parley.models.tts.edges import EdgeTrimmer

APT_PACKAGE = "libflite1"

# CST_AUDIO_STREAM_CONT and CST_AUDIO_STREAM_STOP of flite's cst_audio.h.
_CONTINUE = 0
_STOP = -1
_FIRST_PIECE_MS = 40
# flite draws the noise of its voices (breath, hisses) from the C library's rand(), whose state belongs to the
# process. The sound of a clause would depend on everything that was spoken before it. Each clause begins with
# the same seed, so that the same clause has the same samples while one voice speaks at a time.
_NOISE_SEED = 1
_LATER_PIECE_MS = 120
_WORD_START = b"R:SylStructure.daughter1.daughter1.R:Segment.p.end"
_WORD_END = b"R:SylStructure.daughtern.daughtern.R:Segment.end"


class FliteSettings(StrictModel):
    """Settings of the flite voice.

    Attributes:
        voice: slt (female), rms (male), awb (male, Scottish) cost about 1 % of a core while they speak; kal16
            is robotic and ten times cheaper.
        rate_percent: speed of speech; 100 is the voice's own.
        gain_percent: level of the samples; 100 peaks at about -3.5 dBFS (slt), higher is clipped at full
            scale.
        lead_ms: silence kept before the first audible sample; flite itself makes 150 to 250 ms.
        tail_ms: silence kept, at most, after the last audible sample: the pause between two clauses.
    """

    voice: Literal["slt", "rms", "awb", "kal16"] = "slt"
    rate_percent: int = Field(default=100, ge=50, le=200)
    gain_percent: int = Field(default=100, ge=1, le=400)
    lead_ms: int = Field(default=10, ge=0, le=200)
    tail_ms: int = Field(default=150, ge=0, le=500)


class _Wave(ctypes.Structure):
    _fields_ = [
        ("type", c_char_p),
        ("sample_rate", c_int),
        ("num_samples", c_int),
        ("num_channels", c_int),
        ("samples", POINTER(c_short)),
    ]


class _StreamingInfo(ctypes.Structure):
    # Only the two leading fields are used: the others differ between flite 2.x builds.
    _fields_ = [("min_buffsize", c_int), ("callback", c_void_p)]


_STREAM_CALLBACK = ctypes.CFUNCTYPE(c_int, POINTER(_Wave), c_int, c_int, c_int, POINTER(_StreamingInfo))

_PROTOTYPES: dict[str, tuple[object, tuple[object, ...]]] = {
    "flite_init": (c_int, ()),
    "new_utterance": (c_void_p, ()),
    "delete_utterance": (None, (c_void_p,)),
    "flite_do_synth": (c_void_p, (c_void_p, c_void_p, c_void_p)),
    "utt_relation_create": (c_void_p, (c_void_p, c_char_p)),
    "relation_append": (c_void_p, (c_void_p, c_void_p)),
    "item_set_string": (None, (c_void_p, c_char_p, c_char_p)),
    "item_daughter": (c_void_p, (c_void_p,)),
    "item_next": (c_void_p, (c_void_p,)),
    "ffeature_float": (c_float, (c_void_p, c_char_p)),
    "feat_set": (None, (c_void_p, c_char_p, c_void_p)),
    "feat_set_float": (None, (c_void_p, c_char_p, c_float)),
    "new_audio_streaming_info": (c_void_p, ()),
    "audio_streaming_info_val": (c_void_p, (c_void_p,)),
}

# flite's registration functions are not thread-safe; this lock holds no data, it serialises the first use.
_LOADING = threading.Lock()


class _Voice:
    """Registered voice with a lock for its users: flite does not promise that it is re-entrant."""

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self.library = library
        self.handle = handle
        self.lock = threading.Lock()


class FliteTts:
    """US English voice by flite.

    Args:
        settings: the voice and its manner; the default is slt.

    Raises:
        ConfigError: flite or the voice is not installed; names the apt package.
    """

    rate_hz = 16000

    def __init__(self, settings: FliteSettings | None = None) -> None:
        self._settings = settings or FliteSettings()
        with _LOADING:
            self._voice = _load_voice(self._settings.voice)

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Speak ``text`` into ``sink``; see ``models.tts.TextToSpeech``.

        All word times leave with the first piece. Blocks for about 1 % of the spoken duration.
        """
        tokens, words = _pronounceable(text)
        if not tokens:
            return True
        synthesis = _Synthesis(self._settings, self.rate_hz, words, sink)
        with self._voice.lock:
            _libc().srand(_NOISE_SEED)
            synthesis.run(self._voice, tokens)
        return synthesis.finish()


class _Synthesis:
    """Synthesis of one clause by flite.

    Args:
        settings: manner of the voice.
        rate_hz: samples per second.
        words: the written words of the clause.
        sink: receives the pieces.
    """

    def __init__(
        self,
        settings: FliteSettings,
        rate_hz: int,
        words: tuple[PronouncedWord, ...],
        sink: Callable[[SpeechPiece], bool],
    ) -> None:
        self._settings = settings
        self._rate_hz = rate_hz
        self._words = words
        self._sink = sink
        self._trimmer = EdgeTrimmer(rate_hz, lead_ms=settings.lead_ms, tail_ms=settings.tail_ms)
        self._items: list[tuple[int, int]] = []
        self._library: ctypes.CDLL
        self._delivered = 0
        self._stopped = False
        self._error: BaseException | None = None

    def run(self, voice: _Voice, tokens: list[tuple[str, str, int]]) -> None:
        """Synthesise the tokens (text, punctuation, index of the written word). The caller holds the voice's
        lock.
        """
        self._library = voice.library
        # Kept in a local variable: C holds only the address of the callback.
        callback = _STREAM_CALLBACK(self._on_samples)
        with ExitStack() as freeing:
            utterance = c_void_p(voice.library.new_utterance())
            freeing.callback(voice.library.delete_utterance, utterance)
            self._items = _add_tokens(voice.library, utterance, tokens)
            # The first field of an utterance is its feature list. Set here and not on the voice, the stream
            # and the speed belong to this clause and are freed with it.
            features = ctypes.cast(utterance, POINTER(c_void_p))[0]
            self._stream_into(features, callback)
            voice.library.feat_set_float(features, b"duration_stretch", 100.0 / self._settings.rate_percent)
            method = ctypes.cast(voice.library.utt_synth_tokens, c_void_p)
            # On failure flite has freed the utterance itself and returns NULL.
            if not voice.library.flite_do_synth(utterance, voice.handle, method):
                freeing.pop_all()

    def finish(self) -> bool:
        """Deliver the tail; return whether all was spoken. Raises an error of the callback or the sink."""
        if self._error is not None:
            raise self._error
        if self._stopped:
            return False
        return self._deliver(self._trimmer.finish())

    def _stream_into(self, features: int, callback: object) -> None:
        info = self._library.new_audio_streaming_info()
        fields = ctypes.cast(info, POINTER(_StreamingInfo)).contents
        # flite calls back when more than min_buffsize samples are ready: one less gives exactly this many.
        fields.min_buffsize = ms_to_samples(_FIRST_PIECE_MS, self._rate_hz) - 1
        fields.callback = ctypes.cast(callback, c_void_p).value  # type: ignore[arg-type]
        self._library.feat_set(features, b"streaming_info", self._library.audio_streaming_info_val(info))

    def _on_samples(self, wave: object, start: int, size: int, last: int, info: object) -> int:
        """Process a piece in the synthesising thread; called by flite. ``finish`` raises its errors."""
        try:
            address = ctypes.addressof(wave.contents.samples.contents)  # type: ignore[attr-defined]
            pcm = ctypes.string_at(address + start * PCM_BYTES_PER_SAMPLE, size * PCM_BYTES_PER_SAMPLE)
            audible = self._trimmer.feed(np.frombuffer(pcm, dtype=np.int16))
            if len(audible):
                self._stopped = not self._deliver(audible)
                # The first piece lost its silence and may be short, so the second comes as early; then fewer
                # and larger ones, because each costs a call into the interpreter.
                if self._delivered == 2:
                    later = ms_to_samples(_LATER_PIECE_MS, self._rate_hz) - 1
                    info.contents.min_buffsize = later  # type: ignore[attr-defined]
        except BaseException as error:  # noqa: B036 - ctypes would print and drop it; finish() raises it
            self._error = error
        return _STOP if self._stopped or self._error is not None else _CONTINUE

    def _deliver(self, samples: np.ndarray) -> bool:
        if not len(samples):
            return True
        words = () if self._delivered else self._word_times()
        self._delivered += 1
        if self._settings.gain_percent != 100:
            loud = samples.astype(np.int32) * self._settings.gain_percent // 100
            samples = np.clip(loud, -32768, 32767).astype(np.int16)
        return self._sink(SpeechPiece(samples.astype("<i2", copy=False).tobytes(), words))

    def _word_times(self) -> tuple[WordTime, ...]:
        """Return the times of each written word, from its first to its last spoken one in the Segment
        relation.
        """
        dropped_ms = samples_to_ms(self._trimmer.dropped_samples, self._rate_hz)
        spans: dict[int, tuple[float, float]] = {}
        for token, index in self._items:
            for item in self._spoken_items(token):
                start_s = self._library.ffeature_float(item, _WORD_START)
                end_s = self._library.ffeature_float(item, _WORD_END)
                # A word without a segment has no sound; both features are then zero.
                if end_s > start_s:
                    first_s, _ = spans.get(index, (start_s, end_s))
                    spans[index] = (first_s, end_s)
        times: list[WordTime] = []
        before_ms = 0
        for index, word in enumerate(self._words):
            span = spans.get(index)
            start_ms = before_ms if span is None else max(before_ms, round(span[0] * 1000) - dropped_ms)
            end_ms = start_ms if span is None else max(start_ms, round(span[1] * 1000) - dropped_ms)
            times.append(WordTime(word.written, start_ms, end_ms, estimated=span is None))
            before_ms = end_ms
        return tuple(times)

    def _spoken_items(self, token: int) -> Iterator[int]:
        item = self._library.item_daughter(token)
        while item:
            yield item
            item = self._library.item_next(item)


def _pronounceable(text: str) -> tuple[list[tuple[str, str, int]], tuple[PronouncedWord, ...]]:
    """Return tokens for flite (text, punctuation, index of the written word) and the written words.

    Words that lose everything to ASCII (another script) keep their place without sound.
    """
    words = text_rules("en").spoken_words(text)
    tokens: list[tuple[str, str, int]] = []
    for index, word in enumerate(words):
        folded = [(ascii_token(token), mark) for token, mark in zip(word.spoken, word.marks(), strict=True)]
        sounding = [(token, mark) for token, mark in folded if any(c.isalnum() for c in token)]
        for position, (token, mark) in enumerate(sounding, start=1):
            # flite keeps a token's last point in its punctuation, but reads "p.m" and "U.S" as letters.
            tokens.append((token.rstrip("."), word.pause if position == len(sounding) else mark, index))
    return tokens, words


def _add_tokens(
    library: ctypes.CDLL, utterance: c_void_p, tokens: list[tuple[str, str, int]]
) -> list[tuple[int, int]]:
    """Fill the Token relation as flite's tokenizer would; return each item with its word's index."""
    relation = library.utt_relation_create(utterance, b"Token")
    items: list[tuple[int, int]] = []
    for text, punctuation, index in tokens:
        item = library.relation_append(relation, None)
        library.item_set_string(item, b"name", text.encode("ascii"))
        library.item_set_string(item, b"whitespace", b" ")
        library.item_set_string(item, b"prepunctuation", b"")
        library.item_set_string(item, b"punc", punctuation.encode("ascii"))
        items.append((item, index))
    return items


@cache
def _load_voice(name: str) -> _Voice:
    """Return the voice of this process: flite keeps it in static memory, so all engines share its lock."""
    library = _load_library()
    register = getattr(_open(f"libflite_cmu_us_{name}.so.1"), f"register_cmu_us_{name}")
    register.restype, register.argtypes = c_void_p, [c_char_p]
    handle = register(None)
    if not handle:
        raise ConfigError(
            f"flite could not register the voice {name!r}; reinstall the apt package {APT_PACKAGE}"
        )
    return _Voice(library, handle)


@cache
def _load_library() -> ctypes.CDLL:
    # The voice libraries look up symbols of these three in the global table.
    library = _open("libflite.so.1")
    for dependency in ("libflite_usenglish.so.1", "libflite_cmulex.so.1"):
        _open(dependency)
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)
    library.flite_init()
    return library


@cache
def _libc() -> ctypes.CDLL:
    """Return the C library of this process, which flite uses as well."""
    return ctypes.CDLL(None)


def _open(file_name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(file_name, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ConfigError(f"{file_name} is missing: run apt-get install {APT_PACKAGE}") from error
