"""The root of the configuration: composes the parts' own settings and nothing else.

Every part has a frozen model beside it with units, bounds and ``extra="forbid"``; an engine's own settings
are checked by its row when the deployment is loaded (``pipelines.engines``), because importing every engine
to know its fields would load what is not used. Secrets are not here: a row names the environment variable
that holds them.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from processors.dialogue.commit_gate import CommitGateSettings
from processors.dialogue.reply_watch import GuardSettings
from processors.front_end.vad import VadSettings
from processors.fusion.perception import PerceptionSettings
from processors.perception.engine_stt import EngineSttSettings
from processors.speech.engine_tts import EngineTtsSettings
from serving.gateway.settings import ServerSettings
from session_store.conversation import ConversationSettings
from session_store.settings import StoreSettings
from turn_taking.endpointing import EndpointSettings

DEFAULT_GREETING = "Hello, this is Parley. Ask me about this service, or about Northwind Bank."
DEFAULT_PROMPT = (
    "You are Parley, a voice assistant on a call. Answer in one to three short spoken sentences, "
    "without lists, markdown or emoji. Say so when you do not know."
)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Choice(_Part):
    """A row of a registry and its settings."""

    name: str
    settings: dict[str, Any] = Field(default_factory=dict)


class Bot(_Part):
    """Who answers."""

    name: str = "Parley"
    greeting: str = Field(DEFAULT_GREETING, description="said when a call begins; empty for none")
    system_prompt: str = DEFAULT_PROMPT
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
    knowledge: Path = Field(Path("knowledge"), description="folder of markdown documents")


class Hearing(_Part):
    """From audio to turns."""

    vad: Choice = Choice(name="silero")
    voice: VadSettings = VadSettings()
    turn: Choice | None = Choice(name="smart_turn")
    endpoint: EndpointSettings = EndpointSettings()
    stt: Choice = Choice(name="pocketsphinx")
    stt_processes: int = Field(1, ge=1, le=64, description="child processes that host an embedded recogniser")
    recognition: EngineSttSettings = EngineSttSettings()
    perception: PerceptionSettings = PerceptionSettings()


class Thinking(_Part):
    """What answers, and what answers when that fails."""

    llm: Choice = Choice(name="documents")
    fallback: Choice | None = None
    tools: tuple[Choice, ...] = Field((), description="what the model may do; an embedded one does nothing")
    guard: GuardSettings = GuardSettings()


class Speaking(_Part):
    """The voice."""

    tts: Choice = Choice(name="flite")
    fallback: Choice | None = Field(
        None, description="embedded voice that speaks when an embedded one does not load or fails"
    )
    delivery: EngineTtsSettings = EngineTtsSettings()


class Remembering(_Part):
    """What is kept of a conversation, and where."""

    store: StoreSettings = StoreSettings()
    conversation: ConversationSettings = ConversationSettings()
    gate: CommitGateSettings = CommitGateSettings()


class Deployment(_Part):
    """One deployment."""

    name: str = "embedded"
    models_dir: Path = Field(Path("models-cache"), description="where 'make models' puts weights")
    bot: Bot = Bot()
    hearing: Hearing = Hearing()
    thinking: Thinking = Thinking()
    speaking: Speaking = Speaking()
    remembering: Remembering = Remembering()
    server: ServerSettings = ServerSettings()
