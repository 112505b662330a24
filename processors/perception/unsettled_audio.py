"""Recent audio of the caller whose words are not certain yet, for a recogniser that has to take over.

Positions are bytes since the beginning of the call. Audio is settled up to the last final word, up to the end
of a turn, and up to the end of a voice in which there were no words. What lies after that and belongs to a
voice is played to another recogniser, so words of the turn are neither lost nor doubled. At most ``KEPT_S``
are kept: the beginning of a longer stretch is lost. Pure.
"""

from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, samples_to_ms

# A caller speaks for this long without a final word only to a recogniser that is given up much earlier.
KEPT_S = 30
# Audio from before the onset of a voice, for its soft first sounds (``EngineSttSettings.pre_speech_ms``).
BEFORE_MS = 250
# The end of a voice is noticed up to this long after its last word.
TAIL_MS = 600
# Audio waits at most this long for the piece before it, in any network. After a longer time the process was
# stopped, and it could receive no words either.
MOST_GAP_MS = 200


class UnsettledAudio:
    """Ring of the caller's audio, with the place from which its words are not certain.

    Args:
        rate_hz: rate of the audio, 16-bit mono.
    """

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._kept = bytearray()
        self._most = self._bytes(KEPT_S * 1000)
        # Position after the last byte.
        self.position = 0
        self._settled = 0
        # Beginning of the voice that is not settled; None where there is none.
        self._from: int | None = None
        self._voice_end = 0
        self._in_voice = False
        self._wordless = self._awaited_ms = self._added_ms = 0

    @property
    def in_voice(self) -> bool:
        """True while the caller speaks."""
        return self._in_voice

    @property
    def had_voice(self) -> bool:
        """True when the caller has spoken."""
        return self._voice_end > 0

    @property
    def wordless_ms(self) -> int:
        """Voice since the last words."""
        return samples_to_ms(self._wordless // PCM_BYTES_PER_SAMPLE, self._rate_hz)

    @property
    def awaited_ms(self) -> int:
        """Time for which the process has waited for words since the last ones, while the caller spoke.

        It is less than ``wordless_ms`` where the audio came at once: a recogniser had no time to answer it.
        """
        return self._awaited_ms

    @property
    def unsettled_ms(self) -> int:
        """Time since the beginning of the voice that is not settled; 0 where there is none."""
        if self._from is None:
            return 0
        return samples_to_ms((self.position - self._from) // PCM_BYTES_PER_SAMPLE, self._rate_hz)

    def add(self, pcm: bytes, at_ms: int) -> None:
        """Append audio that came at a time of the session."""
        self._kept += pcm
        self.position += len(pcm)
        del self._kept[: max(0, len(self._kept) - self._most)]
        if self._in_voice:
            self._wordless += len(pcm)
            self._awaited_ms += min(at_ms - self._added_ms, MOST_GAP_MS)
        self._added_ms = at_ms

    def voice_started(self, voiced_ms: int) -> None:
        """Note that a voice began ``voiced_ms`` ago."""
        if self._in_voice:
            return
        self._in_voice = True
        began = self.position - self._bytes(voiced_ms + BEFORE_MS)
        if self._from is None:
            self._from = max(self._settled, began, 0)

    def voice_stopped(self) -> None:
        """Note that the voice is over."""
        self._in_voice = False
        self._voice_end = self.position

    def words_came(self) -> None:
        """Note that the recogniser has reported words, final or not."""
        self._wordless = self._awaited_ms = 0

    def settle_words(self, position: int) -> None:
        """Note that the words up to a position are certain."""
        rest = self._voice_end - position
        is_tail = not self._in_voice and rest <= self._bytes(TAIL_MS)
        self._settle(max(position, self._voice_end) if is_tail else position)

    def settle_turn(self) -> None:
        """Note that a turn is over, or that its voice had no words.

        A voice that goes on belongs to the next turn.
        """
        self._wordless = self._awaited_ms = 0
        if not self._in_voice:
            self._settle(self.position)

    def take(self) -> bytes:
        """Return the audio of the voice that is not settled; empty where there is none.

        It goes up to now while the caller speaks, and else to the end of the voice.
        """
        if self._from is None:
            return b""
        first = self.position - len(self._kept)
        end = self.position if self._in_voice else self._voice_end
        return bytes(self._kept[max(0, self._from - first) : max(0, end - first)])

    def read(self, position: int) -> bytes:
        """Return all audio from a position on, as far as it is kept."""
        first = self.position - len(self._kept)
        return bytes(self._kept[max(0, position - first) :])

    def bytes_to(self, start: int, ms: int) -> int:
        """Return the position ``ms`` after another one."""
        return start + self._bytes(ms)

    def _settle(self, position: int) -> None:
        self._settled = max(self._settled, min(position, self.position))
        if self._from is None:
            return
        end = self.position if self._in_voice else self._voice_end
        self._from = max(self._from, self._settled) if end > self._settled else None

    def _bytes(self, ms: int) -> int:
        return ms_to_samples(ms, self._rate_hz) * PCM_BYTES_PER_SAMPLE
