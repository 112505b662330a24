"""Judgement of what other projects' programs have seen, and of the words of a turn."""

import asyncio
import copy
import time
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from parley.evals.foreign.model_peer import LONG, PRICE, SHORT, USER_LINES, complete, decide, user_line
from parley.evals.foreign.programs import PROGRAMS
from parley.evals.foreign.transcripts import missing_words
from parley.evals.harness.socket_caller import QUESTIONS, ItemPlayer
from tests.peers.foreign.page_client import report
from tests.peers.foreign.player import STEP_S, LoopWatch, Player

QUESTION = "What are your opening hours?"
AGENTS: dict[str, Any] = {
    "errors": [],
    "called": ["Paris"],
    "interrupted": 1,
    "audio_bytes": 200_000,
    "history": [
        ["user", ["what art your opening hours"]],
        ["assistant", ["They say"]],
        ["user", ["stop"]],
        ["assistant", [PRICE]],
    ],
}
LIVEKIT: dict[str, Any] = {
    "errors": [],
    "called": ["Paris"],
    "heard": ["what are your opening hours", "stop please"],
    "steps": {
        "instructed": {"words": [LONG], "error": ""},
        "typed": {"words": [PRICE], "error": ""},
        "after_barge_in": {"words": [PRICE], "error": ""},
    },
    "said": [
        ["user", "what are your opening hours", False],
        ["assistant", "They say: sunny in Paris. We", True],
        ["user", "stop please", False],
        ["assistant", PRICE, False],
    ],
}
OPENAI: dict[str, Any] = {
    "errors": [],
    "called": ["Paris"],
    "heard": ["what are your opening hours", "stop please"],
    "answers": [
        ["completed", ["message"], PRICE, None],
        ["completed", ["message"], PRICE, {"topic": "aside"}],
        ["completed", ["function_call"], "", None],
        ["cancelled", ["message"], "They say: sunny in Paris. We open at", None],
        ["completed", ["message"], PRICE, None],
    ],
    "cut_off": {"truncated": [True], "words": "They say: sunny in Paris. We"},
}
PIPECAT: dict[str, Any] = {
    "errors": [],
    "called": ["Paris"],
    "heard": ["what are your opening hours", "stop please"],
    "interrupted": 2,
    "words": f"They say: sunny in Paris. We{PRICE}",
    "loudest": 18_000,
}
UNMUTE: dict[str, Any] = {
    "errors": [],
    "history": [
        ["assistant", "Hello."],
        ["user", "what are your opening hours"],
        ["assistant", LONG[:30]],
        ["user", "stop please"],
        ["assistant", PRICE],
    ],
    "turns": [["assistant", "Hello."], ["user", "stop please"], ["assistant", PRICE]],
    "phases": ["audio_start", "response_created", "text_start"],
}
MINICPM: dict[str, Any] = {"errors": [], "cuts": 1, "turns": [LONG[:30], PRICE]}
HALF_DUPLEX: dict[str, Any] = {"errors": [], "turns": [LONG, PRICE]}
STREAMDOUBLE: dict[str, Any] = {
    "late": [],
    "violations": [],
    "heard": ["what are your opening hours", "stop please"],
    "clears": 1,
    "said": [["Hello.", False], [LONG[:30], True], [PRICE, False]],
}
SCENARIO: dict[str, Any] = {
    "errors": [],
    "heard": ["what are your opening hours", "stop please tell me the price", "are you open on saturday"],
    "said": [LONG[:7], PRICE, SHORT],
    "messages": [["user", QUESTION], ["assistant", PRICE], ["user", "Saturday?"], ["assistant", SHORT]],
}
VOICEBENCH: dict[str, Any] = {
    "turns": [["question", True, "anchor", []], ["stop", True, "anchor", []]],
    "truncated": False,
}
SOUND: dict[str, Any] = {"loudest": 0.5, "pause_ms": 110.0}
PIPECAT_JS: dict[str, Any] = {
    "errors": [],
    "microphones": 3,
    "heard_while_muted": [],
    "typed": PRICE,
    # With what of the reply before the reconnection had not been heard.
    "again": f"euros. {PRICE}",
    # A transcript is final at a pause.
    "heard": ["what are your opening hours", "stop", "please tell me the price"],
    "spoken": f"{LONG[:30]} {PRICE}",
    "interruptions": 1,
    "sessions": ["a", "a"],
    "state": "disconnected",
    **SOUND,
}
AGENTS_PAGE: dict[str, Any] = {
    "errors": [],
    "called": ["Paris"],
    "interrupted": 1,
    "history": [
        ["user", [QUESTION]],
        ["assistant", ["They say: sunny in Paris. We open"]],
        ["user", ["please tell me the price"]],
        ["assistant", [PRICE]],
    ],
    "hung_up": 200,
    "state": "disconnected",
    **SOUND,
}
CONSOLE: dict[str, Any] = {
    "errors": [], "question": True, "answer": True, "price": True, "over": True, **SOUND
}  # fmt: skip
SEEN: dict[str, dict[str, Any]] = {
    "agents": AGENTS,
    "agents_js": AGENTS,
    "agents_js_webrtc": AGENTS_PAGE,
    "livekit": LIVEKIT,
    "openai": OPENAI,
    "pipecat": PIPECAT,
    "unmute": UNMUTE,
    "minicpm_duplex": MINICPM,
    "minicpm_realtime": MINICPM,
    "minicpm_half_duplex": HALF_DUPLEX,
    "streamdouble": STREAMDOUBLE,
    "scenario": SCENARIO,
    "voicebench": VOICEBENCH,
    "pipecat_js_webrtc": PIPECAT_JS,
    "pipecat_js_websocket": PIPECAT_JS,
    "pipecat_console": CONSOLE,
}


