"""Phone calls whose conversation process is killed, hangs, or ends in order: their streams stay."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from parley.evals.crash.lines import conversation_pid, run_lines
from parley.evals.harness.phone_caller import call
from parley.evals.harness.phone_network import front_of
from tests.peers.test_phone_reconnect import WITHIN_S, Deployed, listening, of_kind


def kept(folder: Path, *, phone: str = "", **server: object) -> Deployed:
    """Return a deployment whose conversations have a process of their own."""
    settings = {"open": True, "admission": "off", "conversations": {"own_process": True}, **server}
    return Deployed(folder, phone=phone, server_settings=f"server: {json.dumps(settings)}\n")


@pytest.mark.paired
async def test_calls_go_on_over_their_lines_when_the_process_of_their_conversations_was_killed():
    findings = await run_lines(2, 7, callers=2)
    assert findings.passed(), findings
    assert findings.stayed == findings.calls == 4


async def test_a_process_that_stands_still_is_replaced(tmp_path: Path):
    deployed = kept(tmp_path)
    async with deployed.server() as server, front_of(deployed.url) as front:
        assert server.pid is not None
        calling = asyncio.create_task(call(front.url, listening(done := asyncio.Event())))
        await deployed.until("heard", 1)
        os.kill(conversation_pid(server.pid), signal.SIGSTOP)
        timeline = await deployed.until("bot_turn", 1)
        done.set()
        held = await calling
    assert front.streams == 1 and held.result.violations == []
    assert len(of_kind(timeline, "joined")) == 2
    assert not of_kind(timeline, "bot_turn")[0]["truncated"]


@pytest.mark.slow
async def test_a_call_that_is_lost_again_and_again_ends_with_words(tmp_path: Path):
    phone = ", transfer_to: '+15550123', number: '+15550199'"
    phone += ", reconnect: {most: 1, apology: 'This line is broken.'}"
    deployed = kept(tmp_path, phone=phone)
    async with deployed.server() as server, front_of(deployed.url) as front:
        assert server.pid is not None
        calling = asyncio.create_task(call(front.url, listening(asyncio.Event())))
        await deployed.until("heard", 1)
        os.kill(conversation_pid(server.pid), signal.SIGKILL)
        await deployed.until("joined", 2)
        os.kill(conversation_pid(server.pid), signal.SIGKILL)
        async with asyncio.timeout(WITHIN_S):
            held = await calling
    assert front.streams == 1 and front.said == ["This line is broken."]
    assert front.dialled == ["+15550123"] and held.result.closed_by == "agent"


@pytest.mark.slow
async def test_a_server_that_stops_says_goodbye_on_its_lines_and_ends_with_its_child(tmp_path: Path):
    deployed = kept(tmp_path, drain_s=0.5, goodbye_s=30)
    async with deployed.server() as server, front_of(deployed.url) as front:
        assert server.pid is not None
        child = conversation_pid(server.pid)
        calling = asyncio.create_task(call(front.url, listening(asyncio.Event())))
        await deployed.until("heard", 1)
        os.kill(server.pid, signal.SIGTERM)
        async with asyncio.timeout(WITHIN_S):
            held = await calling
            while Path(f"/proc/{server.pid}/cmdline").exists() and Path(f"/proc/{child}/cmdline").exists():
                await asyncio.sleep(0.05)
    assert front.streams == 1 and held.result.closed_by == "agent"
