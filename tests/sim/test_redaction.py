"""A call whose caller says the number of a card, on virtual time: nothing keeps it."""

import asyncio
import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from parley.core.call_events import (
    CallEvent,
    PrivatePauseBegan,
    PrivatePauseEnded,
    PrivatePauseRequested,
    VoiceStarted,
)
from parley.runtime.event_stream import CallEvents
from parley.session_store.events import Event, Kind
from parley.session_store.vault import VAULT_KEYS_ENV, VaultKeys
from tests.fakes.scripted_llm import ScriptedRow, Use
from tests.fakes.tools import FakeTool
from tests.sim.call import OFF, RunningCall, SimulatedCall, silence, simulate, voice

NUMBER = " ".join(["four two four two"] * 4)
SAID = f"my card is {NUMBER} thanks"
CARDS = {"redact": ["payment_card"]}
RATE_HZ = 16_000


class Seen:
    """Observer of a call that keeps its events."""

    def __init__(self, seen: list[CallEvent], events: CallEvents) -> None:
        events.subscribe(CallEvent, seen.append)

    def close(self) -> None:
        """Do nothing: the list is the test's."""


def of_kind(events: list[Event], kind: Kind) -> list[Event]:
    return [event for event in events if event.kind is kind]


def say_card(tmp_path: Path, *, privacy: dict[str, Any], **more: Any) -> SimulatedCall:
    """Hold a call whose caller says ``SAID`` in one breath, from 0.5 s on."""
    spoken = [silence(500), voice(200 * len(SAID.split())), silence(4_000)]
    return simulate(spoken, tmp_path, words=SAID.split(), privacy=privacy, speculation=OFF, **more)


def everything_below(folder: Path) -> bytes:
    """Return the bytes of all files, but for the caller's own recording of the call."""
    files = [each for each in folder.rglob("*") if each.is_file() and each.name != "call.wav"]
    assert any(each.name.startswith("sessions.db") for each in files)
    return b"\n".join(each.read_bytes() for each in files)


def requests_of(call: SimulatedCall) -> str:
    return json.dumps([[str(message) for message in request] for request in call.model.asked])


def test_card_is_in_no_event_no_file_and_no_question(tmp_path: Path):
    seen: list[CallEvent] = []
    call = say_card(
        tmp_path,
        privacy=CARDS,
        records=True,
        scripts=[("I charge 4242 42", "42 4242 4242 now. ", "That is all.")],
        observers=[lambda events, _call, **_: Seen(seen, events)],
    )
    [turn], [reply] = of_kind(call.events, Kind.USER_TURN), of_kind(call.events, Kind.BOT_TURN)
    assert turn.payload["text"] == "my card is [card] thanks"
    assert reply.payload["text"] == "I charge [card] now. That is all."
    for text in (everything_below(tmp_path).decode("latin-1"), requests_of(call), repr(seen)):
        assert "four two four two" not in text
        assert "4242 4242" not in text
    assert "[card]" in requests_of(call) and "[card]" in repr(seen)


def test_a_card_is_in_the_vault_of_a_call_that_has_one_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key = bytes(range(32))
    monkeypatch.setenv(VAULT_KEYS_ENV, base64.b64encode(key).decode())
    call = say_card(tmp_path, privacy={**CARDS, "vault": {}}, records=True)
    [turn] = of_kind(call.events, Kind.USER_TURN)
    assert turn.payload["text"] == "my card is [card] thanks"
    [name] = turn.payload["redacted"]
    [database] = tmp_path.rglob("sessions.db")
    with closing(sqlite3.connect(database)) as connection:
        [(session, kind, sealed)] = connection.execute(
            "SELECT session_id, kind, sealed FROM vault_entry WHERE name = ?", (name,)
        )
    place = f"{session}\n{name}\n{kind}".encode()
    assert VaultKeys([key]).open(sealed, place) == NUMBER
    for text in (everything_below(tmp_path).decode("latin-1"), requests_of(call)):
        assert "four two four two" not in text


def test_the_same_call_without_redaction_keeps_it(tmp_path: Path):
    call = say_card(tmp_path, privacy={}, records=True)
    assert NUMBER in everything_below(tmp_path).decode("latin-1")
    assert NUMBER in requests_of(call)


