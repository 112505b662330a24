"""Conversations with a MiniCPM-o server over its own socket, and the results of its failures."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from parley.core.errors import CapacityError, ConfigError, EngineError
from parley.core.units import Vote
from parley.models.omni import OMNI, Preparation, UnitResult
from parley.models.omni.minicpm_o.settings import SamplingSettings
from parley.models.omni.minicpm_worker.engine import MiniCpmWorkerHost, MiniCpmWorkerSettings
from tests.fakes.certificates import self_signed_certificate, server_context
from tests.fakes.minicpm_duplex import TELL
from tests.peers.minicpm_server import Faults, MiniCpmServer, minicpm_server, result_with

QUIET = np.zeros(16_000, np.float32)
LOUD = np.full(16_000, 0.2, np.float32)
IMPATIENT: dict[str, Any] = {"unit_timeout_s": 0.3, "prepare_timeout_s": 0.3, "queue_timeout_s": 0.3}


@pytest.fixture
def server() -> Iterator[MiniCpmServer]:
    with minicpm_server() as made:
        yield made


def host(server: MiniCpmServer, **settings: Any) -> MiniCpmWorkerHost:
    return MiniCpmWorkerHost(MiniCpmWorkerSettings(url=server.url, **settings))


def run(engine: Any, audio: np.ndarray = QUIET, **options: Any) -> UnitResult:
    engine.prefill(audio)
    result = engine.generate(**options)
    engine.finalize()
    return result


def eventually(holds: Any) -> None:
    deadline_s = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_a_row_of_the_registry(server: MiniCpmServer) -> None:
    made = OMNI.create("minicpm_worker", MiniCpmWorkerSettings(url=server.url))
    assert isinstance(made, MiniCpmWorkerHost)


def test_a_turn_is_said_in_units_and_ends(server: MiniCpmServer) -> None:
    engine = host(server).open_engine()
    engine.prepare(Preparation("Be kind."))
    # The model listens to the first three, whatever they contain.
    assert [run(engine, LOUD).vote for _ in range(3)] == [Vote.LISTEN] * 3
    said = [run(engine, LOUD if number == 0 else QUIET) for number in range(4)]
    assert [result.vote for result in said] == [Vote.SPEAK] * 3 + [Vote.LISTEN]
    assert [len(result.audio) for result in said] == [24_000, 24_000, 8_160, 0]
    assert [result.end_of_turn for result in said] == [False, False, True, False]
    assert said[0].kv_tokens > 0 and said[0].n_tokens == 5
    engine.cleanup()
    eventually(lambda: server.stopped == 1)


def test_a_forced_listen_reaches_the_model_and_gives_up_the_turn(server: MiniCpmServer) -> None:
    engine = host(server).open_engine()
    engine.prepare(Preparation())
    for _ in range(4):
        run(engine, LOUD)
    assert run(engine, LOUD, force_listen=True).vote is Vote.YIELD
    assert [chunk["force_listen"] for chunk in server.chunks] == [False] * 4 + [True]
    assert run(engine, QUIET).vote is Vote.LISTEN
    engine.cleanup()


def test_all_settings_are_sent_to_each_conversation(server: MiniCpmServer) -> None:
    made = host(server, sampling=SamplingSettings(temperature=0.4))
    engine = made.open_engine()
    received = []
    for settings in ({"top_k": 7, "max_slice_nums": 2}, {}):
        engine.prepare(Preparation(TELL, settings=settings))
        received.append([run(engine, LOUD) for _ in range(4)][-1].text)
        engine.cleanup()
    first, second = (json.loads(text) for text in received)
    assert (first["temperature"], first["top_k"], first["max_slice_nums"]) == (0.4, 7, 2)
    # Nothing of the conversation before.
    assert (second["temperature"], second["top_k"], second["max_slice_nums"]) == (0.4, 20, 1)
    names = set(SamplingSettings.model_fields) - {"max_slice_nums"}
    assert all(set(fields["config"]) == names for fields in server.prepared)


def test_settings_that_the_server_ignores_are_refused(server: MiniCpmServer) -> None:
    engine = host(server).open_engine()
    for name in ("generate_audio", "force_listen_count", "tts_temperature", "chunk_ms"):
        with pytest.raises(ConfigError):
            engine.prepare(Preparation(settings={name: 1}))
    assert not server.prepared


def test_voices_and_history_are_sent(server: MiniCpmServer, tmp_path: Path) -> None:
    wav = tmp_path / "voice.wav"
    soundfile.write(wav, np.full(48_000, 0.5, np.float32), 48_000)
    engine = host(server, voice=wav).open_engine()
    engine.prepare(Preparation("Be kind.", history=(("user", "Hello?"),)))
    engine.cleanup()
    own = np.full(8_000, 0.25, np.float32)
    engine.prepare(Preparation("Be kind.", llm_ref_audio=own))
    engine.cleanup()
    assert [len(fields["voice"]) for fields in server.prepared] == [16_000, 8_000]
    assert server.prepared[1]["tts_ref_audio_base64"] == server.prepared[1]["ref_audio_base64"]
    assert server.prepared[0]["system_prompt"] == "Be kind.\n\nprevious:\nuser: Hello?"


def test_pictures_are_sent_with_sound_even_where_there_is_none(server: MiniCpmServer) -> None:
    engine = host(server).open_engine()
    engine.prepare(Preparation())
    engine.prefill(np.zeros(0, np.float32), (np.zeros((48, 64, 3), np.uint8),))
    engine.generate()
    engine.finalize()
    assert server.chunks[0]["frames"] == [(64, 48)] and len(server.heard[0]) == 16_000
    assert "/omni_" in server.paths[0]
    engine.cleanup()
    hears = host(server, sees=False).open_engine()
    hears.prepare(Preparation())
    assert not hears.takes_frames and "/adx_" in server.paths[1]
    assert hears.context_units is not None and hears.context_units > engine.context_units
    hears.cleanup()


def test_a_queue_is_waited_in(server: MiniCpmServer) -> None:
    server.faults = Faults(
        queue=(
            {"type": "queued", "position": 1, "estimated_wait_s": 0.1, "ticket_id": "q_1", "queue_length": 1},
            {"type": "queue_update", "position": 1, "estimated_wait_s": 0.1, "queue_length": 1},
            {"type": "queue_done"},
        )
    )
    engine = host(server).open_engine()
    engine.prepare(Preparation())
    assert run(engine).vote is Vote.LISTEN
    engine.cleanup()


@pytest.mark.parametrize(
    "faults",
    [
        Faults(full=True),
        Faults(queue=({"type": "queued", "position": 9, "estimated_wait_s": 900.0},)),
    ],
    ids=["full", "a long queue"],
)
def test_a_server_without_room_is_full(server: MiniCpmServer, faults: Faults) -> None:
    server.faults = faults
    engine = host(server).open_engine()
    with pytest.raises(CapacityError):
        engine.prepare(Preparation())
    # The call may be repeated.
    server.faults = Faults()
    engine.prepare(Preparation())
    run(engine)
    engine.cleanup()


def test_a_server_that_refuses_the_beginning_has_failed(server: MiniCpmServer) -> None:
    server.faults = Faults(queue=({"type": "error", "error": "model not loaded"},), silent=True)
    with pytest.raises(EngineError, match="model not loaded"):
        host(server).open_engine().prepare(Preparation())


@pytest.mark.parametrize(
    "faults",
    [
        Faults(silent=True),
        Faults(silent=True, queue=({"type": "queued", "position": 1, "estimated_wait_s": 0.1},)),
    ],
    ids=["no word", "a queue that does not move"],
)
def test_a_server_that_does_not_begin_has_failed(server: MiniCpmServer, faults: Faults) -> None:
    server.faults = faults
    with pytest.raises(EngineError, match="in time"):
        host(server, **IMPATIENT).open_engine().prepare(Preparation())


def test_no_server_is_an_engine_that_failed() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{nobody.getsockname()[1]}/ws/duplex/{{session}}"
        engine = MiniCpmWorkerHost(MiniCpmWorkerSettings(url=url)).open_engine()
        with pytest.raises(EngineError, match="cannot connect"):
            engine.prepare(Preparation())
        engine.cleanup()


@pytest.mark.parametrize("url", ["http://host/ws", "ws://", "host:22400"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected a ws"):
        MiniCpmWorkerSettings(url=url)


@pytest.mark.parametrize(
    ("instead", "message"),
    [
        (None, "without a word"),
        ("", "in time"),
        ("no json", "not JSON"),
        ('{"type":"timeout","reason":"session"}', "ended the conversation"),
        (result_with(np.full(24_000, np.nan, np.float32)), "non-finite"),
        (result_with(np.zeros(72_000, np.float32)), "longer than its unit"),
        (result_with(b"\x00" * 5), "not float32"),
        (result_with("?"), "not base64"),
        (result_with(None, text="x" * 2_000_000), "ended"),
    ],
    ids=["died", "hangs", "no json", "over", "nan", "too long", "odd bytes", "no base64", "too large"],
)
def test_a_server_that_fails_in_a_unit_is_given_up(
    server: MiniCpmServer, instead: str | None, message: str
) -> None:
    server.faults = Faults(at=2, instead=instead)
    engine = host(server, **IMPATIENT).open_engine()
    engine.prepare(Preparation())
    run(engine)
    with pytest.raises(EngineError, match=message):
        run(engine)
    engine.finalize()
    # No more requests are sent to it, and another conversation may begin.
    with pytest.raises(EngineError, match="the connection is lost"):
        run(engine)
    engine.cleanup()
    server.faults = Faults()
    engine.prepare(Preparation())
    run(engine)
    engine.cleanup()


def test_an_error_of_the_server_is_a_unit_of_silence(server: MiniCpmServer) -> None:
    error = json.dumps({"type": "error", "error": "No audio data"})
    server.faults = Faults(at=1, until=2, instead=error)
    engine = host(server).open_engine()
    engine.prepare(Preparation())
    assert [run(engine, LOUD).vote for _ in range(3)] == [Vote.LISTEN] * 3
    assert not [run(engine, LOUD) for _ in range(3)][-1].is_listen
    engine.cleanup()


def test_the_third_error_in_a_row_is_the_engines(server: MiniCpmServer) -> None:
    server.faults = Faults(at=1, until=9, instead=json.dumps({"type": "error", "error": "out of memory"}))
    engine = host(server).open_engine()
    engine.prepare(Preparation())
    run(engine)
    run(engine)
    with pytest.raises(EngineError, match="out of memory"):
        run(engine)
    engine.cleanup()


def test_errors_between_results_are_not_in_a_row(server: MiniCpmServer) -> None:
    error = json.dumps({"type": "error", "error": "out of memory"})
    server.faults = Faults(at=1, until=5, but=3, instead=error)
    engine = host(server).open_engine()
    engine.prepare(Preparation())
    for _ in range(6):
        run(engine)
    assert len(server.chunks) == 2
    engine.cleanup()


def test_a_result_after_an_error_is_no_answer_to_the_next_chunk(server: MiniCpmServer) -> None:
    error = json.dumps({"type": "error", "error": "slow"})
    server.faults = Faults(at=4, instead=error, late_result=True)
    engine = host(server).open_engine()
    engine.prepare(Preparation())
    for _ in range(4):
        run(engine, LOUD)
    assert server.late.wait(5)
    # The late one would have been " 4".
    assert run(engine, LOUD).text == " 5"
    engine.cleanup()


def test_a_server_that_does_not_read_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        threading.Thread(target=_upgrade_and_sleep, args=(deaf,), daemon=True).start()
        url = f"ws://127.0.0.1:{deaf.getsockname()[1]}/"
        engine = MiniCpmWorkerHost(MiniCpmWorkerSettings(url=url, **IMPATIENT)).open_engine()
        long = np.zeros(59 * 16_000, np.float32)
        with pytest.raises(EngineError, match="cannot send|ended"):
            engine.prepare(Preparation(llm_ref_audio=long))


def test_a_server_after_tls_is_believed_by_its_certificate(tmp_path: Path) -> None:
    certificate = self_signed_certificate(tmp_path)
    with minicpm_server(tls=server_context(certificate)) as server:
        engine = host(server, ca_file=certificate).open_engine()
        engine.prepare(Preparation())
        assert run(engine).vote is Vote.LISTEN
        engine.cleanup()
        with pytest.raises(EngineError, match="SSLCertVerificationError"):
            host(server).open_engine().prepare(Preparation())
        assert len(server.prepared) == 1
        with pytest.raises(ConfigError, match="certificate"):
            host(server, ca_file=tmp_path / "none.pem")


def _upgrade_and_sleep(listener: socket.socket) -> None:
    """Serve as a peer that completes the handshake, then reads nothing."""
    from websockets.server import ServerProtocol

    connection, _ = listener.accept()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    protocol = ServerProtocol()
    protocol.receive_data(connection.recv(65_536))
    [request] = protocol.events_received()
    protocol.send_response(protocol.accept(request))  # type: ignore[arg-type]
    connection.sendall(b"".join(protocol.data_to_send()))
    threading.Event().wait(8)
    connection.close()


def test_a_stop_returns_at_once_and_the_late_result_is_nobodys(server: MiniCpmServer) -> None:
    engine = host(server, unit_timeout_s=30).open_engine()
    server.faults = Faults(at=2, instead="")
    engine.prepare(Preparation())
    run(engine)
    engine.prefill(LOUD)
    results: list[UnitResult] = []
    thread = threading.Thread(target=lambda: results.append(engine.generate()), daemon=True)
    thread.start()
    eventually(lambda: len(server.chunks) == 1)
    engine.stop()
    thread.join(1)
    assert not thread.is_alive() and results[0].vote is Vote.LISTEN and not len(results[0].audio)
    engine.finalize()
    engine.cleanup()


def test_no_more_conversations_than_workers(server: MiniCpmServer) -> None:
    made = host(server, sessions=2)
    first, second, third = (made.open_engine() for _ in range(3))
    first.prepare(Preparation())
    second.prepare(Preparation())
    with pytest.raises(CapacityError):
        third.prepare(Preparation())
    with pytest.raises(CapacityError):
        made.open_engine()
    first.cleanup()
    third.prepare(Preparation())
    second.cleanup()
    third.cleanup()


def test_a_caller_who_connects_early_is_the_same_conversation(server: MiniCpmServer) -> None:
    engine = host(server).open_engine()
    engine.reach()
    eventually(lambda: server.paths)
    engine.reach()
    engine.prepare(Preparation("Be kind."))
    run(engine)
    engine.cleanup()
    # A new context is a new connection, under another id.
    engine.prepare(Preparation("Be kind."))
    assert len(server.prepared) == len(set(server.paths)) == 2
    engine.cleanup()


def test_one_that_is_told_to_see_nothing_takes_no_frames(server: MiniCpmServer) -> None:
    engine = host(server).open_engine(sees=False)
    assert not engine.takes_frames
    engine.prepare(Preparation())
    assert server.paths[0].startswith("/ws/duplex/adx_")
    engine.cleanup()
