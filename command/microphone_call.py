"""A call over the microphone and the loudspeaker of this machine."""

from typing import TYPE_CHECKING

from parley.core.client_rules import OPERATOR, ClientRules
from parley.core.errors import ConfigError
from parley.pipelines.modes import CASCADE, DUPLEX

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment


async def call_from_microphone(
    deployment: "Deployment", *, session_id: str | None = None, mode: str = CASCADE
) -> int:
    """Hold a call over this machine's microphone and loudspeaker until interrupted.

    Raises ConfigError when PortAudio or its binding is missing, or a device is missing or gets lost.
    """
    from parley.pipelines.call import Call, CallPeer, LiveCall
    from parley.pipelines.dispatch import pipeline_of
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.engines.plan import INPUT_RATE_HZ
    from parley.pipelines.sessions import open_conversations
    from parley.transports.local.microphone import AudioDevices

    async with (
        AudioDevices() as devices,
        await Engines.load(deployment, duplex=mode == DUPLEX) as engines,
        open_conversations(deployment, engines.answering) as conversations,
        conversations.open(session_id) as conversation,
    ):
        microphone, loudspeaker = await devices.choose(
            input_rate_hz=INPUT_RATE_HZ, output_rate_hz=engines.output_rate_hz
        )
        live = LiveCall(conversation.clock, rate_hz=loudspeaker.format.rate_hz)
        rules = ClientRules(OPERATOR)
        call = Call(
            conversation, "local", live, rules=rules, peer=CallPeer(speaks_rtvi=False), handles_sigint=True
        )
        transport = await devices.connect(
            microphone,
            loudspeaker,
            input_rate_hz=INPUT_RATE_HZ,
            events=live.events,
            on_packet=live.on_packet,
        )
        has_echo_control = engines.echo is not None
        advice = "" if has_echo_control else " Use a headset: this deployment switches echo control off."
        print(f"Speak; end with Ctrl-C.{advice}", flush=True)
        await pipeline_of(mode)(engines, transport, call)
        if transport.lost:
            raise ConfigError(transport.lost)
    return 0
