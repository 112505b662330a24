"""The heard clock: the heard part of replies, from durations and positions alone."""

import pytest

from parley.core.timeline import HeardReply, HeardSource
from parley.processors.playout.heard import HeardClock, PlayoutSettings

MS = 1_000
PACKET = 20 * MS
CHUNK = 40 * MS
# Time of the check whether a reply has ended.
AT_US = 9_000 * MS


class Voice:
    """A reply of words of 100 ms on its way through the clock, in packets of 20 ms."""

    def __init__(self, clock: HeardClock, words: str, reply_id: str = "r") -> None:
        self.clock, self.words, self.reply_id = clock, words.split(), reply_id
        self.now_us = 0

    def queue(self, *, close: bool = True) -> "Voice":
        self.clock.open(self.reply_id)
        self.start_us = self.clock.part_begins(self.reply_id)
        for number, word in enumerate(self.words):
            at = number * 100 * MS
            self.clock.word(self.reply_id, word, start_us=at, end_us=at + 100 * MS)
            self.clock.queued(self.reply_id, 100 * MS)
        if close:
            self.clock.close(self.reply_id)
        return self

    def write(self, duration_ms: int) -> "Voice":
        self.clock.speaks(self.reply_id, self.start_us)
        for _ in range(duration_ms * MS // CHUNK):
            self.clock.written(CHUNK, self.now_us)
        return self

    def play(self, duration_ms: int) -> "Voice":
        for _ in range(duration_ms * MS // PACKET):
            self.clock.played(PACKET, self.now_us)
            self.now_us += PACKET
        return self

    def end(self) -> "Voice":
        self.clock.speaks(None)
        self.clock.part_over(self.reply_id)
        return self


TEN = "One two three, four five six seven, eight nine ten."


def only(replies: list[HeardReply]) -> HeardReply:
    assert len(replies) == 1
    return replies[0]


@pytest.mark.parametrize(
    ("played_ms", "words"), [(0, 0), (40, 0), (60, 1), (140, 1), (160, 2), (340, 3), (360, 4)]
)
def test_an_interruption_keeps_the_words_of_which_half_was_played(played_ms, words):
    clock = HeardClock()
    voice = Voice(clock, TEN).queue().write(400).play(played_ms)
    reply = only(clock.interrupted(voice.now_us))
    assert reply.text == " ".join(TEN.split()[:words])
    assert reply.unheard == " ".join(TEN.split()[words:])
    assert (reply.mark.last_word, reply.mark.audio_ms) == (words - 1, played_ms)
    assert reply.mark.source is HeardSource.PLAYOUT_CLOCK
    assert reply.truncated


def test_the_share_of_a_word_that_counts_is_a_setting():
    clock = HeardClock(PlayoutSettings(word_due_percent=100))
    voice = Voice(clock, TEN).queue().write(400).play(180)
    assert only(clock.interrupted(voice.now_us)).text == "One"


def test_what_the_output_took_and_did_not_send_is_not_heard():
    clock = HeardClock()
    voice = Voice(clock, TEN).queue().write(1_000).play(200)
    assert only(clock.interrupted(voice.now_us)).mark.audio_ms == 200


def test_a_reply_that_was_played_to_its_end_is_whole():
    clock = HeardClock()
    voice = Voice(clock, TEN).queue().write(1_000).play(980)
    assert clock.finished(AT_US) == []
    voice.end().play(20)
    reply = only(clock.finished(AT_US))
    assert (reply.text, reply.unheard, reply.truncated) == (TEN, "", False)
    assert (reply.mark.audio_ms, reply.mark.last_word) == (1_000, 9)
    assert clock.finished(AT_US) == []


def test_the_silence_that_fills_the_last_chunk_is_not_audio_of_the_reply():
    clock = HeardClock()
    clock.open("r")
    clock.part_begins("r")
    clock.word("r", "Yes.", start_us=0, end_us=90 * MS)
    clock.queued("r", 90 * MS)
    clock.close("r")
    clock.speaks("r", 0)
    for _ in range(3):
        clock.written(CHUNK, 0)
    clock.part_over("r")
    for _ in range(6):
        clock.played(PACKET, 0)
    assert only(clock.finished(AT_US)).mark.audio_ms == 90


def test_an_interruption_in_the_last_packet_cuts_nothing():
    clock = HeardClock()
    voice = Voice(clock, TEN).queue().write(1_000).end().play(980)
    reply = only(clock.interrupted(voice.now_us))
    assert (reply.text, reply.truncated) == (TEN, False)


def test_a_reply_that_the_model_is_still_writing_is_truncated_even_when_all_of_it_was_heard():
    clock = HeardClock()
    voice = Voice(clock, TEN).queue(close=False).write(1_000).play(1_000)
    reply = only(clock.interrupted(voice.now_us))
    assert (reply.text, reply.truncated) == (TEN, True)


def test_the_rest_of_an_interrupted_reply_is_what_the_model_wrote():
    clock = HeardClock()
    clock.open("r")
    for piece in (TEN + " And then", " there is more."):
        clock.written_by_model("r", piece)
    voice = Voice(clock, TEN).queue().write(400).play(300)
    assert only(clock.interrupted(voice.now_us)).unheard == (
        "four five six seven, eight nine ten. And then there is more."
    )


def test_a_reply_of_which_no_sound_left_was_not_heard():
    clock = HeardClock()
    clock.open("r")
    clock.written_by_model("r", "Nobody hears this.")
    reply = only(clock.interrupted(7))
    assert (reply.text, reply.unheard, reply.truncated) == ("", "Nobody hears this.", True)
    assert (reply.mark.last_word, reply.started_us, reply.ended_us) == (-1, None, 7)


def test_other_speech_before_a_reply_is_not_counted_for_it():
    clock = HeardClock()
    clock.speaks(None)
    clock.written(CHUNK * 5, 0)
    voice = Voice(clock, TEN).queue().write(400).play(200 + 160)
    assert only(clock.interrupted(voice.now_us)).text == "One two"


def test_a_filler_and_a_reply_have_books_of_their_own():
    clock = HeardClock()
    clock.open("filler", in_context=False)
    clock.part_begins("filler")
    clock.word("filler", "Hm.", start_us=0, end_us=80 * MS)
    clock.queued("filler", 80 * MS)
    clock.close("filler")
    clock.speaks("filler", 0)
    clock.written(CHUNK, 0)
    clock.written(CHUNK, 0)
    clock.part_over("filler")
    voice = Voice(clock, TEN).queue().write(400).play(80 + 120)
    assert [(r.text, r.in_context) for r in clock.finished(AT_US)] == [("Hm.", False)]
    assert only(clock.interrupted(voice.now_us)).text == "One"


def test_a_reply_in_two_parts_goes_on_where_the_first_one_ended():
    clock = HeardClock()
    voice = Voice(clock, "One two three").queue(close=False)
    # The output fills the first part up to whole chunks.
    voice.write(320).end()
    start_us = clock.part_begins("r")
    assert start_us == 300 * MS
    clock.word("r", "four", start_us=300 * MS, end_us=400 * MS)
    clock.queued("r", 100 * MS)
    clock.close("r")
    clock.speaks("r", start_us)
    clock.written(CHUNK, 0)
    clock.written(CHUNK, 0)
    voice.play(320 + 40)
    assert clock.mark("r").last_word == 2
    voice.play(20)
    assert (clock.mark("r").last_word, clock.mark("r").audio_ms) == (3, 360)


def test_a_moment_is_heard_the_clients_delay_after_it_left():
    clock = HeardClock(PlayoutSettings(client_delay_ms=100))
    voice = Voice(clock, TEN).queue().write(1_000).play(600)
    assert clock.mark("r", at_us=679 * MS).audio_ms == 579
    assert clock.mark("r", at_us=900 * MS).audio_ms == 600
    assert clock.mark("r", at_us=300 * MS).audio_ms == 200
    assert clock.mark("r", at_us=50 * MS).audio_ms == 0
    clock.set_delay_ms(0)
    assert clock.mark("r", at_us=300 * MS).audio_ms == 300
    assert clock.mark("r").audio_ms == 600
    reply = only(clock.interrupted(voice.now_us))
    assert (reply.started_us, reply.ended_us) == (0, 580 * MS)


def test_a_reply_says_what_was_believed_of_the_clients_delay_and_who_said_so():
    clock = HeardClock(PlayoutSettings(client_delay_ms=100))
    clock.open("assumed")
    assumed = only(clock.interrupted(0)).as_message()
    clock.set_delay_ms(85)
    clock.open("reported")
    reported = only(clock.interrupted(0)).as_message()
    names = ("client_delay_ms", "client_delay_reported")
    assert [assumed[name] for name in names] == [100, False]
    assert [reported[name] for name in names] == [85, True]


def test_packets_on_their_way_are_heard_after_an_interruption_unless_the_client_drops_them():
    kept, dropped = (
        HeardClock(PlayoutSettings(client_delay_ms=100, flushes=flushes)) for flushes in (False, True)
    )
    ends = [only(c.interrupted(Voice(c, TEN).queue().write(1_000).play(600).now_us)) for c in (kept, dropped)]
    assert [end.mark.audio_ms for end in ends] == [600, 500]


def test_a_client_that_is_gone_heard_nothing_since_its_last_sign_of_life():
    clock = HeardClock(PlayoutSettings(client_delay_ms=100))
    voice = Voice(clock, TEN + " " + TEN).queue().write(2_000).play(1_800)
    reply = only(clock.hung_up(voice.now_us, quiet_us=1_000 * MS))
    assert reply.mark.audio_ms == 700
    assert reply.truncated


def test_the_position_at_the_ear_stays_right_when_old_packets_are_forgotten():
    clock = HeardClock()
    voice = Voice(clock, " ".join(["word"] * 300)).queue().write(20_000).play(20_000)
    assert clock.mark("r", at_us=voice.now_us - 3_000 * MS).audio_ms == 20_000 - 3_000 - 60


def test_a_reply_that_may_not_be_interrupted_goes_on():
    clock = HeardClock()
    voice = Voice(clock, TEN).queue().write(400).play(200)
    assert clock.interrupted(voice.now_us, keep={"r"}, still_playing=True) == []
    voice.play(200)
    assert clock.mark("r").audio_ms == 400


def test_an_output_that_plays_while_it_writes_is_counted_once():
    clock = HeardClock()
    voice = Voice(clock, TEN).queue()
    clock.speaks("r", 0)
    for number in range(5):
        clock.played(CHUNK, number * CHUNK)
        clock.written(CHUNK, number * CHUNK + CHUNK)
    assert clock.mark("r").audio_ms == 200
    # The sixth chunk plays when the interruption comes, and is not reported as written before it.
    clock.played(CHUNK, 5 * CHUNK)
    reply = only(clock.interrupted(voice.now_us))
    assert (reply.mark.audio_ms, reply.text) == (240, "One two")


def test_audio_that_vanished_from_the_output_does_not_shift_the_next_reply():
    clock = HeardClock()
    clock.speaks(None)
    clock.written(CHUNK, 0)
    voice = Voice(clock, TEN).queue()
    voice.now_us = 2_000 * MS
    voice.write(400).play(160)
    assert clock.mark("r").audio_ms == 160


def test_progress_is_told_at_the_end_of_each_clause_and_once():
    clock = HeardClock()
    voice = Voice(clock, TEN).queue().write(1_000)
    received = []
    for _ in range(50):
        if clock.played(PACKET, voice.now_us):
            received.extend((voice.now_us // MS, so_far.text) for so_far in clock.progress(voice.now_us))
        voice.now_us += PACKET
    assert received == [
        (240, "One two three,"),
        (640, "One two three, four five six seven,"),
        (940, "One two three, four five six seven, eight nine ten."),
    ]


def test_a_packet_is_news_only_where_there_may_be_something_to_tell():
    clock = HeardClock()
    voice = Voice(clock, " ".join(["word"] * 100) + " end.").queue().write(10_000)
    clock.played(PACKET, 0)
    clock.progress(0)
    assert not any(clock.played(PACKET, number * PACKET) for number in range(1, 400))
    assert voice.clock.mark("r").audio_ms == 8_000


def test_a_sentence_without_word_times_is_placed_on_its_audio():
    clock = HeardClock()
    clock.open("r")
    start_us = clock.part_begins("r")
    clock.announced("r", "One hundred twenty words follow here.")
    clock.queued("r", 2_000 * MS)
    clock.spoken("r", "One hundred twenty words follow here.")
    clock.close("r")
    clock.speaks("r", start_us)
    clock.written(2_000 * MS, 0)
    clock.played(1_000 * MS, 0)
    reply = only(clock.interrupted(0))
    assert reply.text == "One hundred twenty"
    assert reply.unheard == "words follow here."
    assert reply.mark.source is HeardSource.ESTIMATED


def test_a_sentence_that_is_still_being_made_is_estimated_at_an_ordinary_pace():
    clock = HeardClock()
    clock.open("r")
    start_us = clock.part_begins("r")
    clock.announced("r", "Only the beginning of this has been made so far, and it is playing.")
    clock.queued("r", 800 * MS)
    clock.speaks("r", start_us)
    clock.written(800 * MS, 0)
    clock.played(800 * MS, 0)
    reply = only(clock.interrupted(0))
    assert 2 <= len(reply.text.split()) <= 4
    assert reply.unheard.split()[-1] == "playing."
    assert reply.mark.source is HeardSource.ESTIMATED


def test_a_clause_that_was_announced_and_never_sounded_was_not_heard():
    clock = HeardClock()
    voice = Voice(clock, "One two three.").queue(close=False)
    clock.announced("r", "One two three.")
    clock.announced("r", "This one failed.")
    clock.close("r")
    voice.write(320).end().play(320)
    reply = only(clock.finished(AT_US))
    assert (reply.text, reply.unheard, reply.truncated) == ("One two three.", "This one failed.", True)


def test_a_text_that_broke_off_is_not_whole_however_many_words_of_it_are_known():
    clock = HeardClock()
    voice = Voice(clock, "One two three.").queue(close=False)
    clock.announced("r", "One two three. And more of it.")
    clock.word("r", "And", start_us=320 * MS, end_us=400 * MS)
    clock.broke_off("r")
    clock.close("r")
    voice.write(320).end().play(320)
    reply = only(clock.finished(AT_US))
    assert (reply.text, reply.unheard, reply.truncated) == ("One two three. And", "more of it.", True)


def test_what_broke_off_is_missed_although_the_text_goes_on_after_it():
    clock = HeardClock()
    voice = Voice(clock, "One two three.").queue(close=False)
    clock.announced("r", "One two three. And more of it. Four.")
    clock.word("r", "And", start_us=320 * MS, end_us=320 * MS)
    clock.broke_off("r")
    clock.word("r", "Four.", start_us=320 * MS, end_us=320 * MS)
    clock.close("r")
    voice.write(320).end().play(320)
    reply = only(clock.finished(AT_US))
    assert (reply.text, reply.unheard, reply.truncated) == ("One two three. And Four.", "more of it.", True)


def test_a_connection_that_stalls_moves_nothing_and_forgets_nothing():
    clock = HeardClock(PlayoutSettings(client_delay_ms=0, flushes=True, keeps_waiting_ms=15_000))
    Voice(clock, "One two three.").queue()
    clock.speaks("r", 0)
    clock.written(100 * MS, 0)
    clock.written(100 * MS, 2_000 * MS)
    # All of it is reported when the way is free again, and then the events after it.
    clock.played(100 * MS, 2_010 * MS)
    clock.played(100 * MS, 2_020 * MS)
    clock.written(120 * MS, 2_030 * MS)
    assert only(clock.interrupted(5_000 * MS)).mark.audio_ms == 200


def test_of_a_text_without_times_that_broke_off_only_what_has_sound_was_said():
    clock = HeardClock()
    clock.open("r")
    start_us = clock.part_begins("r")
    clock.announced("r", "Only the beginning of this has a sound, and then the voice is gone.")
    clock.queued("r", 800 * MS)
    clock.broke_off("r")
    clock.close("r")
    clock.speaks("r", start_us)
    clock.written(800 * MS, 0)
    clock.part_over("r")
    clock.played(800 * MS, 0)
    reply = only(clock.finished(AT_US))
    assert 2 <= len(reply.text.split()) <= 4
    assert reply.truncated and reply.unheard.split()[-1] == "gone."


def test_a_reply_of_which_nothing_sounded_ends_when_it_is_over_and_not_with_the_sound_before_it():
    clock = HeardClock()
    Voice(clock, "One two three.", "first").queue().write(320).play(320).end()
    assert only(clock.finished(AT_US)).ended_us < AT_US
    clock.open("second")
    clock.part_begins("second")
    clock.announced("second", "This one failed.")
    clock.close("second")
    clock.part_over("second")
    reply = only(clock.finished(AT_US))
    assert (reply.text, reply.unheard, reply.truncated) == ("", "This one failed.", True)
    assert (reply.started_us, reply.ended_us) == (None, AT_US)


def test_words_that_carry_their_spaces_are_joined_as_they_are():
    clock = HeardClock()
    clock.open("r")
    clock.part_begins("r")
    for number, word in enumerate(("你", "好", " ok")):
        at = number * 100 * MS
        clock.word("r", word, start_us=at, end_us=None, joiner="")
        clock.queued("r", 100 * MS)
    clock.close("r")
    clock.speaks("r", 0)
    clock.written(300 * MS, 0)
    clock.part_over("r")
    clock.played(300 * MS, 0)
    assert only(clock.finished(AT_US)).text == "你好 ok"


def test_a_reply_that_is_over_can_be_asked_for_and_an_unknown_one_has_no_mark():
    clock = HeardClock()
    voice = Voice(clock, TEN).queue().write(400).play(200)
    clock.interrupted(voice.now_us)
    assert clock.mark("r").audio_ms == 200
    assert clock.mark("other") is None


# A client's reports of a reply


def cut_at(clock: HeardClock, voice: Voice, ms: int) -> HeardReply:
    """Return the reply after an interruption at which that much of it was played."""
    voice.write(1_000).play(ms)
    return only(clock.interrupted(voice.now_us))


def test_a_client_that_says_it_before_the_reply_is_over_has_the_last_word():
    clock = HeardClock()
    voice = Voice(clock, TEN).queue()
    assert clock.claim("r", 160 * MS, 0) is None
    reply = cut_at(clock, voice, 600)
    assert (reply.text, reply.mark.audio_ms) == ("One two", 160)
    assert reply.mark.source is HeardSource.CLIENT_REPORT
    assert reply.unheard.startswith("three,")


def test_a_client_that_says_it_after_the_end_corrects_what_was_believed():
    clock = HeardClock()
    believed = cut_at(clock, Voice(clock, TEN).queue(), 600)
    assert believed.mark.source is HeardSource.PLAYOUT_CLOCK
    reply = clock.claim("r", 260 * MS, 10**9)
    assert reply is not None
    assert (reply.text, reply.mark.audio_ms, reply.truncated) == ("One two three,", 260, True)
    assert reply.mark.source is HeardSource.CLIENT_REPORT
    # The time at which it was heard does not change with the time of the report.
    assert (reply.started_us, reply.ended_us) == (believed.started_us, believed.ended_us)
    assert clock.mark("r") == reply.mark


def test_what_a_client_says_twice_is_news_once_and_what_it_says_then_counts():
    clock = HeardClock()
    cut_at(clock, Voice(clock, TEN).queue(), 600)
    assert clock.claim("r", 260 * MS, 0) is not None
    assert clock.claim("r", 260 * MS, 0) is None
    shorter = clock.claim("r", 160 * MS, 0)
    assert shorter is not None
    assert shorter.text == "One two"


def test_no_one_has_heard_more_than_there_was():
    clock = HeardClock()
    cut_at(clock, Voice(clock, TEN).queue(), 600)
    reply = clock.claim("r", 60_000 * MS, 0)
    assert reply is not None
    assert (reply.text, reply.mark.audio_ms, reply.truncated) == (TEN, 1_000, False)


def test_what_is_said_of_no_reply_is_nothing():
    assert HeardClock().claim("nobody", 100 * MS, 0) is None
