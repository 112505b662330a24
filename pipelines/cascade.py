"""The cascade: ears, turns, thought, voice, in the order the data meets them.

``run_conversation`` builds one call's pipeline from the shared engines, runs it until the caller is gone and
returns. It owns everything of the call: Pipecat's worker owns the tasks, and whatever ends it (hang-up,
cancellation, idleness, a session that another process took over) ends them. The call is one transport of a
session, which was there before it and stays behind it.

    transport.input -> (echo control) -> VAD -> STT -> (audio stops) -> (perceived) -> user turns -> (waits)
        -> (committed) -> (guessed) guarded LLM -> TTS -> transport.output -> (heard) -> bot turns
"""

import asyncio
from collections.abc import Callable
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    Frame,
    FunctionCallsStartedFrame,
    TranscriptionFrame,
    TTSSpeakFrame,
)
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    AssistantTurnStoppedMessage,
    LLMUserAggregator,
    LLMUserAggregatorParams,
    UserTurnStoppedMessage,
)
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame
from pipecat.transports.base_transport import BaseTransport
from pipecat.turns.user_start import (
    BaseUserTurnStartStrategy,
    TranscriptionUserTurnStartStrategy,
    VADUserTurnStartStrategy,
)
from pipecat.turns.user_turn_strategies import UserTurnStrategies

from configs.deployment import Bot
from core.timeline import Source
from pipelines.call import OPENING, Call
from pipelines.client_tools import offered_tools
from pipelines.echo import open_echo_control
from pipelines.engines import Engines
from pipelines.lifetime import (
    OVER_LIMIT,
    call_worker,
    greet,
    hold,
    idle_keeper,
    introduce,
    record_turns,
    voice_activity,
)
from pipelines.screening import SCREENING, open_screen
from processors.dialogue.commit_gate import CommitGate
from processors.dialogue.durable_tools import DurableTools
from processors.dialogue.engine_llm import EngineLlmService
from processors.dialogue.speculation import Speculation
from processors.dialogue.wait_guard import WaitGuard
from processors.front_end.vad import SharedVadAnalyzer
from processors.fusion.perception import Perception
from processors.playout.assistant import HeardAssistantAggregator
from processors.speech.engine_tts import EngineTtsService
from processors.taps.turn_marks import TurnMarks
from processors.turns.audio_stop import AudioStop
from processors.turns.backchannel import BackchannelKeeper
from processors.turns.barge_in import BargeInStartStrategy
from processors.turns.endpoint import EndpointStopStrategy, word_confidences
from processors.turns.idle import IdleKeeper
from processors.turns.looks import VoiceLooks
from processors.turns.stop_words import StopWords
from processors.turns.voicemail import VoicemailScreen
from runtime.event_stream import CallEvents
from transports.gain import SetsGain
from turn_taking.asking_back import AskingBack
from turn_taking.backchannel import BackchannelPolicy
from turn_taking.barge_in import BargeIn
from turn_taking.barge_in_settings import BargeInSettings
from turn_taking.barge_in_table import Cut, Decision, Resume
from turn_taking.endpointing import Endpoint
from turn_taking.policies import endpoint_policy
from turn_taking.speculation import Guesser


async def run_conversation(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    *,
    rtvi: bool = True,
    handle_sigint: bool = False,
    finished: asyncio.Event | None = None,
) -> None:
    """Hold one conversation over ``transport`` until it ends.

    Args:
        engines: of the process.
        transport: Pipecat's or ours.
        call: the session that it is a part of, and its records.
        rtvi: whether the other side speaks RTVI (a browser page, another program).
        handle_sigint: end the conversation on Ctrl-C.
        finished: set by whoever wants the conversation to end in good order, after what is being said.
    """
    idle, hums = idle_keeper(engines, call), _backchannels(engines, call.events) if call.client.hums else None

    def on_screening(screens: bool) -> None:
        idle.on_waiting(screens, why=SCREENING)
        if hums is not None:
            hums.on_waiting(screens)

    async with offered_tools(engines.answering, call) as tools:
        screen = await open_screen(engines, call, on_screening)
        worker = await build_worker(
            engines, transport, call, tools=tools, idle=idle, hums=hums, screen=screen, rtvi=rtvi
        )
        # What a crash left half done may take a slow server's time; nobody's greeting waits for it.
        beside = [tools.recover()] if hums is None else [hums.run(), tools.recover()]
        if screen is not None:
            beside.append(screen.run(worker.queue_frame))
        await hold(
            worker,
            transport,
            call,
            idle,
            beside=beside,
            rtvi=rtvi,
            handle_sigint=handle_sigint,
            finished=finished,
        )


