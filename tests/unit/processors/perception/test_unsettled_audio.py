"""Audio that another recogniser has to hear, at positions that the tests choose."""

from parley.processors.perception.unsettled_audio import BEFORE_MS, KEPT_S, MOST_GAP_MS, UnsettledAudio

RATE_HZ = 16_000
MS = RATE_HZ * 2 // 1000


class Line:
    """Line of a caller; each 10 ms of audio carry their number."""

    def __init__(self) -> None:
        self.audio = UnsettledAudio(RATE_HZ)
        self._number = self._late_ms = 0

    def passes(self, ms: int) -> None:
        for _ in range(ms // 10):
            self.audio.add(self._number.to_bytes(2, "little") * (5 * MS), self._late_ms + self._number * 10)
            self._number += 1

    def stops(self, ms: int) -> None:
        """Stop the process: what is spoken meanwhile comes at once."""
        self._late_ms += ms
        at_ms = self._late_ms + self._number * 10
        for _ in range(ms // 10):
            self.audio.add(bytes(10 * MS), at_ms)
        self._late_ms -= ms
        self._number += ms // 10

    def speaks(self, ms: int) -> None:
        """Speak and pause: voice activity is certain after 100 ms, and its end after 200 ms."""
        self.passes(100)
        self.audio.voice_started(100)
        self.passes(ms - 100 + 200)
        self.audio.voice_stopped()

    def unsettled_ms(self) -> tuple[int, int] | None:
        """Return the first and the last moment of the audio that is not settled."""
        pcm = self.audio.take()
        if not pcm:
            return None
        first, last = (int.from_bytes(each, "little") * 10 for each in (pcm[:2], pcm[-2:]))
        return first, last + 10


def test_silence_is_not_played_again():
    line = Line()
    line.passes(5_000)
    assert line.unsettled_ms() is None


def test_a_voice_is_kept_from_before_its_onset_to_its_end():
    line = Line()
    line.passes(1_000)
    line.speaks(2_000)
    line.passes(5_000)
    assert line.unsettled_ms() == (1_000 - BEFORE_MS, 3_200)


def test_a_voice_that_goes_on_is_kept_up_to_now():
    line = Line()
    line.passes(1_000)
    line.audio.voice_started(0)
    line.passes(500)
    assert line.audio.in_voice and line.unsettled_ms() == (1_000 - BEFORE_MS, 1_500)


def test_final_words_settle_the_audio_up_to_their_end():
    line = Line()
    line.audio.voice_started(0)
    line.passes(3_000)
    line.audio.settle_words(1_800 * MS)
    assert line.unsettled_ms() == (1_800, 3_000)


def test_final_words_at_the_end_of_a_voice_settle_it_all():
    line = Line()
    line.speaks(2_000)
    line.audio.settle_words(1_900 * MS)
    assert line.unsettled_ms() is None
    line.passes(1_000)
    line.speaks(500)
    assert line.unsettled_ms() == (3_200 - BEFORE_MS, 3_900)


def test_two_voices_of_one_turn_are_played_with_the_pause_between_them():
    line = Line()
    line.speaks(500)
    line.passes(400)
    line.speaks(500)
    assert line.unsettled_ms() == (0, 1_800)


def test_the_end_of_a_turn_settles_a_voice_that_is_over_and_not_one_that_goes_on():
    line = Line()
    line.speaks(500)
    line.audio.settle_turn()
    assert line.unsettled_ms() is None
    line.audio.voice_started(0)
    line.passes(300)
    line.audio.settle_turn()
    assert line.unsettled_ms() == (700, 1_000)


def test_voice_without_words_is_counted_until_words_come():
    line = Line()
    line.passes(1_000)
    line.speaks(600)
    assert line.audio.wordless_ms == 700
    line.audio.words_came()
    line.passes(500)
    assert line.audio.wordless_ms == 0


def test_a_stop_of_the_process_is_no_time_in_which_words_could_come():
    line = Line()
    line.audio.voice_started(0)
    line.passes(500)
    line.stops(2_500)
    assert line.audio.wordless_ms == 3_000
    assert line.audio.awaited_ms <= 500 + MOST_GAP_MS
    line.passes(1_000)
    assert 1_500 <= line.audio.awaited_ms <= 1_500 + MOST_GAP_MS


def test_the_audio_is_bounded_and_the_newest_is_kept():
    line = Line()
    line.audio.voice_started(0)
    line.passes((KEPT_S + 10) * 1000)
    assert line.unsettled_ms() == (10_000, (KEPT_S + 10) * 1000)
    assert len(line.audio.read(0)) == KEPT_S * 1000 * MS


def test_time_since_the_beginning_of_a_voice_that_is_not_settled():
    line = Line()
    line.passes(1_000)
    assert line.audio.unsettled_ms == 0
    line.speaks(500)
    line.passes(300)
    assert line.audio.unsettled_ms == BEFORE_MS + 500 + 200 + 300
    line.audio.settle_turn()
    assert line.audio.unsettled_ms == 0
