"""Whole calls on virtual time about which programs outside of this process report."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from parley.core.units import Vote
from parley.pipelines.live_annotations import CallAnnotations
from parley.protocols.annotations import AnnotationBatch, placed
from parley.session_store.events import Kind
from parley.session_store.replay import recorded_calls, replay
from tests.fakes.omni import OmniScript, ScriptedOmniHost
from tests.sim.call import OFF, RunningCall, silence, simulate
from tests.sim.test_session import QUESTION, SAID, of_kind

POINTING: dict[str, Any] = {
    "stream": "vision",
    "age_ms": 40,
    "duration_ms": 1_000,
    "payload": {"gesture": "pointing", "ref": "the fee"},
}
Perceive = Callable[[RunningCall], Coroutine[Any, Any, None]]


async def entry_of(running: RunningCall) -> CallAnnotations:
    """Return the entry of a call, as soon as it has begun."""
    while (entry := running.engines.annotations.find(running.call.conversation.session_id)) is None:
        await asyncio.sleep(0.01)
    return entry


def report(entry: CallAnnotations, *reports: dict[str, Any]) -> None:
    batch = AnnotationBatch.model_validate({"annotations": list(reports)})
    entry.take(placed(batch, now_us=entry.now_us(), began_us=entry.began_us))


def watches(*, beats: bool, leaves: bool = False) -> Perceive:
    """Return a program that sees a gesture during the words, and looks every 40 ms."""

    async def perceive(running: RunningCall) -> None:
        entry = await entry_of(running)
        began_us = entry.now_us()
        while (passed_us := entry.now_us() - began_us) < 4_000_000:
            if beats:
                report(entry, {"stream": "vision", "age_ms": 40})
            if 1_300_000 <= passed_us < 1_340_000:
                report(entry, POINTING)
                if leaves:
                    return
            await asyncio.sleep(0.04)

    return perceive


@pytest.mark.parametrize(("beats", "most_ms"), [(True, 0), (False, 170)])
def test_a_quick_program_that_sends_heartbeats_delays_no_turn_and_one_that_does_not_briefly(
    tmp_path: Path, beats: bool, most_ms: int
):
    plain = simulate([*QUESTION, silence(3_000)], tmp_path / "plain", speculation=OFF)
    call = simulate(
        [*QUESTION, silence(3_000)],
        tmp_path / "watched",
        concurrently=watches(beats=beats),
        speculation=OFF,
    )
    [question] = [message.text for message in call.model.asked[0] if message.role == "user"]
    assert question.splitlines()[-1] == f"{SAID} [pointing at the fee]"
    late_ms = call.bot_spans_ms()[0][0] - plain.bot_spans_ms()[0][0]
    assert 0 <= late_ms <= most_ms
    [recorded] = recorded_calls(call.events)
    assert {event.source for event in of_kind(list(call.events), Kind.ANNOTATION)} == {
        "stt",
        "vision.outside",
    }
    assert replay(recorded).difference is None


def test_a_program_that_leaves_delays_no_turn_and_the_call_replays(tmp_path: Path):
    async def perceive(running: RunningCall) -> None:
        entry = await entry_of(running)
        for stream in ("vision", "diar"):
            entry.hold(stream)
        await watches(beats=False, leaves=True)(running)
        for stream in ("vision", "diar"):
            entry.release(stream)

    plain = simulate([*QUESTION, silence(3_000)], tmp_path / "plain", speculation=OFF)
    call = simulate([*QUESTION, silence(3_000)], tmp_path / "watched", concurrently=perceive, speculation=OFF)
    assert call.bot_spans_ms()[0][0] == plain.bot_spans_ms()[0][0]
    [recorded] = recorded_calls(call.events)
    assert '["leave","vision.outside"]' in str(
        [event.payload for event in of_kind(list(call.events), Kind.JOURNAL)]
    )
    assert replay(recorded).difference is None


def test_a_thousand_reports_a_second_that_pass_every_bound_cost_no_answer(tmp_path: Path):
    async def perceive(running: RunningCall) -> None:
        entry = await entry_of(running)
        for _ in range(300):
            report(entry, *[POINTING] * 10)
            await asyncio.sleep(0.01)

    call = simulate([*QUESTION, silence(3_000)], tmp_path, concurrently=perceive, speculation=OFF)
    [question] = [message.text for message in call.model.asked[0] if message.role == "user"]
    assert question.splitlines()[-1] == f"{SAID} [pointing at the fee]"
    assert len(call.bot_spans_ms()) == 1


@pytest.mark.parametrize("mode", ["cascade", "two-tier", "speech model"])
def test_the_entry_of_a_call_says_whether_its_model_reads_reports(tmp_path: Path, mode: str):
    are_read: list[bool] = []

    async def perceive(running: RunningCall) -> None:
        are_read.append((await entry_of(running)).are_read)
        await watches(beats=True)(running)

    listens = ScriptedOmniHost(OmniScript(votes=lambda _unit: Vote.LISTEN, text=lambda _unit: ""))
    omni = {"cascade": None, "two-tier": (), "speech model": [listens]}[mode]
    call = simulate([*QUESTION, silence(3_000)], tmp_path, concurrently=perceive, omni=omni)
    assert are_read == [mode != "speech model"]
    # The session has the gesture in any case, with the words.
    [turn] = of_kind(list(call.events), Kind.USER_TURN)
    assert turn.payload["tokens"][0]["visual"]["ref"] == "the fee"