async def build_worker(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    *,
    tools: DurableTools | None = None,
    idle: IdleKeeper,
    hums: BackchannelKeeper | None = None,
    screen: VoicemailScreen | None = None,
    rtvi: bool = True,
) -> PipelineWorker:
    """The pipeline of one call. Loads no model; what a cloud service builds is built in a thread."""
    stop_words: StopWords | None = None
    looks: VoiceLooks | None = None
    try:
        stop_words = await engines.build_stop_words()
        looks = await engines.build_looks()
        return await _build(
            engines,
            transport,
            call,
            stop_words,
            looks,
            tools=tools,
            idle=idle,
            hums=hums,
            screen=screen,
            rtvi=rtvi,
        )
    except BaseException:
        call.close_front_end()
        for each in (stop_words, looks):
            if each is not None:
                each.close()
        raise


async def _build(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    stop_words: StopWords | None,
    looks: VoiceLooks | None,
    *,
    tools: DurableTools | None,
    idle: IdleKeeper,
    hums: BackchannelKeeper | None,
    screen: VoicemailScreen | None,
    rtvi: bool,
) -> PipelineWorker:
    deployment = engines.deployment
    hearing = deployment.hearing
    turns, conversation = call.turns, call.conversation
    context = LLMContext()
    echo, stt, thinking, tts = await asyncio.gather(
        open_echo_control(engines, transport, call),
        engines.build_stt(audio_passthrough=False),
        engines.answering.build(tools=tools, context=context, rules=call.rules),
        engines.build_tts(),
    )
    turns.on_answer = engines.on_answer
    marks = TurnMarks(turns)
    asking = AskingBack(hearing.ask_back) if hearing.ask_back is not None else None

    def on_perceived(frame: Frame) -> None:
        marks.typing(frame)
        idle.on_frame(frame)
        if hums is not None:
            hums.on_frame(frame)
        if screen is not None:
            screen.on_frame(frame)
        if asking is not None and isinstance(frame, TranscriptionFrame):
            asking.on_words(frame.text, word_confidences(frame))

    perception = Perception(
        conversation,
        call_id=call.call_id,
        settings=hearing.perception,
        latencies=engines.latencies,
        engines={Source.STT: hearing.stt.name},
        notice=on_perceived,
    )
    guard, usage = deployment.thinking.guard, engines.answering.usage

    def on_wait(waiting: bool) -> None:
        idle.on_waiting(waiting)
        if hums is not None:
            hums.on_waiting(waiting)
        if barge_in is not None:
            barge_in.on_waiting(waiting)

    waits = WaitGuard(
        guard.waiting,
        apology=guard.apology,
        on_mask=turns.masked,
        on_wait=on_wait,
        is_asked=lambda _question: screen is None or not screen.hold.holds,
    )
    gate = CommitGate(
        conversation,
        context,
        transport=call.transport,
        settings=deployment.remembering.gate,
        perceive=perception.take,
        waits_again=waits.wait_again,
        asking=asking,
        answers=call.answers,
        on_unasked=lambda: on_guess(None),
        take_turn=lambda _question: usage.try_take(call.rules.counted),
        has_turn=lambda: usage.has_request(call.rules.counted),
        own_instructions=(OPENING,),
    )

    def on_thought(frame: Frame) -> None:
        marks.thinking(frame)
        waits.answering(frame)
        if barge_in is not None and isinstance(frame, FunctionCallsStartedFrame):
            barge_in.on_tools_called()

    can_read = any(isinstance(each, EngineLlmService) and each.reads_ahead for each in thinking)

    def foresee_part(text: str) -> LLMContext | None:
        # A reply that somebody may interrupt is not yet what was heard of it.
        return None if call.playout.books.open_ids else gate.foreseen(text, is_whole=False)

    speculation = Speculation(
        gate.foreseen,
        foresee_part=foresee_part if can_read else None,
        voice=tts if isinstance(tts, EngineTtsService) else None,
        clauses=deployment.speaking.delivery.clauses,
        on_ahead=turns.answered_ahead,
    )

    def on_guess(text: str | None) -> None:
        if text is None:
            speculation.withdraw()
        else:
            speculation.guess(text)

    thought, entry, exit_ = call.playout.taps(on_thought=on_thought, on_speech=marks.speaking)
    waits.speak_through(thought.push_frame)

    def on_endpoint(endpoint: Endpoint) -> None:
        turns.user_turn_ended(silence_ms=endpoint.silence_ms, completeness=endpoint.completeness)
        waits.turn_ended(silence_ms=endpoint.silence_ms)

    endpoint = EndpointStopStrategy(
        endpoint_policy(hearing.endpoint),
        completeness=engines.turn,
        executor=engines.executors.turn,
        on_endpoint=on_endpoint,
        on_words=turns.words_arrived,
        guesser=Guesser(deployment.thinking.speculation),
        on_guess=on_guess,
        on_words_so_far=speculation.read_ahead,
        on_completeness=hums.on_completeness if hums is not None else None,
        on_due=hums.on_endpoint_due if hums is not None else None,
    )

    def forget_words() -> None:
        perception.forget_words()
        if asking is not None:
            asking.forget()

    barge_in = _barge_in(
        transport,
        call,
        endpoint,
        forget_words,
        hearing.barge_in,
        stop_words,
        looks,
        heard_ms=lambda: vad.judged_ms,
        level_db=lambda: vad.voice_level_db,
        rtvi=rtvi,
    )
    idle.end_turn = call.end_turn = endpoint.end_turn
    call.is_answering = idle.is_answering
    call.finish_turn = endpoint.finish_turn
    if barge_in is not None:
        idle.holds_reply = lambda: barge_in.holds_reply
    if hums is not None:
        # Plain audio, behind everything that would take it for a reply.
        hums.speak_through(entry.push_frame)
    starts: list[BaseUserTurnStartStrategy] = [
        VADUserTurnStartStrategy(),
        TranscriptionUserTurnStartStrategy(),
    ]
    user = LLMUserAggregator(
        context,
        params=LLMUserAggregatorParams(
            user_turn_strategies=UserTurnStrategies(
                start=starts if barge_in is None else [barge_in], stop=[endpoint]
            ),
            # Pipecat would have the model answer a developer message, which stays in the context and which
            # the documents take for a question: ``_follow`` asks again instead.
            empty_user_turn=None,
        ),
    )

    if barge_in is not None:
        barge_in.interrupt_through(user.broadcast_interruption)
    assistant = HeardAssistantAggregator(context, user)

    def on_onset() -> None:
        endpoint.on_onset()
        idle.on_onset()
        if hums is not None:
            hums.on_onset()
        if barge_in is not None:
            barge_in.on_onset()

    listening = tuple(each for each in (stop_words, looks) if each is not None)

    def hear_over_bot(pcm: bytes) -> None:
        for each in listening:
            each.hear(pcm)

    if echo and listening:
        # A word is best heard in one signal: what echo control passes on switches between two.
        echo[0].on_cancelled = hear_over_bot

    def on_pause() -> None:
        endpoint.on_pause()
        if barge_in is not None:
            barge_in.on_pause()

    def hear(pcm: bytes) -> None:
        turns.heard(pcm)
        endpoint.hear(pcm)
        if not echo:
            hear_over_bot(pcm)

    vad = SharedVadAnalyzer(
        engines.vad,
        executor=engines.executors.vad,
        params=hearing.voice.params(),
        on_pause=on_pause,
        on_resume=endpoint.on_resume,
        on_onset=on_onset,
        pause_ms=hearing.voice.pause_ms,
        on_audio=hear,
        hosted=call.front_end,
    )
    worker = call_worker(
        [
            transport.input(),
            *([] if screen is None else [screen.ear]),
            *echo,
            voice_activity(vad),
            stt,
            AudioStop(),
            perception,
            *([] if screen is None else [screen.detector]),
            user,
            waits,
            gate,
            *([] if screen is None else [screen.hold]),
            *speculation.around(thinking),
            thought,
            tts,
            *([] if screen is None else [screen.gate]),
            entry,
            transport.output(),
            exit_,
            assistant,
        ],
        output_rate_hz=engines.output_rate_hz,
        # What they push is a guess, or comes again from the tail.
        unseen=[speculation.head, *thinking],
        rtvi=rtvi,
        reads_rtvi=call.client.reads_rtvi,
        refuses_turn=lambda: "" if usage.has_request(call.rules.counted) else OVER_LIMIT,
        take_typed=call.conversation.take_typed,
    )
    call.report = worker.queue_frame
    greet(worker, transport, call, deployment.bot)
    _follow(
        worker,
        user,
        assistant,
        call,
        lambda: waits.cut_off,
        lambda: barge_in is not None and barge_in.holds_reply,
        bot=deployment.bot,
    )
    record_turns(worker, assistant, call, rtvi=rtvi)

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: BaseTransport, _client: object) -> None:
        idle.on_connected()
        if screen is not None:
            screen.on_connected()

    @user.event_handler("on_user_turn_started")
    async def on_turn_started(_aggregator: Any, _strategy: Any) -> None:
        idle.on_turn_started()
        if call.on_turn_started is not None:
            call.on_turn_started()
        if hums is not None:
            hums.on_turn_started()

    @user.event_handler("on_user_turn_stopped")
    async def on_turn_stopped(_aggregator: Any, _strategy: Any, message: UserTurnStoppedMessage) -> None:
        idle.on_turn_ended(message.content or "")
        if call.on_turn is not None:
            call.on_turn(message.content or "")
        if hums is not None:
            hums.on_turn_ended()

    @assistant.event_handler("on_assistant_turn_stopped")
    async def on_bot_turn(_aggregator: Any, message: AssistantTurnStoppedMessage) -> None:
        endpoint.on_bot_said(message.content)
        if asking is not None:
            asking.on_bot_said(message.content)

    if rtvi:
        introduce(worker, conversation)
    return worker