def test_recorded_audio_of_the_card_is_silent_and_the_recording_says_so(tmp_path: Path):
    say_card(tmp_path, privacy=CARDS, records=True)
    (meta_path,) = (tmp_path / "data").rglob("meta.json")
    timeline = json.loads((meta_path.parent / "recording.json").read_text())
    assert json.loads(meta_path.read_text())["redaction"] == {
        "kinds": ["payment_card"],
        "replaced_by": "silence",
    }
    (stretch,) = timeline["user_audio"]["redacted"]
    heard = np.concatenate(
        [soundfile.read(each)[0] for each in sorted((meta_path.parent / "user_audio").glob("*.flac"))]
    )
    loud_ms = np.flatnonzero(np.abs(heard) > 0.01) / RATE_HZ * 1_000
    # The scripted recogniser gives exact times: 200 ms for each word, and the first three are no digits.
    assert loud_ms.size and not ((loud_ms > 1_200) & (loud_ms < 4_200)).any()
    assert stretch["start_ms"] <= 1_200 and stretch["start_ms"] + stretch["length_ms"] >= 4_200


def test_words_of_a_short_number_reach_the_model_when_the_turn_is_over(tmp_path: Path):
    said = "room four one one nine"
    call = simulate(
        [silence(500), voice(200 * 5), silence(3_000)],
        tmp_path,
        words=said.split(),
        privacy=CARDS,
        speculation=OFF,
    )
    [turn] = of_kind(call.events, Kind.USER_TURN)
    assert turn.payload["text"] == said
    assert said in requests_of(call)
    shown = [each.payload["body"]["text"] for each in of_kind(call.events, Kind.ANNOTATION)]
    assert "room [...]" in shown and said not in shown


async def pause(running: RunningCall) -> None:
    """Begin a pause before the caller speaks, and end it after the answer."""
    await asyncio.sleep(0.2)
    assert running.call.conversation.request_pause(is_on=True, by="operator")
    await asyncio.sleep(8)
    running.call.conversation.request_pause(is_on=False, by="operator")


def test_nothing_of_a_private_pause_is_kept_and_its_limits_are(tmp_path: Path):
    seen: list[CallEvent] = []
    call = simulate(
        [silence(500), voice(1_000), silence(12_000), voice(600), silence(4_000)],
        tmp_path,
        words=("secret", "words", "of", "mine", "said"),
        scripts=[("I repeat secret words. ",), ("The answer is yes.",)],
        privacy={"pause": {}},
        speculation=OFF,
        records=True,
        concurrently=pause,
        observers=[lambda events, _call, **_: Seen(seen, events)],
    )
    states = [event.payload["state"] for event in of_kind(call.events, Kind.RECORDING)]
    assert states == ["started", "paused", "resumed", "ended"]
    private, open_ = of_kind(call.events, Kind.USER_TURN)
    assert private.payload["text"] == "[private-1]"
    assert open_.payload["text"] == "secret words of"
    first, second = of_kind(call.events, Kind.BOT_TURN)
    assert first.payload["text"] == "[private]"
    assert second.payload["text"] == "The answer is yes."
    began, ended = (each for each in seen if isinstance(each, PrivatePauseBegan | PrivatePauseEnded))
    (path,) = (tmp_path / "data").rglob("recording.json")
    between = [
        each
        for each in json.loads(path.read_text())["events"]
        if "PrivatePause" not in each["event"] and began.at_ms < each["at_ms"] + began.at_ms < ended.at_ms
    ]
    assert not any(each.get("text") for each in between)
    heard = np.concatenate(
        [soundfile.read(each)[0] for each in sorted(path.parent.glob("user_audio/*.flac"))]
    )
    assert not (np.abs(heard[: RATE_HZ * 3]) > 0.01).any()
    assert "I repeat" not in everything_below(tmp_path).decode("latin-1")


def test_model_hears_a_private_pause_where_the_deployment_lets_it(tmp_path: Path):
    async def begin(running: RunningCall) -> None:
        await asyncio.sleep(0.2)
        events = running.call.events
        events.publish(PrivatePauseRequested(events.now_ms(), True, "tool"))

    call = simulate(
        [silence(500), voice(1_000), silence(4_000)],
        tmp_path,
        words=("secret", "words", "of", "mine", "said"),
        privacy={"pause": {"model_hears": True, "longest_s": 60}},
        speculation=OFF,
        concurrently=begin,
    )
    assert "secret words of mine said" in requests_of(call)
    assert b"secret words" not in everything_below(tmp_path)


