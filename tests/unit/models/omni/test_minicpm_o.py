"""MiniCPM-o in a worker process: its settings, its voices, its failures. The model is a stand-in."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.core.errors import CapacityError, ConfigError, EngineError
from parley.core.units import Vote
from parley.models.omni import OMNI, Preparation, UnitResult
from parley.models.omni.minicpm_o.binding import DuplexBinding
from parley.models.omni.minicpm_o.engine import MiniCpmOHost
from parley.models.omni.minicpm_o.settings import ContextWindowSettings, MiniCpmOSettings, SessionSettings
from parley.models.omni.minicpm_o.worker import unit_of
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from tests.fakes.minicpm_duplex import TELL, HubDuplex, StandInDuplex

CHILD = "tests.fakes.minicpm_child"
FIRST, QUIET = np.zeros(16_560, np.float32), np.zeros(16_000, np.float32)
LOUD = np.full(16_000, 0.2, np.float32)
VOICE = np.full(16_000, 0.25, np.float32)
SHORT: dict[str, Any] = {"load_timeout_s": 30, "unit_timeout_s": 0.5, "close_timeout_s": 2}


def settings(model: str = "server", **more: Any) -> MiniCpmOSettings:
    return MiniCpmOSettings(model=model, device="cpu", dtype="float32", **(SHORT | more))


@pytest.fixture(scope="module")
def host() -> Iterator[MiniCpmOHost]:
    """Run one worker for all tests that do not damage it."""
    made = MiniCpmOHost(settings(unit_timeout_s=5), worker=CHILD)
    yield made
    assert made.restarts == 0
    made.close()


@pytest.fixture
def fragile() -> Iterator[MiniCpmOHost]:
    made = MiniCpmOHost(settings(), worker=CHILD)
    yield made
    made.close()


def run(engine: Any, audio: np.ndarray = QUIET, **options: Any) -> UnitResult:
    engine.prefill(audio)
    result = engine.generate(**options)
    engine.finalize()
    return result


def begun(host: MiniCpmOHost, prompt: str = "Be kind.", **chosen: Any) -> Any:
    engine = host.open_engine()
    engine.prepare(Preparation(prompt, llm_ref_audio=VOICE, settings=chosen))
    return engine


def received(engine: Any, first: np.ndarray = FIRST) -> dict[str, Any]:
    """Return the model's input as the stand-in reports it."""
    texts = [run(engine, first if number == 0 else LOUD).text for number in range(4)]
    engine.cleanup()
    facts: dict[str, Any] = json.loads(texts[-1])
    return facts