@pytest.mark.parametrize(
    ("transcripts", "missing"),
    [
        (["what are your opening hours"], []),
        # Taken for another word, and for two.
        (["What art your opening hours?"], []),
        (["what are your open in hours"], []),
        (["what your opening hours"], ["are"]),
        (["opening hours"], ["what", "are", "your"]),
        ([], ["what", "are", "your", "opening", "hours"]),
        (["what are your", "opening hours"], ["what", "are", "your", "opening", "hours"]),
    ],
)
def test_a_word_without_anything_in_its_place_is_missing(transcripts: list[str], missing: list[str]):
    assert missing_words(QUESTION, transcripts) == missing


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_conversation_as_it_should_be_has_no_faults(name: str):
    assert PROGRAMS[name].faults(SEEN[name]) == []


@pytest.mark.parametrize(
    ("name", "changed", "fault"),
    [
        ("agents", {"errors": ["gone"]}, "error: gone"),
        ("agents", {"called": []}, "the tool was called with []"),
        ("agents", {"interrupted": 0}, "not interrupted"),
        ("agents", {"history": AGENTS["history"][:3]}, "the history is"),
        ("agents", {"history": [["user", ["opening"]], *AGENTS["history"][1:]]}, "was heard as"),
        ("agents", {"audio_bytes": 10}, "only 10 bytes"),
        ("agents_js_webrtc", {"errors": ["gone"]}, "error: gone"),
        ("agents_js_webrtc", {"called": []}, "the tool was called with []"),
        ("agents_js_webrtc", {"interrupted": 0}, "interrupted 0 times"),
        ("agents_js_webrtc", {"history": AGENTS_PAGE["history"][:2]}, "the history is"),
        (
            "agents_js_webrtc",
            {"history": [["user", ["opening"]], *AGENTS_PAGE["history"][1:]]},
            "was heard as ['opening']",
        ),
        (
            "agents_js_webrtc",
            {
                "history": [
                    AGENTS_PAGE["history"][0],
                    ["assistant", [f"sunny in Paris. {LONG}"]],
                    *AGENTS_PAGE["history"][2:],
                ]
            },
            "the answer that the caller spoke over",
        ),
        (
            "agents_js_webrtc",
            {"history": [*AGENTS_PAGE["history"][:3], ["assistant", [""]]]},
            "the last answer",
        ),
        ("agents_js_webrtc", {"hung_up": 404}, "the call ended with 404"),
        ("agents_js_webrtc", {"state": "connected"}, "the client is connected"),
        ("agents_js_webrtc", {"loudest": 0.01}, "the loudest sound is 0.010"),
        ("livekit", {"errors": ["gone"]}, "error: gone"),
        ("livekit", {"called": ["Paris", "Paris"]}, "the tool was called"),
        ("livekit", {"heard": ["stop please"]}, "heard: "),
        ("livekit", {"steps": {"typed": LIVEKIT["steps"]["typed"]}}, "instructed: [] it was not reached"),
        ("livekit", {"said": LIVEKIT["said"][:1]}, "reported 0 times"),
        ("livekit", {"said": LIVEKIT["said"][:3]}, "after the interruption"),
        (
            "livekit",
            {"said": [["assistant", "sunny in Paris", False], *LIVEKIT["said"][2:]]},
            "not marked as interrupted",
        ),
        ("openai", {"errors": ["gone"]}, "error: gone"),
        ("openai", {"called": []}, "the tool was called with []"),
        ("openai", {"heard": ["stop please"]}, "heard: "),
        ("openai", {"answers": OPENAI["answers"][:4]}, "answers: "),
        ("openai", {"answers": [["completed", ["message"], "", None], *OPENAI["answers"][1:]]}, "answer 0: "),
        ("openai", {"answers": [OPENAI["answers"][0]] * 2 + OPENAI["answers"][2:]}, "the metadata came back"),
        ("openai", {"cut_off": {"truncated": [], "words": "sunny in Paris"}}, "what was cut off"),
        ("pipecat", {"errors": ["gone"]}, "error: gone"),
        ("pipecat", {"called": []}, "the tool was called"),
        ("pipecat", {"interrupted": 0}, "not interrupted"),
        ("pipecat", {"heard": ["stop please"]}, "heard: "),
        ("pipecat", {"words": "sunny in Paris"}, "said: "),
        ("pipecat", {"loudest": 10}, "the loudest sample is 10"),
        ("unmute", {"errors": ["gone"]}, "error: gone"),
        ("unmute", {"history": UNMUTE["history"][:4]}, "the history is"),
        ("unmute", {"turns": UNMUTE["turns"][:2]}, "the turns, read"),
        ("unmute", {"phases": []}, "the phases"),
        ("minicpm_duplex", {"errors": ["gone"]}, "error: gone"),
        ("minicpm_duplex", {"cuts": 0}, "cut off 0 times"),
        ("minicpm_duplex", {"turns": [LONG, PRICE]}, "answers: "),
        ("minicpm_realtime", {"errors": ["gone"]}, "error: gone"),
        ("minicpm_realtime", {"turns": [LONG, PRICE]}, "answers: "),
        ("minicpm_realtime", {"turns": [LONG[:30]]}, "answers: "),
        ("minicpm_half_duplex", {"turns": [PRICE]}, "answers: "),
        ("streamdouble", {"late": ["stop: no end"]}, "stop: no end"),
        ("streamdouble", {"violations": ["a mark"]}, "violation: a mark"),
        ("streamdouble", {"heard": ["stop please"]}, "heard: "),
        ("streamdouble", {"clears": 0}, "not interrupted"),
        ("streamdouble", {"said": STREAMDOUBLE["said"][:2]}, "said: "),
        ("scenario", {"errors": ["gone"]}, "error: gone"),
        ("scenario", {"messages": SCENARIO["messages"][:3]}, "answers: "),
        ("scenario", {"said": [LONG, PRICE, SHORT]}, "said: "),
        ("scenario", {"heard": SCENARIO["heard"][:2]}, "heard: "),
        ("voicebench", {"turns": [["stop", False, "anchor", ["it went on"]]]}, "stop: it went on (anchor)"),
        ("voicebench", {"turns": [["stop", True, "timeout", []]]}, "stop: failed (timeout)"),
        ("voicebench", {"truncated": True}, "it took too long"),
        ("pipecat_js_webrtc", {"errors": ["gone"]}, "error: gone"),
        ("pipecat_js_webrtc", {"microphones": 0}, "no microphone"),
        ("pipecat_js_webrtc", {"heard_while_muted": ["what"]}, "while the microphone was off"),
        ("pipecat_js_webrtc", {"typed": ""}, "typed: "),
        ("pipecat_js_webrtc", {"again": f"Welcome back. {PRICE}"}, "again: Welcome back."),
        ("pipecat_js_webrtc", {"again": "euros."}, "again: euros."),
        ("pipecat_js_webrtc", {"heard": PIPECAT_JS["heard"][:2]}, "heard: "),
        ("pipecat_js_webrtc", {"spoken": f"{LONG} {PRICE}"}, "the answer that the caller spoke over"),
        ("pipecat_js_webrtc", {"interruptions": 0}, "the answer that the caller spoke over"),
        ("pipecat_js_webrtc", {"sessions": ["a", "b"]}, "the sessions of both calls"),
        ("pipecat_js_webrtc", {"state": "ready"}, "the client is ready"),
        ("pipecat_js_webrtc", {"loudest": 0.01}, "the loudest sound is 0.010"),
        ("pipecat_js_webrtc", {"pause_ms": 400}, "no sound for 400 ms"),
        ("pipecat_console", {"errors": ["gone"]}, "error: gone"),
        ("pipecat_console", {"price": None}, "not shown: price"),
        ("pipecat_console", {"pause_ms": 400}, "no sound for 400 ms"),
    ],
)
def test_each_fault_is_named(name: str, changed: dict[str, Any], fault: str):
    seen = copy.deepcopy(SEEN[name]) | changed
    faults = PROGRAMS[name].faults(seen)
    assert any(fault in each for each in faults), faults


