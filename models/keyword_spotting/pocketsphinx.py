"""Stop words by PocketSphinx with a grammar instead of a language model.

Input: one short utterance. Output: the command that it is, or nothing. Commands are phrases that stop the bot
("wait") and phrases that claim the floor in a word or two ("no", "how much"): closed classes of English. The
grammar holds them and, as alternatives, other short phrases that callers say over the bot (``others``). The
search takes the best of both, so that "okay" does not become "wait", the nearest command. A phrase that
breaks off ("wait a") counts as the command with which it begins. An utterance longer than ``longest_ms`` is
no command and costs nothing: it is not decoded.

Of ten stop phrases in seven synthetic voices, PocketSphinx with its language model recognises 54 %; a grammar
of stop phrases alone finds 89 %. With the other phrases as alternatives it takes all of 48 stop phrases in
six voices (without an echo) for commands, 1 of 48 spoken backchannels, 5 of 48 hums and 1 of 24 coughs. A
keyphrase search (``kws``) finds 63 to 71 % at thresholds where it takes at most 3 % of backchannels. Short
talk that is no command is often taken for one ("one second" for "what is it"), so a command must have no
effect other than an interruption.

In addition to the grammar, ``floor.py`` judges the sound. The reason is that a grammar has to choose a
phrase: it takes a hum for "hang on", and a "later" for nothing. That takes another 40 ms, in native code
without the interpreter lock.

A whole utterance is decoded at its end, with its own cepstral mean: no channel has to be learnt first. That
takes about 30 ms (0.1 s on a busy machine) and holds the interpreter lock. The engine therefore runs in a
process of its own, as the recogniser does (``runtime.engine_process``). All callers share one decoder, which
serves one at a time.
"""

import threading
from collections.abc import Sequence

import pocketsphinx
from pydantic import Field

from parley.core.errors import ConfigError, EngineError, ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, pcm16_to_float, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.models.keyword_spotting.floor import FloorJudge
from parley.models.stt import Transcript
from parley.models.stt.pocketsphinx import ENGINE, FRAME_MS, RATE_HZ, spoken

# Pronunciations of hums, whose spellings are missing in some dictionaries.
HUMS = {"mhm": "M HH M", "mm": "M M", "hmm": "HH M", "yep": "Y EH P"}


class CommandSettings(StrictModel):
    """Phrases that are commands, and phrases that are not."""

    phrases: tuple[str, ...] = Field(
        default=(
            *("stop", "stop please", "please stop", "stop it", "no stop", "okay stop", "stop talking"),
            *("wait", "wait please", "please wait", "no wait", "wait a minute", "wait a second"),
            *("hold on", "hang on", "one moment", "just a moment", "one second", "just a second"),
            "be quiet",
            *("no", "no no", "no no no", "nope", "not that", "wrong"),
            *("what", "what was that", "sorry what", "why", "why not", "when", "where"),
            *("how", "how much", "how many", "how long", "say that again"),
        ),
        min_length=1,
        description="phrases that stop the bot or claim the floor, in lower case",
    )
    others: tuple[str, ...] = Field(
        default=(
            *("yeah", "yes", "okay", "right", "i see", "sure", "uh huh", "oh", "got it", "alright"),
            *("mhm", "mm", "hmm", "really", "great", "thank you", "thanks", "huh", "yep", "exactly", "fine"),
            *(
                "good",
                "cool",
                "of course",
                "oh i see",
                "oh really",
                "okay okay",
                "yeah yeah",
                "hello",
                "sorry",
            ),
            *("well", "and", "so", "but", "um", "uh"),
        ),
        min_length=1,
        description="phrases that may be spoken too and are no commands",
    )
    longest_ms: int = Field(default=1_800, ge=300, le=5_000, description="audio of the longest command")
    floor: bool = Field(default=True, description="also report how likely the speaker wants the floor")