def eventually(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_row_of_the_registry() -> None:
    assert OMNI.factory("minicpm_o") is MiniCpmOHost


def test_a_turn_is_said_in_units_and_ends(host: MiniCpmOHost) -> None:
    engine = begun(host)
    assert engine.unit_ms == 1_000 and engine.first_unit_ms == 1_035 and engine.context_units is None
    assert [run(engine, LOUD).vote for _ in range(3)] == [Vote.LISTEN] * 3
    said = [run(engine, LOUD if number == 0 else QUIET) for number in range(4)]
    assert [result.vote for result in said] == [Vote.SPEAK] * 3 + [Vote.LISTEN]
    # The 40 ms in excess of the second unit are spoken before the 300 ms of the last.
    assert [len(result.audio) for result in said] == [24_000, 24_000, 8_160, 0]
    assert [result.end_of_turn for result in said] == [False, False, True, False]
    assert said[0].n_tokens == 5 and said[0].cost_llm_ms == pytest.approx(1.0)
    assert said[1].kv_tokens == said[0].kv_tokens + 32
    engine.cleanup()


def test_the_model_hears_the_longer_first_unit_and_a_shorter_one_padded(host: MiniCpmOHost) -> None:
    for first in (FIRST, QUIET, QUIET[:100]):
        assert received(begun(host, TELL), first)["heard"] == 16_000


def test_a_forced_listen_ends_the_turn_of_the_model(host: MiniCpmOHost) -> None:
    engine = begun(host)
    for _ in range(4):
        run(engine, LOUD)
    result = run(engine, LOUD, force_listen=True)
    assert result.vote is Vote.YIELD and result.end_of_turn and not len(result.audio) and not result.text
    # Otherwise it would have spoken to the end.
    assert run(engine, QUIET).vote is Vote.LISTEN
    engine.cleanup()


CHOSEN: dict[str, Any] = {
    "decode_mode": "greedy",
    "temperature": 0.31,
    "top_k": 7,
    "top_p": 0.41,
    "listen_prob_scale": 1.3,
    "listen_top_k": 4,
    "text_repetition_penalty": 1.21,
    "text_repetition_window_size": 64,
    "length_penalty": 1.4,
    "max_new_speak_tokens_per_chunk": 11,
    "force_listen_count": 2,
    "ls_mode": "implicit",
    "tts_temperature": 0.55,
    "max_slice_nums": 3,
    "batch_vision_feed": True,
}


def test_every_setting_reaches_the_model_and_none_stays_for_the_next_conversation(host: MiniCpmOHost) -> None:
    assert set(CHOSEN) | {"generate_audio"} == set(SessionSettings.model_fields)
    first, second = received(begun(host, TELL, **CHOSEN)), received(begun(host, TELL))
    assert {name: first[name] for name in CHOSEN} == CHOSEN
    defaults = SessionSettings().model_dump()
    assert {name: second[name] for name in CHOSEN} == {name: defaults[name] for name in CHOSEN}
    assert second["sessions"] == first["sessions"] + 1


def test_what_is_fixed_when_it_is_loaded_is_given_then(host: MiniCpmOHost) -> None:
    config = received(begun(host, TELL))["config"]
    assert config["sliding_window_mode"] == "basic" and config["basic_window_high_tokens"] == 4_000
    assert (config["chunk_ms"], config["first_chunk_ms"], config["sample_rate"]) == (1_000, 1_035, 16_000)


def test_words_only_need_no_voice(host: MiniCpmOHost) -> None:
    engine = host.open_engine()
    engine.prepare(Preparation(TELL, settings={"generate_audio": False}))
    for number in range(4):
        result = run(engine, LOUD)
        assert not len(result.audio) and result.is_listen is (number < 3)
    assert "ref_samples" in result.text
    engine.cleanup()


def test_who_is_to_speak_needs_a_voice(host: MiniCpmOHost) -> None:
    engine = host.open_engine()
    with pytest.raises(ConfigError, match="voice"):
        engine.prepare(Preparation())
    # The call may be repeated.
    engine.prepare(Preparation(tts_ref_audio=VOICE))
    engine.cleanup()


def test_voices_reach_the_model_as_it_wants_them(host: MiniCpmOHost) -> None:
    engine = host.open_engine()
    engine.prepare(Preparation(TELL, llm_ref_audio=VOICE, tts_ref_audio=VOICE[:8_000]))
    facts = received(engine)
    # The voice that is heard is given as samples, the one that speaks as a 16-bit file.
    assert facts["ref_samples"] == 16_000 and facts["wav_bytes"] == 44 + 2 * 8_000
    assert facts["prompt"] == f"<|im_start|>system\n{TELL}\n<|audio_start|>"
    assert facts["suffix"] == "<|audio_end|><|im_end|>"
    engine.prepare(Preparation(TELL, tts_ref_audio=VOICE, history=(("user", "Hello?"),)))
    facts = received(engine)
    assert facts["ref_samples"] is None and facts["suffix"] == "<|im_end|>"
    assert facts["prompt"].endswith("previous:\nuser: Hello?")


def test_pictures_are_seen_as_images_with_silence_where_nothing_is_heard(host: MiniCpmOHost) -> None:
    engine = begun(host, TELL, max_slice_nums=2)
    frame = np.zeros((48, 64, 3), np.uint8)
    for _ in range(3):
        engine.prefill(np.zeros(0, np.float32), (frame, frame))
        engine.generate()
        engine.finalize()
    engine.prefill(LOUD, (frame,))
    facts = json.loads(engine.generate().text)
    assert facts["seen"] == [[64, 48]] and facts["max_slice_nums"] == 2
    engine.cleanup()


def test_one_conversation_at_a_time(host: MiniCpmOHost) -> None:
    second = host.open_engine()
    first = begun(host)
    with pytest.raises(CapacityError):
        host.open_engine()
    with pytest.raises(CapacityError):
        second.prepare(Preparation(llm_ref_audio=VOICE))
    run(first)
    first.cleanup()
    second.prepare(Preparation(llm_ref_audio=VOICE))
    second.cleanup()


def test_a_context_without_a_window_fills() -> None:
    made = MiniCpmOHost(
        settings(window=ContextWindowSettings(sliding_window_mode="off"), sees=False), worker=CHILD
    )
    engine = begun(made)
    assert engine.context_units == (8_192 - 512) // 32 and not engine.takes_frames
    engine.cleanup()
    made.close()


# The edition of the code that is published with the weights.


def test_the_other_edition_takes_what_it_takes_and_says_what_it_does_not() -> None:
    made = MiniCpmOHost(settings("hub"), worker=CHILD)
    facts = received(begun(made, TELL, temperature=0.31, max_slice_nums=2))
    assert facts["temperature"] == 0.31 and "length_penalty" not in facts
    # It marks the prompt itself.
    assert facts["prompt"] == f"<|im_start|>system\n{TELL}"
    with pytest.raises(ConfigError, match="does not accept length_penalty"):
        begun(made, length_penalty=1.4)
    engine = begun(made)
    for _ in range(4):
        run(engine, LOUD)
    assert run(engine, LOUD, force_listen=True).vote is Vote.YIELD
    assert run(engine, QUIET).vote is Vote.LISTEN
    assert run(engine, LOUD).vote is Vote.SPEAK
    engine.cleanup()
    made.close()


def test_settings_of_a_deployment_that_the_model_does_not_take_are_refused() -> None:
    with pytest.raises(ConfigError, match="length_penalty"):
        MiniCpmOHost(settings("hub", session=SessionSettings(length_penalty=1.4)), worker=CHILD)


@pytest.mark.parametrize("edition", [StandInDuplex, HubDuplex])
def test_a_turn_that_is_given_up_is_over_for_the_voice_and_in_the_context(edition: type) -> None:
    duplex = edition(force_listen_count=0)
    binding = DuplexBinding(duplex)
    binding.prepare("x", llm_voice=None, tts_voice=VOICE, settings=SessionSettings().model_dump())
    duplex.force_listen_count = 0
    loud = np.full(16_560, 0.2, np.float32)
    binding.prefill(loud, ())
    facts, _ = binding.generate(forced=False)
    binding.finalize()
    assert not facts["is_listen"] and not duplex.current_turn_ended
    duplex.tts_text_start_pos, before = 41, duplex.decoder.get_cache_length()
    binding.prefill(LOUD, ())
    facts, _ = binding.generate(forced=True)
    binding.finalize()
    # The end of the turn is one token, a unit that listens 13.
    assert duplex.decoder.get_cache_length() == before + 1 + 13
    assert facts["is_listen"] and duplex.current_turn_ended and duplex.resets == 1
    assert duplex.tts_text_start_pos == 0 and duplex.force_listen_count == 0


def test_a_prompt_is_marked_once_a_caller_who_does_it() -> None:
    class Marks(StandInDuplex):
        """Duplex object that takes an end of the prompt, and marks the beginning itself all the same."""

        def prepare(self, prefix_system_prompt=None, suffix_system_prompt=None, **more):  # type: ignore[no-untyped-def]
            return super().prepare(f"<|im_start|>system\n{prefix_system_prompt}", **more)

    class Plain(HubDuplex):
        """Duplex object that feeds its input unchanged, and takes no end."""

        def prepare(self, prefix_system_prompt=None, ref_audio=None, prompt_wav_path=None):  # type: ignore[no-untyped-def]
            return prefix_system_prompt

    chosen = SessionSettings().model_dump()
    duplex = Marks()
    binding = DuplexBinding(duplex)
    for _ in range(2):
        binding.prepare("Be kind.", llm_voice=None, tts_voice=VOICE, settings=chosen)
        assert duplex.prompt == "<|im_start|>system\nBe kind."
    # Tried twice for the first conversation, known for the second.
    assert duplex.sessions == 3
    with pytest.raises(EngineError, match="not marked"):
        DuplexBinding(Plain()).prepare("x", llm_voice=None, tts_voice=VOICE, settings=chosen)


def test_listening_is_made_more_likely_by_its_own_token() -> None:
    duplex = StandInDuplex()
    duplex.listen_token_id, duplex.decoder.listen_id = 151_705, 151_645
    DuplexBinding(duplex)
    assert duplex.decoder.listen_id == 151_705


def test_the_file_of_a_voice_is_gone_with_the_conversation() -> None:
    seen: list[str] = []

    class Reads(StandInDuplex):
        def prepare(self, prefix_system_prompt=None, ref_audio=None, prompt_wav_path=None):  # type: ignore[no-untyped-def]
            with wave.open(prompt_wav_path) as wav:
                assert (wav.getframerate(), wav.getnchannels(), wav.getsampwidth()) == (16_000, 1, 2)
                assert np.frombuffer(wav.readframes(4), "<i2")[0] == int(0.25 * 32_767)
            seen.append(prompt_wav_path)

    binding = DuplexBinding(Reads())
    binding.prepare("x", llm_voice=None, tts_voice=VOICE, settings=SessionSettings().model_dump())
    assert Path(seen[0]).exists()
    binding.cleanup()
    binding.cleanup()
    assert not Path(seen[0]).exists()


def test_a_model_without_the_calls_is_refused() -> None:
    with pytest.raises(EngineError, match="has no"):
        DuplexBinding(object())


# Failures.


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("{die 4}", "ended"),
        ("{hang 4}", "in time"),
        ("{raise 4}", "RuntimeError"),
        ("{nan 4}", "non-finite"),
        ("{long 4}", "longer than its unit"),
        ("{wide 4}", "not audio"),
        ("{odd 4}", "neither listens nor speaks"),
        ("{deaf 4}", "could not be processed"),
    ],
)
def test_a_worker_that_fails_in_a_unit_is_started_again(
    fragile: MiniCpmOHost, prompt: str, message: str
) -> None:
    engine = begun(fragile, prompt)
    for _ in range(3):
        run(engine, LOUD)
    pid = fragile.link.pid
    assert pid is not None
    with pytest.raises(EngineError, match=message):
        run(engine, LOUD)
    assert not is_running(pid)
    engine.cleanup()
    engine.prepare(Preparation("Be kind.", llm_ref_audio=VOICE))
    assert fragile.restarts == 1 and fragile.link.pid != pid
    assert run(engine).vote is Vote.LISTEN
    engine.cleanup()