def _backchannels(engines: Engines, events: CallEvents) -> BackchannelKeeper | None:
    """What hums in one call; None where nothing does, or nobody could tell an unfinished turn."""
    settings = engines.deployment.speaking.backchannel
    if settings is None or not settings.is_on:
        return None
    if engines.turn is None:
        logger.warning("speaking.backchannel needs hearing.turn, which is off: the bot does not hum")
        return None
    return BackchannelKeeper(
        events, BackchannelPolicy(settings), sound=engines.kept_speech, rate_hz=engines.output_rate_hz
    )


def _barge_in(
    transport: BaseTransport,
    call: Call,
    endpoint: EndpointStopStrategy,
    forget_words: Callable[[], None],
    settings: BargeInSettings | None,
    stop_words: StopWords | None,
    looks: VoiceLooks | None,
    *,
    heard_ms: Callable[[], int],
    level_db: Callable[[], float | None],
    rtvi: bool,
) -> BargeInStartStrategy | None:
    """Who decides about a voice over the bot; None leaves it to Pipecat."""
    if settings is None:
        return None

    def set_gain_db(gain_db: float) -> None:
        if isinstance(transport, SetsGain):
            transport.set_gain_db(gain_db)

    def report(decision: Decision) -> Frame | None:
        facts: dict[str, object] = {}
        if isinstance(decision, Cut):
            facts = {"reason": decision.reason.value, "voice_ms": decision.voice_ms}
        elif isinstance(decision, Resume):
            facts = {"from_word": decision.from_word}
        data = call.turns.interruption(type(decision).__name__.lower(), **facts)
        return RTVIServerMessageFrame(data=data) if rtvi and call.client.reads_rtvi else None

    self_voice, own_words, clock = call.self_voice, call.own_words, call.conversation.clock

    def are_own(text: str) -> bool:
        return own_words is not None and own_words.explains(text, clock.now_us() // 1000)

    barge_in = BargeInStartStrategy(
        BargeIn(settings),
        call.events,
        endpoint=endpoint,
        set_gain_db=set_gain_db,
        forget_words=forget_words,
        is_own=self_voice.is_own if self_voice is not None else None,
        are_own=are_own if own_words is not None else None,
        heard_ms=heard_ms,
        level_db=level_db,
        stop_words=stop_words,
        looks=looks,
        report=report,
    )
    call.playout.guards_protected = settings.protected_yields_to_stop
    return barge_in


def _follow(
    worker: PipelineWorker,
    user: FrameProcessor,
    assistant: FrameProcessor,
    call: Call,
    wait_cut_off: Callable[[], bool],
    holds_reply: Callable[[], bool],
    *,
    bot: Bot,
) -> None:
    """Ask again after a cough, and keep the turn log in step with the user aggregator."""
    turns = call.turns
    cut_off = reprompted = False

    @user.event_handler("on_user_turn_stopped")
    async def on_user_turn(_aggregator: Any, _strategy: Any, message: UserTurnStoppedMessage) -> None:
        nonlocal cut_off, reprompted
        if message.content:
            reprompted = False
            turns.user_said(message.content)
        elif (cut_off or wait_cut_off()) and bot.reprompt and not reprompted and not holds_reply():
            # Nobody answers a cough, but the bot fell silent over it, or will not tell what it was about to
            # find out: better to say so than to leave a hole. Once: in a noisy room it would go on for ever.
            reprompted = True
            await worker.queue_frame(TTSSpeakFrame(bot.reprompt, append_to_context=True))
        cut_off = False

    @assistant.event_handler("on_assistant_turn_stopped")
    async def on_bot_turn(_aggregator: Any, message: AssistantTurnStoppedMessage) -> None:
        nonlocal cut_off
        cut_off = message.interrupted
