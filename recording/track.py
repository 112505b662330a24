"""Audio of one side of a call on the time line of the call, cut into segments.

Input: pieces of PCM, each with the time at which it began. Output: segments of ``segment_ms``, aligned to the
time line, so that the number of a segment gives its place. A segment ends with its last sound: what is
missing to the next one is silence, and a segment without sound does not exist.

Within a stream, time is the sample count: a piece follows the one before it, however late it came. A piece
that is later than ``GAP_MS`` begins a run after a gap. A piece can be late and cannot be early. Therefore,
while a run is younger than ``YOUNG_MS``, every further piece that comes earlier than the run predicts moves
its beginning back, at most to the end of the run before. A stall of the loop or of the network, after which
its backlog comes at once, leaves no gap that way. The run of a live source is young as long as its pieces
still move it, up to ``MOST_RUN_MS`` of audio: a backlog of seconds comes over many turns of the loop.

A long stall may end after its segment was closed. The backlog of a live source that belongs before the
boundary is dropped and counted, so that what follows is in its place.

The clock of a caller's device may be fast. A live source that is ahead by more than ``DRIFT_MS`` loses that
much of its next piece, once in ``DRIFT_EVERY_MS``: no clock is faster than that. A source that is ahead for
another reason was late before, on a busy machine or network, and its lateness is silence on the time line. It
loses quiet pieces until it is in its place again, and no words meanwhile. What is ahead by more than
``MOST_AHEAD_MS``, or for longer than ``LONG_AHEAD_MS``, came faster than it can be spoken, and counts as
dropped. A client that is not live may send faster than real time; its audio is never cut.

Pure: reads no clock and does no I/O. Times are microseconds from the beginning of the recording.
"""

from dataclasses import dataclass

import numpy as np

from parley.core.media import PCM_BYTES_PER_SAMPLE

SEGMENT_MS = 5_000
# Shorter than a packet: the end of a word and the next word are apart by packets that were not spoken.
GAP_MS = 15
# Longer than the backlog of a busy loop.
YOUNG_MS = 300
# A run of a source that is not live moves back by no more: a client that sends a recording at once did not
# say it all before.
MOST_SHIFT_MS = 2_000
# A piece that moves the run of a live source by less is early by chance, or by its clock.
MOVED_MS = 5
# Longest backlog of a live source that is put in order: of most stalls that a call outlives, and 3 MB.
MOST_RUN_MS = 30_000
# Every 15 s: 1,000 ppm. Clocks of telephones and sound cards are within 200.
DRIFT_MS, DRIFT_EVERY_MS = 15, 15_000
# Longer than people speak without a breath.
MOST_AHEAD_MS, LONG_AHEAD_MS = 5_000, 10_000
# An hour on a machine that is late every second.
MOST_SEAMS = 4_000
# Peak of a piece that no word is in, of 16 bits: -44 dB.
QUIET_PEAK = 200
# Silence after which the end of a segment has been reached without audio.
SETTLE_MS = 500
_US_PER_MS = 1_000
_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class AudioSegment:
    """Part of a track.

    Attributes:
        number: its place: it begins at this many times the length of a segment.
        rate_hz: rate of the audio.
        pcm: 16-bit mono, up to its last sound.
        length_ms: length of the whole segment.
    """

    number: int
    rate_hz: int
    pcm: bytes
    length_ms: int

    @property
    def start_ms(self) -> int:
        """Its beginning on the time line."""
        return self.number * self.length_ms


@dataclass(frozen=True, slots=True)
class DroppedAudio:
    """Audio of a source that is not in its track.

    Attributes:
        start_ms: place of its beginning on the time line.
        length_ms: its length.
        reason: why, as a part of a sentence.
    """

    start_ms: int
    length_ms: int
    reason: str