def test_a_broken_conversation_asks_nothing_more(fragile: MiniCpmOHost) -> None:
    engine = begun(fragile, "{die 1}")
    engine.prefill(FIRST)
    with pytest.raises(EngineError):
        engine.generate()
    with pytest.raises(EngineError, match="has failed already"):
        engine.finalize()
    with pytest.raises(EngineError, match="has failed already"):
        engine.prefill(QUIET)
    engine.cleanup()


def test_a_worker_that_died_between_conversations_is_started_again(fragile: MiniCpmOHost) -> None:
    begun(fragile).cleanup()
    pid = fragile.link.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    # It restarts at once, not when the next conversation begins.
    eventually(lambda: fragile.restarts == 1)
    engine = begun(fragile)
    assert run(engine).vote is Vote.LISTEN and fragile.restarts == 1
    engine.cleanup()


def test_the_first_conversation_of_a_cold_worker_is_prepared_in_time_also_after_its_death() -> None:
    chosen = settings("cold", prepare_timeout_s=0.5)
    cold = MiniCpmOHost(chosen, worker=CHILD)
    try:
        begun(cold).cleanup()
        assert cold.link.pid is not None
        os.kill(cold.link.pid, signal.SIGKILL)
        eventually(lambda: cold.restarts == 1)
        begun(cold).cleanup()
        assert cold.restarts == 1
    finally:
        cold.close()


