"""Phone calls: the parts that they have in addition to the pipeline of every call.

Input: a stream that has begun. Output: one call of the session, held by the cascade or by full duplex, over
the line's transport. Audio goes out at 8 kHz and comes in raised to the pipeline's rate. Echo control is on,
because a phone's microphone picks up its speaker, and the network does not report whether the line
cancels it. Playback is reported by the stream's clock and its marks.

When this side ends a call, it first lets the caller hear the last word (``PLAYED_OUT_S`` at most). It then
hangs up through Twilio's REST interface and closes the stream.
"""

import asyncio
import os
from collections.abc import Callable
from functools import lru_cache, partial

from parley.audio.speech_level import SpeechLevel, active_level_dbm0
from parley.core.errors import ConfigError
from parley.core.media import pcm16_to_float
from parley.pipelines.call import Call, CallPeer, EarlierStreams, LiveCall, PhoneRules, Resumption
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from parley.pipelines.phone.control import SUMMARY_S, SUMMARY_TOKENS, CallControl, PhoneControl, PhoneFacts
from parley.pipelines.pipeline import Pipeline
from parley.processors.playout.heard import PlayoutSettings
from parley.protocols.twilio_media import RATE_HZ
from parley.serving.gateway.phone.call_manager import CallManager
from parley.serving.gateway.phone.carriers.twilio import AUTH_TOKEN_ENV
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.session_store.conversation import Conversation
from parley.transports.keeping.remote_stream import RemoteStream
from parley.transports.phone_protocol import CallerStream
from parley.transports.registry import TRANSPORTS
from parley.transports.twilio.rest import Account, TwilioRest
from parley.transports.twilio.stream import STOPPED
from parley.transports.twilio.transport import PhoneTransport, phone_params
from parley.turn_taking.answering_machine import VoicemailSettings

# Environment variables: the account, with which REST begins, transfers and ends calls; an API key and its
# secret, in place of the account's auth token.
ACCOUNT_SID_ENV = "TWILIO_ACCOUNT_SID"
API_KEY_ENV = "TWILIO_API_KEY"
API_SECRET_ENV = "TWILIO_API_SECRET"
PLAYED_OUT_S = 5.0
# A stalled connection is over after ``line.silent_s`` and this margin for a late loop.
STALL_MS = 5_000