def test_the_largest_gap_is_inside_of_an_item():
    player = ItemPlayer()
    # The second piece comes 0.25 s late, and the third in time for a player that is late by then.
    for at_s in (1.0, 1.75, 2.2):
        player.take("a", at_s, 0.5)
    assert player.largest_gap_s == pytest.approx(0.25)
    # The next answer begins long after the first one, which is no gap.
    for at_s in (9.0, 9.1, 10.0):
        player.take("b", at_s, 0.5)
    assert player.largest_gap_s == pytest.approx(0.25)


def test_a_player_separates_the_gap_from_the_time_in_which_its_program_stood_still():
    player, watch = Player(), LoopWatch()
    for at_s in (1.0, 1.6, 9.0):
        player.take("a", 0.5, at_s)
    player.over()
    player.take("a", 0.5, 20.0)
    watch.stalls_s = [(1.2, 1.58), (8.99, 9.1)]
    found = player.report(watch)
    assert found["gaps"] == [
        {"ms": 6_900.0, "own_ms": 10.0, "after_ms": 1_000},
        {"ms": 100.0, "own_ms": 80.0, "after_ms": 500},
    ]
    assert (found["largest_gap_ms"], found["largest_late_ms"]) == (6_900.0, 6_890.0)
    assert found["longest_stall_ms"] == 380.0


