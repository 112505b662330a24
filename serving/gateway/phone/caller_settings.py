"""Settings of sessions that are continued by phone."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from parley.core.strict_model import StrictModel

# Variable of the environment with the key of the digests by which numbers are stored.
CALLER_KEY_ENV = "PARLEY_CALLER_KEY"
LANGUAGE_TAG = r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$"

LanguageTag = Annotated[str, StringConstraints(pattern=LANGUAGE_TAG)]
RecordingName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,40}$")]


class CallerSettings(StrictModel):
    """Recognition of a caller by their number.

    A number can be forged. A caller with a forged number would learn what was said in the session of that
    number. ``trust`` therefore has no default.
    """

    trust: Literal["attested", "any"] = Field(
        description="attested: only numbers that the caller's carrier attests (STIR/SHAKEN, attestation A; "
        "networks of the USA and Canada); any: every number that is not withheld"
    )
    continues: Literal["calls", "linked"] = Field(
        "calls",
        description="calls: the session of the number's last call; linked: only a session linked with PUT "
        "/api/sessions/ID/caller",
    )
    days: float = Field(
        30.0,
        gt=0,
        le=3_650,
        description="time after which a number that has not called again continues no session any more",
    )
    second_call: Literal["takes_over", "apart"] = Field(
        "takes_over",
        description="a call from a number whose session is in a call already. takes_over: it resumes the "
        "session and the other call ends (a caller who was cut off calls again before the network has "
        "noticed); apart: it gets a session of its own, unless the other call has gone silent",
    )


class ReconnectSettings(StrictModel):
    """Calls that go on over a new stream when theirs was lost: the server died, or its connection did."""

    phrase: str = Field(
        "Sorry, we were cut off for a moment.",
        max_length=250,
        description="first words over the new stream, before the rest of what was being said; empty: none",
    )
    pause_s: int = Field(
        0,
        ge=0,
        le=10,
        description="silence before Twilio asks how a call goes on. A server without a proxy that waits for "
        "it, and without a fallback address, needs the time of its restart. A call that the server ends by "
        "closing its stream lasts longer by it",
    )
    most: int = Field(
        5, ge=1, le=20, description="reconnections of one call within five minutes; then it ends"
    )
    apology: str = Field(
        "Sorry, this line keeps breaking. Please call again later.",
        max_length=250,
        description="last words to a caller whose call is not connected again; with phone.transfer_to the "
        "call then goes to that number",
    )


class ReconnectTuning(ReconnectSettings):
    """Settings, completed by values that no deployment sets."""

    # A restart of a process costs each of its calls one stream, and a call that loses several within five
    # minutes has a fault that another stream does not mend.
    within_s: float = Field(300.0, gt=0, le=86_400, description="time in which lost streams count")


class RelayVoice(StrictModel):
    """Voice and recogniser of a language, as Twilio names them."""

    voice: str | None = Field(
        None, max_length=200, description="voice of the text-to-speech provider; null: Twilio's choice"
    )
    tts_provider: str | None = Field(
        None, max_length=40, description="text-to-speech provider of Twilio's; null: its choice"
    )
    transcription_provider: str | None = Field(
        None, max_length=40, description="recogniser of Twilio's; null: its choice"
    )


# Longest time that recordings play without a word of the caller; an end of the call waits for them.
LONGEST_PLAYED_S = 600.0


class RelayRecording(StrictModel):
    """Recording that Twilio fetches and plays to the caller."""

    source: str = Field(
        max_length=1_000,
        pattern=r"^https?://[^\s]+$",
        description="address from which Twilio fetches the sound (WAV, MP3 and others)",
    )
    text: str = Field(
        min_length=1, max_length=2_000, description="its words, which the session keeps and the model reads"
    )
    duration_s: float = Field(
        gt=0,
        le=LONGEST_PLAYED_S,
        description="its length: an end of the call that was requested before it waits that long, because "
        "Twilio does not report the end of a recording",
    )
    purpose: str = Field(
        "",
        max_length=500,
        description="when the model is to play it with its tool play_recording; empty: the model cannot",
    )
    loop: int = Field(
        1,
        ge=1,
        le=100,
        description=f"number of times that it is played, at most {LONGEST_PLAYED_S:g} s altogether",
    )
    interruptible: bool = Field(True, description="the caller's voice ends it")
    preemptible: bool = Field(
        False, description="the next words of the bot end it; false: they wait for its end"
    )

    @property
    def played_s(self) -> float:
        """Length of all that is played."""
        return self.loop * self.duration_s

    @model_validator(mode="after")
    def _ends(self) -> "RelayRecording":
        if self.played_s > LONGEST_PLAYED_S:
            raise ValueError(f"loop: {self.played_s:g} s are played, at most {LONGEST_PLAYED_S:g}")
        return self


class RelaySettings(RelayVoice):
    """Calls of Twilio as text: Twilio recognises the caller and speaks (ConversationRelay)."""

    carrier: ClassVar[str] = "twilio"

    language: str | None = Field(
        None,
        pattern=LANGUAGE_TAG,
        description="language that Twilio recognises and speaks, such as de-DE; null: Twilio's, en-US",
    )
    transcription_language: str | None = Field(
        None,
        pattern=rf"{LANGUAGE_TAG}|^multi$",
        description="language that Twilio recognises. multi: whichever is spoken, where the recogniser "
        "can; the voice then follows the caller among the languages. null: the one that is spoken",
    )
    languages: dict[LanguageTag, RelayVoice] = Field(
        {},
        max_length=20,
        description="languages to which a call may switch, with their voices: by the model (tool "
        "switch_language), or because Twilio has recognised one of them",
    )
    recordings: dict[RecordingName, RelayRecording] = Field(
        {}, max_length=50, description="recordings that may be played to the caller, by name"
    )
    opening: str | None = Field(
        None, description="name of the recording that is played before the greeting; null: none"
    )

    @model_validator(mode="after")
    def _names_a_recording(self) -> "RelaySettings":
        if self.opening is not None and self.opening not in self.recordings:
            raise ValueError(f"opening: {self.opening!r} is none of the recordings")
        return self


class CallCodeSettings(StrictModel):
    """Codes that a caller presses to continue a session."""

    per_minute: int = Field(10, ge=1, le=10_000, description="codes that one client may request")


class CallCodeTuning(CallCodeSettings):
    """Settings, completed by values that no deployment sets."""

    digits: int = Field(6, ge=4, le=12)
    expires_s: float = Field(300.0, ge=10, le=86_400)
    pause_s: float = Field(5.0, gt=0, le=60, description="pause between keys after which a new code begins")
    tries: int = Field(
        3, ge=1, le=100, description="wrong codes per call; after them keys are no longer read as a code"
    )
    wrong_per_minute: int = Field(30, ge=1, le=10_000, description="wrong codes of all calls together")
    most: int = Field(1_000, ge=1, le=100_000, description="codes that are valid at the same time")
