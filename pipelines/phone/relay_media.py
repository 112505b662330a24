"""Language of a phone call as text (``phone.relay``), and recordings in it.

Input: the language of each prompt as Twilio recognised it, and the model's tools. Output: messages to Twilio.
The language of a session is kept in it (``STATE``), so that a call that comes back speaks it again. The
phrases of the deployment stay in its own language, each with its tag.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from parley.core.errors import EngineError
from parley.language import LANGUAGES, find_language
from parley.language.intents import IntentRules
from parley.models.tools import Tool
from parley.pipelines.phone.control import PhoneTool
from parley.protocols import twilio_relay as relay
from parley.serving.gateway.phone.caller_settings import LONGEST_PLAYED_S, RelaySettings

SWITCH, PLAY = "switch_language", "play_recording"
# Language of Twilio where the document names none.
TWILIO_LANGUAGE = "en-US"


class RelayMedia:
    """Language and recordings of one call.

    Args:
        settings: of calls as text.
        intents: rules of the deployment's language.
        send: sends a message to Twilio.
        keep: records a language that the session now has.

    Attributes:
        intents: rules of the language that is spoken; those of the deployment where there are none for it.
        plays_until_s: time of the loop until which recordings play.
    """

    def __init__(
        self,
        settings: RelaySettings,
        intents: IntentRules,
        send: Callable[[str], Awaitable[None]],
        keep: Callable[[str], None],
    ) -> None:
        self._settings, self._send, self._keep = settings, send, keep
        self._own = settings.language or TWILIO_LANGUAGE
        self._spoken = self._recognised = self._own
        self._own_intents = self.intents = intents
        self.plays_until_s, self._is_interruptible = 0.0, True

    @property
    def phrase_language(self) -> str | None:
        """Language of the deployment's phrases; None where it is the one that is spoken."""
        return None if self._spoken == self._own else self._own

    @property
    def playing_s(self) -> float:
        """Time until the last recording ends, at most ``LONGEST_PLAYED_S``."""
        return max(0.0, self.plays_until_s - asyncio.get_running_loop().time())

    async def resume(self, code: str) -> None:
        """Speak the language that the session has, in a call that begins."""
        if code != self._spoken and code in self._codes():
            await self._switch(code)

    async def follow(self, recognised: str) -> None:
        """Speak the language of a prompt that differs from the one before, where Twilio recognises any."""
        if self._settings.transcription_language != relay.ANY_LANGUAGE:
            return
        code = self._nearest(recognised)
        if code is None or code == self._recognised:
            return
        self._recognised = code
        if code != self._spoken:
            await self._switch(code)
            self._keep(code)

    async def play(self, name: str) -> str:
        """Play a recording; return its words."""
        recording = self._settings.recordings[name]
        await self._send(
            relay.play(
                recording.source,
                loop=recording.loop,
                is_interruptible=recording.interruptible,
                is_preemptible=recording.preemptible,
            )
        )
        if not recording.preemptible:
            self.plays_until_s = asyncio.get_running_loop().time() + self.playing_s + recording.played_s
            self._is_interruptible = recording.interruptible
        return recording.text

    def interrupt(self) -> None:
        """Note that the caller has interrupted: a recording that permits it has ended."""
        if self._is_interruptible:
            self.plays_until_s = 0.0

    def tools(self) -> Sequence[Tool]:
        """Return the model's tools, as far as there are languages and recordings for them."""
        tools = list[Tool]()
        if self._settings.languages:
            language = {"language": {"type": "string", "enum": self._codes()}}
            tools.append(
                PhoneTool(
                    SWITCH,
                    "Switches the language in which the caller is heard and you are spoken. Use it when the "
                    "caller wants another language, before you answer in it.",
                    language,
                    self._switch_for_model,
                )
            )
        offered = {name: each.purpose for name, each in self._settings.recordings.items() if each.purpose}
        if offered:
            purposes = "; ".join(f"{name}: {purpose}" for name, purpose in offered.items())
            tools.append(
                PhoneTool(
                    PLAY,
                    f"Plays a recording to the caller, after the words that you have said. {purposes}",
                    {"name": {"type": "string", "enum": list(offered)}},
                    self._play_for_model,
                )
            )
        return tools

    async def _switch_for_model(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        code = str(arguments.get("language", ""))
        if code not in self._codes():
            known = ", ".join(self._codes())
            raise EngineError(f"expected one of the languages {known}", engine=SWITCH, retryable=False)
        await self._switch(code)
        self._keep(code)
        return {"status": f"the call is in {code} from your next words on"}

    async def _play_for_model(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        name = str(arguments.get("name", ""))
        recording = self._settings.recordings.get(name)
        if recording is None or not recording.purpose:
            raise EngineError("there is no such recording", engine=PLAY, retryable=False)
        if self.playing_s + recording.played_s > LONGEST_PLAYED_S:
            raise EngineError(
                "too long with the recordings that the caller still hears", engine=PLAY, retryable=False
            )
        return {"status": "the caller hears it after your words so far", "words": await self.play(name)}

    async def _switch(self, code: str) -> None:
        recognises_any = self._settings.transcription_language == relay.ANY_LANGUAGE
        await self._send(relay.language(spoken=code, recognised=None if recognises_any else code))
        self._spoken = code
        primary = _primary(code)
        if primary == _primary(self._own) or primary not in LANGUAGES:
            self.intents = self._own_intents
        else:
            self.intents = find_language(primary).intents

    def _codes(self) -> list[str]:
        return list(dict.fromkeys((self._own, *self._settings.languages)))

    def _nearest(self, recognised: str) -> str | None:
        """Return the language of the call that was recognised; recognisers differ in the region they name."""
        codes = self._codes()
        same = [code for code in codes if code.lower() == recognised.lower()]
        near = [code for code in codes if _primary(code) == _primary(recognised)]
        return next(iter((*same, *near)), None)


def _primary(code: str) -> str:
    return code.lower().partition("-")[0]
