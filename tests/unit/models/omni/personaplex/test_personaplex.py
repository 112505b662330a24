"""Prompts of PersonaPlex, and conversations after them, on a tiny Moshi."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loguru import logger

pytest.importorskip("transformers", reason="needs the extra 'moshi'")
pytest.importorskip("torch", reason="needs the extra 'moshi'")

import torch
from torch import Tensor

from parley.core.errors import CapacityError, ConfigError
from parley.core.units import Vote
from parley.evals.tiny_moshi import CODES, PIECES, install_tiny_moshi
from parley.models.omni import OMNI, OmniEngine, Preparation
from parley.models.omni.moshi.codec import EncoderStream
from parley.models.omni.moshi.host import Weights
from parley.models.omni.personaplex.host import PersonaPlexHost
from parley.models.omni.personaplex.prompt import PromptMaker
from parley.models.omni.personaplex.settings import PersonaPlexSettings

UNIT_SAMPLES = 1_920
SILENCE, TONE = (1, 2, 3, 4), (5, 6, 7, 8)
PAD, UNKNOWN = 3, 0
ROLE = "we are open"
ROLE_TOKENS = [UNKNOWN, *(PIECES.index(f"▁{word}") for word in ROLE.split()), UNKNOWN]
PAUSE = 2
# At 16 kHz; its last frame is not full.
VOICE = (0.1 * np.random.default_rng(4).standard_normal(9_000)).astype(np.float32)
VOICE_UNITS = 8


def settings(folder: Path, **others: object) -> PersonaPlexSettings:
    chosen = {
        **{"model": str(folder), "device": "cpu", "threads": 1, "sessions": None, "pause_units": PAUSE},
        **{"silence_codes": SILENCE, "tone_codes": TONE, "max_prompt_units": 20},
        **others,
    }
    return PersonaPlexSettings.model_validate(chosen)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_tiny_moshi(tmp_path_factory.mktemp("models") / "personaplex")


@pytest.fixture(scope="module")
def weights(folder: Path) -> Weights:
    return Weights(settings(folder))


@pytest.fixture(scope="module")
def host(folder: Path) -> PersonaPlexHost:
    return PersonaPlexHost(settings(folder))


@pytest.fixture
def engine(host: PersonaPlexHost) -> Iterator[OmniEngine]:
    opened = host.open_engine()
    yield opened
    opened.cleanup()


def talk(engine: OmniEngine, preparation: Preparation, units: int = 6) -> list[tuple[object, ...]]:
    """Hold a conversation with a caller who is always the same; return what is said, by unit."""
    engine.prepare(preparation)
    random, said = np.random.default_rng(9), []
    for _ in range(units):
        engine.prefill((0.1 * random.standard_normal(UNIT_SAMPLES)).clip(-1, 1).astype(np.float32))
        result = engine.generate()
        engine.finalize()
        said.append((result.vote, result.text, result.audio.tobytes()))
    engine.cleanup()
    return said


def prepared(role: str = "", voice: np.ndarray | None = None, **others: Any) -> Preparation:
    return Preparation(role, llm_ref_audio=voice, settings={"seed": 3}, **others)


@contextmanager
def inputs(weights: Weights) -> Iterator[list[dict[str, Any]]]:
    """Record the inputs of each position of the large transformer."""
    taken: list[dict[str, Any]] = []

    def record(_module: object, _args: object, given: dict[str, Any]) -> None:
        taken.append(
            {name: value.flatten().tolist() for name, value in given.items() if torch.is_tensor(value)}
        )

    hook = weights.model.register_forward_pre_hook(record, with_kwargs=True)
    try:
        yield taken
    finally:
        hook.remove()


@torch.inference_mode()
def encoded(weights: Weights, samples: np.ndarray) -> list[Tensor]:
    stream = EncoderStream(weights.codec, len(SILENCE))
    return [
        stream.encode(torch.from_numpy(samples[at : at + UNIT_SAMPLES]))[:, 0]
        for at in range(0, len(samples), UNIT_SAMPLES)
    ]


def rms(samples: np.ndarray) -> float:
    return float(np.sqrt(np.mean(samples.astype(float) ** 2)))


# The prompt


def test_the_voice_a_pause_the_role_and_a_pause_come_in_this_order(weights: Weights, folder: Path) -> None:
    maker = PromptMaker(weights, settings(folder))
    with torch.inference_mode():
        frames = maker.frames(ROLE, VOICE)
    texts = [frame.token for frame in frames]
    assert texts == [PAD] * (VOICE_UNITS + PAUSE) + ROLE_TOKENS + [PAD] * PAUSE
    assert all(tuple(frame.caller.tolist()) == TONE for frame in frames)
    assert all(tuple(frame.bot.tolist()) == SILENCE for frame in frames[VOICE_UNITS:])
    # The makers encode the voice frame by frame; here it is encoded at once.
    whole = np.zeros(VOICE_UNITS * UNIT_SAMPLES, dtype=np.float32)
    level = maker._leveled(VOICE)
    whole[: len(level)] = level
    assert [frame.bot.tolist() for frame in frames[:VOICE_UNITS]] == [
        codes.tolist() for codes in encoded(weights, whole)
    ]


def test_what_a_conversation_lacks_has_no_frames(weights: Weights, folder: Path) -> None:
    maker = PromptMaker(weights, settings(folder))
    with torch.inference_mode():
        assert [frame.token for frame in maker.frames(" ", None)] == [PAD] * 2 * PAUSE
        assert len(maker.frames("", VOICE)) == VOICE_UNITS + 2 * PAUSE
        tagged = [frame.token for frame in maker.frames(f" <system> {ROLE} <system>", None)]
    assert tagged == [*[PAD] * PAUSE, *ROLE_TOKENS, *[PAD] * PAUSE]


def test_a_voice_is_as_loud_as_the_settings_say(weights: Weights, folder: Path) -> None:
    maker = PromptMaker(weights, settings(folder))
    levels = [rms(maker._leveled(VOICE * np.float32(gain))) for gain in (0.05, 1.0, 3.0)]
    # The meter is exact to 0.1 dB.
    assert levels == pytest.approx([levels[0]] * 3, rel=0.02)
    quieter = PromptMaker(weights, settings(folder, voice_lufs=-44.0))
    assert rms(quieter._leveled(VOICE)) == pytest.approx(levels[0] / 10, rel=0.02)
    silence, short = np.zeros(9_000, dtype=np.float32), VOICE[:4_000]
    assert not maker._leveled(silence).any()
    # The resampler's filter takes the edge of the spectrum.
    assert rms(maker._leveled(short)) == pytest.approx(rms(short), rel=0.1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"silence_codes": SILENCE[:3]}, "silence_codes must be 4 numbers below 64"),
        ({"tone_codes": (1, 2, 3, CODES)}, "tone_codes must be 4 numbers below 64"),
        ({"tone_codes": (1, 2, 3, -1)}, "tone_codes must be 4 numbers below 64"),
        ({"max_prompt_units": 40}, "leaves no room in the window of 40"),
    ],
)
def test_a_prompt_that_does_not_fit_the_model_is_found_when_it_is_loaded(
    folder: Path, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=f"'personaplex'.*{says}"):
        OMNI.create("personaplex", settings(folder, **changes))


def test_codes_of_the_published_model_are_the_default() -> None:
    chosen = PersonaPlexSettings(model="/models/personaplex")
    assert len(chosen.silence_codes) == len(chosen.tone_codes) == 8
    assert max(*chosen.silence_codes, *chosen.tone_codes) < 2_048


def test_a_prompt_that_is_too_long_is_refused_and_the_engine_lives(engine: OmniEngine) -> None:
    with pytest.raises(
        ConfigError, match=r"31 units \(0 of the voice, 27 of the role and 4 of silence\)"
    ) as caught:
        engine.prepare(Preparation("yes " * 25))
    assert "yes" not in str(caught.value)
    assert len(talk(engine, prepared(ROLE))) == 6


# The conversation


def test_the_prompt_is_forced_into_the_streams_before_the_first_frame_of_the_caller(
    host: PersonaPlexHost, engine: OmniEngine
) -> None:
    weights = host._weights
    assert weights is not None
    with inputs(weights) as taken:
        talk(engine, prepared(ROLE, VOICE), units=2)
    units = VOICE_UNITS + len(ROLE_TOKENS) + 2 * PAUSE
    # Position 0, in which all streams have the token for nothing, the prompt, and two frames of the caller.
    assert len(taken) == 1 + units + 2
    assert taken[0]["user_audio_codes"] == taken[0]["moshi_audio_codes"] == [CODES] * 4
    texts = [position["input_ids"][0] for position in taken]
    assert texts[1 : 1 + units] == [PAD] * (VOICE_UNITS + PAUSE) + ROLE_TOKENS + [PAD] * PAUSE
    callers = [position["user_audio_codes"] for position in taken]
    # All codes of a frame but the first come a position later.
    assert callers[1] == [TONE[0], CODES, CODES, CODES]
    assert callers[2 : 1 + units] == [list(TONE)] * (units - 1)
    assert callers[1 + units][1:] == list(TONE[1:])
    bots = [position["moshi_audio_codes"] for position in taken]
    assert bots[VOICE_UNITS + 2 : 1 + units] == [list(SILENCE)] * (units - VOICE_UNITS - 1)
    assert bots[1 + units][1:] == list(SILENCE[1:])


def test_the_conversation_then_runs_as_moshis(engine: OmniEngine) -> None:
    said = talk(engine, prepared(ROLE, VOICE))
    assert said == talk(engine, prepared(ROLE, VOICE))
    assert {vote for vote, _, _ in said} == {Vote.SPEAK}
    assert "".join(str(text) for _, text, _ in said).strip()


def test_role_and_voice_change_what_is_said(engine: OmniEngine) -> None:
    found = [
        talk(engine, prepared(role, voice)) for role, voice in ((ROLE, VOICE), ("yes", VOICE), (ROLE, None))
    ]
    assert found[0] != found[1] != found[2] != found[0]


def test_the_vocoders_voice_is_taken_where_the_models_own_is_not_given(engine: OmniEngine) -> None:
    given = Preparation(ROLE, tts_ref_audio=VOICE, settings={"seed": 3})
    assert talk(engine, given) == talk(engine, prepared(ROLE, VOICE))


def test_a_history_is_left_out_and_noted(engine: OmniEngine) -> None:
    lines: list[str] = []
    sink = logger.add(lines.append, level="INFO", format="{message}")
    try:
        said = talk(engine, prepared(ROLE, history=(("user", "hello"),)))
    finally:
        logger.remove(sink)
    assert lines == ["personaplex takes no history: it is left out\n"]
    assert said == talk(engine, prepared(ROLE))


def test_the_window_is_kept_for_the_prompt(folder: Path, engine: OmniEngine) -> None:
    assert engine.context_units == 40 - 20
    assert PersonaPlexHost(settings(folder, window_units=30)).open_engine().context_units == 10


def test_messages_name_the_engine(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'personaplex' needs"):
        settings(tmp_path).check()
    host = PersonaPlexHost(settings(folder, sessions=1))
    engine = host.open_engine()
    with pytest.raises(CapacityError, match="personaplex: all 1"):
        host.open_engine()
    with pytest.raises(ConfigError, match="personaplex: 1 settings are wrong"):
        engine.prepare(Preparation(settings={"colour": "red"}))
    engine.cleanup()
    assert host.open_engine().unit_ms == 80
