"""Streaming speech recognition with Moonshine tiny: the embedded recogniser for English.

Input: 16 kHz audio of one utterance at a time. Output: partial texts while it is spoken, then the words with
times and confidences. Its three files (44 MB) come with ``make run``; missing or different files are refused
(``MoonshineTinySettings.check``). The network is ``models.stt.moonshine_network``.

The model does not stream: each pass reads the open line from its start. The cost is bounded as follows:

- The tokens of a pass are the draft of the next one, so the decoder searches only for new tokens.
- Partials come in intervals that follow the cost of a pass and the number of speakers
  (``models.stt.pacing``), and no pass is made while the caller says nothing new.
- Words are committed, and their audio is not read again, where a line ends. It ends in a pause once it is
  ``max_line_ms * 2 / 3`` long, or at ``max_line_ms`` at the quietest moment of its last 2 s.
- A pause of ``TAIL_QUIET_MS`` makes a pass at once. A voice activity detector that waits 200 ms before it
  ends the utterance then finds the final transcript ready, and ``finish`` reads nothing.

- The words of the deployment, its key terms and those of its documents, are looked for where the recogniser
  doubted, in a pause and at the end (``models.stt.expected_terms``).

A word's confidence is the least probability of its tokens. Its times are estimated (``WordTime.estimated``):
the graph has no attention output, so words divide the voiced windows of their line by letters.

One engine serves all streams of a process and keeps no state of any of them. Slow: audio waits in the stream.

Pieces of recordings are read without partials, in padded batches of similar length (``transcribe``).
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from parley.core.files import MODELS_DIR, require_hashes
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, ms_to_samples, pcm16_to_float, samples_to_ms
from parley.core.pinned_models import PINNED_MODELS
from parley.core.strict_model import StrictModel
from parley.language import Language, find_language
from parley.models.stt import PieceTranscript, RecordedPiece
from parley.models.stt.document_terms import document_terms
from parley.models.stt.expected_terms import MOST_TERM_CHARS, MOST_TERMS, ExpectedTerms, RevisedLine
from parley.models.stt.length_batches import length_batches
from parley.models.stt.looks import LookJudge
from parley.models.stt.moonshine_network import ENGINE, RATE_HZ, DecodedLine, MoonshineNetwork
from parley.models.stt.pacing import PartialPace
from parley.models.stt.voice import WINDOW_BYTES, VoiceFilter, quietest_cut
from parley.models.stt.voiced_stream import NOISE_BYTES, VoicedStream
from parley.models.stt.words import fit_words, later, plain_text, plain_words, spread_over_voice
from parley.runtime.engine_host import Answer
from parley.runtime.engine_hosting.messages import EngineMessage

# Two windows of voice activity.
TAIL_QUIET_MS = 64
# Lines of a recording that are decoded together: twice as many cost as much per line, and more memory.
BATCH_LINES = 8
# The network's.
LANGUAGE = "en"
Keyterm = Annotated[str, Field(min_length=1, max_length=MOST_TERM_CHARS)]
# A line that has to be cut without a pause is cut at the quietest moment of its end.
CUT_RANGE_MS = 2_000


class MoonshineTinySettings(StrictModel):
    """Place of the files, and cost of partial texts."""

    looks_at_voices: ClassVar[bool] = True

    # See ``models.stt.RecogniserTraits``. Measured on the tuning set's human speech in all conditions
    # (``research.turn_taking.confidence --speech human``). With 0.6 the bot asks back for none of 53
    # understood turns and 15 % of 13 misunderstood ones. It does so for all of 74 turns in Italian and
    # Russian, which are transcribed as English words. With 0.7 it would ask back for 8 % of the understood
    # turns. Below 0.5 are 97 % of the 74 and no turn in English.
    doubtful_below: ClassVar[float] = 0.6
    lost_below: ClassVar[float] = 0.5

    models_dir: Path = Field(
        default=MODELS_DIR, description="folder where `make run` and `make models` put files"
    )
    partial_interval_ms: int = Field(
        default=300, ge=50, le=10_000, description="shortest audio between two partials"
    )
    max_partial_interval_ms: int = Field(
        default=5_000,
        ge=50,
        le=60_000,
        description="longest audio between two partials, however slow they are",
    )
    partial_load: float = Field(
        default=0.2, gt=0.0, le=1.0, description="share of one engine's time that partials may take"
    )
    max_line_ms: int = Field(
        default=12_000,
        ge=3_000,
        le=30_000,
        description="length above which utterances are decoded in lines, split at a pause in the last third",
    )

    keyterms: tuple[Keyterm, ...] = Field(
        default=(),
        max_length=500,
        description="names and phrases that callers are expected to say, written as in a sentence; where the "
        "recogniser doubts and the sound fits, it writes them",
    )
    documents: Path | None = Field(
        default=None,
        description="folder of documents whose words are expected as well; null: none. If not set: "
        "``bot.knowledge``, where answers come from it",
    )

    @property
    def folder(self) -> Path:
        """Folder of the three files."""
        return self.models_dir / PINNED_MODELS[ENGINE].folder

    def check(self) -> None:
        """Check the files, as ``core.files.Checked`` requires.

        Raises:
            ModelFileError: a file is missing, or differs from the one that was tested.
        """
        require_hashes(ENGINE, self.folder, PINNED_MODELS[ENGINE].sha256)


class MoonshineTinyStt:
    """Recogniser with shared weights. Thread-safe; one stream is not.

    Args:
        settings: files and pacing; None for the defaults.
        clock: seconds, for the cost of a pass.

    Raises:
        ConfigError: a file is missing or altered.
        EngineError: the files do not load.
    """

    rate_hz = RATE_HZ
    # Batches of similar length are made of them.
    batch_pieces = 6 * BATCH_LINES

    def __init__(
        self,
        settings: MoonshineTinySettings | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.settings = settings or MoonshineTinySettings()
        self.settings.check()
        self.voice = VoiceFilter(follows=True)
        self.network = MoonshineNetwork(self.settings.folder)
        language = find_language(LANGUAGE)
        self._expected = ExpectedTerms(self.network, self._terms(language), language=language)
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: LookJudge | None = None
        self._speakers = 0
        self._pacing = PartialPace(
            self.settings.partial_interval_ms,
            self.settings.max_partial_interval_ms,
            self.settings.partial_load,
        )

    def open_stream(self) -> "MoonshineTinyStream":
        """Return a stream for a new caller. Costs nothing until an utterance starts."""
        return MoonshineTinyStream(self)

    def read(self, pcm: bytes, draft: Sequence[int]) -> DecodedLine:
        """Make a pass over a line and record its cost.

        Raises:
            EngineError: the network failed.
        """
        began_s = self._clock()
        decoded = self.network.decode(pcm16_to_float(pcm), draft)
        with self._lock:
            self._pacing.took((self._clock() - began_s) * 1000)
        return decoded

    def revise(self, line: DecodedLine) -> RevisedLine:
        """Return a line with the expected terms that fit its sound (``models.stt.expected_terms``).

        Raises:
            EngineError: the network failed.
        """
        if self._expected.is_empty:
            return RevisedLine(line.tokens, tuple(line.probabilities()))
        began_s = self._clock()
        revised = self._expected.revise(line)
        with self._lock:
            self._pacing.took_longer((self._clock() - began_s) * 1000)
        return revised

    def _terms(self, language: Language) -> Iterator[str]:
        yield from self.settings.keyterms
        if self.settings.documents is not None:
            yield from document_terms(self.settings.documents, language, most=MOST_TERMS)

    def transcribe(self, pieces: Sequence[RecordedPiece]) -> list[PieceTranscript]:
        """Return the transcript of each piece of a recording, as ``models.stt.BatchSpeechToText``.

        Raises:
            EngineError: the network failed.
        """
        found: dict[int, PieceTranscript] = {}
        for batch in length_batches([len(piece.samples) for piece in pieces], BATCH_LINES):
            lines = self.network.decode_batch([pieces[place].samples for place in batch])
            for place, line in zip(batch, lines, strict=True):
                duration_ms = samples_to_ms(len(pieces[place].samples), RATE_HZ)
                words = plain_words(_scored_words(self.network, line.tokens, line.probabilities))
                spread = spread_over_voice(words, pieces[place].voiced, _ms(WINDOW_BYTES), duration_ms)
                found[place] = PieceTranscript(
                    self.network.text(line.tokens), fit_words(tuple(spread), duration_ms)
                )
        return [found[place] for place in range(len(pieces))]

    def look(self, question: EngineMessage) -> Answer:
        """Answer a question about the beginning of a voice (``models.stt.looks``).

        Raises:
            EngineError: the lines do not load, or the network failed.
            ShapeError: the question is invalid.
        """
        with self._lock:
            if self._looks is None:
                self._looks = LookJudge(self.network)
        return self._looks.answer(question)

    def count_speaker(self, change: int) -> None:
        """Record that an utterance began (1) or ended (-1)."""
        with self._lock:
            self._speakers += change

    def due_bytes(self) -> int:
        """Return the number of bytes of audio that a stream's next partial waits for."""
        with self._lock:
            interval_ms = self._pacing.interval_ms(self._speakers)
        return ms_to_samples(interval_ms, RATE_HZ) * PCM_BYTES_PER_SAMPLE


