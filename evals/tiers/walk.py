"""Hold a scripted session on a real server: the caller, and the human at the desk.

The words of the caller in a call are typed into it, so that the recogniser is no part of the result; the
answers are spoken. The human asks for the first fact that the transcript of the session does not hold, as a
colleague would who reads it.
"""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from parley.core.errors import PeerError
from parley.evals.harness.sessions import timeline
from parley.evals.harness.webrtc_caller import Line
from parley.evals.tiers.model_peer import SLOTS, asked_in, known_in, question, stated
from parley.evals.tiers.pictures import SwitchedPicture
from parley.evals.tiers.script import Leg, Place, Way
from parley.turn_taking.tier_settings import PHRASES

DESK = "desk-of-the-evaluation"
VALUES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jasper")
WISH = "I want to talk to a human."
NEVER_MIND = "Never mind."
KNOWN = "What do you know?"
# Words that ask for a medium, words on which the deployment offers one, and those that accept it.
WISHES = {
    Place.TEXT: "Can we go on in writing?",
    Place.VOICE: "Can I talk to you?",
    Place.CAMERA: "Let me show you something.",
    Place.SCREEN: "Can I share my screen?",
}
HIDE = "Turn off the camera."
OFFERED_ON = {"video": "the label of it", "screen": "that error message"}
OFFERS = {Place.CAMERA: "It is about the label of it.", Place.SCREEN: "It is about that error message."}
ACCEPTED = "Yes, please."
# Words of the deployment when pictures come.
SEEN = PHRASES["seen"]
READY_S = 20.0
EVENT_S = 30.0
POLL_S = 0.2


@dataclass(slots=True)
class Outcome:
    """Result of a session.

    Attributes:
        changes: changes of the tier and of the transport in its record.
        lost: facts that the model did not know in the end.
        repeated: questions for a fact that was asked for before.
        fault: reason for which it did not come to its end.
    """

    changes: int = 0
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    fault: str = ""


