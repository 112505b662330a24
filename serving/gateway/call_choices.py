"""Choices of callers: the offer of each mode of a call (``GET /api/choices``), and the check of its fields.

Decides which voice, preset, reference voice and instructions a call may have. A field without an effect in
the mode of the call is refused with the reason, and an unknown value with the known ones. Presets are the
operator's text, so any caller may choose one; instructions need the same grant as those of the sockets.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel

from parley.audio.wav import decode_wav
from parley.core.call_choices import NO_VOICES, CallChoices, ChoiceField, ChoiceOffer, VoiceNames
from parley.core.errors import MediaError, PeerError
from parley.core.grants import ClientIdentity, KeyScope
from parley.core.media import pcm16_to_float
from parley.protocols.minicpm_duplex import MOST_PROMPT_CHARS
from parley.serving.gateway.admin.presets import Mode, Preset, PresetAudio, PresetError, Presets, PresetText
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.reference_voices.decoder import RATE_HZ, VoiceError
from parley.serving.gateway.reference_voices.voices import Voice, Voices

PATH = "/api/choices"
# Folder of the presets of each mode of a call.
PRESET_MODES: Mapping[str, Mode] = {"cascade": "half_duplex_audio", "duplex": "audio_duplex"}
# Names in a refusal; a folder may have hundreds of presets or voices.
MOST_NAMED = 20


class NamedChoice(BaseModel):
    """Preset or reference voice, as the page of a call lists it."""

    id: str
    name: str
    description: str = ""


class ModeChoices(BaseModel):
    """Offer of one mode; an empty list or false: the field would be refused.

    Attributes:
        voices: names, the deployment's own first.
        presets: in their order.
        reference_voices: the oldest first.
        instructions: this client may give some.
    """

    voices: list[str]
    presets: list[NamedChoice]
    reference_voices: list[NamedChoice]
    instructions: bool


class Choices(BaseModel):
    """Offers of a server.

    Attributes:
        modes: offer of each mode.
        most_instruction_chars: longest instructions.
        speaks: this client may request a sample of a voice (``POST /v1/audio/speech``).
    """

    modes: dict[str, ModeChoices]
    most_instruction_chars: int = MOST_PROMPT_CHARS
    speaks: bool = False


@dataclass(frozen=True)
class CallOffers:
    """Parts of a deployment from which callers choose.

    Attributes:
        of_mode: returns the offer of a mode's engines.
        may_instruct: returns whether the rules of a client permit instructions.
    """

    of_mode: Callable[[str], ChoiceOffer]
    may_instruct: Callable[[ClientIdentity], bool]


class CallChooser:
    """Choices of the calls of one server.

    Args:
        offers: of the engines; None: nothing can be chosen.
        presets: of the deployment, if it has any.
        voices: reference voices of the deployment, if it has any.
        modes: of a call.
        default_mode: of a call that names none.
    """

    def __init__(
        self,
        offers: CallOffers | None,
        presets: Presets | None,
        voices: Voices | None,
        *,
        modes: Sequence[str],
        default_mode: str,
    ) -> None:
        self._offers = offers
        self._presets, self._voices = presets, voices
        self._modes, self._default_mode = modes, default_mode

    @property
    def voices(self) -> VoiceNames:
        """Voices that speak texts."""
        return self.voices_of(self._modes[0])

    def voices_of(self, mode: str) -> VoiceNames:
        """Return the names by which the caller of a call of a mode chooses a voice."""
        return NO_VOICES if self._offers is None else self._offers.of_mode(mode).voice_names

    async def references_of(self, mode: str) -> Sequence[Voice]:
        """Return the reference voices that the engine of a call of a mode imitates, the oldest first."""
        if self._voices is None or not self.voices_of(mode).clones:
            return []
        return await asyncio.to_thread(self._voices.all)

    async def imitated(self, voice_id: str) -> np.ndarray:
        """Return the sound of a reference voice.

        Raises:
            PeerError: there is none of this id, or it cannot be read.
        """
        return await asyncio.to_thread(self._reference, voice_id)

    async def choose(self, body: Mapping[str, object], identity: ClientIdentity) -> CallChoices:
        """Return the choices of a call that its client's body names.

        Raises:
            PeerError: a field has no effect, is not permitted, or names something unknown.
        """
        wanted = {field: text for field in ChoiceField if (text := _text(body, field))}
        if not wanted:
            return CallChoices()
        mode = str(body.get("mode") or self._default_mode)
        if self._offers is None:
            raise PeerError(f"{next(iter(wanted)).value}: this server offers no choice of it")
        offer = self._offers.of_mode(mode)
        for field in wanted:
            if field not in offer.fields:
                known = _known(sorted(offer.fields))
                raise PeerError(f"{field.value}: {offer.engine} ({mode}) takes no such choice {known}")
        voice = wanted.get(ChoiceField.VOICE, "")
        if voice and (found := offer.voice_names.find(voice)) is not None:
            voice = found
        elif voice:
            raise PeerError(f"voice: there is no voice {voice[:40]!r} {_known(offer.voices)}")
        instructions = wanted.get(ChoiceField.INSTRUCTIONS, "")
        if instructions:
            self._check_instructions(instructions, identity)
        clones = ChoiceField.REFERENCE_VOICE in offer.fields
        preset_id, reference = wanted.get(ChoiceField.PRESET, ""), wanted.get(ChoiceField.REFERENCE_VOICE, "")
        text, audio = "", None
        if preset_id:
            text, audio = await asyncio.to_thread(self._preset, mode, preset_id, clones=clones)
        if reference:
            audio = await self.imitated(reference)
        return CallChoices(voice, preset_id, text, reference, audio, instructions)

    def offered(self, identity: ClientIdentity) -> Choices:
        """Return what a client may choose. Blocks while files are read."""
        if self._offers is None:
            return Choices(modes={})
        return Choices(modes={mode: self._of_mode(mode, identity) for mode in self._modes})

    def router(self, access: Access, *, speaks: bool) -> APIRouter:
        """Return the route that lists the choices; ``speaks``: the server has ``POST /v1/audio/speech``."""
        router = APIRouter()

        @router.get(PATH)
        async def choices(request: Request) -> Choices:
            """Return the voices, presets and reference voices that a call may choose, by mode."""
            try:
                identity, is_client = await access.identify(request, KeyScope.TALK), True
            except HTTPException:
                # The lists are public; what else a client may do depends on its credential.
                identity, is_client = access.compare(request), False
            offered = await asyncio.to_thread(self.offered, identity)
            return offered.model_copy(update={"speaks": speaks and is_client})

        return router

    def _of_mode(self, mode: str, identity: ClientIdentity) -> ModeChoices:
        assert self._offers is not None
        offer = self._offers.of_mode(mode)
        presets = self._presets_of(mode) if ChoiceField.PRESET in offer.fields else []
        voices = self._voices.all() if self._voices and ChoiceField.REFERENCE_VOICE in offer.fields else []
        return ModeChoices(
            voices=list(offer.voices),
            presets=[
                NamedChoice(**each.file.model_dump(include={"id", "name", "description"})) for each in presets
            ],
            reference_voices=[NamedChoice(id=voice.id, name=voice.name) for voice in voices],
            instructions=ChoiceField.INSTRUCTIONS in offer.fields and self._offers.may_instruct(identity),
        )

    def _presets_of(self, mode: str) -> Sequence[Preset]:
        return [] if self._presets is None else self._presets.all().get(PRESET_MODES[mode], [])

    def _check_instructions(self, text: str, identity: ClientIdentity) -> None:
        assert self._offers is not None
        if len(text) > MOST_PROMPT_CHARS:
            raise PeerError(f"instructions: over {MOST_PROMPT_CHARS} characters")
        if not self._offers.may_instruct(identity):
            raise PeerError("instructions: this deployment accepts none from this client")

    def _preset(self, mode: str, preset_id: str, *, clones: bool) -> tuple[str, np.ndarray | None]:
        """Return the text of a preset, and its voice where the engine imitates one."""
        found = next((each for each in self._presets_of(mode) if each.file.id == preset_id), None)
        if found is None:
            known = [each.file.id for each in self._presets_of(mode)]
            raise PeerError(f"preset: there is no preset {preset_id[:40]!r} of {mode} {_known(known)}")
        try:
            return _preset_text(found), _preset_voice(found) if clones else None
        except PresetError as error:
            raise PeerError(f"preset: {error}") from error

    def _reference(self, voice_id: str) -> np.ndarray:
        voices = self._voices
        known = [] if voices is None else voices.all()
        if voices is None or all(voice.id != voice_id for voice in known):
            names = [voice.id for voice in known]
            raise PeerError(f"reference_voice: there is no voice {voice_id[:40]!r} {_known(names)}")
        try:
            return voices.load(voice_id)
        except VoiceError as error:
            raise PeerError(f"reference_voice: {error}") from error


def _text(body: Mapping[str, object], field: ChoiceField) -> str:
    """Return the text of a field; empty where it is absent, null or blank."""
    given = body.get(field.value)
    if not isinstance(given, str | None):
        raise PeerError(f"{field.value}: expected a text or nothing")
    return (given or "").strip()


def _known(names: Sequence[str]) -> str:
    shown = [*names[:MOST_NAMED], *(["..."] if len(names) > MOST_NAMED else [])]
    return f"(known: {', '.join(shown) or 'none'})"


def _preset_text(preset: Preset) -> str:
    file = preset.file
    texts = [item.text for item in file.system_content or () if isinstance(item, PresetText)]
    return file.system_prompt or "\n".join(texts)


def _preset_voice(preset: Preset) -> np.ndarray | None:
    """Return the reference voice of a preset, else the first sound of its content, else None."""
    sounds = [item.path for item in preset.file.system_content or () if isinstance(item, PresetAudio)]
    named = preset.file.ref_audio_path or next(iter(sounds), None)
    if named is None:
        return None
    try:
        return pcm16_to_float(decode_wav(preset.sounds[named].read_bytes(), rate_hz=RATE_HZ))
    except (OSError, MediaError) as error:
        raise PresetError("a sound of this preset cannot be read") from error
