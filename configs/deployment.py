"""Root model of the configuration: composes the settings of the parts and defines little of its own.

Every part has a frozen model next to its code, with units and bounds; an engine's own settings
are checked by its row when it is loaded (``pipelines.engine_plan``), because importing every engine
to know its fields would load what is not used. Secrets are not here: a row names the environment variable
that holds them.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from core.phrases import checked_phrase
from core.strict_model import StrictModel
from core.tuning import tuned
from processors.dialogue.commit_gate import CommitGateSettings
from processors.dialogue.reply_watch import GuardSettings
from processors.duplex.settings import DuplexSettings
from serving.gateway.operations import OperationsSettings
from serving.gateway.phone_settings import PhoneRoutesSettings
from serving.gateway.settings import ServerSettings
from serving.pool.settings import PoolSettings
from session_store.conversation import ConversationSettings
from session_store.settings import StoreSettings
from transports.twilio.stream import PhoneSettings
from transports.websocket.session import SocketSettings
from turn_taking.asking_back import AskBackSettings
from turn_taking.backchannel import BackchannelSettings
from turn_taking.barge_in_settings import BargeInSettings, BargeInTuning
from turn_taking.duplex_policy import BARGE_IN, ENDPOINT, DuplexPolicySettings
from turn_taking.endpointing import EndpointSettings, EndpointTuning
from turn_taking.idle import IdleSettings
from turn_taking.speculation import SpeculationSettings
from turn_taking.voicemail import VoicemailSettings

DEFAULT_GREETING = "Hello, this is Parley. Ask me about this service, or about Northwind Bank."
DEFAULT_VOICE = "hibari"
DEFAULT_PROMPT = (
    "You are Parley, a voice assistant on a call. Answer in one to three short spoken sentences, "
    "without lists, markdown or emoji. Say so when you do not know."
)


class Choice(StrictModel):
    """Name of a row in a registry, and the settings of that row."""

    name: str
    settings: dict[str, Any] = Field(default_factory=dict)


class Bot(StrictModel):
    """The bot: its name, its instructions and its fixed phrases."""

    name: str = Field("Parley", description="what the bot calls itself")
    greeting: str = Field(DEFAULT_GREETING, description="said when a call begins; empty for none")
    greeting_interruptible: bool = Field(
        True, description="false: only a stop word ends it (``hearing.barge_in.protected_yields_to_stop``)"
    )
    system_prompt: str = Field(DEFAULT_PROMPT, description="instructions of the model")
    greeting_again: str = Field(
        "Welcome back.", description="said when a call goes on with an earlier session; empty for nothing"
    )
    reprompt: str = Field(
        "Sorry, I did not catch that.",
        description="said when something cut the bot off and no word was understood; empty for nothing",
    )
    idle_timeout_ms: int = Field(
        300_000, ge=5_000, le=86_400_000, description="nobody has made a sound: the conversation ends"
    )
    idle: IdleSettings | None = Field(
        IdleSettings(),
        description="prompts for a caller who says nothing, a goodbye and the end; null: only "
        "``idle_timeout_ms`` ends a silent call, as for a file or an evaluation",
    )
    shutdown_phrase: str = Field(
        "This server is being restarted. Please call again. Goodbye.",
        description="said to the callers of a server that stops (``server.drain_s``); empty for nothing",
    )
    knowledge: Path = Field(Path("knowledge"), description="folder of markdown documents")


EchoMode = Literal["auto", "on", "off"]


class Hearing(StrictModel):
    """Input side: from audio to turns."""

    echo: Choice | None = Field(Choice(name="webrtc"), description="echo canceller; null: none")
    echo_mode: EchoMode = Field(
        "auto",
        description="auto: where a microphone may hear the loudspeaker and the other side does not cancel it",
    )
    own_process: bool = Field(
        True,
        description="echo control and voice activity of a server's calls run in a child process, one for all "
        "calls (80 MB): in threads they take the interpreter from the loop that paces audio, and a server "
        "holds fewer calls",
    )
    vad: Choice = Field(Choice(name="silero"), description="voice activity detector")
    turn: Choice | None = Field(
        Choice(name="smart_turn"), description="model of how complete a turn sounds; null: none"
    )
    endpoint: EndpointSettings = EndpointSettings()
    barge_in: BargeInSettings | None = Field(
        BargeInSettings(), description="null: any voice and any word ends what the bot says, as in Pipecat"
    )
    stop_words: Choice | None = Field(
        None,
        description="a child process, one for all calls, that listens once more to short voices over the bot "
        'for "stop", "wait" and "no" in English, where the recogniser writes another word: 31 ms of a '
        "processor for each such voice, and 80 MB; null: none. Not loaded without ``barge_in``",
    )
    stt: Choice = Field(Choice(name="moonshine_tiny"), description="recogniser, or a service")
    fallback: Choice | None = Field(
        None,
        description="embedded recogniser in place of an embedded one of which a file is missing or altered; "
        "null: such a server does not start. A deployment that leaves out both has pocketsphinx",
    )
    stt_processes: int = Field(1, ge=1, le=64, description="child processes that host an embedded recogniser")
    spare_processes: bool = Field(
        True,
        description="a server keeps one more process loaded of the embedded recogniser (moonshine_tiny: "
        "180 MB, as much as the first) and one more with echo control and voice activity (60 MB), which "
        "take the callers of one that dies: loading takes 0.2 to 1 s, and several on a busy machine",
    )
    ask_back: AskBackSettings | None = Field(
        None,
        description="a turn that was hardly understood is repeated and asked about; null: never. Left out: "
        "moonshine_tiny has it, whose confidence tells such turns apart, and PocketSphinx has not, whose "
        "confidence has 13 % of the understood turns asked back to catch 76 % of the others",
    )

    @model_validator(mode="before")
    @classmethod
    def _default_recogniser_has_a_fallback(cls, given: Any) -> Any:
        if isinstance(given, dict) and not {"stt", "fallback"} & given.keys():
            return {**given, "fallback": {"name": "pocketsphinx"}}
        return given


class Thinking(StrictModel):
    """The language model, its tools, and the model that takes over when it fails."""

    llm: Choice = Field(Choice(name="documents"), description="language model, or a service")
    fallback: Choice | None = Field(
        None, description="embedded model that answers when the first one fails; null: none does"
    )
    tools: tuple[Choice, ...] = Field((), description="what the model may do; an embedded one does nothing")
    guard: GuardSettings = GuardSettings()
    speculation: SpeculationSettings = SpeculationSettings()


def _fallback_voices(tts: Choice | None) -> tuple[Choice, ...]:
    # A service has no embedded voice after it, and a deployment that names another voice may not want these.
    if tts is None or tts.name != DEFAULT_VOICE:
        return ()
    return Choice(name="flite"), Choice(name="espeak")


class Speaking(StrictModel):
    """Output side: the voice and its fallbacks."""

    tts: Choice = Field(Choice(name=DEFAULT_VOICE), description="voice, or a service")
    fallback: tuple[Choice, ...] = Field(
        default_factory=lambda read: _fallback_voices(read.get("tts")),
        max_length=4,
        description="embedded voices that speak when an embedded one does not load or fails, in this order; "
        "left out: flite and espeak after hibari, none after another voice",
    )
    phrases: tuple[str, ...] = Field(
        (),
        max_length=200,
        description="clauses that answers often hold, word for word: an embedded voice keeps their audio; "
        "what the bot says of itself (greeting, fillers, apologies) is kept anyway",
    )
    backchannel: BackchannelSettings | None = Field(
        None,
        description='the bot says "mhm" while the caller talks; null: never. Needs an embedded voice and '
        "``hearing.turn``",
    )

    @field_validator("fallback", mode="before")
    @classmethod
    def _one_or_several(cls, fallback: object) -> object:
        if fallback is None:
            return ()
        return (fallback,) if isinstance(fallback, (Choice, dict)) else fallback


class DuplexTurns(StrictModel):
    """Turn-taking settings of full-duplex calls only; the others are those of the cascade (``hearing``)."""

    kind: Literal["timer", "adaptive", "predictive"] = Field(
        "adaptive", description="as ``hearing.endpoint.kind``, with longer waits where the turn sounds open"
    )
    patience: float | None = Field(
        None, ge=0, le=1, description="null: that of ``hearing.endpoint.patience``"
    )
    confirm_ms: int | None = Field(
        None, ge=300, le=1_500, description="null: that of ``hearing.barge_in.confirm_ms``"
    )
    backchannel: bool = Field(
        True,
        description="the bot hums while the caller talks, as ``speaking.backchannel`` says or by default",
    )


class Duplex(StrictModel):
    """Full duplex (``--mode duplex``): an engine in place of ``thinking`` and ``speaking``.

    The ``two_tier`` engine requests its content from those two. Any other engine uses them only for its
    greeting, its prompts and its apologies.
    """

    engine: Choice = Field(
        Choice(name="two_tier"),
        description="what hears, decides and speaks: an engine, or a realtime service",
    )
    fallback: tuple[Choice, ...] = Field(
        (),
        max_length=4,
        description="engines that go on when the one before fails; the first one is last. No realtime "
        "service has one or is one",
    )
    answer_ms: int = Field(
        10_000,
        ge=1_000,
        le=120_000,
        description="a realtime service has written down what the caller said and says nothing for so long: "
        "an apology, and the second time in a row the end of the call",
    )
    ticks: DuplexSettings = DuplexSettings()
    turns: DuplexTurns = DuplexTurns()
    yields: Literal["engine", "policy"] = Field(
        "policy",
        description="who has an engine without a policy of its own fall silent: itself, or ``turns``",
    )
    llm_voice: Path | None = Field(None, description="WAV: what the engine's language model sounds like")
    tts_voice: Path | None = Field(None, description="WAV: what the engine's voice sounds like")
    queue_phrase: str = Field(
        "Every line is taken. You are number {position} in the queue.",
        description="said to a caller who waits for a worker, and again when the position has changed; "
        "empty: nothing is said",
    )
    queue_again_s: float = Field(
        30.0, ge=5, le=600, description="it is said again behind this when the position has not changed"
    )
    refusal: str = Field(
        "Sorry, nobody is free to talk to you. Please call again later.",
        description="said to a caller who gets no worker, before the call ends; empty: nothing is said",
    )
    tick_log: Path | None = Field(
        Path("recordings/ticks"),
        description="folder for one JSON line per tick of each call, without words, for 30 days; null: none",
    )

    @field_validator("queue_phrase")
    @classmethod
    def _says_a_position(cls, phrase: str) -> str:
        return checked_phrase(phrase, "position")


class Remembering(StrictModel):
    """Storage of conversations: what is kept, and where."""

    store: StoreSettings = StoreSettings()
    conversation: ConversationSettings = ConversationSettings()
    gate: CommitGateSettings = CommitGateSettings()


class Phone(PhoneRoutesSettings):
    """Telephone calls."""

    line: PhoneSettings = PhoneSettings()
    voicemail: VoicemailSettings | None = Field(
        None,
        description="of calls that we place: what happens when a machine answers; null: nobody finds out. "
        "A cascade only",
    )

    @model_validator(mode="after")
    def _is_found_by_a_cascade(self) -> "Phone":
        self.check_mode("cascade")
        return self

    def check_mode(self, default: str) -> None:
        """Check that a server of this mode supports the settings.

        Args:
            default: mode of the server, used where ``mode`` is not set.

        Raises:
            ValueError: voicemail detection is set, and full duplex has none.
        """
        if self.voicemail is not None and (self.mode or default) == "duplex":
            raise ValueError("voicemail: full duplex does not find out who answered; set mode: cascade")


class Deployment(StrictModel):
    """Root of all settings."""

    name: str = Field("embedded", description="of this deployment, in logs and records")
    models_dir: Path = Field(Path("models-cache"), description="where 'make models' puts weights")
    bot: Bot = Bot()
    hearing: Hearing = Hearing()
    thinking: Thinking = Thinking()
    speaking: Speaking = Speaking()
    duplex: Duplex = Duplex()
    remembering: Remembering = Remembering()
    server: ServerSettings = ServerSettings()
    sockets: SocketSettings = Field(SocketSettings(), description="clients of /v1/realtime and of /ws/...")
    phone: Phone | None = Field(None, description="calls of Twilio; null: there are none")
    operations: OperationsSettings = OperationsSettings()
    workers: PoolSettings = Field(PoolSettings(), description="processes that host engines for this one")

    def duplex_policy(self) -> DuplexPolicySettings:
        """Return the policies of a full-duplex call: those of the cascade, with some changes."""
        own, hums = self.duplex.turns, self.speaking.backchannel
        heard = tuned(EndpointTuning, self.hearing.endpoint)
        barge_in = tuned(BargeInTuning, self.hearing.barge_in)
        return DuplexPolicySettings(
            endpoint=ENDPOINT.model_copy(
                update={
                    "kind": own.kind,
                    "patience": heard.patience if own.patience is None else own.patience,
                    "timer_ms": heard.timer_ms,
                    "heard_for_fillers": heard.heard_for_fillers,
                }
            ),
            barge_in=barge_in.model_copy(
                update={
                    "early_ms": BARGE_IN.early_ms,
                    "early_confirm_ms": BARGE_IN.early_confirm_ms,
                    "confirm_ms": barge_in.confirm_ms if own.confirm_ms is None else own.confirm_ms,
                    # Only a recogniser of a cascade supports it.
                    "looks": False,
                }
            ),
            backchannel=(hums or BackchannelSettings()) if own.backchannel else None,
            speculation=self.thinking.speculation,
        )
