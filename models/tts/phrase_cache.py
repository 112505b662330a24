"""Cache of the audio of recurring phrases: greeting, fillers, openings, apologies.

The key is the exact text of a clause. Only declared phrases are kept: an answer holds private content of one
caller, and must not stay in the memory of the process after the conversation. A phrase is kept when it was
spoken to its end, so a stopped or failed one is synthesised anew the next time. Replaying costs the calling
thread a few microseconds, and takes neither the engine nor its lock.

Input: clauses. Output: the engine's own pieces; the sink can stop them as usual. Bounded by the declared
phrases and ``max_phrase_ms`` for each. Thread-safe: two threads that speak a new phrase at the same time both
synthesise it, and the later result is kept. Owns no task.
"""

from collections.abc import Callable, Iterable

from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.models.tts.clauses import ClauseSettings, split_clauses


class PhraseCache:
    """Engine with a cache of phrases; its rate is the engine's.

    Args:
        engine: speaks the clauses that are not kept.
        phrases: recurring texts. A phrase that is too long for a single clause is kept in clauses, as it is
            spoken; empty ones are left out.
        clauses: rules for the ends of clauses.
        max_phrase_ms: a longer phrase is not kept.
    """

    def __init__(
        self,
        engine: TextToSpeech,
        phrases: Iterable[str],
        *,
        clauses: ClauseSettings | None = None,
        max_phrase_ms: int = 10_000,
    ) -> None:
        self.rate_hz = engine.rate_hz
        self._engine = engine
        self._max_bytes = ms_to_samples(max_phrase_ms, engine.rate_hz) * PCM_BYTES_PER_SAMPLE
        max_chars = (clauses or ClauseSettings()).max_chars
        self._kept: dict[str, tuple[SpeechPiece, ...] | None] = {
            part.strip(): None
            for phrase in phrases
            for part in ([phrase] if len(phrase) <= max_chars else split_clauses(phrase, clauses))
            if part.strip()
        }
        self._closed = False

    @property
    def kept_bytes(self) -> int:
        """Bytes of audio in memory."""
        return sum(len(piece.pcm) for pieces in self._kept.values() for piece in pieces or ())

    def warm(self) -> None:
        """Synthesise every phrase that is not kept yet. Blocks for as long as that takes.

        Raises:
            EngineError: the engine failed.
        """
        for phrase, pieces in self._kept.items():
            if self._closed:
                return
            if pieces is None:
                self.synthesize(phrase, lambda _piece: not self._closed)

    def kept(self, phrase: str) -> bytes | None:
        """Return the audio of a phrase, 16-bit mono at ``rate_hz``; None when it is not kept. Never
        synthesises.
        """
        pieces = self._kept.get(phrase.strip())
        return None if pieces is None else b"".join(piece.pcm for piece in pieces)

    def close(self) -> None:
        """End ``warm`` within a piece."""
        self._closed = True

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Speak ``text`` into ``sink``, as ``TextToSpeech.synthesize``."""
        key = text.strip()
        if key not in self._kept:
            return self._engine.synthesize(text, sink)
        pieces = self._kept[key]
        if pieces is not None:
            return all(sink(piece) for piece in pieces)
        return self._speak_and_keep(key, sink)

    def _speak_and_keep(self, key: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        said: list[SpeechPiece] = []
        size_bytes = 0

        def keeping(piece: SpeechPiece) -> bool:
            nonlocal size_bytes
            size_bytes += len(piece.pcm)
            if (piece.pcm or piece.words) and size_bytes <= self._max_bytes:
                said.append(piece)
            return sink(piece)

        spoken = self._engine.synthesize(key, keeping)
        if spoken and size_bytes <= self._max_bytes:
            # A single assignment to an existing key needs no lock.
            self._kept[key] = tuple(said)
        return spoken