def test_a_worker_that_is_not_warmed_up_loads_sooner_and_prepares_late() -> None:
    cold = MiniCpmOHost(settings("cold", prepare_timeout_s=0.5, warm_up=False), worker=CHILD)
    try:
        with pytest.raises(EngineError):
            begun(cold)
    finally:
        cold.close()


def test_a_conversation_does_not_go_on_with_the_worker_that_follows(fragile: MiniCpmOHost) -> None:
    engine = begun(fragile)
    run(engine, FIRST)
    pid = fragile.link.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: fragile.restarts == 1)
    assert fragile.link.wait_ready(lambda: False)
    with pytest.raises(EngineError, match="the worker is lost"):
        run(engine)
    engine.cleanup()
    # The new process is not killed for it either.
    assert fragile.restarts == 1
    begun(fragile).cleanup()


def test_a_model_that_refuses_a_conversation_may_be_asked_again(fragile: MiniCpmOHost) -> None:
    engine = fragile.open_engine()
    with pytest.raises(EngineError, match="RuntimeError"):
        engine.prepare(Preparation("{refuse 0}", llm_ref_audio=VOICE))
    engine.prepare(Preparation("Be kind.", llm_ref_audio=VOICE))
    run(engine)
    engine.cleanup()


def test_who_was_refused_leaves_the_next_conversation_alone() -> None:
    made = MiniCpmOHost(settings(), worker=CHILD)
    refused = made.open_engine()
    with pytest.raises(ConfigError, match="voice"):
        refused.prepare(Preparation("Be kind."))
    engine = begun(made)
    run(engine, LOUD)
    refused.cleanup()
    assert [run(engine, LOUD).vote for _ in range(4)][-1] is Vote.SPEAK
    assert made.restarts == 0
    engine.cleanup()
    made.close()