class SideTrack:
    """Track of one side.

    Args:
        is_live: the source sends in real time, by its own clock.
        segment_ms: length of a segment.

    Attributes:
        rate_hz: rate of the audio; 0 before the first piece.
        refused_ms: length of the audio with another rate, which is not recorded.
        trimmed_ms: length of the audio that was cut because the source's clock is fast, or of silence that
            was cut because the source had been late.
        first_sample: place of the first sample on the time line; None before there is one.
        first_piece: number of samples of the first piece, which may be shorter than the others.
        seams: places of a live source at which its samples do not follow each other in the track, each with
            the silence before it, or with what is left out there as a negative number, in samples; the first
            ``MOST_SEAMS``.
    """

    def __init__(self, *, is_live: bool = True, segment_ms: int = SEGMENT_MS) -> None:
        self.rate_hz = 0
        self.refused_ms = 0
        self.trimmed_ms = 0.0
        self.first_sample: int | None = None
        self.first_piece = 0
        self.seams: list[tuple[int, int]] = []
        self._is_live = is_live
        self._segment_ms = segment_ms
        self._segment_samples = 0
        # The open segment: its number, its audio so far, and the place of the first sample after it.
        self._number = 0
        self._pcm = bytearray()
        self._next = 0
        # End of the source's audio. A live source's next sample follows it, also when time has closed the
        # segment after it, whose end ``_next`` is then.
        self._heard = 0
        # A young run: its pieces, its first sample, its length, the arrival of its first piece, and its first
        # sample and the arrival of the piece when it last moved.
        self._run: list[bytes] = []
        self._run_start = self._run_samples = self._run_first = 0
        self._moved_start = self._moved_at = 0
        # Places at which a fast clock was corrected last, and since which the source is ahead; None: none.
        self._corrected: int | None = None
        self._ahead_since: int | None = None
        self._full: list[AudioSegment] = []
        self._dropped: list[DroppedAudio] = []

    @property
    def end_ms(self) -> int:
        """Length of the track so far."""
        return max(self._next, self._end()) * 1_000 // self.rate_hz if self.rate_hz else 0

    def place(self, pcm: bytes, rate_hz: int, start_us: int) -> list[AudioSegment]:
        """Place a piece that began at this time; return the segments that are complete."""
        if len(pcm) % PCM_BYTES_PER_SAMPLE:
            pcm = pcm[:-1]
        if not pcm:
            return []
        if not self.rate_hz:
            self.rate_hz, self._segment_samples = rate_hz, self._segment_ms * rate_hz // 1_000
            self.first_piece = len(pcm) // PCM_BYTES_PER_SAMPLE
        elif rate_hz != self.rate_hz:
            length_ms = len(pcm) // PCM_BYTES_PER_SAMPLE * 1_000 // rate_hz
            self.refused_ms += length_ms
            reason = f"it has {rate_hz} Hz, and the recording {self.rate_hz}"
            self._dropped.append(DroppedAudio(max(0, start_us // _US_PER_MS), length_ms, reason))
            return []
        start = start_us * rate_hz // _US_PER_S
        late = start - self._end()
        if late > self._samples(GAP_MS):
            self._settle_run()
            self._run, self._run_start, self._run_samples = [pcm], start, len(pcm) // PCM_BYTES_PER_SAMPLE
            self._run_first = self._moved_at = self._moved_start = start
        elif self._run:
            self._follow(pcm, start)
        else:
            self._add(self._trimmed(pcm, -late), self._heard)
        return self._taken()

    def advance(self, now_us: int) -> list[AudioSegment]:
        """Return the segments that time has completed: their side has been silent since."""
        if not self.rate_hz:
            return []
        now = now_us * self.rate_hz // _US_PER_S - self._samples(SETTLE_MS)
        if self._run and self._end() <= now:
            self._settle_run()
        while not self._run and (self._number + 1) * self._segment_samples <= now:
            if self._pcm:
                self._close_segment()
            elif self._is_live:
                # The segments after it are not written yet: a backlog may fill them.
                break
            else:
                self._number = max(self._number, now // self._segment_samples)
            self._next = max(self._next, self._number * self._segment_samples)
            if not self._is_live:
                self._heard = self._next
        return self._taken()

    def dropped(self) -> list[DroppedAudio]:
        """Return what was dropped since the last time."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def cut(self, until_us: int) -> None:
        """Remove the audio after this time, as far as it is in the open segment: it was never played."""
        self._settle_run()
        if not self.rate_hz:
            return
        until = max(until_us * self.rate_hz // _US_PER_S, self._number * self._segment_samples)
        if until < self._next:
            del self._pcm[(until - self._number * self._segment_samples) * PCM_BYTES_PER_SAMPLE :]
            self._next = self._heard = until

    def finish(self) -> list[AudioSegment]:
        """Return the rest: nothing more comes."""
        self._settle_run()
        if self._pcm:
            self._close_segment()
        return self._taken()

    def _end(self) -> int:
        return self._run_start + self._run_samples if self._run else self._heard

    def _samples(self, duration_ms: int) -> int:
        return duration_ms * self.rate_hz // 1_000

    def _follow(self, pcm: bytes, start: int) -> None:
        """Add a piece to the young run, and end its youth when nothing moves it any more."""
        earliest = self._heard
        if not self._is_live:
            earliest = max(earliest, self._run_first - self._samples(MOST_SHIFT_MS))
        self._run_start = max(earliest, min(self._run_start, start - self._run_samples))
        self._run.append(pcm)
        self._run_samples += len(pcm) // PCM_BYTES_PER_SAMPLE
        if not self._is_live:
            since, most = self._run_first, self._segment_samples
        else:
            if self._moved_start - self._run_start > self._samples(MOVED_MS):
                self._moved_start, self._moved_at = self._run_start, start
            since, most = self._moved_at, self._samples(MOST_RUN_MS)
        if start - since >= self._samples(YOUNG_MS) or self._run_samples >= most:
            self._settle_run()

    def _trimmed(self, pcm: bytes, ahead: int) -> bytes:
        """Return what is left of a piece that came this much earlier than the track predicts."""
        if not self._is_live or ahead <= self._samples(DRIFT_MS):
            self._ahead_since = None
            return pcm
        if self._ahead_since is None:
            self._ahead_since = self._heard
        cut, place = min(ahead, len(pcm) // PCM_BYTES_PER_SAMPLE), self._heard
        is_drift = self._corrected is None or self._heard - self._corrected >= self._samples(DRIFT_EVERY_MS)
        if is_drift and ahead <= 2 * self._samples(DRIFT_MS):
            self._corrected = self._heard
            self.trimmed_ms += cut * 1_000 / self.rate_hz
        elif np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)).max() <= QUIET_PEAK:
            self.trimmed_ms += cut * 1_000 / self.rate_hz
        elif ahead <= self._samples(MOST_AHEAD_MS) and self._heard - self._ahead_since <= self._samples(
            LONG_AHEAD_MS
        ):
            return pcm
        else:
            self._drop(self._heard, cut, "it came faster than it can be spoken")
        self._note_seam(place, -cut)
        return pcm[cut * PCM_BYTES_PER_SAMPLE :]

    def _settle_run(self) -> None:
        if self._run:
            pcm, self._run = b"".join(self._run), []
            self._add(pcm, max(self._run_start, self._heard))

    def _add(self, pcm: bytes, start: int) -> None:
        """Add audio at its place, or what follows the closed segments of it."""
        if self._is_live and self.first_sample is not None and start > self._heard:
            self._note_seam(start, start - self._heard)
        before = self._next - start
        if before > 0:
            if self._is_live:
                before = min(before, len(pcm) // PCM_BYTES_PER_SAMPLE)
                self._drop(start, before, "it came after its segment was closed")
                self._heard = start + before
                pcm = pcm[before * PCM_BYTES_PER_SAMPLE :]
            start += before
        if not pcm:
            return
        if self.first_sample is None:
            self.first_sample = start
        number = start // self._segment_samples
        if number > self._number:
            if self._pcm:
                self._close_segment()
            self._number = number
            self._next = number * self._segment_samples
        self._pcm += bytes((start - self._next) * PCM_BYTES_PER_SAMPLE)
        self._next = start
        self._append(pcm)

    def _note_seam(self, place: int, samples: int) -> None:
        if self.seams and self.seams[-1][0] == place and samples < 0 and self.seams[-1][1] < 0:
            # Quiet pieces one after the other.
            samples += self.seams.pop()[1]
        if len(self.seams) < MOST_SEAMS:
            self.seams.append((place, samples))

    def _drop(self, start: int, samples: int, reason: str) -> None:
        length_ms = -(-samples * 1_000 // self.rate_hz)
        self._dropped.append(DroppedAudio(start * 1_000 // self.rate_hz, length_ms, reason))

    def _append(self, pcm: bytes) -> None:
        self._pcm += pcm
        self._next += len(pcm) // PCM_BYTES_PER_SAMPLE
        self._heard = self._next
        whole = self._segment_samples * PCM_BYTES_PER_SAMPLE
        while len(self._pcm) >= whole:
            rest = self._pcm[whole:]
            del self._pcm[whole:]
            self._close_segment()
            self._pcm = rest

    def _close_segment(self) -> None:
        self._full.append(AudioSegment(self._number, self.rate_hz, bytes(self._pcm), self._segment_ms))
        self._pcm = bytearray()
        self._number += 1

    def _taken(self) -> list[AudioSegment]:
        taken, self._full = self._full, []
        return taken
