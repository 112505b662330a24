"""A service voice with an embedded one after it, in a real pipeline with a paced output, on virtual time."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from pipecat.frames.frames import ErrorFrame, InterruptionFrame, TTSAudioRawFrame, TTSTextFrame
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.call_events import EnginesGivenUp
from parley.core.failover import CircuitBreaker, FailoverReason
from parley.processors.speech.audio_deadlines import FIRST_AUDIO_S, NEXT_AUDIO_S
from parley.processors.speech.service_voice import ServiceVoice
from tests import virtual_time
from tests.fakes.failover_call import RATE_HZ, FailoverCall
from tests.fakes.service_voice import Fault, ScriptedTtsService
from tests.fakes.tts import ToneTts

REPLY = "One two three four five six."
WORDS = REPLY.split()
COOL_DOWN_MS = 5_000


def new_breaker() -> CircuitBreaker:
    return CircuitBreaker(max_failures=1, cool_down_ms=COOL_DOWN_MS, longest_cool_down_ms=20_000)


class ScriptedCall(FailoverCall):
    """Call with scripted service voices.

    Args:
        faults: of each service voice, the faults of its services in the order in which they are built.
        breaker: breaker of all of them; None for one each.
        embedded: arguments of the embedded voice.
        speaks_on: see ``FailoverVoices``.
        **voice: arguments of the scripted services.
    """

    def __init__(
        self,
        *faults: list[list[Fault]],
        breaker: CircuitBreaker | None = None,
        embedded: dict[str, Any] | None = None,
        speaks_on: bool = True,
        **voice: Any,
    ) -> None:
        self.clauses: list[list[str]] = [[] for _ in faults]
        self.built = [0 for _ in faults]
        self.services: list[ScriptedTtsService] = []

        def building(place: int) -> Callable[[], Awaitable[FrameProcessor]]:
            async def build() -> FrameProcessor:
                scripts = faults[place]
                script = scripts[min(self.built[place], len(scripts) - 1)]
                self.built[place] += 1
                service = ScriptedTtsService(script, clauses=self.clauses[place], **voice)
                self.services.append(service)
                return service

            return build

        services = [
            ServiceVoice(f"service{place}", building(place), breaker or new_breaker(), rate_hz=RATE_HZ)
            for place in range(len(faults))
        ]
        super().__init__(services, ToneTts(**embedded or {}), speaks_on=speaks_on)


Scenario = Callable[[ScriptedCall], Awaitable[None]]


def play(call_of: Callable[[], ScriptedCall], scenario: Scenario) -> ScriptedCall:
    async def run() -> ScriptedCall:
        call = call_of()
        await call.hold(lambda: scenario(call))
        return call

    return virtual_time.run(run())


async def one_reply(call: ScriptedCall) -> None:
    await call.says(REPLY)
    await asyncio.sleep(10)


def test_a_service_voice_that_works_says_everything_with_its_own_word_times():
    call = play(lambda: ScriptedCall([[Fault.NONE]]), one_reply)
    assert call.words() == WORDS
    assert call.tones() == ["service"]
    assert call.changes() == []
    assert call.embedded.clauses == []
    times = [at for at, frame in call.heard.frames if isinstance(frame, TTSTextFrame)]
    assert np.diff(times) == pytest.approx([0.1] * 5, abs=0.002)


@pytest.mark.parametrize(
    ("fault", "reason", "within_s"),
    [
        (Fault.ERROR, FailoverReason.ERROR, 0.05),
        (Fault.HANG, FailoverReason.LATE, FIRST_AUDIO_S + 0.05),
        (Fault.NO_CONNECTION, FailoverReason.LATE, FIRST_AUDIO_S + 0.05),
        (Fault.SILENCE, FailoverReason.SILENT, 0.05),
        # Pipecat reports it as an error.
        (Fault.EMPTY, FailoverReason.ERROR, 0.05),
    ],
)
def test_a_clause_without_sound_is_said_whole_by_the_next_voice(
    fault: Fault, reason: FailoverReason, within_s: float
):
    call = play(lambda: ScriptedCall([[fault]]), one_reply)
    assert call.words() == WORDS
    assert call.tones() == ["embedded"]
    assert call.changes() == [("service0", "embedded", reason)]
    assert call.first_sound_s() <= within_s
    assert not call.upstream.of(ErrorFrame)


# A word of 100 ms counts as heard once half of it has been played, and is said again before that.
@pytest.mark.parametrize("cut_ms", [20, 40, 60, 140, 160, 240, 260, 520])
@pytest.mark.parametrize(("fault", "reason"), [(Fault.CUT, "error"), (Fault.STALL, "stalled")])
def test_a_clause_that_breaks_off_is_said_to_its_end_and_no_word_twice(
    fault: Fault, reason: str, cut_ms: int
):
    call = play(lambda: ScriptedCall([[fault]], cut_ms=cut_ms), one_reply)
    said = (cut_ms + 50) // 100
    rest = " ".join(WORDS[said:])
    assert call.words() == WORDS
    assert call.embedded.clauses == ([rest] if rest else [])
    assert call.tones() == (["service", "embedded"] if rest else ["service"])
    if rest:
        assert call.changes() == [("service0", "embedded", reason)]
    times = [at for at, frame in call.heard.frames if isinstance(frame, TTSTextFrame)]
    # The words of the second voice are timed from the end of the first one's audio, wherever that was.
    assert np.diff(times)[said:] == pytest.approx([0.1] * (5 - said), abs=0.003)


CLAUSES = [
    "One two three four five six.",
    "Seven eight nine ten eleven.",
    "Twelve thirteen fourteen fifteen.",
]


async def three_clauses(call: ScriptedCall) -> None:
    await call.says(*(f"{clause} " for clause in CLAUSES))
    await asyncio.sleep(10)


def test_the_words_of_later_clauses_have_the_times_of_their_own_audio():
    call = play(lambda: ScriptedCall([[Fault.NONE]]), three_clauses)
    assert call.words() == " ".join(CLAUSES).split()
    times = [at for at, frame in call.heard.frames if isinstance(frame, TTSTextFrame)]
    assert np.diff(times) == pytest.approx([0.1] * (len(times) - 1), abs=0.003)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_later_clause_that_breaks_off_is_said_to_its_end_and_no_word_twice(failing: int):
    faults = [*[Fault.NONE] * failing, Fault.CUT]
    call = play(lambda: ScriptedCall([faults], cut_ms=260), three_clauses)
    rest = " ".join(CLAUSES[failing].split()[3:])
    later = CLAUSES[failing + 1 :]
    assert call.words() == " ".join(CLAUSES).split()
    assert call.embedded.clauses == ([rest] if rest else []) + later


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.STALL])
def test_a_clause_of_which_only_the_notice_of_its_end_is_missing_is_whole(fault: Fault):
    call = play(lambda: ScriptedCall([[fault]], word_ms=300, cut_ms=1_800), one_reply)
    assert call.words() == WORDS
    assert call.embedded.clauses == [] and call.changes() == []


def test_a_stall_is_noticed_within_its_deadline():
    call = play(lambda: ScriptedCall([[Fault.STALL]], cut_ms=200), one_reply)
    starts = [at for at, frame in call.made.frames if isinstance(frame, TTSAudioRawFrame)]
    assert max(np.diff(starts)) <= NEXT_AUDIO_S + 0.05


def test_a_voice_without_word_times_that_breaks_off_is_continued_at_an_estimated_word():
    text = "Our office on the hill is open from nine until five."
    call = play(
        lambda: ScriptedCall([[Fault.CUT]], cut_ms=800, timed=False),
        lambda call: say_and_wait(call, text),
    )
    [rest] = call.embedded.clauses
    assert text.endswith(rest) and 0 < len(rest) < len(text)
    assert call.words() == text.split()


async def say_and_wait(call: ScriptedCall, text: str) -> None:
    await call.says(text)
    await asyncio.sleep(10)


def test_an_interruption_after_a_failover_leaves_the_heard_words():
    async def scenario(call: ScriptedCall) -> None:
        await call.says(REPLY)
        await asyncio.sleep(0.42)
        await call.worker.queue_frame(InterruptionFrame())
        await asyncio.sleep(3)

    call = play(lambda: ScriptedCall([[Fault.CUT]], cut_ms=200), scenario)
    assert call.words() == WORDS[:4]


def test_an_interruption_cancels_the_clause_at_the_provider_and_the_next_reply_is_said():
    async def scenario(call: ScriptedCall) -> None:
        await call.says(REPLY)
        await asyncio.sleep(0.24)
        await call.worker.queue_frame(InterruptionFrame())
        await asyncio.sleep(0.5)
        await call.says("Alpha beta.")
        await asyncio.sleep(3)

    call = play(lambda: ScriptedCall([[Fault.NONE]]), scenario)
    assert call.words() == ["One", "two", "Alpha", "beta."]
    assert call.tones() == ["service"]
    assert call.changes() == []


def test_a_service_that_was_given_up_is_freed_without_a_garbage_collection():
    async def scenario(call: ScriptedCall) -> None:
        await call.says(REPLY)
        await asyncio.sleep(2)
        [service] = (weakref.ref(each) for each in call.services)
        call.services.clear()
        assert service() is None

    gc.disable()
    try:
        play(lambda: ScriptedCall([[Fault.CUT]], cut_ms=200), scenario)
    finally:
        gc.enable()


def test_later_clauses_and_replies_go_to_the_next_voice_at_once():
    async def scenario(call: ScriptedCall) -> None:
        await call.says(REPLY + " ", "Seven eight nine.")
        await asyncio.sleep(4)
        await call.says("Ten.")
        await asyncio.sleep(0.5)

    call = play(lambda: ScriptedCall([[Fault.HANG]]), scenario)
    assert call.clauses[0] == [REPLY]
    assert call.words() == [*WORDS, "Seven", "eight", "nine.", "Ten."]
    assert call.first_sound_s() < 0.05
    assert len(call.changes()) == 1


def test_after_the_cool_down_a_probe_that_works_brings_the_voice_back_with_the_next_reply():
    async def scenario(call: ScriptedCall) -> None:
        await call.says("One.")
        await asyncio.sleep(COOL_DOWN_MS / 1000 + 2)
        # Said by the embedded voice, and by the service as a probe.
        await call.says("Two two. ", "Three three.\n", "Four four.\n")
        await asyncio.sleep(3)
        await call.says("Five.")
        await asyncio.sleep(3)

    call = play(lambda: ScriptedCall([[Fault.ERROR], [Fault.NONE]]), scenario)
    assert call.words() == "One. Two two. Three three. Four four. Five.".split()
    assert call.clauses[0] == ["One.", "Two two.", "Five."]
    assert call.tones() == ["embedded", "service"]
    assert call.changes() == [
        ("service0", "embedded", FailoverReason.ERROR),
        ("embedded", "service0", FailoverReason.RECOVERED),
    ]


def test_no_caller_waits_for_a_probe_that_fails_and_the_pauses_between_probes_grow():
    async def scenario(call: ScriptedCall) -> None:
        for _ in range(40):
            await call.says("Two.")
            await asyncio.sleep(2)
            assert call.first_sound_s() < (FIRST_AUDIO_S + 0.05 if len(call.asked_s) == 1 else 0.05)

    call = play(lambda: ScriptedCall([[Fault.HANG]]), scenario)
    assert call.words() == ["Two."] * 40
    # After 0, 8, 20, 42 and 64 s.
    assert len(call.clauses[0]) == 5
    assert len(call.changes()) == 1


def test_a_probe_that_a_clause_of_the_call_ends_is_no_failure():
    breaker = new_breaker()

    async def scenario(call: ScriptedCall) -> None:
        await call.says("One.")
        await asyncio.sleep(COOL_DOWN_MS / 1000 + 1)
        await call.says("Two.")
        await asyncio.sleep(0.2)
        # The probe hangs; meanwhile the voice has worked in another call.
        breaker.on_success(round(asyncio.get_running_loop().time() * 1_000))
        await call.says("Three.")
        await asyncio.sleep(5)

    call = play(lambda: ScriptedCall([[Fault.ERROR], [Fault.HANG, Fault.NONE]], breaker=breaker), scenario)
    assert call.words() == ["One.", "Two.", "Three."]
    assert call.tones() == ["embedded", "service"]
    assert breaker.is_closed


def test_another_call_does_not_try_a_voice_that_failed_in_this_one():
    async def run() -> tuple[ScriptedCall, ScriptedCall]:
        breaker = new_breaker()
        first = ScriptedCall([[Fault.HANG]], breaker=breaker)
        await first.hold(lambda: one_reply_short(first))
        second = ScriptedCall([[Fault.NONE]], breaker=breaker)
        await second.hold(lambda: one_reply_short(second))
        return first, second

    first, second = virtual_time.run(run())
    assert first.changes() == [("service0", "embedded", FailoverReason.LATE)]
    assert second.changes() == [("service0", "embedded", FailoverReason.BROKEN)]
    assert second.built == [0]
    assert second.words() == WORDS and second.first_sound_s() < 0.05


async def one_reply_short(call: ScriptedCall) -> None:
    await call.says(REPLY)
    await asyncio.sleep(2)


def test_two_hosted_voices_and_the_embedded_one_are_used_in_order_within_a_clause():
    call = play(lambda: ScriptedCall([[Fault.CUT]], [[Fault.CUT]], cut_ms=200), one_reply)
    assert call.words() == WORDS
    assert call.clauses == [[REPLY], ["three four five six."]]
    assert call.embedded.clauses == ["five six."]
    assert [change[:2] for change in call.changes()] == [("service0", "service1"), ("service1", "embedded")]


def test_a_connection_that_is_lost_between_replies_is_opened_again_without_a_failover():
    async def scenario(call: ScriptedCall) -> None:
        await call.says("One.")
        await asyncio.sleep(2)
        await call.services[0].push_error("connection closed, but with an error")
        await asyncio.sleep(1)
        await call.says("Two.")
        await asyncio.sleep(2)

    call = play(lambda: ScriptedCall([[Fault.NONE]]), scenario)
    assert call.words() == ["One.", "Two."]
    assert call.tones() == ["service"]
    assert len(call.services) == 2
    assert call.changes() == []


def test_a_call_whose_last_voice_fails_is_given_up_once():
    call = play(
        lambda: ScriptedCall([[Fault.ERROR]], embedded={"fail_after_pieces": 0}),
        lambda call: say_and_wait(call, "One two. Three four.\n"),
    )
    assert len([each for each in call.published if isinstance(each, EnginesGivenUp)]) == 1
    assert call.words() == []


def test_without_an_embedded_voice_in_the_list_the_last_one_says_only_that_the_call_ends():
    async def scenario(call: ScriptedCall) -> None:
        await call.says(REPLY)
        await asyncio.sleep(3)
        assert call.words() == []
        await call.says("Goodbye now.")
        await asyncio.sleep(3)

    call = play(lambda: ScriptedCall([[Fault.ERROR]], speaks_on=False), scenario)
    assert len([each for each in call.published if isinstance(each, EnginesGivenUp)]) == 1
    assert call.words() == ["Goodbye", "now."]
    assert call.embedded.clauses == ["Goodbye now."]


def test_without_an_embedded_voice_a_failure_of_another_call_does_not_end_the_line():
    async def run() -> tuple[ScriptedCall, ScriptedCall]:
        breaker = new_breaker()
        first = ScriptedCall([[Fault.ERROR]], breaker=breaker, speaks_on=False)
        await first.hold(lambda: one_reply_short(first))
        second = ScriptedCall([[Fault.NONE]], breaker=breaker, speaks_on=False)
        await second.hold(lambda: one_reply_short(second))
        return first, second

    first, second = virtual_time.run(run())
    assert [type(each) for each in first.published] == [EnginesGivenUp] and second.published == []
    assert second.words() == WORDS and second.tones() == ["service"]


def test_without_an_embedded_voice_every_broken_service_is_tried_before_a_clause_is_lost():
    async def scenario(call: ScriptedCall) -> None:
        await call.says("One.")
        await asyncio.sleep(1)
        await call.says("Two.")
        await asyncio.sleep(2)

    call = play(
        lambda: ScriptedCall([[Fault.ERROR], [Fault.NONE]], [[Fault.NONE, Fault.ERROR]], speaks_on=False),
        scenario,
    )
    assert call.words() == ["One.", "Two."]
    assert call.clauses == [["One.", "Two."], ["One.", "Two."]]
    assert [change[:2] for change in call.changes()] == [("service0", "service1"), ("service1", "service0")]
    assert call.changes()[1][2] is FailoverReason.ERROR