def test_a_host_that_is_closed_starts_no_worker() -> None:
    made = MiniCpmOHost(settings(), worker=CHILD)
    engine = begun(made, "{die 1}")
    engine.prefill(FIRST)
    with pytest.raises(EngineError):
        engine.generate()
    made.close()
    restarts = made.restarts
    engine.cleanup()
    assert made.restarts == restarts and made.link.pid is None
    with pytest.raises(EngineError, match="closed"):
        made.open_engine()


def test_a_conversation_of_a_host_that_is_closed_ends_without_another_worker() -> None:
    made = MiniCpmOHost(settings(), worker=CHILD)
    engine = begun(made)
    made.close()
    with pytest.raises(EngineError, match="the worker is lost"):
        made.link.wait_ready(lambda: False)
    engine.cleanup()
    with pytest.raises(EngineError, match="closed"):
        begun(made)


def test_a_stop_returns_at_once_and_the_late_result_is_nobodys() -> None:
    made = MiniCpmOHost(settings(unit_timeout_s=0.2, close_timeout_s=0.3), worker=CHILD)
    engine = begun(made, "{hang 2}")
    run(engine)
    engine.prefill(LOUD)
    results: list[UnitResult] = []
    thread = threading.Thread(target=lambda: results.append(engine.generate()), daemon=True)
    thread.start()
    eventually(lambda: made.link.unanswered)
    engine.stop()
    thread.join(0.15)
    assert not thread.is_alive() and results[0].vote is Vote.LISTEN and not len(results[0].audio)
    engine.finalize()
    # The model is still busy: cleanup waits as long as a unit may take, then ends it.
    engine.cleanup()
    assert made.restarts == 1
    begun(made).cleanup()
    made.close()