async def hold_phone(
    engines: Engines,
    stream: CallerStream,
    conversation: Conversation,
    leaving: asyncio.Event | None = None,
    *,
    network: str,
    run: Pipeline,
    facts: PhoneFacts,
    desk: CallControl,
    settings: PhoneRoutesSettings,
    on_call: Callable[[Call], None] | None = None,
    has_open_code: Callable[[], bool] = lambda: False,
    earlier: EarlierStreams | None = None,
    line: str = "",
) -> None:
    """Hold one call until it ends.

    Args:
        engines: engines of the process.
        stream: stream of the caller, open.
        conversation: session of the call, open.
        leaving: set when this call ends and the stream goes on.
        network: name of its row in ``transports.registry``.
        run: the pipeline.
        facts: facts of the call.
        desk: operations on the call.
        settings: settings of phone calls.
        on_call: called with the call when it begins; must not block.
        has_open_code: returns whether keys may be those of a code.
        earlier: records of the streams that the call has lost; None for a call that begins.
        line: name of the phone call in the records of its streams; empty where it cannot go on.
    """
    # A longer silence has ended the stream.
    stall_ms = round(stream.settings.silent_s * 1000) + STALL_MS
    live = LiveCall(
        conversation.clock,
        PlayoutSettings(flushes=True, keeps_waiting_ms=stall_ms),
        peer_quiet_ms=lambda: stream.quiet_ms,
        rate_hz=RATE_HZ,
    )
    control = PhoneControl(
        live.events,
        desk,
        facts,
        settings,
        summarize=partial(conversation.summary, max_tokens=SUMMARY_TOKENS, within_s=SUMMARY_S),
        gone=stream.gone,
        is_talking=lambda: bool(live.playout.heard_clock.open_ids) or live.floor.is_answering(),
        has_open_code=has_open_code,
        say=live.input.queue,
        intents=engines.deployment.language().intents,
    )
    has_stayed = isinstance(stream, RemoteStream) and stream.call is not None
    call = Call(
        conversation,
        network,
        live,
        peer=CallPeer(TRANSPORTS.row(network).capabilities.speaks_rtvi, cancels_echo=False),
        finished=control.finished,
        rules=engines.answering.rules(),
        answers=control.answer,
        phone=PhoneRules(
            tools=control.tools() if engines.answering.calls_tools else (),
            pass_on=control.pass_on,
            # A call that goes on was answered by a person, as far as that is known.
            voicemail=None if earlier is not None else _voicemail(engines, facts),
            ends_on_goodbye=settings.ends_on_goodbye,
        ),
        # On a line that stayed up the caller has heard a filler.
        resumption=Resumption(line=line)
        if earlier is None
        else Resumption(
            "" if has_stayed else _phrase_of(settings),
            earlier,
            line,
            paused_by=stream.paused_by if isinstance(stream, RemoteStream) else "",
        ),
    )
    transport = PhoneTransport(
        stream,
        phone_params(INPUT_RATE_HZ),
        input_rate_hz=INPUT_RATE_HZ,
        on_packet=live.on_packet,
        events=live.events,
        on_key=control.on_key,
        leaving=leaving,
        level=_level(engines, stream.settings.level_dbm0),
    )
    if isinstance(stream, RemoteStream):
        stream.follow(live.events, keeps_pause=bool(call.resumption.paused_by))
    if on_call is not None:
        on_call(call)
    watching = asyncio.create_task(control.run(), name="phone.control")
    try:
        await run(engines, transport, call)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    # Where another process has the session, it may have this very call: only the stream is closed then, and
    # Twilio asks what follows.
    goes_on = conversation.loss is not None or (leaving is not None and leaving.is_set())
    if not stream.gone.is_set() and not goes_on:
        await stream.played_out(PLAYED_OUT_S)
        await desk.hang_up(facts.call_sid)
    elif stream.end[0] == STOPPED:
        await desk.leave(facts.call_sid)


def _phrase_of(settings: PhoneRoutesSettings) -> str:
    return "" if settings.reconnect is None else settings.reconnect.phrase


def _voicemail(engines: Engines, facts: PhoneFacts) -> VoicemailSettings | None:
    """Return the settings for a machine that answers a call placed by us; None for all other calls."""
    phone = engines.deployment.phone
    return phone.voicemail if facts.direction == "outbound" and phone is not None else None


def open_desk(phone: PhoneRoutesSettings | None) -> CallManager:
    """Return the operations on phone calls that the account in the environment permits.

    Raises ConfigError when there is an account without a secret.
    """
    if phone is None or not (sid := os.environ.get(ACCOUNT_SID_ENV, "")):
        return CallManager(None)
    user, secret = os.environ.get(API_KEY_ENV, ""), os.environ.get(API_SECRET_ENV, "")
    if not (user and secret):
        user, secret = sid, os.environ.get(AUTH_TOKEN_ENV, "")
    if not secret:
        raise ConfigError(
            f"phone: {ACCOUNT_SID_ENV} is set: set {AUTH_TOKEN_ENV}, or {API_KEY_ENV} and "
            f"{API_SECRET_ENV}, too"
        )
    return CallManager(TwilioRest(Account(sid, user, secret, phone.api_url)), ring_s=phone.ring_s)


def _level(engines: Engines, target_dbm0: float | None) -> SpeechLevel | None:
    """Return the control of the bot's volume. An embedded voice is measured by its greeting, another live."""
    if target_dbm0 is None:
        return None
    kept = engines.kept_speech(engines.deployment.bot.greeting)
    known = _level_of(kept, engines.output_rate_hz) if kept else None
    return SpeechLevel(target_dbm0, rate_hz=RATE_HZ, expected_dbm0=known)


@lru_cache(maxsize=4)
def _level_of(pcm: bytes, rate_hz: int) -> float | None:
    """Return the active level of a phrase. Cached for all calls of a process, which have one greeting."""
    return active_level_dbm0(pcm16_to_float(pcm), rate_hz)