def test_a_call_that_goes_on_in_a_private_pause_stores_nothing_of_it(tmp_path: Path):
    call = simulate(
        [silence(500), voice(1_000), silence(3_000)],
        tmp_path,
        words=("secret", "words", "of", "mine", "said"),
        privacy={"pause": {"longest_s": 60}},
        speculation=OFF,
        paused_by="operator",
    )
    assert [each.payload["text"] for each in of_kind(call.events, Kind.USER_TURN)] == ["[private-1]"]
    assert b"secret words" not in everything_below(tmp_path)


def test_a_pause_ends_by_itself_after_its_longest_time(tmp_path: Path):
    async def begin(running: RunningCall) -> None:
        await asyncio.sleep(0.2)
        running.call.conversation.request_pause(is_on=True, by="operator")
        await asyncio.sleep(2)
        # Not longer for that.
        running.call.conversation.request_pause(is_on=True, by="operator")

    seen: list[CallEvent] = []
    simulate(
        [silence(9_000)],
        tmp_path,
        privacy={"pause": {"longest_s": 3}},
        concurrently=begin,
        observers=[lambda events, _call, **_: Seen(seen, events)],
    )
    began, ended = (each for each in seen if isinstance(each, PrivatePauseBegan | PrivatePauseEnded))
    assert ended.by == "time"
    assert 3_000 <= ended.at_ms - began.at_ms <= 5_000


def test_a_noise_that_ends_no_turn_does_not_keep_a_pause_on_after_its_end_was_requested(tmp_path: Path):
    async def begin_and_end(running: RunningCall) -> None:
        await asyncio.sleep(0.2)
        running.call.conversation.request_pause(is_on=True, by="operator")
        await asyncio.sleep(1)
        running.call.events.publish(VoiceStarted(running.call.events.now_ms(), 200))
        running.call.conversation.request_pause(is_on=False, by="operator")
        await asyncio.sleep(1)
        # An end that is taken back does not count.
        running.call.conversation.request_pause(is_on=True, by="operator")
        await asyncio.sleep(1)
        running.call.conversation.request_pause(is_on=False, by="operator")

    seen: list[CallEvent] = []
    simulate(
        [silence(45_000)],
        tmp_path,
        privacy={"pause": {"longest_s": 600}},
        concurrently=begin_and_end,
        observers=[lambda events, _call, **_: Seen(seen, events)],
    )
    began, ended = (each for each in seen if isinstance(each, PrivatePauseBegan | PrivatePauseEnded))
    assert ended.by == "operator"
    assert 33_000 <= ended.at_ms - began.at_ms <= 35_000


def test_tools_of_the_model_begin_and_end_a_pause(tmp_path: Path):
    row = ScriptedRow((Use("pause_recording"),), ("Go on.",), (Use("resume_recording"),), ("Thank you.",))

    async def let_go(_running: RunningCall) -> None:
        # A service that is referred to after its call still has the tools of the call.
        await asyncio.sleep(1)
        row.services.clear()

    call = simulate(
        [silence(500), voice(1_000), silence(5_000), voice(600), silence(6_000)],
        tmp_path,
        row=row,
        words=("secret", "words", "of", "mine", "said"),
        privacy={"pause": {"tool": True}},
        speculation=OFF,
        concurrently=let_go,
    )
    states = [event.payload["state"] for event in of_kind(call.events, Kind.RECORDING)]
    assert states == ["paused", "resumed"]
    # The turn that begins the pause is before it, and the answer after its end is the first one of after.
    turns = [event.payload["text"] for event in of_kind(call.events, Kind.USER_TURN)]
    assert turns == ["secret words of mine said", "[private-1]"]
    assert of_kind(call.events, Kind.BOT_TURN)[0].payload["text"] == "[private]"


def test_tool_gets_what_the_session_does_not_keep(tmp_path: Path):
    tool = FakeTool(name="pay", parameters={"type": "object", "properties": {"card": {"type": "string"}}})
    row = ScriptedRow((Use("pay", {"card": "4242 4242 4242 4242"}),), ("Done.",))
    call = simulate(
        [silence(500), voice(1_000), silence(5_000)],
        tmp_path,
        row=row,
        tools=[tool],
        privacy=CARDS,
        speculation=OFF,
    )
    [used] = of_kind(call.events, Kind.TOOL_CALL)
    assert used.payload["arguments"] == {"card": "[card]"}
    assert "4242 4242 4242 4242" in repr(tool.arguments)
    assert b"4242 4242" not in everything_below(tmp_path)