async def test_a_watch_records_a_loop_that_stands_still():
    watch = LoopWatch()
    watch.begin()
    await asyncio.sleep(0)
    began_s = time.monotonic()
    time.sleep(0.2)
    stood_s = time.monotonic() - began_s
    await asyncio.sleep(0.05)
    await watch.end()
    # The watch knows nothing of the time before its next step was due.
    assert watch.longest_s >= stood_s - STEP_S
    assert watch.stalled_s(began_s, began_s + stood_s) >= stood_s - STEP_S - 0.005


def test_a_page_reports_the_gaps_of_its_pieces_or_those_that_its_jitter_buffer_concealed():
    stalls: dict[str, Any] = {"stalls_ms": [[1_200, 1_280]], "ends_ms": [3_000]}
    pieces = [[1_000, 200], [1_300, 200], [9_000, 200]]
    found = report({**stalls, "pieces_ms": pieces, "gaps_ms": []})
    # What came after the end of an answer is no gap in it.
    assert found["gaps"] == [{"ms": 100.0, "own_ms": 80.0, "after_ms": 200}]
    found = report({**stalls, "pieces_ms": [], "gaps_ms": [[1_150, 1_250, 30.04], [2_000, 2_050, 12]]})
    assert found["gaps"] == [{"ms": 30.0, "own_ms": 30.0}, {"ms": 12, "own_ms": 0.0}]
    assert (found["largest_gap_ms"], found["largest_late_ms"]) == (30.0, 12.0)


def test_the_model_plays_a_user_who_asks_one_thing_after_the_other():
    system = {"role": "system", "content": "You are pretending to be a user, you are testing an AI Agent."}
    greeting = {"role": "user", "content": "Hello, how can I help you today?"}
    own = {"role": "assistant", "content": USER_LINES[0]}
    assert [user_line([system, greeting, *[own] * said]) for said in range(3)] == [
        *USER_LINES,
        USER_LINES[-1],
    ]
    assert user_line([greeting]) is None


async def test_the_model_answers_a_request_that_is_no_stream():
    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    async with TestClient(TestServer(app)) as client:
        body = {"messages": [{"role": "user", "content": "What is the price?"}]}
        answer = await (await client.post("/v1/chat/completions", json=body)).json()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": PRICE}


def test_the_model_calls_the_tool_once_and_answers_each_caller():
    asked = {"role": "user", "content": [{"type": "text", "text": "what are your opening hours"}]}
    assert decide([asked], has_tools=True) == (True, "")
    assert decide([asked], has_tools=False) == (False, LONG)
    calls, said = decide([asked, {"role": "tool", "content": "sunny in Paris"}], has_tools=True)
    assert not calls and said.startswith("They say: sunny in Paris.")
    assert {decide([{"role": "user", "content": each}], has_tools=False) for each in QUESTIONS} == {
        (False, SHORT)
    }
