"""A call whose realtime service fails goes on in the cascade: real time, the protocol on loopback."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.configs.deployment import Choice
from parley.session_store.events import Kind
from tests.fakes.scripted_llm import ScriptedLanguageModel
from tests.peers.openai_realtime_server import Answer, Failure, Moment, RealtimeServer
from tests.peers.test_realtime_call import QUESTION, RECORDED, Held, hold, recording_states
from tests.sim.call import silence, voice

FALLBACK = {"fallback": (Choice(name="cascade"),), "failover_ms": 1_000}
# The first failure comes before the voice is noticed here, the other one after it.
IN_THE_GATE = ((Failure.ABORTS, Moment.VOICE), (Failure.HANGS, Moment.VOICE_OVER))
ANSWER = "The cascade answers."
LONG = Answer("Tell me all.", tuple(f" word{number}" for number in range(20)), audio_ms=4_000, pieces_ms=50)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key of the test")


async def hold_failing(
    server: RealtimeServer, tmp_path: Path, caller: Sequence[np.ndarray] = (), **more: Any
) -> tuple[Held, ScriptedLanguageModel]:
    """Hold a call of one question whose service fails, with the cascade as its fallback."""
    model = ScriptedLanguageModel([ANSWER])
    spoken = caller or [silence(300), voice(800), silence(1_800)]
    held = await hold(
        server, spoken, tmp_path, duplex=FALLBACK, model=model, tail_ms=1_500, limit_s=16, **more
    )
    [failover] = held.of(Kind.FAILOVER)
    assert (failover.payload["stage"], failover.payload["successor"]) == ("duplex", "cascade")
    return held, model


@pytest.mark.parametrize(
    ("failure", "moment"),
    [
        *IN_THE_GATE,
        *(
            pytest.param(failure, moment, marks=pytest.mark.slow)
            for failure, moment in itertools.product(Failure, [Moment.VOICE, Moment.VOICE_OVER])
            if (failure, moment) not in IN_THE_GATE
        ),
    ],
    ids=str,
)
async def test_a_question_that_was_not_transcribed_is_heard_once_and_answered(
    failure: Failure, moment: Moment, tmp_path: Path
):
    async with RealtimeServer([QUESTION], fails=(failure, moment)) as server:
        held, model = await hold_failing(server, tmp_path)
    # The recogniser of the cascade has read 800 ms of voice, a word each 200 ms.
    assert [turn.payload["text"] for turn in held.of(Kind.USER_TURN)] == ["one two three four"]
    assert [turn.payload["text"] for turn in held.of(Kind.BOT_TURN)] == [ANSWER]
    assert len(model.asked) == 1
    assert model.asked[0][-1].text == "one two three four"


@pytest.mark.parametrize(
    "failure",
    [
        Failure.ABORTS,
        *(pytest.param(each, marks=pytest.mark.slow) for each in Failure if each is not Failure.ABORTS),
    ],
    ids=str,
)
async def test_an_answer_that_breaks_off_is_kept_as_heard_and_given_anew(failure: Failure, tmp_path: Path):
    async with RealtimeServer([LONG], fails=(failure, Moment.ANSWER)) as server:
        held, model = await hold_failing(server, tmp_path)
    assert [turn.payload["text"] for turn in held.of(Kind.USER_TURN)] == ["Tell me all."]
    cut, anew = held.of(Kind.BOT_TURN)
    assert cut.payload["truncated"]
    assert cut.payload["text"].startswith("word0 word1")
    assert anew.payload["text"] == ANSWER
    [asked] = model.asked
    assert "Tell me all." in str(asked)
    assert cut.payload["text"] in str(asked)


@pytest.mark.parametrize(
    "server",
    [
        {"status": 401},
        pytest.param({"status": 429}, marks=pytest.mark.slow),
        pytest.param({"hangs_at_handshake": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
async def test_a_service_that_does_not_open_leaves_the_greeting_and_the_turns_to_the_cascade(
    server: dict[str, Any], tmp_path: Path
):
    async with RealtimeServer([QUESTION], **server) as refusing:
        held, model = await hold_failing(
            refusing, tmp_path, [voice(600), silence(2_000)], greeting="Good day."
        )
    assert [turn.payload["text"] for turn in held.of(Kind.BOT_TURN)] == ["Good day.", ANSWER]
    assert [turn.payload["text"] for turn in held.of(Kind.USER_TURN)] == ["one two three"]


@pytest.mark.parametrize("status", [101, 401])
async def test_a_caller_hears_of_the_recording_whether_the_service_opens_or_not(status: int, tmp_path: Path):
    fails = (Failure.ABORTS, Moment.VOICE_OVER)
    async with RealtimeServer([QUESTION], status=status, fails=fails) as server:
        held, _ = await hold_failing(
            server,
            tmp_path,
            [silence(4_000), voice(600), silence(2_500)],
            greeting="Good day.",
            announcement=RECORDED,
        )
    greeting = "Good day." if status == 401 else "Hello there."
    assert [turn.payload["text"] for turn in held.of(Kind.BOT_TURN)] == [RECORDED, greeting, ANSWER]
    assert recording_states(held) == ["announced", "started", "ended"]
