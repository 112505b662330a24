import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InputTextRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    SpeechOutputAudioRawFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.tests.utils import run_test

from parley.core.call_events import ServiceSent, ServiceSpoke, TextTyped, WaitBegan, WaitEnded
from parley.processors.duplex.answer_watch import AnswerWatch
from parley.processors.duplex.realtime import RealtimeReplies, ServiceGate, TypedWords
from parley.processors.duplex.services import TypedInput
from parley.processors.playout.assistant import HEARD_LATER
from parley.processors.playout.playout import Playout
from parley.processors.turns.floor import Floor
from parley.runtime.event_stream import CallEvents
from tests import virtual_time

RATE_HZ = 24_000
SOUND = (8_000 * np.sin(np.arange(RATE_HZ // 10) / 10)).astype("<i2").tobytes()
SILENCE = bytes(len(SOUND))


def sound(context_id: str | None = None) -> TTSAudioRawFrame:
    return TTSAudioRawFrame(audio=SOUND, sample_rate=RATE_HZ, num_channels=1, context_id=context_id)


def stream(pcm: bytes) -> SpeechOutputAudioRawFrame:
    return SpeechOutputAudioRawFrame(audio=pcm, sample_rate=RATE_HZ, num_channels=1)


def said(text: str) -> list[Frame]:
    spoken = TTSTextFrame(text, "sentence")
    spoken.includes_inter_frame_spaces = True
    return [LLMTextFrame(text), spoken]


async def through(replies: RealtimeReplies, frames: Sequence[Frame]) -> list[Frame]:
    down, _ = await run_test(replies, frames_to_send=frames)
    return list(down)


def kinds(frames: Sequence[Frame]) -> list[str]:
    short = {
        LLMFullResponseStartFrame: "begins",
        LLMFullResponseEndFrame: "ends",
        TTSStartedFrame: "voice",
        TTSStoppedFrame: "silent",
        TTSAudioRawFrame: "audio",
        LLMTextFrame: "text",
    }
    return [short[type(frame)] for frame in frames if type(frame) in short]


WHOLE = ["begins", "text", "voice", "audio", "audio", "silent", "ends"]


def playing() -> Playout:
    return Playout(events=CallEvents())


@pytest.mark.parametrize(
    "frames",
    [
        # OpenAI: begun when requested and when answered; its end comes before that of the response.
        [LLMFullResponseStartFrame(), LLMFullResponseStartFrame(), *said("Yes."), TTSStartedFrame(), sound(),
         sound(), TTSStoppedFrame(), LLMFullResponseEndFrame()],
        # Gemini: the voice begins before the response.
        [TTSStartedFrame(), LLMFullResponseStartFrame(), *said("Yes."), sound(), sound(), TTSStoppedFrame(),
         LLMFullResponseEndFrame()],
        # Nova Sonic: the reverse order at the end.
        [LLMFullResponseStartFrame(), TTSStartedFrame(), *said("Yes."), sound(), sound(),
         LLMFullResponseEndFrame(), TTSStoppedFrame()],
    ],
    ids=["openai", "gemini", "nova"],
)  # fmt: skip
async def test_every_order_of_a_service_leaves_as_one_reply(frames: list[Frame]):
    down = await through(RealtimeReplies(playing()), frames)
    assert kinds(down) == WHOLE
    audio = [frame for frame in down if isinstance(frame, TTSAudioRawFrame)]
    [started] = [frame for frame in down if isinstance(frame, TTSStartedFrame)]
    assert {frame.context_id for frame in audio} == {started.context_id}
    assert started.context_id is not None
    [written] = [frame for frame in down if isinstance(frame, TTSTextFrame)]
    assert HEARD_LATER.is_on(written)


async def test_text_is_spread_over_the_audio_however_they_come():
    playout = playing()
    frames = [LLMFullResponseStartFrame(), *said("one two"), *said(" three four"), sound()]
    down = await through(RealtimeReplies(playout), frames)
    [started] = [frame for frame in down if isinstance(frame, TTSStartedFrame)]
    reply_id = started.context_id or ""
    heard_clock = playout.heard_clock
    heard_clock.part_begins(reply_id)
    heard_clock.queued(reply_id, 4_000_000)
    heard_clock.close(reply_id)
    heard_clock.speaks(reply_id)
    heard_clock.written(4_000_000, 0)
    heard_clock.played(2_000_000, 2_000_000)
    assert heard_clock.texts(reply_id) == ("one two", "three four")


@pytest.mark.parametrize(
    ("typing", "handed_on", "received"),
    [
        (TypedInput.MESSAGES, [LLMMessagesAppendFrame], ["How much?"]),
        (TypedInput.TEXT, [InputTextRawFrame], ["How much?"]),
        (TypedInput.NONE, [], []),
    ],
)
async def test_typed_words_go_the_way_that_the_service_has_for_them(
    typing: TypedInput, handed_on: list[type[Frame]], received: list[str]
):
    handed: list[Frame] = []
    heard: list[str] = []

    async def hand_on(frame: Frame) -> None:
        handed.append(frame)

    events = CallEvents()
    events.subscribe(TextTyped, lambda event: heard.append(event.text))
    words = TypedWords(typing, hand_on=hand_on, events=events)
    messages = [{"role": "user", "content": "How much?"}, {"role": "developer", "content": "Be brief."}]
    frame = LLMMessagesAppendFrame(cast(Any, messages), run_llm=True)
    down, _ = await run_test(words, frames_to_send=[frame])
    assert not any(isinstance(each, LLMMessagesAppendFrame) for each in down)
    assert [type(each) for each in handed] == handed_on
    assert heard == received
    if typing is TypedInput.TEXT:
        assert [each.text for each in handed if isinstance(each, InputTextRawFrame)] == ["How much?"]


async def test_sentences_of_a_service_that_gives_no_spaces_are_kept_apart():
    playout = playing()
    frames = [LLMFullResponseStartFrame(), *said("Yes."), *said("It is."), *said(" So."), *said("3"), sound()]
    down = await through(RealtimeReplies(playout), frames)
    [started] = [frame for frame in down if isinstance(frame, TTSStartedFrame)]
    assert playout.heard_clock.texts(started.context_id or "")[1] == "Yes. It is. So.3"


async def test_what_comes_after_an_interruption_is_dropped_until_another_reply_begins():
    playout = playing()
    floor, replies = Floor(playout.events), RealtimeReplies(playout)
    frames = [
        LLMFullResponseStartFrame(),
        sound(),
        InterruptionFrame(),
        TTSStartedFrame(),
        sound(),
        *said("late"),
        LLMFullResponseEndFrame(),
        TTSStoppedFrame(),
        LLMFullResponseStartFrame(),
        sound(),
        LLMFullResponseEndFrame(),
    ]
    down = await through(replies, frames)
    assert kinds(down) == ["begins", "voice", "audio", "begins", "voice", "audio", "silent", "ends"]
    assert replies.late_frames == 2
    assert not floor.holds_reply()


async def test_what_the_deployments_voice_says_passes():
    own = [
        TTSStartedFrame(context_id="own"),
        sound("own"),
        TTSTextFrame("Sorry.", "sentence", context_id="own"),
        TTSStoppedFrame(context_id="own"),
    ]
    down = await through(RealtimeReplies(playing()), own)
    assert [frame.id for frame in down if not isinstance(frame, InterruptionFrame)] == [f.id for f in own]


async def test_a_response_without_a_sound_begins_and_ends():
    down = await through(
        RealtimeReplies(playing()),
        [LLMFullResponseStartFrame(), LLMFullResponseEndFrame()],
    )
    assert kinds(down) == ["begins", "ends"]


async def test_a_stream_is_cut_into_replies_by_its_silences():
    spoke: list[ServiceSpoke] = []
    playout = playing()
    playout.events.subscribe(ServiceSpoke, spoke.append)
    replies = RealtimeReplies(playout, continuous=True)
    short_gap, long_gap = [stream(SILENCE)] * 3, [stream(SILENCE)] * 12
    frames = [
        *long_gap,
        stream(SOUND),
        LLMFullResponseStartFrame(),
        TTSStartedFrame(),
        *said("Yes."),
        *short_gap,
        stream(SOUND),
        *long_gap,
        TTSStoppedFrame(),
        LLMFullResponseEndFrame(),
        stream(SOUND),
    ]
    down = await through(
        replies, [stream(frame.audio) if hasattr(frame, "audio") else frame for frame in frames]
    )
    # The first two pieces leave together: a lead of 120 ms.
    reply = ["begins", "text", "voice", "audio", *["audio"] * 2, "audio", *["audio"] * 8, "silent", "ends"]
    assert kinds(down) == [*reply, "begins"]
    assert len(spoke) == 1
    first = next(frame for frame in down if isinstance(frame, TTSAudioRawFrame))
    assert first.audio == SOUND + SILENCE


async def test_all_that_a_service_sends_of_a_reply_is_reported():
    sent: list[bool] = []
    playout = playing()
    playout.events.subscribe(ServiceSent, lambda event: sent.append(event.is_reply_open))
    frames = [LLMFullResponseStartFrame(), LLMTextFrame("Yes."), sound(), TTSStoppedFrame()]
    await through(RealtimeReplies(playout), [*frames, LLMFullResponseEndFrame()])
    assert sent == [True, True, True, False]


async def test_a_service_that_was_begun_without_a_context_is_given_none():
    context = LLMContextFrame(LLMContext())
    for takes, expected in ((True, 1), (False, 0)):
        down, _ = await run_test(ServiceGate(takes_contexts=takes), frames_to_send=[context])
        assert sum(isinstance(frame, LLMContextFrame) for frame in down) == expected


async def test_a_service_that_is_gone_hears_nothing():
    gate = ServiceGate(takes_contexts=True)
    gate.shut()
    heard = InputAudioRawFrame(audio=SOUND, sample_rate=RATE_HZ, num_channels=1)
    down, _ = await run_test(gate, frames_to_send=[heard])
    assert not [frame for frame in down if isinstance(frame, InputAudioRawFrame)]


@dataclass
class Watched:
    watch: AnswerWatch
    waiting: list[bool]
    apologies: list[tuple[int, bool]]


def watched(scenario: str) -> Watched:
    """Run a scenario of letters, half a second each: (e)nd of a turn, (w)ords, (a)nswer, (.) nothing.

    From (s) to (q) the service speaks.
    """

    async def run() -> Watched:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        waiting: list[bool] = []
        speaks = False
        events = CallEvents()
        events.subscribe(WaitBegan, lambda _event: waiting.append(True))
        events.subscribe(WaitEnded, lambda _event: waiting.append(False))
        watch = AnswerWatch(1_000, events, is_speaking=lambda: speaks)
        made = Watched(watch, waiting, [])

        async def apologise(is_last: bool) -> None:
            made.apologies.append((round((loop.time() - began_s) * 1_000), is_last))

        running = asyncio.create_task(made.watch.run(apologise))
        does = {
            "e": made.watch.on_turn_ended,
            "w": made.watch.on_words,
            "a": lambda: events.publish(ServiceSpoke(events.now_ms())),
        }
        for letter in scenario:
            speaks = letter == "s" or (speaks and letter != "q")
            if letter in does:
                does[letter]()
            await asyncio.sleep(0.5)
        running.cancel()
        return made

    return virtual_time.run(run())


@pytest.mark.parametrize(
    ("scenario", "apologies"),
    [
        ("ewa.....", []),
        ("eaw.....", []),
        ("ew......", [(1_500, False)]),
        ("ew....ew.....", [(1_500, False), (4_500, True)]),
        ("ew....ewa..ew....", [(1_500, False), (7_000, False)]),
        ("ewa.we....", [(3_500, False)]),
        ("eaw.......e....", []),
        ("ewsssssssq....", [(5_500, False)]),
    ],
    ids=[
        "answered",
        "words come late",
        "not answered",
        "twice in a row",
        "answered between",
        "words come first",
        "a noise behind late words",
        "said over a long reply",
    ],
)
def test_an_answer_that_does_not_come_is_noticed(scenario: str, apologies: list[tuple[int, bool]]):
    made = watched(scenario)
    assert made.apologies == apologies
    assert made.waiting == [True, False] * (len(made.waiting) // 2)
