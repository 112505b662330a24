"""Words of a recorded call, given again to a call that is held again; on virtual time."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from parley.core.call_events import CallerJoined, UtteranceRead
from parley.core.errors import EngineError
from parley.core.media import WordTime
from parley.models.stt import Transcript
from parley.processors.perception.recorded_words import HeardLength, NotedUtterances, ReplayedUtterances
from parley.recording.words import MOST_REPEATED, as_message, utterances_of
from parley.runtime.event_stream import CallEvents
from parley.runtime.utterances import UtteranceEngine
from tests import virtual_time
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.in_place_engine import InPlaceEngine, as_transcript
from tests.voices import RATE_HZ, silence, tone

PIECE_MS = 20
RECOGNISER = "scripted 1"
# Where an utterance begins, and how long it is.
FIRST, SECOND = (1_000, 800), (3_000, 400)


def engine(*words: str) -> UtteranceEngine[Transcript]:
    return InPlaceEngine(ScriptedStt(ScriptedSttSettings(words=words, floor_log_odds=0.5)), as_transcript)


async def spoken(
    engine: UtteranceEngine[Transcript],
    events: CallEvents,
    utterances: Sequence[tuple[int, int]],
    audio: HeardLength,
    late_ms: int = 0,
) -> list[tuple[int, Transcript]]:
    """Return everything that the recogniser says of these utterances, each after its time in the call.

    The machine is this late with everything. Before an utterance the caller is silent.
    """
    loop = asyncio.get_running_loop()
    heard: list[tuple[int, Transcript]] = []
    began_s = loop.time()

    def on_words(transcript: Transcript) -> None:
        heard.append((round((loop.time() - began_s) * 1_000), transcript))

    stream = await engine.open_stream(on_words, lambda error: pytest.fail(str(error)))
    events.publish(CallerJoined(events.now_ms()))
    for start_ms, length_ms in utterances:
        await asyncio.sleep(began_s + (start_ms + late_ms) / 1_000 - loop.time())
        audio.add(silence(start_ms - audio.length_ms), RATE_HZ)
        stream.start()
        for _ in range(length_ms // PIECE_MS):
            audio.add(tone(PIECE_MS), RATE_HZ)
            stream.feed(tone(PIECE_MS))
            await asyncio.sleep(PIECE_MS / 1_000)
        on_words(await asyncio.wait_for(stream.finish(), 5))
    stream.close()
    return heard


def texts(heard: Sequence[tuple[int, Transcript]]) -> list[tuple[int, str]]:
    return [(at_ms, transcript.text) for at_ms, transcript in heard]


async def recorded(*utterances: tuple[int, int]) -> tuple[list[tuple[int, Transcript]], list[UtteranceRead]]:
    """Return what the recogniser of a recorded call says, and the events of the recording."""
    events, noted = CallEvents(), list[UtteranceRead]()
    events.subscribe(UtteranceRead, noted.append)
    audio = HeardLength()
    noting = NotedUtterances(engine("a", "b"), events, RECOGNISER, audio)
    return await spoken(noting, events, utterances, audio), noted


def kept(
    noted: Sequence[UtteranceRead], arrival_ms: int, *, left_out_ms: int = 0, has_places: bool = True
) -> tuple[UtteranceRead, ...]:
    """Return the events as a replay reads them from the file of the recording."""
    lines = [{"event": "UtteranceRead", "at_ms": each.at_ms, **as_message(each)} for each in noted]
    if not has_places:
        for line in lines:
            del line["heard_ms"]
    return utterances_of(json.loads(json.dumps(lines)), arrival_ms, left_out_ms=left_out_ms)


def replayed(
    *utterances: tuple[int, int],
    then: Sequence[tuple[int, int]] = (FIRST, SECOND),
    late_ms: int = 0,
    **how: Any,
) -> tuple[list[tuple[int, Transcript]], list[tuple[int, Transcript]]]:
    async def scenario() -> tuple[list[tuple[int, Transcript]], list[tuple[int, Transcript]]]:
        arrival_ms = CallEvents().now_ms()
        first, noted = await recorded(*then)
        await asyncio.sleep(7)
        events = CallEvents()
        audio = HeardLength()
        again = ReplayedUtterances(engine("x", "y"), kept(noted, arrival_ms, **how), events, audio)
        return first, await spoken(again, events, utterances, audio, late_ms)

    return virtual_time.run(scenario())


def test_utterances_of_the_recording_have_their_words_at_their_moments():
    first, again = replayed(FIRST, SECOND)
    assert again == first
    assert texts(again)[-1] == (3_400, "a b") and again[-1][1].words[1].start_ms == 200


@pytest.mark.parametrize("later_ms", [60, 200, -200])
def test_an_utterance_that_begins_a_few_windows_later_or_earlier_is_the_same(later_ms: int):
    """It ends where the recorded one did, and its partial texts come at their moments."""
    first, again = replayed((FIRST[0] + later_ms, FIRST[1] - later_ms + 40))
    finals = [transcript for _, transcript in (first[4], again[-1])]
    assert finals[0] == finals[1] and finals[0].final
    at_ms = [[at_ms for at_ms, transcript in heard if not transcript.final] for heard in (first[:5], again)]
    assert at_ms[1] == [max(moment, FIRST[0] + later_ms) for moment in at_ms[0]]


@pytest.mark.parametrize("utterance", [(FIRST[0] + 400, FIRST[1]), (FIRST[0], 400), (FIRST[0], 1_600)])
def test_an_utterance_that_differs_is_read_anew(utterance: tuple[int, int]):
    _, again = replayed(utterance)
    assert again[-1][1].text.split() == ["x", "y", "x", "y", "x", "y", "x", "y"][: utterance[1] // 200]


def test_an_utterance_that_goes_on_is_read_with_its_beginning_and_says_nothing_old_then():
    _, again = replayed((SECOND[0], 1_600))
    later = [text for at_ms, text in texts(again) if at_ms > SECOND[0] + SECOND[1] + 200]
    assert later and not any("a" in text for text in later)


def test_an_utterance_at_its_place_in_the_audio_is_the_same_on_a_machine_that_is_late():
    first, again = replayed(FIRST, SECOND, late_ms=700)
    assert [transcript for _, transcript in again] == [transcript for _, transcript in first]


def test_audio_from_before_the_replay_is_not_counted():
    earlier = [(start_ms - 500, length_ms) for start_ms, length_ms in (FIRST, SECOND)]
    first, again = replayed(*earlier, left_out_ms=500)
    assert [transcript for _, transcript in again] == [transcript for _, transcript in first]


def test_a_recording_without_places_has_its_words_by_their_times():
    first, again = replayed(FIRST, SECOND, has_places=False)
    assert again == first
    _, again = replayed(FIRST, late_ms=700, has_places=False)
    assert again[-1][1].text == "x y x y"


def test_words_are_given_once():
    _, again = replayed(FIRST, (FIRST[0] + FIRST[1] + 1, 200), then=[FIRST])
    assert [transcript.text for _, transcript in again if transcript.final] == ["a b a b", "x"]


def test_a_discarded_utterance_says_nothing_more():
    async def scenario() -> list[str]:
        events, heard = CallEvents(), list[str]()
        utterance = UtteranceRead(
            300,
            recogniser=RECOGNISER,
            since_ms=300,
            audio_ms=200,
            took_ms=100,
            partials=((100, "a"), (150, "a b")),
            text="a b",
            words=(WordTime("a", 0, 100), WordTime("b", 100, 200)),
            confidence=0.9,
            floor_log_odds=None,
        )
        replay = ReplayedUtterances(engine("x"), [utterance], events, HeardLength())
        stream = await replay.open_stream(lambda partial: heard.append(partial.text), pytest.fail)
        events.publish(CallerJoined(events.now_ms()))
        stream.start()
        stream.feed(silence(100))
        await asyncio.sleep(0.12)
        stream.discard()
        await asyncio.sleep(1)
        return heard

    assert virtual_time.run(scenario()) == ["a"]


def test_a_final_that_fails_is_not_noted():
    async def scenario() -> list[UtteranceRead]:
        events, noted = CallEvents(), list[UtteranceRead]()
        events.subscribe(UtteranceRead, noted.append)
        broken = InPlaceEngine(ScriptedStt(ScriptedSttSettings(raise_after_ms=100)), as_transcript)
        failures: list[EngineError] = []
        noting = NotedUtterances(broken, events, RECOGNISER, HeardLength())
        stream = await noting.open_stream(lambda _partial: None, failures.append)
        stream.start()
        stream.feed(tone(300))
        with pytest.raises(EngineError):
            await stream.finish()
        assert failures
        return noted

    assert virtual_time.run(scenario()) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"words": [["a", 0, 10]]},
        {"confidence": 7},
        {"partials": [[0, 0, "a"]] * 2_000},
        {"since_ms": -1},
        {"text": None},
    ],
)
def test_an_utterance_in_another_form_is_left_out(broken: dict[str, object]):
    async def scenario() -> list[UtteranceRead]:
        return (await recorded(FIRST))[1]

    (noted,) = virtual_time.run(scenario())
    line = {"event": "UtteranceRead", "at_ms": noted.at_ms, **as_message(noted)}
    assert len(utterances_of([line], 0)) == 1
    assert utterances_of([{**line, **broken}], 0) == ()


def test_partial_texts_of_a_foreign_recording_are_bounded():
    line = {
        "event": "UtteranceRead",
        "at_ms": 1,
        **as_message(
            UtteranceRead(
                1,
                recogniser=RECOGNISER,
                since_ms=1,
                audio_ms=1,
                took_ms=0,
                partials=((0, "a" * 50_000),),
                text="a",
                words=(),
                confidence=1.0,
                floor_log_odds=None,
            )
        ),
    }
    line["partials"] += [(0, 49_999, "b")] * 900  # type: ignore[operator]
    (found,) = utterances_of([line], 0)
    assert sum(len(text) for _, text in found.partials) <= MOST_REPEATED