class Walk:
    """Course of one session.

    Args:
        client: of the server, with the operator's credential.
        url: root of the server.
        legs: the script.
        chance: draws the facts.
    """

    def __init__(
        self, client: aiohttp.ClientSession, url: str, legs: Sequence[Leg], chance: random.Random
    ) -> None:
        self._client, self._url, self._legs = client, url, legs
        self._facts = {slot: chance.choice(VALUES) for slot in SLOTS}
        self._session = ""
        self._line: Line | None = None
        self._tracks: dict[Place, SwitchedPicture] = {}
        # What the call shows.
        self._shown: Place | None = None
        self._is_human = False
        self._leg = self._doing = "beginning"

    async def run(self) -> Outcome:
        """Hold the session; a failure is part of the outcome."""
        outcome = Outcome()
        try:
            self._session = str((await self._post("/api/sessions"))["id"])
            for number, leg in enumerate(self._legs):
                self._leg = f"leg {number + 1} ({leg.place}, {leg.way})"
                await self._hold(leg)
            await self._leave_human(note=True)
            found = known_in(await self._say(KNOWN, awaits="model"))
            outcome.lost = [slot for slot, value in self._facts.items() if found.get(slot) != value]
            events = await timeline(self._url, self._session)
            outcome.changes = sum(event["kind"] in ("tier", "joined", "left") for event in events)
            outcome.repeated = repeated(events)
        except (AssertionError, KeyError, PeerError, aiohttp.ClientError, TimeoutError) as error:
            outcome.fault = f"{self._session[:8]}, {self._doing}: {error!r}"
        finally:
            await self._hang_up()
        return outcome

    async def _hold(self, leg: Leg) -> None:
        if self._is_human and not leg.place.is_human:
            await self._leave_human(note=leg.note)
        await self._change_medium(leg)
        if leg.wavers and not self._is_human:
            await self._say(WISH, awaits="deployment")
            await self._say(NEVER_MIND, awaits="deployment")
        if leg.place.is_human:
            await self._fetch_human(leg)
            slot = await self._unknown()
            await self._desk("say", desk=DESK, text=question(slot))
            await self._until(lambda events: slot in _questions(events))
        else:
            [slot] = asked_in(await self._say("Go on, please.", awaits="model"))
        await self._say(f"My {slot} is {self._facts[slot]}.", awaits="" if self._is_human else "model")

    async def _change_medium(self, leg: Leg) -> None:
        """Change to the medium of a leg, up or down, with a word about it or without."""
        place, asks = leg.place, leg.way is Way.WISH and not self._is_human
        if self._shown is not None and self._shown is not place:
            if asks and leg.place is Place.VOICE:
                await self._say(HIDE, awaits="deployment")
            await self._hide()
        if not place.is_call:
            if asks and self._line is not None:
                await self._say(WISHES[Place.TEXT], awaits="deployment")
            await self._hang_up()
            return
        if self._line is None:
            if asks:
                await self._say(WISHES[Place.VOICE], awaits="deployment")
            await self._dial()
        if place in OFFERS and self._shown is None:
            await self._show(place, asks=asks)

    async def _show(self, place: Place, *, asks: bool) -> None:
        """Show a camera or a screen, which the caller asks for, or which the agent offers."""
        if asks:
            await self._say(WISHES[place], awaits="deployment")
        else:
            await self._say(OFFERS[place], awaits="deployment")
            await self._say(ACCEPTED, awaits="deployment")
        last = await self._last_seq()
        self._shown = place
        self._tracks[place].turn(on=True)
        await self._until(lambda events: SEEN in _words_of(events, last, "deployment"))

    async def _hide(self) -> None:
        shown, self._shown = self._shown, None
        if shown is None:
            return
        last = await self._last_seq()
        self._tracks[shown].turn(on=False)
        await self._until(
            lambda events: any(each["kind"] == "left" and each["seq"] > last for each in events)
        )

    async def _last_seq(self) -> int:
        events = await timeline(self._url, self._session)
        return max((int(event["seq"]) for event in events), default=0)

    async def _fetch_human(self, leg: Leg) -> None:
        if self._is_human:
            return
        if leg.way is Way.WISH:
            await self._say(WISH, awaits="deployment")
        await self._desk("take", desk=DESK)
        self._is_human = True

    async def _leave_human(self, *, note: bool) -> None:
        if self._is_human:
            await self._desk("return", desk=DESK, note="They gave what I asked for." if note else "")
            self._is_human = False

    async def _unknown(self) -> str:
        """Return the first fact that the transcript does not hold."""
        events = await timeline(self._url, self._session)
        said = "\n".join(str(event["payload"]["text"]) for event in events if event["kind"] == "user_turn")
        known = stated(said)
        return next(slot for slot in SLOTS if slot not in known)

    async def _say(self, text: str, *, awaits: str) -> str:
        """Say something at the present tier; return the words of the author that is awaited."""
        self._doing = f"{self._leg}: “{text}”, {'call' if self._line else 'writing'}"
        last = await self._last_seq()
        if self._line is None:
            path = f"/api/sessions/{self._session}/messages"
            async with self._client.post(path, json={"text": text}) as response:
                if response.status != 200:
                    raise PeerError(f"a turn: {response.status}: {await response.text()}")
                await response.read()
        else:
            options = {"run_immediately": True, "audio_response": True}
            self._send("send-text", str(last), {"content": text, "options": options})
        found = await self._until(lambda known: _answered(known, last, text, awaits))
        return " ".join(_words_of(found, last, awaits))

    async def _until(self, holds: Any) -> Sequence[Mapping[str, Any]]:
        """Return the events once they are as wanted."""
        async with asyncio.timeout(EVENT_S):
            while True:
                events = await timeline(self._url, self._session)
                if holds(events):
                    return events
                await asyncio.sleep(POLL_S)

    async def _dial(self) -> None:
        if self._line is not None:
            return
        started = await self._post("/start", {"body": {"session": self._session}})
        self._tracks = {place: SwitchedPicture(seed) for seed, place in enumerate(OFFERS)}
        camera, screen = self._tracks[Place.CAMERA], self._tracks[Place.SCREEN]
        line = self._line = Line(f"{self._url}/sessions/{started['sessionId']}", camera=camera, screen=screen)
        await line.dial()
        await self._until_ready(line)
        self._send("client-message", "can", {"t": "tier", "d": {"can": ["text", "video", "screen"]}})

    async def _until_ready(self, line: Line) -> None:
        async with asyncio.timeout(READY_S):
            while True:
                if any(message.body.get("type") == "bot-ready" for message in line.messages):
                    return
                await asyncio.sleep(POLL_S)

    def _send(self, kind: str, message_id: str, data: Mapping[str, Any]) -> None:
        message = {"label": "rtvi-ai", "type": kind, "id": message_id, "data": data}
        if self._line is None or not self._line.send(json.dumps(message)):
            raise PeerError("the call has ended")

    async def _hang_up(self) -> None:
        line, self._line, self._shown = self._line, None, None
        if line is None:
            return
        await line.hang_up()
        await self._until(lambda events: _visits(events, "joined") == _visits(events, "left"))

    async def _desk(self, act: str, **body: str) -> None:
        await self._post(f"/api/desk/sessions/{self._session}/{act}", body)

    async def _post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        async with self._client.post(path, json=body) as response:
            if response.status >= 400:
                raise PeerError(f"{path}: {response.status}: {await response.text()}")
            found: dict[str, Any] = {} if response.status == 204 else await response.json()
            return found


def _visits(events: Sequence[Mapping[str, Any]], kind: str) -> int:
    return sum(event["kind"] == kind for event in events)


def _words_of(events: Sequence[Mapping[str, Any]], after_seq: int, author: str) -> list[str]:
    """Return what an author has said since an event."""
    return [
        str(event["payload"]["text"])
        for event in events
        if event["kind"] == "bot_turn"
        and event["seq"] > after_seq
        and event["payload"].get("by", "model") == author
    ]


def _answered(events: Sequence[Mapping[str, Any]], after_seq: int, text: str, author: str) -> bool:
    """Return whether words of the caller are recorded, and the words of the author that is awaited."""
    is_said = any(
        event["kind"] == "user_turn" and event["seq"] > after_seq and event["payload"]["text"] == text
        for event in events
    )
    return is_said and (not author or bool(_words_of(events, after_seq, author)))


def _questions(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the slots that were asked for, in order, with those of each reply that was heard."""
    return [
        slot
        for event in events
        if event["kind"] == "bot_turn"
        for slot in asked_in(str(event["payload"].get("text", "")))
    ]


def repeated(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the questions for a fact that the caller had given before."""
    known: set[str] = set()
    found: list[str] = []
    for event in events:
        text = str(event["payload"].get("text", ""))
        if event["kind"] == "user_turn":
            known |= stated(text).keys()
        elif event["kind"] == "bot_turn":
            found += [slot for slot in asked_in(text) if slot in known]
    return found
