"""Settings of the conversation process and of the streams that are kept while it is replaced."""

from pydantic import Field

from parley.core.strict_model import StrictModel


class ConversationProcessSettings(StrictModel):
    """Process that holds the conversations, apart from the one that has the streams of phone calls."""

    own_process: bool = Field(
        False,
        description="true: phone calls of Twilio stay connected when the process that holds their "
        "conversations dies or hangs; a new one continues them in their sessions. It needs phone.reconnect",
    )


class ConversationProcessTuning(ConversationProcessSettings):
    """Settings, completed by values that no deployment sets."""

    # That of a late answer (``thinking.guard.waiting.filler``): a caller need not know why they wait.
    filler: str = Field(
        "One moment, please.",
        description="words of the bot while the process is replaced; empty: comfort noise alone",
    )
    # A new process serves within 4 s when it is warm, so few callers hear the filler twice.
    filler_every_s: float = Field(10.0, ge=2, le=120, description="time after which the filler is repeated")
    # Callers hang up by themselves after a minute of fillers.
    longest_gap_s: float = Field(
        60.0,
        ge=1,
        le=600,
        description="longest time without the process, after which a caller hears phone.reconnect.apology "
        "and the call ends",
    )
    # Only a load that never ends is to be given up: models of tens of gigabytes take minutes.
    start_timeout_s: float = Field(
        1_800.0, ge=1, le=7_200, description="longest time to load the engines of the process"
    )
    # The process reports several times a second, and a starved one is waiting for a processor.
    hung_ms: int = Field(
        2_000,
        ge=500,
        le=60_000,
        description="time after which the process is replaced if it reports nothing and neither uses nor "
        "waits for a processor (Linux)",
    )
    restart_min_ms: int = Field(200, description="pause before the second restart; the first is immediate")
    restart_max_ms: int = Field(10_000, description="longest pause between restarts")
    busy_s: float = Field(
        10.0, gt=0, le=600, description="time after which the process is replaced if it only computes"
    )
    quiet_ms: int = Field(400, description="silence of the caller before a filler")
    patience_s: float = Field(8.0, description="longest wait for that silence")
    settle_s: float = Field(5.0, description="time for the apology to be played")