class MoonshineTinyStream(VoicedStream):
    """Stream of one caller. Not thread-safe."""

    def __init__(self, engine: MoonshineTinyStt) -> None:
        super().__init__(ENGINE, engine.voice)
        self._engine = engine
        self._max_line_bytes = _bytes(engine.settings.max_line_ms)
        # Words of the lines before the open one.
        self._words: list[WordTime] = []
        self._clear_line(0)
        self._heard_bytes = 0

    def ask(self, question: EngineMessage) -> Answer:
        """Answer a question as ``MoonshineTinyStt.look``; needs no utterance."""
        return self._engine.look(question)

    def _begin(self) -> None:
        self._engine.count_speaker(1)
        self._words = []
        self._heard_bytes = 0
        self._clear_line(0)

    def _end(self) -> None:
        self._engine.count_speaker(-1)

    def _clear_line(self, start_bytes: int, audio: bytes = b"") -> None:
        self._line = bytearray(audio)
        # Start of the line in the utterance, and start of the audio that the voice filter has processed.
        self._start_bytes = start_bytes
        self._listened_bytes = start_bytes
        self._decoded: DecodedLine | None = None
        # The same with the expected terms, once a pause or the end has made the line worth that.
        self._revised: RevisedLine | None = None
        # Number of bytes of the line that the last pass read.
        self._read_bytes = 0

    def _keep(self, pcm: bytes) -> None:
        self._line += pcm
        self._heard_bytes += len(pcm)

    def _forget_noise(self) -> None:
        surplus = len(self._line) - NOISE_BYTES
        if surplus > 0:
            del self._line[:surplus]
            self._start_bytes += surplus

    def _read(self, new_bytes: int) -> str | None:
        if not self._has_unread_voice():
            return None
        unread, due = len(self._line) - self._read_bytes, self._engine.due_bytes()
        is_quiet = not any(self._voiced()[-_windows(TAIL_QUIET_MS) :])
        # Where passes are expensive, a pause that comes soon after one is left to ``finish``.
        if unread < due and not (is_quiet and 2 * unread >= due):
            return None
        self._pass()
        if is_quiet:
            self._revise()
        text = self._text()
        if is_quiet and 3 * len(self._line) >= 2 * self._max_line_bytes:
            self._commit(len(self._line))
        elif len(self._line) >= self._max_line_bytes:
            cut, _ = quietest_cut(bytes(self._line), CUT_RANGE_MS)
            rest = self._decoded.tokens if self._decoded else ()
            self._take(self._engine.read(bytes(self._line[:cut]), rest))
            self._commit(cut)
        return text

    def _last_words(self) -> tuple[WordTime, ...]:
        if self._open_voice().heard:
            if self._has_unread_voice():
                self._pass()
            self._words.extend(self._line_words())
        return fit_words(self._words, _ms(self._heard_bytes))

    def _pass(self) -> None:
        # The decoder would contradict a draft with expected terms.
        draft = self._decoded.tokens if self._decoded else ()
        self._take(self._engine.read(bytes(self._line), draft))
        self._read_bytes = len(self._line)

    def _take(self, decoded: DecodedLine) -> None:
        self._decoded, self._revised = decoded, None

    def _revise(self) -> RevisedLine | None:
        if self._revised is None and self._decoded is not None:
            self._revised = self._engine.revise(self._decoded)
        return self._revised

    def _commit(self, cut: int) -> None:
        """End the open line at ``cut`` bytes: its words are final, and the rest begins another line."""
        self._words.extend(self._line_words())
        rest = bytes(self._line[cut:])
        self._clear_line(self._start_bytes + cut, rest)
        self._listen_anew(rest)

    def _voiced(self) -> bytearray:
        """Return the voice flags of the open line's windows."""
        return self._open_voice().voiced[(self._start_bytes - self._listened_bytes) // WINDOW_BYTES :]

    def _has_unread_voice(self) -> bool:
        # Includes a window that the last pass read in part, which was not known to be voiced then.
        return any(self._voiced()[self._read_bytes // WINDOW_BYTES :])

    def _text(self) -> str:
        """Return the text of the utterance so far."""
        line = self._revised or self._decoded
        open_text = plain_text(self._engine.network.text(line.tokens)) if line else ""
        return " ".join(filter(None, (*(word.text for word in self._words), open_text)))

    def _line_words(self) -> Iterator[WordTime]:
        line = self._revise()
        if line is None:
            return
        scored = _scored_words(self._engine.network, line.tokens, line.probabilities)
        words = plain_words(scored)
        spread = spread_over_voice(words, self._voiced(), _ms(WINDOW_BYTES), _ms(len(self._line)))
        yield from later(spread, _ms(self._start_bytes))


def _scored_words(
    network: MoonshineNetwork, tokens: Sequence[int], probabilities: Sequence[float]
) -> list[WordTime]:
    """Return the words of a line with confidences, without times."""
    words: list[tuple[list[int], float]] = []
    for token, probability in zip(tokens, probabilities, strict=True):
        if not words or network.begins_word(token):
            words.append(([token], probability))
        else:
            pieces, least = words[-1]
            words[-1] = ([*pieces, token], min(least, probability))
    return [WordTime(network.text(pieces), 0, 1, least) for pieces, least in words]


def _bytes(duration_ms: int) -> int:
    return ms_to_samples(duration_ms, RATE_HZ) * PCM_BYTES_PER_SAMPLE


def _ms(count: int) -> int:
    return samples_to_ms(count // PCM_BYTES_PER_SAMPLE, RATE_HZ)


def _windows(duration_ms: int) -> int:
    return _bytes(duration_ms) // WINDOW_BYTES