class PocketsphinxCommands:
    """Command spotter with one shared decoder. Thread-safe.

    Raises:
        ConfigError: a word of a phrase has no known pronunciation.
        EngineError: pocketsphinx or the floor classifier does not load.
    """

    rate_hz = RATE_HZ

    def __init__(self, settings: CommandSettings | None = None) -> None:
        self._settings = settings or CommandSettings()
        self.longest_samples = self._settings.longest_ms * RATE_HZ // 1000
        self._commands = frozenset(self._settings.phrases)
        self._known = self._commands | frozenset(self._settings.others)
        self._lock = threading.Lock()
        self._decoder = _build_decoder(self._settings)
        self._floor = FloorJudge() if self._settings.floor else None

    def open_stream(self) -> "CommandStream":
        """Return a stream for a new caller."""
        return CommandStream(self)

    def spot(self, pcm: bytes) -> Transcript:
        """Return the command in 16-bit mono PCM at 16 kHz, or a transcript with empty text.

        Raises:
            EngineError: the decoder or the floor classifier failed.
        """
        floor = self._floor.log_odds(pcm16_to_float(pcm)) if self._floor is not None else None
        with self._lock:
            try:
                # Resets the noise level of the previous utterance.
                self._decoder.start_stream()
                self._decoder.start_utt()
                self._decoder.process_raw(pcm, False, True)
                self._decoder.end_utt()
                heard = [
                    WordTime(
                        text,
                        segment.start_frame * FRAME_MS,
                        (segment.end_frame + 1) * FRAME_MS,
                        min(1.0, max(0.0, segment.prob)),
                    )
                    for segment in self._decoder.seg() or ()
                    for text in spoken(segment.word)
                ]
            except RuntimeError as error:
                raise EngineError("decoding failed", engine=ENGINE) from error
        text = beginning([word.text for word in heard], self._known)
        del heard[len(text.split()) :]
        if text not in self._commands:
            return Transcript("", final=True, floor_log_odds=floor)
        least = min(word.confidence for word in heard)
        return Transcript(text, tuple(heard), least, final=True, floor_log_odds=floor)


def beginning(words: Sequence[str], known: frozenset[str]) -> str:
    """Return the longest known phrase with which the words begin, or an empty string.

    A search may end inside a phrase: a "wait" whose end is noise is then "wait a".
    """
    for count in range(len(words), 0, -1):
        phrase = " ".join(words[:count])
        if phrase in known:
            return phrase
    return ""


class CommandStream:
    """Stream of one caller. Not thread-safe."""

    def __init__(self, engine: PocketsphinxCommands) -> None:
        self._engine = engine
        self._audio: bytearray | None = None
        self._samples = 0

    def start(self) -> None:
        """Begin an utterance. Discards an open one."""
        self._audio = bytearray()
        self._samples = 0

    def feed(self, pcm: bytes) -> Transcript | None:
        """Append 16-bit mono PCM at 16 kHz; it is kept until the end. Always returns None.

        Raises:
            EngineError: outside an utterance.
            ShapeError: an odd number of bytes.
        """
        if self._audio is None:
            raise EngineError("no utterance is open", engine=ENGINE, retryable=False)
        if len(pcm) % PCM_BYTES_PER_SAMPLE:
            raise ShapeError(f"{len(pcm)} bytes are not a whole number of 16-bit samples")
        self._samples += len(pcm) // PCM_BYTES_PER_SAMPLE
        if self._samples <= self._engine.longest_samples:
            self._audio += pcm
        else:
            self._audio.clear()
        return None

    def finish(self) -> Transcript:
        """End the utterance; return the command that it is, or empty text.

        Raises:
            EngineError: outside an utterance, or the decoder failed.
        """
        audio, self._audio = self._audio, None
        if audio is None:
            raise EngineError("no utterance is open", engine=ENGINE, retryable=False)
        # Audio shorter than a frame cannot be decoded.
        if samples_to_ms(len(audio) // PCM_BYTES_PER_SAMPLE, RATE_HZ) < 3 * FRAME_MS:
            return Transcript("", final=True)
        return self._engine.spot(bytes(audio))

    def discard(self) -> None:
        """End the utterance without a result. Allowed outside one."""
        self._audio = None

    def close(self) -> None:
        """Release the stream."""
        self._audio = None


def _build_decoder(settings: CommandSettings) -> pocketsphinx.Decoder:
    try:
        decoder = pocketsphinx.Decoder(samprate=RATE_HZ, fwdflat=False, loglevel="FATAL", lm=None)
        for word, phones in HUMS.items():
            if not decoder.lookup_word(word):
                decoder.add_word(word, phones, True)
        unknown = sorted(
            word
            for phrase in (*settings.phrases, *settings.others)
            for word in phrase.split()
            if not decoder.lookup_word(word)
        )
        if unknown:
            raise ConfigError(f"no pronunciation is known for {', '.join(unknown)}")
        decoder.add_jsgf_string("commands", _grammar(settings))
        decoder.activate_search("commands")
    except (RuntimeError, ValueError) as error:
        raise EngineError("cannot load pocketsphinx", engine=ENGINE, retryable=False) from error
    return decoder


def _grammar(settings: CommandSettings) -> str:
    """Return a grammar (JSGF 1.0) in which all phrases are alternatives of equal weight."""
    phrases = " | ".join((*settings.phrases, *settings.others))
    return f"#JSGF V1.0;\ngrammar commands;\npublic <said> = {phrases};\n"
