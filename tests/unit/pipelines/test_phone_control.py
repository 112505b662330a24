"""Permitted actions of a caller, a model and a key on a phone call, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal

import pytest
from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    LLMMessagesAppendFrame,
    OutputDTMFFrame,
    TTSSpeakFrame,
)

from parley.core.call_events import (
    CallEnding,
    ReplyFinished,
    TransferBegan,
    TransferEnded,
    TurnEnded,
    TurnStarted,
    WaitBegan,
    WaitEnded,
)
from parley.core.errors import EngineError
from parley.core.timeline import HeardMark, HeardReply, HeardSource
from parley.pipelines.phone.control import (
    FAREWELL,
    HANG_UP,
    NOT_TAKEN,
    PRESS,
    TAKEN,
    TRANSFER,
    PhoneControl,
    PhoneFacts,
)
from parley.runtime.event_stream import CallEvents
from parley.serving.gateway.phone.call_manager import MOST_OFFER_S
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from tests import virtual_time

FACTS = PhoneFacts("CA1", "+15550100", "+15550199")
SETTINGS = PhoneRoutesSettings(signatures=False, transfer_to="+15550123", number="+15550177")


CONNECTING = "One moment, I am getting a colleague on the line."


class Desk:
    """Call desk with scripted outcomes of transfers."""

    can_call = True

    def __init__(self, outcome: str = "taken", rings_s: float = 5) -> None:
        self.outcome, self.rings_s = outcome, rings_s
        self.transfers: list[tuple[str, str, str, str]] = []
        self.cancelled = 0
        self.puts_through = False
        self.announced = asyncio.Event()

    async def transfer(
        self, call_sid: str, to: str, caller: str, words: str, *, announced: asyncio.Event
    ) -> str:
        self.transfers.append((call_sid, to, caller, words))
        self.announced = announced
        try:
            await asyncio.sleep(self.rings_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.outcome

    def is_put_through(self, call_sid: str) -> bool:
        return self.puts_through

    async def hang_up(self, call_sid: str) -> None:
        pass

    async def leave(self, call_sid: str) -> None:
        pass


class Bench:
    """The control of a call with the end of its pipeline."""

    def __init__(
        self, desk: Desk, settings: PhoneRoutesSettings = SETTINGS, facts: PhoneFacts = FACTS
    ) -> None:
        self.frames: list[Frame] = []
        self.summary: str | EngineError = "They ask about cards."
        self.gone = asyncio.Event()
        self.has_open_code = self.is_talking = False
        self.events = CallEvents()
        self.control = PhoneControl(
            self.events,
            desk,
            facts,
            settings,
            summarize=self._summarize,
            gone=self.gone,
            is_talking=lambda: self.is_talking,
            has_open_code=lambda: self.has_open_code,
            say=self._say,
        )
        self.waits: list[bool] = []
        self.ends: list[str] = []
        self.transfers: list[str] = []
        self.events.subscribe(TransferBegan, lambda _event: self.transfers.append("began"))
        self.events.subscribe(TransferEnded, lambda event: self.transfers.append(event.outcome))
        self.events.subscribe(CallEnding, lambda event: self.ends.append(event.reason))
        self.events.subscribe(WaitBegan, lambda _event: self.waits.append(True))
        self.events.subscribe(WaitEnded, lambda _event: self.waits.append(False))

    async def _say(self, frame: Frame) -> None:
        self.frames.append(frame)

    async def _summarize(self) -> str:
        if isinstance(self.summary, EngineError):
            raise self.summary
        return self.summary

    @property
    def said(self) -> list[str]:
        return [frame.text for frame in self.frames if isinstance(frame, TTSSpeakFrame)]

    @property
    def typed(self) -> list[object]:
        return [
            frame.messages[0]["content"]  # type: ignore[call-overload, index, typeddict-item]
            for frame in self.frames
            if isinstance(frame, LLMMessagesAppendFrame)
        ]


def play(bench: Bench, scenario: Callable[[PhoneControl], Awaitable[None]]) -> None:
    async def call() -> None:
        running = asyncio.create_task(bench.control.run())
        try:
            await scenario(bench.control)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(call())


def reply(text: str, *, truncated: bool = False, in_context: bool = True) -> ReplyFinished:
    mark = HeardMark("r", 500, 0, HeardSource.PLAYOUT_CLOCK)
    return ReplyFinished(0, HeardReply("r", text, "", truncated, mark, in_context, started_us=0, ended_us=1))


def test_keys_are_one_thing_when_no_one_presses_another():
    bench = Bench(Desk())

    async def scenario(control: PhoneControl) -> None:
        for key in "123":
            control.on_key(key)
            await asyncio.sleep(0.5)
        assert bench.typed == []
        await asyncio.sleep(2)
        assert bench.typed == ["I pressed 1 2 3 on my phone."]
        control.on_key("9")
        control.on_key("#")
        await asyncio.sleep(0.01)
        assert bench.typed[1:] == ["I pressed 9 # on my phone."]

    play(bench, scenario)
    # The bot's speech is interrupted once for each.
    assert sum(isinstance(frame, InterruptionFrame) for frame in bench.frames) == 2


@pytest.mark.parametrize("outcome", ["taken", "no-answer"])
def test_a_call_whose_agent_cannot_go_on_is_passed_on_once_and_ends_when_it_is_not_taken(outcome: str):
    desk = Desk(outcome=outcome)
    bench = Bench(desk)

    async def scenario(control: PhoneControl) -> None:
        assert control.pass_on("The voice has failed.")
        await asyncio.sleep(1)
        assert bench.said == [CONNECTING]
        bench.is_talking = True
        await asyncio.sleep(8)
        # The words with which it ends are heard first.
        assert not control.finished.is_set()
        bench.is_talking = False
        await asyncio.sleep(20)
        assert control.finished.is_set() is (outcome == "no-answer")

    play(bench, scenario)
    [(_, to, _, words)] = desk.transfers
    assert to == "+15550123" and "The voice has failed." in words
    assert len(bench.said) == (2 if outcome == "no-answer" else 1)
    assert bench.ends == [(NOT_TAKEN if outcome == "no-answer" else TAKEN)[0]]


@pytest.mark.parametrize("how", ["speaks", "key", "model"])
def test_a_call_whose_agent_cannot_go_on_ends_whatever_its_caller_does(how: str):
    bench = Bench(Desk(outcome="no-answer"))

    async def scenario(control: PhoneControl) -> None:
        tools = {tool.name: tool for tool in control.tools()}
        if how == "model":
            # It has requested the same, and is not there to report the outcome.
            asked = asyncio.create_task(tools[TRANSFER].run({"reason": ""}, key="k"))
            await asyncio.sleep(1)
        assert control.pass_on("The voice has failed.")
        await asyncio.sleep(5)
        if how == "speaks":
            bench.events.publish(TurnStarted(0))
            await asyncio.sleep(2)
            bench.events.publish(TurnEnded(0, "hello are you still there"))
        elif how == "key":
            control.on_key("5")
        await asyncio.sleep(20)
        assert control.finished.is_set()
        if how == "model":
            assert await asked == {"status": "no-answer"}

    play(bench, scenario)
    assert len(bench.said) == 2 and "not available" in bench.said[-1]
    assert bench.ends == [NOT_TAKEN[0]]


def test_a_call_without_a_person_to_pass_it_on_to_is_not_passed_on():
    bench = Bench(Desk(), settings=SETTINGS.model_copy(update={"transfer_to": None}))

    async def scenario(control: PhoneControl) -> None:
        assert not control.pass_on("The voice has failed.")
        await asyncio.sleep(1)

    play(bench, scenario)
    assert bench.said == []


@pytest.mark.parametrize("how", ["key", "words"])
def test_a_key_and_words_pass_the_call_on(how: str):
    desk = Desk(outcome="no-answer")
    bench = Bench(desk)

    async def scenario(control: PhoneControl) -> None:
        if how == "key":
            control.on_key("0")
        else:
            # The caller asks for it by speech.
            assert control.answer("I want to speak to a person.", is_again=False) == CONNECTING
        await asyncio.sleep(4)
        assert bench.waits == [True]
        assert bench.said == ([CONNECTING] if how == "key" else [])
        # Requested again while it rings: the action is the same, and the caller is notified.
        assert control.answer("a person please", is_again=True) == CONNECTING
        await asyncio.sleep(10)
        assert bench.waits == [True, False]
        # The transfer was not answered: the same words, processed again, start no new one.
        assert control.answer("a person please", is_again=True) is None

    play(bench, scenario)
    [(call_sid, to, caller, words)] = desk.transfers
    assert (call_sid, to, caller) == ("CA1", "+15550123", "+15550177")
    assert "They ask about cards." in words and "Press any key" in words
    assert bench.said[-1:] == [
        "Sorry, a colleague is not available at the moment. Can I help you with something else?",
    ]


@pytest.mark.parametrize("heard", [reply(CONNECTING), reply("One", truncated=True)])
def test_a_caller_has_heard_of_the_transfer_when_the_words_about_it_are_over(heard: ReplyFinished):
    desk = Desk(rings_s=30)
    bench = Bench(desk)

    async def scenario(control: PhoneControl) -> None:
        bench.events.publish(reply("How can I help?"))
        control.on_key("0")
        await asyncio.sleep(4)
        assert desk.transfers and not desk.announced.is_set()
        # A phrase that fills a wait says nothing of it.
        bench.events.publish(reply("Okay.", in_context=False))
        assert not desk.announced.is_set()
        bench.events.publish(heard)
        assert desk.announced.is_set()

    play(bench, scenario)


def test_a_summary_that_fails_or_is_slow_does_not_keep_the_caller_from_the_person():
    desk = Desk()
    bench = Bench(desk)
    bench.summary = EngineError("no", engine="x")

    async def scenario(control: PhoneControl) -> None:
        control.on_key("0")
        await asyncio.sleep(9)

    play(bench, scenario)
    # Unknown facts are left out.
    assert desk.transfers[0][3] == "A caller would like to talk to you. Press any key to take the call."
    assert len(bench.said) == 1


def test_a_caller_who_is_gone_stops_the_transfer():
    desk = Desk(rings_s=60)
    bench = Bench(desk)

    async def scenario(control: PhoneControl) -> None:
        control.on_key("0")
        await asyncio.sleep(5)
        assert desk.transfers

    play(bench, scenario)
    assert desk.cancelled == 1


def test_a_goodbye_ends_the_call_after_the_answer_that_was_heard():
    bench = Bench(Desk())

    async def scenario(control: PhoneControl) -> None:
        bench.events.publish(reply("How can I help?"))
        bench.events.publish(TurnEnded(0, "thank you goodbye"))
        await asyncio.sleep(1)
        bench.events.publish(reply("Good", truncated=True))
        assert not control.finished.is_set()
        bench.events.publish(reply("Goodbye."))
        await asyncio.sleep(0.5)
        assert not control.finished.is_set()
        await asyncio.sleep(1)
        assert control.finished.is_set()

    play(bench, scenario)
    assert bench.ends == [FAREWELL[0]]


def test_no_one_is_hung_up_on_who_speaks():
    bench = Bench(Desk())

    async def scenario(control: PhoneControl) -> None:
        bench.events.publish(TurnEnded(0, "okay bye"))
        await asyncio.sleep(1)
        bench.events.publish(reply("Good", truncated=True))
        bench.events.publish(TurnStarted(0))
        await asyncio.sleep(20)
        assert not control.finished.is_set()
        bench.events.publish(TurnEnded(0, "oh wait one more thing what does a card cost"))
        await asyncio.sleep(20)
        # On the bot's last word; it was a noise, so the call ends after all.
        bench.events.publish(TurnEnded(0, "bye"))
        bench.events.publish(reply("Goodbye."))
        bench.events.publish(TurnStarted(0))
        await asyncio.sleep(3)
        assert not control.finished.is_set()
        bench.events.publish(TurnEnded(0, ""))
        await asyncio.sleep(7)
        assert control.finished.is_set()

    play(bench, scenario)


def test_nothing_ends_while_the_bot_talks_or_by_what_is_no_answer():
    bench = Bench(Desk())

    async def scenario(control: PhoneControl) -> None:
        bench.events.publish(TurnEnded(0, "okay thanks bye"))
        # A phrase that fills a wait is not the answer.
        bench.events.publish(reply("Okay.", in_context=False))
        await asyncio.sleep(3)
        assert not control.finished.is_set()
        # The answer comes late, and is long.
        bench.is_talking = True
        await asyncio.sleep(20)
        assert not control.finished.is_set()
        bench.is_talking = False
        bench.events.publish(reply("Goodbye."))
        await asyncio.sleep(2)
        assert control.finished.is_set()

    play(bench, scenario)


def test_where_we_rang_an_operator_is_someone_elses():
    desk = Desk()
    bench = Bench(desk, facts=replace(FACTS, direction="outbound"))

    async def scenario(control: PhoneControl) -> None:
        assert control.answer("to speak to an operator", is_again=False) is None
        # They may still press the key.
        control.on_key("0")
        control.on_key("#")
        await asyncio.sleep(10)

    play(bench, scenario)
    assert len(desk.transfers) == 1


@pytest.mark.parametrize("direction", ["inbound", "outbound"])
def test_a_person_sees_the_number_of_this_side(direction: Literal["inbound", "outbound"]):
    desk = Desk()
    ours, theirs = "+15550199", "+15550100"
    caller, called = (theirs, ours) if direction == "inbound" else (ours, theirs)
    settings = SETTINGS.model_copy(update={"number": None})
    bench = Bench(desk, settings, PhoneFacts("CA1", caller, called, direction))

    async def scenario(control: PhoneControl) -> None:
        control.on_key("0")
        await asyncio.sleep(10)

    play(bench, scenario)
    assert [shown for _, _, shown, _ in desk.transfers] == [ours]


def test_who_presses_keys_has_not_left():
    desk = Desk(outcome="busy")
    bench = Bench(desk)

    async def scenario(control: PhoneControl) -> None:
        bench.events.publish(TurnEnded(0, "thanks bye"))
        control.on_key("0")
        await asyncio.sleep(3)
        bench.events.publish(reply(CONNECTING))
        await asyncio.sleep(10)
        assert len(desk.transfers) == 1 and not control.finished.is_set()

    play(bench, scenario)


@pytest.mark.parametrize(
    ("key", "pressed", "transfers"), [("", "#", 0), ("#", "#", 1), ("5", "0", 0), ("5", "5#", 1)]
)
def test_the_key_for_a_person_is_the_deployments(key: str, pressed: str, transfers: int):
    desk = Desk()
    bench = Bench(desk, SETTINGS.model_copy(update={"person_key": key}))

    async def scenario(control: PhoneControl) -> None:
        for each in pressed:
            control.on_key(each)
        await asyncio.sleep(10)

    play(bench, scenario)
    assert len(desk.transfers) == transfers


def test_who_is_put_through_leaves_the_stream_a_moment_before_that_is_known():
    desk = Desk(rings_s=5)
    bench = Bench(desk)

    async def scenario(control: PhoneControl) -> None:
        control.on_key("0")
        await asyncio.sleep(6)
        desk.puts_through = True
        bench.gone.set()
        # The records of the call may close before Twilio reports the success.
        await asyncio.sleep(0.01)
        assert bench.ends == [TAKEN[0]] and bench.transfers == ["began"]
        await asyncio.sleep(3)
        assert bench.transfers == ["began", "taken"]
        # No telephone rings for a caller who has left.
        control.on_key("0")
        await asyncio.sleep(10)
        assert bench.transfers == ["began", "taken", "began", "gone"]

    play(bench, scenario)
    assert bench.ends == [TAKEN[0]]
    assert len(desk.transfers) == 1 and desk.cancelled == 0


def test_a_code_that_is_read_slowly_asks_for_nobody():
    bench = Bench(Desk())
    bench.has_open_code = True

    async def scenario(control: PhoneControl) -> None:
        for key in "402913":
            control.on_key(key)
            await asyncio.sleep(4)
        assert bench.typed == [] and bench.said == []
        await asyncio.sleep(2)
        assert bench.typed == ["I pressed 4 0 2 9 1 3 on my phone."]

    play(bench, scenario)


def test_a_goodbye_that_no_one_answers_ends_the_call_and_one_that_is_taken_back_does_not():
    bench = Bench(Desk())

    async def scenario(control: PhoneControl) -> None:
        bench.events.publish(TurnEnded(0, "bye"))
        await asyncio.sleep(3)
        bench.events.publish(TurnEnded(0, "one more question what does a card cost"))
        await asyncio.sleep(10)
        bench.events.publish(reply("A card is free."))
        assert not control.finished.is_set()
        bench.events.publish(TurnEnded(0, "bye"))
        await asyncio.sleep(7)
        assert control.finished.is_set()

    play(bench, scenario)


def test_tools_do_the_same():
    desk = Desk()
    bench = Bench(desk)

    async def scenario(control: PhoneControl) -> None:
        tools = {tool.name: tool for tool in control.tools()}
        assert set(tools) == {HANG_UP, PRESS, TRANSFER}
        assert await tools[PRESS].run({"keys": "1#"}, key="k") == {"status": "pressed"}
        assert [frame.button.value for frame in bench.frames if isinstance(frame, OutputDTMFFrame)] == [
            "1",
            "#",
        ]
        with pytest.raises(EngineError):
            await tools[PRESS].run({"keys": "1x"}, key="k")
        assert await tools[TRANSFER].run({"reason": "A lost card."}, key="k") == {"status": "taken"}
        assert "A lost card. They ask about cards." in desk.transfers[0][3]
        await tools[HANG_UP].run({}, key="k")
        bench.events.publish(reply("Goodbye."))
        await asyncio.sleep(2)
        assert control.finished.is_set()

    play(bench, scenario)
    # The call ends once.
    assert bench.ends == [TAKEN[0]]


def test_what_became_of_a_transfer_is_told_once():
    desk = Desk(outcome="busy")
    bench = Bench(desk)

    async def scenario(control: PhoneControl) -> None:
        tools = {tool.name: tool for tool in control.tools()}
        assert tools[TRANSFER].timeout_s > SETTINGS.ring_s + MOST_OFFER_S
        assert await tools[TRANSFER].run({"reason": "A lost card."}, key="k") == {"status": "busy"}
        assert bench.said == [CONNECTING]
        control.on_key("0")
        await asyncio.sleep(15)
        assert len(bench.said) == 3 and "not available" in bench.said[-1]

    play(bench, scenario)


def test_a_caller_who_hangs_up_is_waited_for_by_no_tool():
    desk = Desk(rings_s=60)
    bench = Bench(desk)

    async def scenario(control: PhoneControl) -> None:
        tools = {tool.name: tool for tool in control.tools()}
        asked = asyncio.create_task(tools[TRANSFER].run({"reason": ""}, key="k"))
        await asyncio.sleep(5)
        assert desk.transfers and not asked.done()
        bench.gone.set()
        assert await asked == {"status": "gone"}
        assert desk.cancelled == 1 and bench.said == [CONNECTING]

    play(bench, scenario)


def test_without_a_person_there_is_no_transfer():
    bench = Bench(Desk(), PhoneRoutesSettings(signatures=False))

    async def scenario(control: PhoneControl) -> None:
        assert TRANSFER not in {tool.name for tool in control.tools()}
        control.on_key("0")
        assert control.answer("I want to talk to a person", is_again=False) is None
        await asyncio.sleep(3)

    play(bench, scenario)
    assert (bench.said, bench.typed) == ([], ["I pressed 0 on my phone."])
