"""Tiers in a voice call: what the caller hears of a human, of an offer and of a step to another medium."""

import asyncio
from contextlib import suppress
from functools import partial

from pipecat.frames.frames import InterruptionFrame, LLMContextFrame, OutputAudioRawFrame, TTSSpeakFrame
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.call_events import (
    BotTurnEnded,
    FinalWords,
    PhraseChosen,
    TextGiven,
    TierChanged,
    TurnEnded,
    Wait,
    WaitBegan,
    WaitEnded,
    WordsDiscarded,
)
from parley.core.tiers import HELD, Tier
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from parley.pipelines.live_pace import LivePace
from parley.pipelines.queue_announcer import QUEUE_AGAIN_S
from parley.pipelines.session_tiers import session_tiers, take_tool_result
from parley.pipelines.stages.medium_steps import CallSteps, ClientMedia
from parley.pipelines.stages.tool_results import AnsweredToolResults
from parley.pipelines.voice_bridges import VoiceBridge
from parley.processors.dialogue.commit_gate import Answers
from parley.processors.dialogue.filler_processor import Say
from parley.session_store.events import Kind
from parley.session_store.memory import text_in
from parley.session_store.tension import judged_stretches
from parley.turn_taking.turn_confidence import TurnConfidence


class DeskVoice:
    """Subscriber to the tier of the session, in one call.

    A human who takes the session interrupts the agent. Words that they write are spoken like every phrase,
    and the session has the part that was heard. Their voice comes over ``bridge`` and is played as it is. A
    caller who waits hears their place, again and again.

    Args:
        engines: of the process.
        call: the call.
        play: puts audio into the pipeline, before the output.
        output: output of the call.
        sees: pictures have an effect in this call.

    Attributes:
        bridge: audio of the caller and of a human who speaks.
        steps: steps to another medium.
    """

    def __init__(
        self, engines: Engines, call: Call, play: Say, output: FrameProcessor, *, sees: bool = False
    ) -> None:
        self._call, self._conversation = call, call.conversation
        self._play, self._output, self._bridges = play, output, engines.bridges
        self.bridge = VoiceBridge()
        media = ClientMedia(sees=sees)
        self._tiers = session_tiers(engines.deployment, call.conversation, media.now)
        self.steps = CallSteps(call, self._tiers.steps, media, partial(_say_phrase, call))
        self._human = self._tiers.human
        self._offers = self._tiers.new_offers()
        self._confidence = TurnConfidence()
        # That of the caller's last turn, until it is counted.
        self._heard: float | None = None
        self._tool_results = AnsweredToolResults(call)
        # Last turn of the caller that was counted.
        self._counted_seq = call.conversation.last_seq
        self._news = asyncio.Event()
        self._waits = False
        events = call.events
        events.subscribe(TierChanged, self._on_tier_changed)
        events.subscribe(TextGiven, self._on_text_given)
        events.subscribe(FinalWords, self._on_final_words)
        events.subscribe(WordsDiscarded, self._on_words_discarded)
        events.subscribe(TurnEnded, self._on_turn_ended)
        events.subscribe(BotTurnEnded, self._on_bot_turn_ended)

    def answers(self) -> Answers:
        """Return the answers of the tiers and of the call itself.

        A call that can be transferred (``pipelines.phone``) is, unless a human of the desk has it or is
        being fetched already.
        """
        own, tiers = self._call.answers, self._tiers

        def answer(said: str, *, is_again: bool) -> str | None:
            is_held = self._conversation.tier.is_held
            first = None if is_held else own(said, is_again=is_again)
            return tiers.answer(said, is_again=is_again) if first is None else first

        return answer

    def is_asked(self, _question: LLMContextFrame) -> bool:
        """Return whether the model is asked now."""
        return not self._conversation.tier.is_held

    async def run(self) -> None:
        """Report the tier to the call, and speak to a caller who waits, until cancelled."""
        with (
            self._conversation.reporting(self._call.events, speaks=True),
            self._bridges.opened(self._conversation.session_id, self.bridge),
        ):
            self._note_wait()
            while True:
                again_s = QUEUE_AGAIN_S if self._is_waiting else None
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(again_s):
                        await self._news.wait()
                        continue
                if self._is_waiting:
                    self._say_phrase(self._human.waiting)

    async def speak(self) -> None:
        """Play the voice of a human to the caller, until cancelled."""
        pace = LivePace(self._output)
        while True:
            pcm, is_first = await self.bridge.to_play()
            if is_first:
                # A phrase that is still spoken would delay the voice by its length for good.
                self._call.live.input.put(InterruptionFrame())
            if self._conversation.tier.tier is Tier.HUMAN and not self._call.live.floor.holds_reply():
                await pace.next(pcm)
                await self._play(OutputAudioRawFrame(pcm, INPUT_RATE_HZ, 1))

    @property
    def _is_waiting(self) -> bool:
        return self._conversation.tier.tier is Tier.WAITING

    def _on_tier_changed(self, event: TierChanged) -> None:
        if event.tier is Tier.HUMAN:
            # Two tiers never speak at once: the rest of the agent's reply, or of a phrase, is dropped.
            self._call.live.input.put(InterruptionFrame())
        self._offers.forget()
        self._note_wait()
        self._news.set()

    def _note_wait(self) -> None:
        """Report that the caller waits for a person, so that no silence of theirs is prompted."""
        waits = self._conversation.tier.tier in HELD
        if waits is not self._waits:
            self._waits = waits
            kind = WaitBegan if waits else WaitEnded
            self._call.events.publish(kind(self._call.events.now_ms(), Wait.PERSON))

    def _on_text_given(self, event: TextGiven) -> None:
        self._say(event.text)

    def _on_bot_turn_ended(self, event: BotTurnEnded) -> None:
        if self._conversation.tier.is_held or event.interrupted:
            return
        self._count_news()
        rule = self._offers.on_reply(event.text, may_offer=self._tiers.may_offer)
        if rule is not None and (phrase := self._tiers.offer(rule)):
            self._say_phrase(phrase)

    def _count_news(self) -> None:
        """Count the caller's last turn, and the results of tools of which they have heard."""
        said = next(
            (each for each in reversed(self._conversation.events) if each.kind is Kind.USER_TURN), None
        )
        if said is not None and said.seq > self._counted_seq:
            self._counted_seq = said.seq
            self._offers.on_caller(
                text_in(said.payload, "text"),
                judged=judged_stretches(said.payload),
                confidence=self._heard,
                media=self._conversation.media.now,
            )
            self._heard = None
        for result in self._tool_results.take():
            take_tool_result(self._offers, result)

    def _on_final_words(self, event: FinalWords) -> None:
        self._confidence.on_words(event.confidences)

    def _on_words_discarded(self, _event: WordsDiscarded) -> None:
        self._confidence.forget()

    def _on_turn_ended(self, _event: TurnEnded) -> None:
        self._heard = self._confidence.take()

    def _say_phrase(self, text: str) -> None:
        _say_phrase(self._call, text)

    def _say(self, text: str) -> None:
        _say(self._call, text)


# No methods: a stage that is given one of its owner's would keep the call alive after its end.


def _say_phrase(call: Call, text: str) -> None:
    call.events.publish(PhraseChosen(call.events.now_ms(), text))
    _say(call, text)


def _say(call: Call, text: str) -> None:
    call.live.input.put(TTSSpeakFrame(text, append_to_context=True))
