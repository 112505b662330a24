"""Choices of the caller of one call: the voice that speaks, a preset, a reference voice and instructions.

The gateway checks them against the offer of the call's mode (``serving.gateway.call_choices``) and reads what
they name. The call carries the result, and its prompt and its voice are made of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from parley.core.client_rules import prompt_of

# Name of the deployment's own voice, as clients of every protocol name it.
OWN_VOICE = "parley"


class ChoiceField(StrEnum):
    """Field of a call by which its caller chooses something."""

    VOICE = "voice"
    PRESET = "preset"
    REFERENCE_VOICE = "reference_voice"
    INSTRUCTIONS = "instructions"


# Fields that become part of a language model's prompt.
PROMPT_FIELDS = frozenset({ChoiceField.PRESET, ChoiceField.INSTRUCTIONS})
# Fields of an engine that has a prompt and imitates a voice.
CLONING = PROMPT_FIELDS | {ChoiceField.REFERENCE_VOICE}


@dataclass(frozen=True, slots=True)
class VoiceNames:
    """Names by which the client of one call may choose a voice.

    Attributes:
        names: of the voices, the deployment's own first; that one alone where there is no choice.
        aliases: names of other providers' voices, each with the name of the voice that speaks for it.
        clones: the engine imitates a voice whose sound the client sends.
        references: ids of the reference voices of the deployment that it imitates.
    """

    names: tuple[str, ...] = (OWN_VOICE,)
    aliases: Mapping[str, str] = field(default_factory=dict)
    clones: bool = False
    references: tuple[str, ...] = ()

    def find(self, name: str) -> str | None:
        """Return the name of the voice that speaks for a name; None where there is none."""
        if name in self.names:
            return name
        # A call of another mode may have fewer voices than the deployment.
        spoken = self.aliases.get(name)
        return spoken if spoken in self.names else None


# Where a client has no choice.
NO_VOICES = VoiceNames()


@dataclass(frozen=True, slots=True)
class ChoiceOffer:
    """Offer of one mode of a call.

    Attributes:
        engine: name of the engine that would have to follow a choice, for refusals.
        fields: that have an effect.
        voices: names of the voices, the deployment's own first; empty where ``VOICE`` has no effect.
        aliases: further names of them (``VoiceNames.aliases``).
    """

    engine: str
    fields: frozenset[ChoiceField] = frozenset()
    voices: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def voice_names(self) -> VoiceNames:
        """Names by which a client chooses a voice; the deployment's own where there is no choice."""
        clones = ChoiceField.REFERENCE_VOICE in self.fields
        return VoiceNames(self.voices or (OWN_VOICE,), self.aliases, clones)


@dataclass(frozen=True, slots=True)
class CallChoices:
    """Choices of one call; empty for what the deployment decides.

    Attributes:
        voice: name of the voice.
        preset: id of the preset.
        preset_text: text of the preset: the operator's own.
        reference_voice: id of the reference voice.
        reference_audio: voice to imitate, chosen or of the preset, float32, (samples,), 16 kHz, in [-1, 1].
        instructions: text of the caller, which its rules have permitted.
    """

    voice: str = ""
    preset: str = ""
    preset_text: str = ""
    reference_voice: str = ""
    reference_audio: np.ndarray | None = field(default=None, compare=False, repr=False)
    instructions: str = ""

    def prompt(self, system_prompt: str) -> str:
        """Return the prompt: the deployment's text, the preset's, and the caller's under a heading."""
        own = "\n\n".join(text for text in (system_prompt, self.preset_text) if text.strip())
        return prompt_of(own, self.instructions)

    def as_payload(self) -> dict[str, object]:
        """Return the choices for the record of a call: names, and that there are instructions."""
        named = {
            ChoiceField.VOICE: self.voice,
            ChoiceField.PRESET: self.preset,
            ChoiceField.REFERENCE_VOICE: self.reference_voice,
        }
        chosen: dict[str, object] = {name.value: value for name, value in named.items() if value}
        if self.instructions:
            chosen[ChoiceField.INSTRUCTIONS.value] = True
        return {"choices": chosen} if chosen else {}
