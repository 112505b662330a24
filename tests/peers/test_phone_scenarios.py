"""Whole phone calls as scripts of streamdouble.

They cover waiting for the bot, keys, a line that is cut, latencies compared with a baseline, recordings in
stereo, and callers who are silent or vanish.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import pytest_asyncio
import soundfile
from streamdouble import api, baseline
from streamdouble.aggregate import RunSeries
from streamdouble.scenario import Hangup, Scenario, Wait, WaitFor
from streamdouble.session import SessionConfig

from parley.evals.harness.phone_network import front_of
from parley.evals.harness.phone_speech import packets, quiet
from tests.peers.phone_caller import heard, likeness, place
from tests.peers.server import RunningServer
from tests.peers.test_phone import QUESTION, SAID, line_of_a_module, telephone, timelines, until_free
from tests.peers.twilio_rest import ACCOUNT, twilio_rest
from tests.voices import say

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Without comfort noise a caller detects the bot's silence by the packets alone.
PLAIN = ", line: {comfort_noise: false}"
SCENARIO = """
name: a question, keys, and a cable that is pulled
steps:
  - wait_for: audio
  - wait_for: quiet
  - say: question.wav
  - wait: 4
  - wait_for: quiet
  - expect: mark
  - dtmf: "12#"
  - wait: 2
  - expect: no_violations
  - hangup
"""


def of_kind(timeline: list[dict[str, object]], kind: str) -> list[dict[str, object]]:
    return [event["payload"] for event in timeline if event["kind"] == kind]  # type: ignore[misc]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    # Calls last as long as the greeting, some of them; it is on when callers vanish.
    more = "bot: {greeting: 'Hello, this is Parley, how are you?'}\nserver: {max_calls: 2}\n"
    async with line_of_a_module(tmp_path_factory, phone=PLAIN, more=more) as running:
        yield running


@pytest.mark.paired
async def test_a_scenario_is_played_to_its_end_and_recorded_in_stereo(server: RunningServer, tmp_path: Path):
    question = say(QUESTION)
    soundfile.write(tmp_path / "question.wav", np.frombuffer(question, "<i2"), 16_000)
    (tmp_path / "call.yaml").write_text(SCENARIO)
    await until_free(server)
    async with front_of(server.url) as front:
        config = SessionConfig(quiet_period_s=1.0)
        report = await api.run_scenario(front.url, tmp_path / "call.yaml", config=config)
        assert report.result.failed_expectations == [] and front.violations == []
        assert report.violations == []
        assert likeness(heard(report), "On Saturdays they are open from ten until two.") > SAID
        # The line was cut: the session records the end of the call, and how much of its last words was heard.
        async with asyncio.timeout(60):
            while not of_kind(timeline := (await timelines(server.url))[0], "left"):
                await asyncio.sleep(0.1)
        said = [turn["text"] for turn in of_kind(timeline, "user_turn")]
        assert said == [QUESTION.lower().rstrip("?"), "I pressed 1 2 # on my phone."]
        assert of_kind(timeline, "bot_turn")[-1]["truncated"]
    # Both sides, each in its channel: caller left, bot right.
    caller = b"".join([*quiet(1), *packets(question)])
    assert api.save_stereo(report, caller, tmp_path / "call.wav")
    stereo, rate_hz = soundfile.read(tmp_path / "call.wav")
    assert rate_hz == 8_000 and stereo.shape[1] == 2
    loud = np.abs(stereo) > 0.05
    assert loud[:, 0].any() and loud[:, 1].any()
    events = report.result.events_of("media_received")
    first = np.flatnonzero(loud[:, 1])[0] / 8_000
    assert first == pytest.approx(events[0].at - report.result.started_at, abs=0.5)


async def test_latencies_of_calls_are_compared_with_a_baseline(server: RunningServer, tmp_path: Path):
    await until_free(server)
    async with front_of(server.url) as front:
        config = SessionConfig(quiet_period_s=0.6, max_drain_s=8)

        async def series(seed: int, runs: int = 3) -> tuple[RunSeries, list[api.CallReport]]:
            named = baseline.fingerprint(audio_path=None, frames=25, chaos_seed=seed, impairments="")
            return await api.call_series(
                front.url, runs=runs, fingerprint=named, frames=quiet(0.5), config=config
            )

        before, reports = await series(0)
        assert before.failures == 0 and front.violations == []
        first = before.metric("time_to_first_audio_ms")
        assert first is not None and first.median is not None and first.median < 5_000
        assert len(first.measured) == 3
        baseline.save(tmp_path / "base.json", before, [each.to_dict() for each in reports])
        kept, (after, _) = baseline.load(tmp_path / "base.json"), await series(0)
        baseline.check_comparable(kept, after)
        # A busy machine is three times as slow; it loses no greeting, and is not late by seconds.
        compared = baseline.compare(kept, after, tolerance_pct=200, tolerance_ms=1_000, tolerance_ratio=5)
        assert compared.passed, compared.to_dict()
        other, _ = await series(1, runs=1)
        with pytest.raises(baseline.BaselineError):
            baseline.check_comparable(kept, other)


async def test_a_caller_who_says_nothing_is_asked_told_goodbye_and_the_call_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TWILIO_ACCOUNT_SID", ACCOUNT)
    idle = "idle: {prompts: ['Are you still there?'], prompt_after_ms: 1500}"
    async with twilio_rest() as rest:
        phone, more = f", api_url: '{rest.url}'", f"bot: {{greeting: Hello there., {idle}}}\n"
        async with telephone(tmp_path, monkeypatch, phone=phone, more=more) as (server, front):
            report = await place(front.url, quiet(40))
            assert report.violations == [] and report.result.closed_by == "agent"
            for clause in ("Are you still there?", "I will let you go for now. Goodbye!"):
                assert likeness(heard(report), clause) > SAID
            assert [(sid, form["Status"]) for sid, form in rest.updates] == [
                (report.result.identity.call_sid, ["completed"])
            ]
            [timeline] = await timelines(server.url)
            assert not of_kind(timeline, "bot_turn")[-1]["truncated"]
            assert set(report.result.marks_echoed) == set(report.result.marks_received)


@pytest.mark.paired
async def test_callers_who_vanish_in_the_middle_of_a_word_leave_their_lines(server: RunningServer):
    scenario = Scenario("vanish", [WaitFor("audio"), Wait(0.8), Hangup()])
    await until_free(server)
    async with front_of(server.url) as front:
        before = len(await timelines(server.url))
        for _ in range(3):
            reports = await asyncio.gather(*(api.run_scenario(front.url, scenario) for _ in range(2)))
            assert all(report.violations == [] for report in reports)
            async with asyncio.timeout(60), httpx.AsyncClient(base_url=server.url) as client:
                while (await client.get("/status")).json()["calls"]:
                    await asyncio.sleep(0.05)
        vanished = (await timelines(server.url))[: -before or None]
        assert len(vanished) == 6
        for timeline in vanished:
            [greeting] = of_kind(timeline, "bot_turn")
            assert greeting["truncated"] and 300 <= greeting["audio_ms"] <= 1_200  # type: ignore[operator]
            assert len(of_kind(timeline, "left")) == 1
        assert front.violations == []
