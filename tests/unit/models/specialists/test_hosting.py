"""Questions to a specialist and its answers, as they cross between processes."""

import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.core.media import float_to_pcm16
from parley.core.timeline import DiarPayload, KnownVoice, ProsodyPayload, Source, VisionPayload
from parley.models.specialists import Finding
from parley.models.specialists.hosting import (
    MOST_SIDE_PX,
    MOST_STRETCH_S,
    SpecialistSettings,
    ask_judgement,
    ask_look,
    load_specialist,
    read_findings,
)
from parley.models.specialists.prosody import RATE_HZ, ProsodySettings
from parley.protocols.facts import from_rows, to_rows
from parley.runtime.engine_hosting.messages import EngineMessage, EngineSpec, MessageType
from tests.fakes.specialists import StrangeSettings
from tests.unit.models.specialists.test_prosody import voice

SETTINGS = SpecialistSettings(specialist=EngineSpec.of("prosody", ProsodySettings()))


WATCHER = SpecialistSettings(
    specialist=EngineSpec.of("tests.fakes.specialists:StrangeWatcher", StrangeSettings())
)


def answered(*findings: Finding) -> EngineMessage:
    return EngineMessage(MessageType.DONE, 1, {"findings": to_rows(findings)})


def test_a_stretch_goes_out_and_its_findings_come_back():
    stream = load_specialist(SETTINGS).open_stream()
    facts, payload = stream.ask(ask_judgement(float_to_pcm16(voice()), 5, 1_000_005))
    (found,) = read_findings(EngineMessage(MessageType.DONE, 1, facts, payload))
    assert found.source is Source.PROSODY and isinstance(found.payload, ProsodyPayload)
    assert found.payload.pitch_hz == pytest.approx(120, rel=0.05)
    assert (found.payload.start_us, found.payload.end_us) == (5, 1_000_005)


def test_voices_cross_both_ways():
    voices = (KnownVoice("speaker 1", (0.5, -0.5), 12.5),)
    question = ask_judgement(bytes(640), 0, 20_000, voices)
    assert from_rows(KnownVoice, question.facts["known"]) == voices
    found = Finding(0.5, speaker=DiarPayload(0, 1, "speaker 1"), voice=voices[0])
    assert read_findings(answered(found)) == (found,)


def test_a_speaker_crosses_with_the_embedding():
    found = Finding(0.5, speaker=DiarPayload(0, 1, "speaker 2", (0.25, -0.5)))
    assert read_findings(answered(found)) == (found,)


@pytest.mark.parametrize(
    "pcm",
    [b"", b"\0", bytes(2 * RATE_HZ * MOST_STRETCH_S + 2)],
    ids=["nothing", "half a sample", "too long"],
)
def test_a_question_without_a_stretch_is_refused(pcm: bytes):
    with pytest.raises(EngineError):
        load_specialist(SETTINGS).open_stream().ask(ask_judgement(pcm, 0, 1))


def test_a_frame_goes_out_and_what_it_shows_comes_back():
    stream = load_specialist(WATCHER).open_stream()
    red = np.full((2, 3, 3), (200, 10, 10), np.uint8)
    facts, payload = stream.ask(ask_look(red.tobytes(), (3, 2), 5))
    (found,) = read_findings(EngineMessage(MessageType.DONE, 1, facts, payload))
    assert found.source is Source.VISION
    assert found.payload == VisionPayload(5, 5, gesture="pointing up", faces=1, looking="here")


def test_a_place_in_the_picture_crosses():
    found = Finding(0.5, visual=VisionPayload(0, 1, gesture="pointing up", at=(0.25, 1.0)))
    assert read_findings(answered(found)) == (found,)


@pytest.mark.parametrize(
    ("size", "count"),
    [((0, 0), 0), ((2, 2), 11), ((MOST_SIDE_PX + 1, 1), 3 * MOST_SIDE_PX + 3), ((-1, -3), 9)],
)
def test_a_question_without_a_picture_is_refused(size: tuple[int, int], count: int):
    stream = load_specialist(WATCHER).open_stream()
    with pytest.raises(EngineError):
        stream.ask(ask_look(bytes(count), size, 0))
    with pytest.raises(EngineError):
        stream.ask(EngineMessage(MessageType.MEASURE, payload=bytes(12)))


@pytest.mark.parametrize(
    "answer",
    [
        EngineMessage(MessageType.DONE, 1, {}),
        EngineMessage(MessageType.DONE, 1, {"findings": [[1.0]]}),
        EngineMessage(MessageType.DONE, 1, {"findings": [[float("nan"), None, None, None]]}),
        answered(Finding(1.0)),
        answered(Finding(1.5, prosody=ProsodyPayload(0, 1))),
        answered(*[Finding(1.0, prosody=ProsodyPayload(0, 1))] * 17),
    ],
    ids=["no findings", "half a finding", "no number", "no payload", "too certain", "too many"],
)
def test_an_invalid_answer_is_an_error(answer: EngineMessage):
    with pytest.raises(EngineError):
        read_findings(answer)


def test_silence_has_no_finding():
    stream = load_specialist(SETTINGS).open_stream()
    facts, _ = stream.ask(ask_judgement(np.zeros(RATE_HZ, "<i2").tobytes(), 0, 1))
    assert facts == {"findings": []}
