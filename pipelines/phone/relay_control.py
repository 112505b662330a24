"""Ends of a phone call as text (``phone.relay``) that its caller or the model requests, and keys.

Input: each turn of the caller, and the model's tools. Output: the call's own answer to a turn, the message
that ends the session after the present answer, and the message that presses keys. Decides as
``phone.control`` does for a call as audio, with less: Twilio speaks, and dials the person after the session.

A later turn of the caller takes back what an earlier one has requested.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from parley.core.errors import EngineError
from parley.models.tools import Tool
from parley.pipelines.phone.control import (
    BY_MODEL,
    FAREWELL,
    PRESS,
    TRANSFER,
    PhoneTool,
    hang_up_tool,
    press_tool,
)
from parley.pipelines.phone.relay_media import RelayMedia
from parley.protocols import twilio_relay as relay
from parley.serving.gateway.phone.carriers.carrier import PhoneCall
from parley.serving.gateway.phone.carriers.twilio_relay import TO_PERSON
from parley.serving.gateway.phone.settings import PhoneRoutesSettings

# Reason of an end after which Twilio dials the person. Whether they take the call is not known here.
PASSED_ON = "passed_on", "the caller has been passed on to a person"


class End(NamedTuple):
    """End of a session.

    Attributes:
        message: to Twilio.
        why: reason and message of ``CallEnding``.
    """

    message: str
    why: tuple[str, str]


class RelayControl:
    """Control of one call.

    Args:
        phone: the call.
        settings: settings of phone calls.
        media: language and recordings of the call.
        send: sends a message to Twilio.

    Attributes:
        ending: end of the session after the present answer; None while it goes on.
        answers_itself: the present answer is a phrase of the deployment.
    """

    def __init__(
        self,
        phone: PhoneCall,
        settings: PhoneRoutesSettings,
        media: RelayMedia,
        send: Callable[[str], Awaitable[None]],
    ) -> None:
        self._phone, self._settings, self._media, self._send = phone, settings, media, send
        self.ending: End | None = None
        self.answers_itself = False

    @property
    def can_transfer(self) -> bool:
        """True when a person is configured."""
        return self._settings.transfer_to is not None

    @property
    def connecting(self) -> str:
        """Words to a caller who is passed on."""
        return self._settings.connecting.format(person=self._settings.person)

    def pass_on(self) -> End:
        """End the session with a transfer to the person; return that end."""
        self.ending = ending = End(relay.end(TO_PERSON), PASSED_ON)
        return ending

    def begin(self, said: str) -> None:
        """Take a turn of the caller: it decides anew, and a farewell ends the call after its answer."""
        is_leaving = self._settings.ends_on_goodbye and self._media.intents.is_farewell(said)
        self.ending = End(relay.end(), FAREWELL) if is_leaving else None
        self.answers_itself = False

    def answer(self, said: str, *, is_again: bool) -> str | None:
        """Return the call's own answer to a turn; see ``processors.dialogue.commit_gate.Answers``."""
        if is_again or not self.can_transfer or not self._media.intents.requests_human(said):
            return None
        if self._phone.direction == "outbound":
            # In a call placed by us a menu may offer "an operator", whom the model may want.
            return None
        self.pass_on()
        self.answers_itself = True
        return self.connecting

    def tools(self) -> Sequence[Tool]:
        """Return the model's tools for the call."""
        tools: list[Tool] = [hang_up_tool(self._hang_up), press_tool(self._press), *self._media.tools()]
        if self.can_transfer:
            tools.append(
                PhoneTool(
                    TRANSFER,
                    f"Passes the call on to {self._settings.person} after your next words. Use it when the "
                    "caller asks for a person, or when you cannot help.",
                    {},
                    self._transfer,
                )
            )
        return tools

    async def _hang_up(self, _arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.ending is None:
            self.ending = End(relay.end(), BY_MODEL)
        return {"status": "the call ends after your next words: say goodbye"}

    async def _press(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            message = relay.keys(str(arguments.get("keys", "")))
        except ValueError as error:
            raise EngineError(str(error), engine=PRESS, retryable=False) from error
        await self._send(message)
        return {"status": "pressed"}

    async def _transfer(self, _arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.pass_on()
        return {"status": "the caller is passed on after your next words: tell them"}
