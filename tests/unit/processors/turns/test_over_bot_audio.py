"""Voices over the bot whose words are too unsure to cut it, or whose audio comes in long pieces."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pipecat.frames.frames import (
    Frame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)

from parley.core.call_events import (
    ReplyCut,
    ReplyRestored,
)
from parley.processors.perception.voice_onset import AUDIO_AHEAD, AUDIO_END
from tests.unit.processors.turns.strategy_floor import Floor, no_command, play, spotter
from tests.voices import tone


def ahead(
    frame: VADUserStartedSpeakingFrame | VADUserStoppedSpeakingFrame, ahead_ms: int, heard_ms: int
) -> Frame:
    """Return the report of a voice in a long piece, of which so much is later than what was judged."""
    AUDIO_END.put(frame, 16 * (heard_ms - ahead_ms))
    AUDIO_AHEAD.put(frame, 16 * ahead_ms)
    return frame


@pytest.mark.parametrize("ahead_ms", [0, 220])
def test_a_voice_cuts_by_its_length_however_long_the_pieces_of_audio_are(ahead_ms: int) -> None:
    def heard_ms() -> int:
        return round(asyncio.get_running_loop().time() * 1_000)

    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await asyncio.sleep(1)
        # A piece comes that has 128 ms of voice before the moment of certainty, and so much after it.
        await floor.give(ahead(VADUserStartedSpeakingFrame(start_secs=0.128), ahead_ms, heard_ms()))
        await asyncio.sleep(3)

    [cut] = play(scenario, heard_ms=heard_ms).of(ReplyCut)
    assert cut.at_ms - 1_001_000 == 796 - 128 - ahead_ms


def test_a_voice_whose_end_is_in_the_same_piece_of_audio_is_not_cut_before_that_is_judged() -> None:
    came_ms = 10_000

    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await asyncio.sleep(1)
        # A second of audio at once: 300 ms of voice in its first half.
        await floor.give(ahead(VADUserStartedSpeakingFrame(start_secs=0.128), 800, came_ms))
        await asyncio.sleep(0.1)
        await floor.give(ahead(VADUserStoppedSpeakingFrame(stop_secs=0.16), 468, came_ms))
        await asyncio.sleep(3)

    # Judged up to the report of the beginning; the rest follows slowly.
    assert play(scenario, heard_ms=lambda: came_ms - 800).of(ReplyCut) == []


@pytest.mark.parametrize("ended_ms", [0, 220])
def test_a_hum_is_as_long_as_it_was_however_long_the_pieces_of_audio_are(ended_ms: int) -> None:
    length_ms, stop_words = 620, no_command(50)

    async def scenario(floor: Floor) -> None:
        floor.reply("one")
        await asyncio.sleep(1)
        stop_words.hear(bytes(320))
        await floor.give(ahead(VADUserStartedSpeakingFrame(start_secs=0.128), 0, 10_000))
        # Voice activity is certain of the end after 160 ms, and hears of it with the rest of the piece.
        after_ms = length_ms + 160 + ended_ms - 128
        await asyncio.sleep(after_ms / 1_000)
        await floor.give(
            ahead(VADUserStoppedSpeakingFrame(stop_secs=0.16), ended_ms, 10_000 + after_ms),
        )
        await floor.words("about fees", 0.5)
        await asyncio.sleep(3)

    # No audio is judged between the arrivals of two pieces.
    floor = play(scenario, heard_ms=lambda: 10_000, stop_words=stop_words)
    assert floor.of(ReplyCut) == []


def test_a_command_is_spotted_from_its_beginning_when_the_loop_is_late() -> None:
    # 600 ms of voice make the word, and 500 ms of silence are before it.
    stop_words, heard_ms = spotter(20, "stop", word_ms=580), 500

    async def scenario(floor: Floor) -> None:
        nonlocal heard_ms
        floor.reply("one")
        await asyncio.sleep(1)
        for pcm in (bytes(32 * 500), tone(600), bytes(32 * 500)):
            stop_words.hear(pcm)
        # The report of the voice comes when all of it was judged, and the silence after it.
        began = ahead(VADUserStartedSpeakingFrame(start_secs=0.128), 0, 500 + 128)
        heard_ms = 1_600
        await floor.give(began)
        await floor.give(ahead(VADUserStoppedSpeakingFrame(stop_secs=0.16), 0, 1_100 + 160))
        await asyncio.sleep(0.1)

    [cut] = play(scenario, stop_words=stop_words, heard_ms=lambda: heard_ms).of(ReplyCut)
    assert cut.reason == "stop_word"


def unsure_words_and(
    then: Callable[[Floor], Awaitable[None]], *, is_own: Callable[[], bool | None] | None = None
) -> Floor:
    """Play words over a reply that are too unsure to cut it, and what comes 0.3 s after their voice."""
    stop_words = no_command(50)

    async def scenario(floor: Floor) -> None:
        floor.reply("r1")
        stop_words.hear(bytes(320))
        await floor.voice(300)
        await floor.words("about fees", 0.5)
        await asyncio.sleep(0.14)
        assert floor.of(ReplyCut) == [] and len(floor.of(ReplyRestored)) == 1
        stop_words.hear(bytes(320))
        await then(floor)
        floor.lose("r1", heard="a", unheard="b")
        await asyncio.sleep(5)
        assert floor.said == [] and floor.policy.next_deadline_ms() is None

    return play(scenario, stop_words=stop_words, is_own=is_own)


@pytest.mark.parametrize("length_ms", [500, 1_500], ids=["cut by words", "cut by length"])
def test_words_too_unsure_to_cut_are_in_the_turn_that_the_next_voice_begins(length_ms: int) -> None:
    async def goes_on(floor: Floor) -> None:
        await floor.voice(length_ms)
        await floor.words("tell me the price", 0.95)
        await asyncio.sleep(1)

    assert unsure_words_and(goes_on).answered == ["about fees tell me the price"]


@pytest.mark.parametrize("text", ["", "mhm"], ids=["cough", "listener"])
def test_words_too_unsure_to_cut_are_dropped_where_no_voice_takes_the_floor_after_them(text: str) -> None:
    async def makes_a_sound(floor: Floor) -> None:
        await floor.voice(200)
        if text:
            await floor.words(text, 0.95)
        await asyncio.sleep(3)
        assert floor.said == []
        await floor.voice(1_500)
        await floor.words("tell me the price", 0.95)
        await asyncio.sleep(1)

    assert unsure_words_and(makes_a_sound).answered == ["tell me the price"]


def test_words_too_unsure_to_cut_are_dropped_at_the_latest_a_second_after_their_voice() -> None:
    async def falls_silent(floor: Floor) -> None:
        assert floor.said == ["about fees"]
        await asyncio.sleep(0.75)
        assert floor.said == ["about fees"]
        await asyncio.sleep(0.2)
        assert floor.said == []

    floor = unsure_words_and(falls_silent)
    assert floor.turns == 0


def test_words_that_turn_out_to_be_the_bots_own_are_in_no_turn() -> None:
    looks: list[bool | None] = []

    async def echoes(floor: Floor) -> None:
        looks.append(True)
        await floor.voice(500)
        looks.clear()
        await asyncio.sleep(0.5)
        assert floor.said == []

    assert unsure_words_and(echoes, is_own=lambda: looks[0] if looks else None).answered == []


def test_words_too_unsure_to_cut_are_in_the_turn_that_begins_when_the_reply_is_over() -> None:
    async def goes_on_in_silence(floor: Floor) -> None:
        floor.lose("r1", heard="a", unheard="")
        await floor.voice(900)
        await floor.words("tell me the price", 0.95)
        await asyncio.sleep(1)

    floor = unsure_words_and(goes_on_in_silence)
    assert floor.answered == ["about fees tell me the price"] and floor.of(ReplyCut) == []


def test_words_too_unsure_to_cut_that_come_late_do_not_end_the_turn_of_the_next_voice() -> None:
    stop_words = no_command(50)

    async def scenario(floor: Floor) -> None:
        floor.reply("r1")
        await asyncio.sleep(1)
        stop_words.hear(bytes(320))
        await floor.voice(300)
        # The spotter has found nothing when the next voice begins, and the reply is over.
        await asyncio.sleep(0.2)
        await floor.give(VADUserStartedSpeakingFrame(start_secs=0.128))
        floor.lose("r1", heard="a", unheard="")
        await asyncio.sleep(0.02)
        assert floor.turns == 1
        await floor.words("about fees", 0.5)
        await asyncio.sleep(0.5)
        await floor.give(VADUserStoppedSpeakingFrame(stop_secs=0.16))
        await floor.words("tell me the price", 0.95)
        await asyncio.sleep(3)

    floor = play(scenario, stop_words=stop_words)
    assert floor.answered == ["about fees tell me the price"] and floor.of(ReplyCut) == []