def test_a_stop_reaches_the_model_between_its_calls(host: MiniCpmOHost) -> None:
    engine = begun(host)
    for _ in range(3):
        run(engine, LOUD)
    engine.prefill(LOUD)
    host.link.notify(MessageType.STOP)
    answer = host.link.ask(MessageType.GENERATE, {"force_listen": False}, life=0, within_s=5)
    # Otherwise it would have spoken.
    assert answer is not None and answer.facts["is_listen"] and answer.facts["end_of_turn"]
    engine.stop()
    engine.cleanup()
    # The setting does not apply to the next conversation.
    assert received(begun(host, TELL))["heard"] == 16_000


def test_a_result_that_comes_after_a_stop_is_no_answer_to_the_next_question(host: MiniCpmOHost) -> None:
    engine = begun(host)
    engine.prefill(FIRST)
    asked = {"force_listen": False}
    assert host.link.ask(MessageType.GENERATE, asked, life=0, within_s=5, is_stopped=lambda: True) is None
    engine.stop()
    assert engine.generate().vote is Vote.LISTEN
    engine.cleanup()
    assert received(begun(host, TELL))["heard"] == 16_000


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("nowhere", EngineError, "nowhere is no directory"),
        ("no package", ConfigError, "stepaudio2"),
        ("no duplex", EngineError, "has no prepare"),
        ("hangs", EngineError, "in time"),
    ],
)
def test_a_model_that_does_not_load_is_said(model: str, error: type[Exception], message: str) -> None:
    limit_s = 1.0 if model == "hangs" else 30
    with pytest.raises(error, match=message):
        MiniCpmOHost(settings(model, load_timeout_s=limit_s), worker=CHILD)


def test_an_environment_that_is_not_there_is_said() -> None:
    with pytest.raises(ConfigError, match="cannot be run"):
        MiniCpmOHost(settings(python="/no/such/python"), worker=CHILD)


def test_a_worker_that_is_no_worker_is_said() -> None:
    with pytest.raises(EngineError, match="ended|lost"):
        MiniCpmOHost(settings(), worker="this")


def test_the_worker_goes_with_its_engine_in_the_middle_of_a_unit() -> None:
    # It is not killed: that would come later than the test waits.
    made = MiniCpmOHost(settings(close_timeout_s=60), worker=CHILD)
    engine = begun(made, "{hang 1}")
    engine.prefill(FIRST)
    asked = {"force_listen": False}
    made.link.ask(MessageType.GENERATE, asked, life=0, within_s=5, is_stopped=lambda: True)
    pid, link = made.link.pid, made.link
    assert pid is not None
    # Data that remains of an engine's process that was killed.
    link._loop.call_soon_threadsafe(link._child._writer.close)  # type: ignore[union-attr]
    eventually(lambda: not is_running(pid))
    made.close()


def test_the_worker_is_told_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    made = MiniCpmOHost(settings(), worker=CHILD)
    environment = Path(f"/proc/{made.link.pid}/environ").read_bytes()
    made.close()
    assert b"secret" not in environment and b"CUDA_VISIBLE_DEVICES=1" in environment


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        # In addition to numpy, PIL and the requirements of the model itself.
        ("worker", ("pydantic", "loguru", "soundfile", "torch", "transformers")),
        # This process never imports it.
        ("engine", ("torch", "transformers")),
    ],
)
def test_neither_side_needs_the_packages_of_the_other(module: str, absent: tuple[str, ...]) -> None:
    code = (
        f"import sys, parley.models.omni.minicpm_o.{module}; print([n for n in {absent} if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_pictures_cross_without_loss() -> None:
    frame = np.arange(48 * 64 * 3, dtype=np.uint32).astype(np.uint8).reshape(48, 64, 3)
    facts = {"samples": 4, "frames": [[48, 64]]}
    payload = np.ones(4, "<f4").tobytes() + frame.tobytes()
    audio, [picture] = unit_of(EngineMessage(MessageType.PREFILL, 1, facts, payload))
    assert audio.tolist() == [1.0] * 4
    assert picture.size == (64, 48) and np.array_equal(np.asarray(picture), frame)
