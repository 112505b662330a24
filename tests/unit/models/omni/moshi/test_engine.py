"""A conversation of Moshi, and several that share the weights."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from loguru import logger
from safetensors.torch import load_file, save_file

from parley.core.errors import CapacityError, ConfigError, EngineError
from parley.core.units import Vote
from parley.evals.tiny_moshi import TinyMoshi, install_tiny_moshi
from parley.models.omni import OmniEngine, Preparation, UnitResult
from parley.models.omni.moshi.engine import MoshiEngine
from parley.models.omni.moshi.host import MoshiHost
from parley.models.omni.moshi.settings import MoshiConversationSettings
from tests.unit.models.omni.moshi.conftest import settings

UNIT_SAMPLES = 1_920
UNITS = 12


@pytest.fixture
def engine(host: MoshiHost) -> Iterator[OmniEngine]:
    opened = host.open_engine()
    yield opened
    opened.cleanup()


@pytest.fixture(scope="module")
def silent_host(tmp_path_factory: pytest.TempPathFactory) -> MoshiHost:
    """Return a host that draws no words, and whose audio is silence."""
    folder = tmp_path_factory.mktemp("models") / "silent"
    return MoshiHost(settings(install_tiny_moshi(folder, TinyMoshi(gain=0.0, is_wordless=True))))


@pytest.fixture(scope="module")
def humming_host(tmp_path_factory: pytest.TempPathFactory) -> MoshiHost:
    """Return a host that draws no words, and makes sounds."""
    folder = tmp_path_factory.mktemp("models") / "humming"
    talk = MoshiConversationSettings(text_temperature=0)
    return MoshiHost(settings(install_tiny_moshi(folder, TinyMoshi(is_wordless=True)), talk=talk))


def heard(number: int, *, caller: int = 0) -> np.ndarray:
    random = np.random.default_rng((caller, number))
    return (0.1 * random.standard_normal(UNIT_SAMPLES)).clip(-1, 1).astype(np.float32)


def unit(engine: OmniEngine, number: int, *, caller: int = 0, force_listen: bool = False) -> UnitResult:
    engine.prefill(heard(number, caller=caller))
    result = engine.generate(force_listen=force_listen)
    engine.finalize()
    return result


def said(result: UnitResult) -> tuple[object, ...]:
    return result.vote, result.text, result.end_of_turn, result.audio.tobytes()


def conversation(host: MoshiHost, caller: int, *, units: int = UNITS) -> list[tuple[object, ...]]:
    engine = host.open_engine()
    engine.prepare(Preparation(settings={"seed": caller}))
    found = [said(unit(engine, number, caller=caller)) for number in range(units)]
    engine.cleanup()
    return found


# Contents of a unit


def test_a_unit_is_a_frame_of_the_codec(engine: OmniEngine) -> None:
    assert (engine.unit_ms, engine.input_rate_hz, engine.output_rate_hz) == (80, 24_000, 24_000)
    engine.prepare(Preparation(settings={"seed": 1}))
    results = [unit(engine, number) for number in range(UNITS)]
    spoken = [result for result in results if result.vote is Vote.SPEAK]
    assert {len(result.audio) for result in spoken} == {UNIT_SAMPLES}
    assert "".join(result.text for result in spoken).strip()
    assert [result.kv_tokens for result in results] == [number + 2 for number in range(UNITS)]
    assert {(result.n_tokens, result.n_tts_tokens) for result in results} == {(1, 4)}


def test_the_context_is_the_models_window_and_no_more_is_kept(folder: Path) -> None:
    host = MoshiHost(settings(folder, window_units=6))
    engine = host.open_engine()
    assert engine.context_units == 6
    engine.prepare(Preparation())
    assert [unit(engine, number).kv_tokens for number in range(8)] == [2, 3, 4, 5, 6, 6, 6, 6]
    assert MoshiHost(settings(folder, window_units=1_000)).open_engine().context_units == 40


def test_what_moshi_cannot_take_is_left_out_and_noted(engine: OmniEngine) -> None:
    lines: list[str] = []
    sink = logger.add(lines.append, level="INFO", format="{message}")
    try:
        engine.prepare(Preparation("Be kind.", history=(("user", "hello"),), settings={"seed": 3}))
    finally:
        logger.remove(sink)
    assert len(lines) == 1 and "a system prompt, a history is left out" in lines[0]
    assert "kind" not in lines[0] and "hello" not in lines[0]
    received = [said(unit(engine, number)) for number in range(4)]
    engine.cleanup()
    engine.prepare(Preparation(settings={"seed": 3}))
    assert [said(unit(engine, number)) for number in range(4)] == received


def test_settings_of_a_conversation_are_its_own(engine: OmniEngine) -> None:
    with pytest.raises(ConfigError):
        engine.prepare(Preparation(settings={"text_temperature": -1}))
    engine.prepare(Preparation(settings={"text_temperature": 0}))
    unit(engine, 0)


# Speech


def test_silence_is_not_sent_and_the_stream_goes_on(silent_host: MoshiHost) -> None:
    engine = silent_host.open_engine()
    engine.prepare(Preparation(settings={"text_temperature": 0}))
    results = [unit(engine, number) for number in range(4)]
    assert {said(result) for result in results} == {(Vote.LISTEN, "", False, b"")}
    assert [result.kv_tokens for result in results] == [2, 3, 4, 5]


def test_sounds_without_words_are_said(humming_host: MoshiHost) -> None:
    engine = humming_host.open_engine()
    engine.prepare(Preparation())
    results = [unit(engine, number) for number in range(4)]
    assert {(result.vote, result.text) for result in results} == {(Vote.SPEAK, "")}


def test_speech_that_has_faded_ends_its_turn_once(humming_host: MoshiHost) -> None:
    engine = humming_host.open_engine()
    # As loud as full scale: nothing it makes is, so only speech that has begun continues.
    engine.prepare(Preparation(settings={"speech_dbfs": 0.0, "hangover_units": 3}))
    assert isinstance(engine, MoshiEngine) and engine._talk is not None
    engine._talk.gate.on_unit(is_word=True, dbfs=-60.0)
    results = [unit(engine, number) for number in range(5)]
    assert [result.vote for result in results] == [Vote.SPEAK] * 3 + [Vote.LISTEN] * 2
    assert [result.end_of_turn for result in results] == [False, False, True, False, False]
    assert all(len(result.audio) == UNIT_SAMPLES for result in results[:3])


def test_who_must_listen_yields_once_and_may_go_on_behind(humming_host: MoshiHost) -> None:
    engine = humming_host.open_engine()
    engine.prepare(Preparation())
    votes = [unit(engine, number, force_listen=number in (2, 3)) for number in range(5)]
    assert [result.vote for result in votes] == [
        *(Vote.SPEAK, Vote.SPEAK, Vote.YIELD, Vote.LISTEN, Vote.SPEAK),
    ]
    assert [result.end_of_turn for result in votes] == [False, False, True, False, False]


# Concurrent conversations


def test_conversations_that_take_turns_say_what_they_say_alone(host: MoshiHost) -> None:
    alone = [conversation(host, caller) for caller in range(3)]
    engines = [host.open_engine() for _ in alone]
    for caller, each in enumerate(engines):
        each.prepare(Preparation(settings={"seed": caller}))
    together: list[list[tuple[object, ...]]] = [[] for _ in alone]
    for number in range(UNITS):
        for caller, each in enumerate(engines):
            together[caller].append(said(unit(each, number, caller=caller)))
    assert together == alone
    assert alone[0] != alone[1] != alone[2]


def test_conversations_in_threads_say_what_they_say_alone(host: MoshiHost) -> None:
    alone = [conversation(host, caller, units=25) for caller in range(4)]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda caller: conversation(host, caller, units=25), range(4)))
    assert together == alone


def test_no_more_conversations_than_there_may_be(folder: Path) -> None:
    host = MoshiHost(settings(folder, sessions=1))
    first = host.open_engine()
    with pytest.raises(CapacityError) as caught:
        host.open_engine()
    assert caught.value.limit == 1
    first.prepare(Preparation())
    first.cleanup()
    second = host.open_engine()
    with pytest.raises(CapacityError):
        first.prepare(Preparation())
    # Dropped without a cleanup.
    del second
    first.prepare(Preparation())


# Ends of a conversation


@pytest.mark.parametrize("at_code", [0, 2])
def test_a_stop_ends_the_unit_within_a_code(host: MoshiHost, at_code: int) -> None:
    engine = host.open_engine()
    engine.prepare(Preparation())
    assert isinstance(engine, MoshiEngine)
    engine.prefill(heard(0))
    codes = 0

    def stops(*_: object) -> None:
        nonlocal codes
        if codes == at_code:
            thread = threading.Thread(target=engine.stop)
            thread.start()
            thread.join()
        codes += 1

    hook = engine._weights.model.depth_decoder.register_forward_pre_hook(stops)
    try:
        result = engine.generate()
    finally:
        hook.remove()
    assert codes == at_code + 1
    assert (result.vote, len(result.audio), result.text) == (Vote.LISTEN, 0, "")
    engine.cleanup()
    engine.prepare(Preparation())
    unit(engine, 0)


def test_a_stop_while_it_speaks_ends_its_turn(humming_host: MoshiHost) -> None:
    engine = humming_host.open_engine()
    engine.prepare(Preparation())
    assert unit(engine, 0).vote is Vote.SPEAK
    engine.prefill(heard(1))
    engine.stop()
    result = engine.generate()
    assert result.vote is Vote.LISTEN and result.end_of_turn


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        ("decoder.lm_head.weight", "text that is not finite"),
        ("depth_decoder.lm_heads.weight", "audio that is not finite"),
        ("audio_encoder.decoder.layers.14.conv.bias", "audio that is not finite"),
    ],
)
def test_a_model_that_gives_no_numbers_is_an_error(
    folder: Path, tmp_path: Path, weight: str, says: str
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    state = load_file(tmp_path / "model.safetensors")
    state[weight].fill_(float("nan"))
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    engine = MoshiHost(settings(tmp_path)).open_engine()
    with pytest.raises(EngineError, match=says):
        engine.prepare(Preparation())
        unit(engine, 0)
    engine.cleanup()


def test_what_the_library_raises_is_an_engines_error(engine: OmniEngine) -> None:
    engine.prepare(Preparation())
    assert isinstance(engine, MoshiEngine)

    def fails(*_: object) -> None:
        raise RuntimeError("out of memory")

    hook = engine._weights.model.depth_decoder.register_forward_pre_hook(fails)
    try:
        with pytest.raises(EngineError, match="a step failed: RuntimeError"):
            unit(engine, 0)
        engine.cleanup()
        with pytest.raises(EngineError, match="the first step failed"):
            engine.prepare(Preparation())
    finally:
        hook.remove()
    # The engine is in its first state.
    engine.prepare(Preparation())
    unit(engine, 0)


def test_a_host_that_is_closed_opens_nothing(folder: Path) -> None:
    host = MoshiHost(settings(folder))
    host.close()
    with pytest.raises(EngineError, match="closed"):
        host.open_engine()
