"""Call with a realtime service whose fallback is the cascade of the same deployment.

The call has one pipeline, in which the stages that differ have places of their own (``StageSlot``): those
between voice activity and the output, and the bot's turns. First the service is in these places; when it
fails, the cascade, to the end of the call (``pipelines.stages.service_failover``).

    transport.input -> (echo control) -> VAD -> [service | STT ... LLM -> TTS] -> transport.output -> (heard)
        -> [bot turns]
"""

from typing import Any

from pipecat.transports.base_transport import BaseTransport

from parley.core.failover import CircuitBreaker
from parley.pipelines.builder import Stages, build
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.service_fallbacks import CLOUD_VOICE_RATE_HZ
from parley.pipelines.lifecycle import idle_keeper, run_call
from parley.pipelines.modes import REALTIME
from parley.pipelines.stages.service import text_refusal
from parley.pipelines.stages.service_failover import AudioListeners, OuterStages, RealtimeFailover
from parley.pipelines.stages.service_part import service_part
from parley.pipelines.stages.shared import (
    closed_on_failure,
    voice_detector,
)
from parley.pipelines.stages.sight import sight_of
from parley.pipelines.voice.echo import CallFrontEnd, with_echo_control
from parley.processors.duplex.service_probe import RealtimeProbe
from parley.processors.duplex.services import RealtimeRow
from parley.processors.perception.voice_activity import VoiceActivity


async def _outer(engines: Engines, transport: BaseTransport, call: Call, opened: CallFrontEnd) -> OuterStages:
    specialists = engines.specialists_of(call.conversation, call.events)
    over_bot, listeners = AudioListeners(), AudioListeners([call.live.turns.heard, specialists.hear])
    front = await with_echo_control(engines, transport, call, opened, cancelled=[over_bot.hear])
    vad = voice_detector(engines, call, front, [listeners.hear])
    _, entry, exit_ = call.live.playout.taps()
    sight = sight_of(engines, call, has_model=False, passes_on=False)
    return OuterStages(front, vad, listeners, over_bot, entry, exit_, specialists, sight)


async def run_with_fallback(
    engines: Engines, row: RealtimeRow[Any], breaker: CircuitBreaker, transport: BaseTransport, call: Call
) -> None:
    """Hold one conversation with a realtime service, and with the cascade when it has failed.

    Args:
        engines: engines of the process.
        row: row of the service.
        breaker: circuit breaker of the row, shared by all calls.
        transport: transport of the call.
        call: the call.
    """
    idle = idle_keeper(engines, call)
    with closed_on_failure() as opened:
        opened.append(front := CallFrontEnd(engines.open_front_end()))
        outer = await _outer(engines, transport, call, front)
        probe = RealtimeProbe(breaker, call.events)
        part = await service_part(engines, row, call)
    failover = RealtimeFailover(engines, row, probe, transport, call, outer, part)
    stages = Stages(
        head=[
            transport.input(),
            *outer.sight.stages,
            *outer.front.echo,
            VoiceActivity(outer.vad),
        ],
        dialogue=[failover.slot],
        playout=[outer.entry, transport.output(), outer.exit, failover.tail],
    )
    worker = build(
        engines,
        transport,
        call,
        stages,
        output_rate_hz=CLOUD_VOICE_RATE_HZ,
        refuses_text=text_refusal(row),
        take_typed=failover.take_typed,
        greets=False,
    )
    await run_call(
        engines,
        worker,
        transport,
        call,
        idle,
        mode=REALTIME,
        background=[
            failover.run(worker),
            outer.specialists.run(),
            *(each() for each in outer.sight.background),
        ],
        before_close=failover.close,
        # Its service answers what it hears.
        reads_annotations=False,
    )
