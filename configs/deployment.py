"""Root model of the configuration: composes the settings of the parts and defines little of its own.

Every part has a frozen model next to its code, with units and bounds; an engine's own settings
are checked by its row when it is loaded (``pipelines.engines.plan``), because importing every engine
to know its fields would load what is not used. Secrets are not here: a row names the environment variable
that holds them.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from parley.core.call_choices import OWN_VOICE
from parley.core.privacy import PrivacySettings
from parley.core.strict_model import StrictModel
from parley.core.templates import validate_template
from parley.core.tuning import tuned
from parley.language import LANGUAGES, Language, find_language
from parley.language.personal_data import Redactor
from parley.models.pictures import VisionSettings
from parley.processors.dialogue.commit_gate import CommitGateSettings
from parley.processors.dialogue.llm_timeouts import GuardSettings
from parley.processors.duplex.settings import DuplexSettings
from parley.recording.settings import RecordingSettings
from parley.serving.gateway.admin.operations import OperationsSettings
from parley.serving.gateway.desk.settings import DeskSettings
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.settings import ServerSettings
from parley.serving.pool.settings import PoolSettings
from parley.session_store.conversation import ConversationSettings
from parley.session_store.settings import StoreSettings
from parley.telemetry.prices import PriceSettings
from parley.telemetry.settings import TelemetrySettings
from parley.transports.twilio.stream import PhoneSettings
from parley.transports.websocket.session import SocketSettings
from parley.turn_taking.answering_machine import VoicemailSettings
from parley.turn_taking.backchannel import BackchannelSettings
from parley.turn_taking.barge_in.settings import BargeInSettings, BargeInTuning
from parley.turn_taking.clarification import AskBackSettings
from parley.turn_taking.duplex_policy import BARGE_IN, ENDPOINT, DuplexPolicySettings
from parley.turn_taking.endpointing.endpointer import EndpointSettings, EndpointTuning
from parley.turn_taking.idle import IdleSettings
from parley.turn_taking.speculation import SpeculationSettings
from parley.turn_taking.tier_settings import TierSettings

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

    name: str = Field("Parley", description="name that the bot gives itself")
    language: str = Field(
        "en",
        description="language that callers speak: its rules for turns, requests, facts and the answers from "
        "documents (docs/how-to/add_language.md). Recogniser and voice have settings of their own",
    )
    greeting: str = Field(DEFAULT_GREETING, description="greeting at the start of a call; empty: none")
    disclosure: str = Field(
        "",
        description="phrase that is spoken before everything else in every call and cannot be interrupted, "
        "such as 'You are talking to an AI.'; the session records that its caller has heard it; empty: none",
    )
    greeting_interruptible: bool = Field(
        True,
        description="false: only a stop word interrupts the greeting",
    )
    system_prompt: str = Field(DEFAULT_PROMPT, description="system prompt of the language model")
    greeting_again: str = Field(
        "Welcome back.", description="greeting of a call that resumes an earlier session; empty: none"
    )
    reprompt: str = Field(
        "Sorry, I did not catch that.",
        description="phrase after an interruption in which no word was understood; empty: none",
    )
    idle_timeout_ms: int = Field(
        300_000,
        ge=5_000,
        le=86_400_000,
        description="silence of both sides after which the conversation ends",
    )
    idle: IdleSettings | None = Field(
        IdleSettings(),
        description="prompts for a silent caller, a goodbye and the end of the call; null: only "
        "``idle_timeout_ms`` ends a silent call, as for a file or an evaluation",
    )
    shutdown_phrase: str = Field(
        "This server is being restarted. Please call again. Goodbye.",
        description="phrase for the callers of a server that is stopping (``server.drain_s``); empty: none",
    )
    voiceless_phrase: str = Field(
        "I am sorry, I cannot go on because of a technical fault. Please call again later. Goodbye.",
        description="phrase when every voice of ``speaking`` has failed for good, or the recogniser or the "
        "language model, before the call ends; an embedded voice says it where no other is left. Empty: "
        "none. A phone call with ``phone.transfer_to`` is passed on instead",
    )
    knowledge: Path = Field(
        Path("knowledge"), description="folder of documents: Markdown, text, HTML, PDF and Word"
    )

    @field_validator("language")
    @classmethod
    def _is_known(cls, tag: str) -> str:
        if tag not in LANGUAGES:
            raise ValueError(f"no such language, expected one of {', '.join(LANGUAGES)}")
        return tag


EchoMode = Literal["auto", "on", "off"]


class Hearing(StrictModel):
    """Input side: from audio to turns."""

    echo: Choice | None = Field(Choice(name="webrtc"), description="echo canceller; null: none")
    echo_mode: EchoMode = Field(
        "auto",
        description="auto: echo control is on where a microphone may pick up the loudspeaker and the other "
        "side does not cancel the echo",
    )
    own_process: bool = Field(
        True,
        description="run echo control and voice activity detection of a server's calls in one child process "
        "for all calls (80 MB); in threads they take the interpreter from the loop that paces audio, and "
        "the server holds fewer calls",
    )
    vad: Choice = Field(Choice(name="silero"), description="voice activity detector")
    turn: Choice | None = Field(
        Choice(name="smart_turn"), description="model that estimates how complete a turn sounds; null: none"
    )
    endpoint: EndpointSettings = EndpointSettings()
    barge_in: BargeInSettings | None = Field(
        BargeInSettings(),
        description="rules for interruptions; null: any voice and any word interrupts the bot, as in Pipecat",
    )
    stop_words: Choice | None = Field(
        None,
        description='spotter of "stop", "wait" and "no" in English, for short utterances over the bot that '
        "the recogniser writes as another word. It runs in one child process for all calls: 31 ms of a "
        "processor for each such utterance, and 80 MB. null: none. Not loaded without ``barge_in``",
    )
    stt: Choice = Field(
        Choice(name="moonshine_tiny"), description="recogniser: an embedded engine or a service"
    )
    fallback: Choice | None = Field(
        None,
        description="embedded recogniser that takes over: from a service that fails in a call or from "
        "workers that are gone (docs/how-to/failover.md), and from an embedded ``stt`` of which a file is "
        "missing or altered; null: none, and the server does not start without a file. A deployment that "
        "sets neither has pocketsphinx",
    )
    stt_processes: int = Field(1, ge=1, le=64, description="child processes that host an embedded recogniser")
    specialists: tuple[Choice, ...] = Field(
        (Choice(name="prosody"),),
        description="specialists that judge the caller's voice beyond its words, or the caller's camera "
        "(``vision``), each in one child process for all calls (60 MB and more); one without its weights is "
        "missing, which the log says; empty: none",
    )
    spare_processes: bool = Field(
        True,
        description="keep one more process of the embedded recogniser loaded (moonshine_tiny: 180 MB, as "
        "much as the first) and one more for echo control and voice activity detection (60 MB). They take "
        "over the callers of a process that dies: loading takes 0.2 to 1 s, and several seconds on a busy "
        "machine",
    )
    ask_back: AskBackSettings | None = Field(
        None,
        description="repeat a turn of low confidence to the caller and ask whether it is right; null: "
        "never. If not set: on for moonshine_tiny, whose confidence separates such turns, and off for "
        "PocketSphinx, which would ask about 13 % of the understood turns to catch 76 % of the others",
    )

    second_opinion: Choice | None = Field(
        None,
        description="embedded recogniser that hears an utterance again where the bot would ask back, such as "
        "``{name: whisper, settings: {model: tiny.en}}``. Its words count where it is sure. Where it is "
        "not, or takes more than 1.5 s, the bot asks back (docs/explanation/turn_taking.md#second-opinion). "
        "It runs in one child process for all calls (300 MB). Needs ``ask_back``, and an embedded "
        "``stt``; null: none",
    )

    @model_validator(mode="before")
    @classmethod
    def _default_recogniser_has_a_fallback(cls, given: Any) -> Any:
        if isinstance(given, dict) and not {"stt", "fallback"} & given.keys():
            return {**given, "fallback": {"name": "pocketsphinx"}}
        return given


class Thinking(StrictModel):
    """The language model, its tools, and the model that takes over when it fails."""

    llm: Choice = Field(
        Choice(name="documents"), description="language model: an embedded model or a service"
    )
    fallback: Choice | None = Field(
        None, description="embedded model that answers when ``llm`` fails; null: none"
    )
    tools: tuple[Choice, ...] = Field(
        (), description="tools that the model may call; an embedded model calls none"
    )
    passages: int = Field(
        3,
        ge=0,
        le=10,
        description="passages of ``bot.knowledge`` before each question to a model other than ``documents``; "
        "0: none. The shipped examples are for ``documents`` alone",
    )
    vector_search: Choice = Field(
        Choice(name="exact"),
        description="search for the passages nearest to a question: ``exact`` compares with all of them, "
        "``chroma`` asks Chroma (docs/how-to/answers.md)",
    )
    guard: GuardSettings = GuardSettings()
    speculation: SpeculationSettings = SpeculationSettings()
    vision: VisionSettings = VisionSettings()


VoiceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
# Of another provider: some have capitals, dots and slashes.
ForeignVoiceName = Annotated[str, Field(min_length=1, max_length=100)]


def _fallback_voices(tts: Choice | None) -> tuple[Choice, ...]:
    # These speak English, and a deployment that names another voice may not want them.
    if tts is None or tts.name != DEFAULT_VOICE:
        return ()
    return Choice(name="flite"), Choice(name="espeak")


class Speaking(StrictModel):
    """Output side: the voice and its fallbacks."""

    tts: Choice = Field(Choice(name=DEFAULT_VOICE), description="voice: an embedded engine or a service")
    fallback: tuple[Choice, ...] = Field(
        default_factory=lambda read: _fallback_voices(read.get("tts")),
        max_length=4,
        description="voices that speak, in this order, when ``tts`` does not load or fails: embedded ones "
        "after an embedded voice, and services and embedded ones after a service (docs/how-to/failover.md). "
        "If not set: flite and espeak after hibari, none after another voice",
    )
    voices: dict[VoiceName, Choice] = Field(
        default_factory=dict,
        max_length=8,
        description="further voices by name, one of which a caller may choose for a call "
        "(docs/reference/serving.md#choices-of-a-caller); embedded engines, where ``tts`` is one. Each is "
        "loaded at startup, and ``tts`` speaks what it cannot",
    )
    voice_aliases: dict[ForeignVoiceName, VoiceName] = Field(
        default_factory=dict,
        max_length=64,
        description="voice names of other providers that clients send, such as OpenAI's ``marin``, each with "
        "the name in ``voices`` that speaks for it (docs/reference/sockets.md#voices). A client's name that "
        "is in ``voices`` itself needs none",
    )
    phrases: tuple[str, ...] = Field(
        (),
        max_length=200,
        description="clauses that occur often in answers, word for word, whose audio an embedded voice "
        "keeps; the bot's own phrases (greeting, fillers, apologies) are always kept",
    )
    backchannel: BackchannelSettings | None = Field(
        None,
        description='backchannels ("mhm") while the caller talks; null: never. Needs an embedded voice and '
        "``hearing.turn``",
    )

    @field_validator("voices")
    @classmethod
    def _no_second_own_voice(cls, voices: dict[str, Choice]) -> dict[str, Choice]:
        if OWN_VOICE in voices:
            raise ValueError(f"{OWN_VOICE!r} is the name of the voice of tts")
        return voices

    @model_validator(mode="after")
    def _aliases_of_voices(self) -> Self:
        if taken := sorted(self.voice_aliases.keys() & {OWN_VOICE, *self.voices}):
            raise ValueError(f"voice_aliases: {taken[0]!r} is the name of a voice of this deployment")
        for alias, name in self.voice_aliases.items():
            if name != OWN_VOICE and name not in self.voices:
                raise ValueError(f"voice_aliases: {alias!r} names {name!r}, which is not in voices")
        return self

    @field_validator("fallback", mode="before")
    @classmethod
    def _one_or_several(cls, fallback: object) -> object:
        if fallback is None:
            return ()
        return (fallback,) if isinstance(fallback, (Choice, dict)) else fallback


class DuplexTurns(StrictModel):
    """Turn-taking settings of full-duplex calls only; the others are those of the cascade (``hearing``)."""

    kind: Literal["timer", "adaptive", "predictive"] = Field(
        "adaptive",
        description="as ``hearing.endpoint.kind``, with longer waits when the turn sounds unfinished",
    )
    patience: float | None = Field(
        None, ge=0, le=1, description="null: the value of ``hearing.endpoint.patience``"
    )
    confirm_ms: int | None = Field(
        None, ge=300, le=1_500, description="null: the value of ``hearing.barge_in.confirm_ms``"
    )
    backchannel: bool = Field(
        True,
        description="backchannels while the caller talks, as set in ``speaking.backchannel``, or with its "
        "defaults",
    )


class Duplex(StrictModel):
    """Full duplex (``--mode duplex``): an engine in place of ``thinking`` and ``speaking``.

    The ``two_tier`` engine requests its content from those two. Any other engine uses them only for its
    greeting, its prompts and its apologies.
    """

    engine: Choice = Field(
        Choice(name="two_tier"),
        description="speech-to-speech engine or realtime service",
    )
    fallback: tuple[Choice, ...] = Field(
        (),
        max_length=4,
        description="engines that take over, in this order, when the one before fails; ``engine`` comes "
        "again after the last. From a realtime service only ``cascade`` takes over: the recogniser, the "
        "model and the voice of this deployment",
    )
    answer_ms: int = Field(
        10_000,
        ge=1_000,
        le=120_000,
        description="time without speech from a realtime service after it has transcribed the caller's "
        "turn. The bot then apologises; the second time in a row, the call ends. With a fallback "
        "``failover_ms`` counts",
    )
    failover_ms: int = Field(
        2_000,
        ge=500,
        le=60_000,
        description="time without speech from a realtime service with a fallback after the caller's turn, "
        "until the fallback takes over",
    )
    ticks: DuplexSettings = DuplexSettings()
    turns: DuplexTurns = DuplexTurns()
    yields: Literal["engine", "policy"] = Field(
        "policy",
        description="for an engine without a yield policy of its own. engine: the engine itself decides "
        "when to stop speaking; policy: the rules of ``turns`` do",
    )
    llm_voice: Path | None = Field(
        None, description="WAV with the voice that the engine's language model imitates"
    )
    tts_voice: Path | None = Field(
        None, description="WAV with the voice that the engine's speech synthesis imitates"
    )
    queue_phrase: str = Field(
        "Every line is taken. You are number {position} in the queue.",
        description="phrase for a caller who waits for a worker, repeated when the position changes; empty: "
        "none",
    )
    refusal: str = Field(
        "Sorry, nobody is free to talk to you. Please call again later.",
        description="phrase for a caller who gets no worker, before the call ends; empty: none",
    )
    tick_log: Path | None = Field(
        Path("recordings/ticks"),
        description="folder for one JSON line per tick of each call, without words, kept for 30 days; null: "
        "none",
    )

    @field_validator("queue_phrase")
    @classmethod
    def _says_a_position(cls, phrase: str) -> str:
        return validate_template(phrase, "position")


class Remembering(StrictModel):
    """Storage of conversations: what is kept, and where."""

    store: StoreSettings = StoreSettings()
    conversation: ConversationSettings = ConversationSettings()
    extract_facts: bool = Field(
        False,
        description="extract facts that a person states about themselves (a name, a number) and the "
        "reason of the conversation from their turns, by rules; they are kept with the session, and the "
        "model gets them in each request",
    )
    gate: CommitGateSettings = CommitGateSettings()


class Phone(PhoneRoutesSettings):
    """Phone calls."""

    line: PhoneSettings = PhoneSettings()
    voicemail: VoicemailSettings | None = Field(
        None,
        description="rules for an outbound call that a machine answers; null: machines are not detected. "
        "Only for a cascade",
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
            raise ValueError("voicemail: full duplex does not detect answering machines; set mode: cascade")


class Deployment(StrictModel):
    """Root of all settings."""

    name: str = Field("embedded", description="name of this deployment, in logs and records")
    # Read before the rest (``configs.load``), and then without a value.
    extends: str | None = Field(
        None,
        description="shipped deployment, or file relative to this one, whose settings hold where this file "
        "sets none; a list replaces its list",
    )
    models_dir: Path = Field(Path("models-cache"), description="folder where 'make models' puts weights")
    bot: Bot = Bot()
    hearing: Hearing = Hearing()
    thinking: Thinking = Thinking()
    speaking: Speaking = Speaking()
    duplex: Duplex = Duplex()
    remembering: Remembering = Remembering()
    recording: RecordingSettings = RecordingSettings()
    privacy: PrivacySettings = PrivacySettings()
    server: ServerSettings = ServerSettings()
    sockets: SocketSettings = Field(
        SocketSettings(), description="limits of clients of /v1/realtime and /ws/..."
    )
    phone: Phone | None = Field(None, description="phone calls; null: none")
    tiers: TierSettings | None = Field(
        None,
        description="steps of a session to another medium: writing, a call, a camera or a shared screen; "
        "null: none is offered, and no request for one is recognised",
    )
    desk: DeskSettings | None = Field(
        None, description="desk at which humans take sessions over (/desk); null: none"
    )
    operations: OperationsSettings = OperationsSettings()
    observers: tuple[Choice, ...] = Field(
        (),
        description="subscribers to the events of every call: a name that a package registers, or "
        "``package.module:Class``",
    )
    prices: PriceSettings | None = Field(
        None, description="prices of engines, for the cost of turns and calls; null: no cost is computed"
    )
    telemetry: TelemetrySettings = TelemetrySettings()
    workers: PoolSettings = Field(PoolSettings(), description="processes that host engines for this one")

    @model_validator(mode="after")
    def _listeners_hear_every_word(self) -> "Deployment":
        if self.operations.listen_in and self.privacy.redacts:
            raise ValueError(
                "operations.listen_in: a listener hears what ``privacy`` hides; leave out one of them"
            )
        return self

    def language(self) -> Language:
        """Return the rules of the language that callers speak.

        Raises:
            ConfigError: its module cannot be imported.
        """
        return find_language(self.bot.language)

    def redactor(self) -> Redactor | None:
        """Return the decision about personal data in words; None where nothing is redacted.

        Raises:
            ConfigError: the module of the language cannot be imported.
        """
        return Redactor(self.privacy, self.language().personal) if self.privacy.redacts else None

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
