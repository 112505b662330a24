"""Steps with a cache equal the library's computation of the whole without one."""

import pytest
import torch
from torch import Tensor

from parley.models.omni.moshi.host import Weights
from parley.models.omni.moshi.settings import MoshiConversationSettings
from parley.models.omni.moshi.steps import MoshiStep, MoshiSteps, PromptFrame, draw

GREEDY = MoshiConversationSettings(text_temperature=0, audio_temperature=0)
CODEBOOKS, CODES, TEXTS = 4, 64, 22
PAD = 3
# For logits of some units: rounding of float32.
TOLERANCE = 2e-4
UNITS = 30
# In these units the bot has to be silent.
SILENT = (0, 7, 8, 20)


def steps_of(
    weights: Weights, talk: MoshiConversationSettings = GREEDY, window: int | None = None
) -> MoshiSteps:
    return MoshiSteps(
        weights.model,
        talk,
        window=window or weights.window,
        silence=(PAD, weights.silence),
        is_stopped=lambda: False,
    )


def taken(step: MoshiStep | None) -> MoshiStep:
    assert step is not None
    return step


@torch.inference_mode()
def run(steps: MoshiSteps, caller: Tensor, silent: tuple[int, ...] = SILENT) -> list[MoshiStep]:
    """Run position 0 and one for each frame of the caller's, (codebooks, frames)."""
    found = [taken(steps.begin())]
    for unit in range(caller.shape[1]):
        found.append(taken(steps.step(caller[:, unit], is_silent=unit in silent)))
    return found


@pytest.fixture
def caller() -> Tensor:
    return torch.randint(CODES, (CODEBOOKS, UNITS), generator=torch.Generator().manual_seed(3))


def inputs_of(weights: Weights, steps: list[MoshiStep], caller: Tensor) -> dict[str, Tensor]:
    """Return the streams as the library takes them, laid out by its own delay pattern."""
    texts = torch.tensor([[TEXTS, *(step.token for step in steps[:-1])]])
    bot = torch.stack([step.codes for step in steps[1:]], dim=-1)
    streams = {"moshi_audio_codes": delayed(weights, bot), "user_audio_codes": delayed(weights, caller)}
    return {"input_ids": texts, **streams}


def delayed(weights: Weights, frames: Tensor) -> Tensor:
    begun = torch.cat((torch.full((CODEBOOKS, 1), CODES), frames), dim=-1)[None]
    laid, _ = weights.model.build_delay_pattern_mask(
        begun, bos_token_id=CODES, pad_token_id=CODES, max_length=begun.shape[-1] + 1
    )
    return laid


@torch.inference_mode()
def test_text_and_codes_are_those_of_a_whole_forward_without_a_memory(
    weights: Weights, caller: Tensor
) -> None:
    found = run(steps_of(weights), caller)
    whole = weights.model(**inputs_of(weights, found, caller), use_cache=False)
    texts = torch.stack([step.text_logits for step in found])
    assert texts.std() > 0.5
    assert (texts - whole.logits[0]).abs().max() < TOLERANCE

    drawn = [(place, step) for place, step in enumerate(found) if step.audio_logits is not None]
    assert len(drawn) == 1 + UNITS - len(SILENT)
    for place, step in drawn:
        assert step.audio_logits is not None
        before = torch.tensor([[step.token, *step.audio_logits.argmax(-1)[:-1]]])
        depth = weights.model.depth_decoder(
            input_ids=before,
            last_hidden_state=whole.last_hidden_state[:, place : place + 1],
            attention_mask=torch.ones_like(before),
            use_cache=False,
        )
        assert (depth.logits[0] - step.audio_logits).abs().max() < TOLERANCE * step.audio_logits.abs().max()


@torch.inference_mode()
def test_a_prompt_takes_the_first_positions_of_all_streams(weights: Weights, caller: Tensor) -> None:
    random = torch.Generator().manual_seed(5)
    given = [
        PromptFrame(token, *torch.randint(CODES, (2, CODEBOOKS), generator=random))
        for token in (PAD, 5, 6, PAD)
    ]
    steps = steps_of(weights)
    found = [taken(steps.begin(given))]
    found += [taken(steps.step(caller[:, unit])) for unit in range(8)]
    texts = torch.tensor([[TEXTS, *(frame.token for frame in given), *(step.token for step in found[:-1])]])
    bot = torch.stack([*(frame.bot for frame in given), *(step.codes for step in found[1:])], dim=-1)
    heard = torch.cat((torch.stack([frame.caller for frame in given], dim=-1), caller[:, :8]), dim=-1)
    # The last frame of the prompt is in them as it was given, although its rest comes after the first draw.
    streams = {"moshi_audio_codes": delayed(weights, bot), "user_audio_codes": delayed(weights, heard)}
    whole = weights.model(input_ids=texts, **streams, use_cache=False)
    logits = torch.stack([step.text_logits for step in found])
    assert (logits - whole.logits[0, len(given) :]).abs().max() < TOLERANCE
    assert steps.window.kept == 1 + len(given) + 8


@torch.inference_mode()
def test_what_is_said_is_what_the_library_generates(weights: Weights) -> None:
    blank = torch.zeros(1, 1, weights.unit_samples)
    caller = weights.codec.encode(blank, num_quantizers=CODEBOOKS).audio_codes[0].expand(-1, UNITS)
    found = run(steps_of(weights), caller, silent=())
    # It takes no frames of a caller while it generates: it repeats the last one.
    library = weights.model.generate(
        do_sample=False,
        depth_decoder_do_sample=False,
        max_new_tokens=UNITS + 1,
        eos_token_id=None,
        return_audio_codes=True,
        return_audio_waveforms=False,
    )
    assert library.sequences[0, -UNITS - 1 :].tolist() == [step.token for step in found]
    frames = torch.stack([step.codes for step in found[1:]], dim=-1)
    assert torch.equal(library.audio_codes[0, :, :UNITS], frames)


@torch.inference_mode()
def test_after_the_window_the_oldest_is_forgotten(weights: Weights, caller: Tensor) -> None:
    window = 8
    steps = steps_of(weights, window=window)
    found = run(steps, caller)
    places = torch.arange(UNITS + 1)
    behind = places[:, None] - places[None, :]
    seen = (behind >= 0) & (behind < window)
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))[None, None]
    whole = weights.model(**inputs_of(weights, found, caller), attention_mask=mask, use_cache=False)
    texts = torch.stack([step.text_logits for step in found])
    assert (texts - whole.logits[0]).abs().max() < TOLERANCE
    assert steps.window.kept == window


def test_the_memory_of_the_past_is_bounded(weights: Weights, caller: Tensor) -> None:
    steps = steps_of(weights, window=8)
    run(steps, caller[:, :9])
    size_bytes = steps.window.size_bytes
    # Two layers, keys and values, four heads of eight float32.
    assert size_bytes == 2 * 2 * 8 * 4 * 8 * 4
    with torch.inference_mode():
        for _ in range(3 * 8):
            steps.step(caller[:, 0])
    assert steps.window.size_bytes == size_bytes


def test_a_bot_that_must_be_silent_has_said_padding_and_silence(weights: Weights, caller: Tensor) -> None:
    found = run(steps_of(weights), caller, silent=(4, 5))
    assert [step.token for step in found[5:7]] == [PAD, PAD]
    # Its first code was drawn a step before, the others belong to this step.
    assert torch.equal(found[5].codes[1:], weights.silence[1:])
    assert torch.equal(found[6].codes, weights.silence)


def test_seeds_decide_what_is_drawn(weights: Weights, caller: Tensor) -> None:
    def tokens(seed: int) -> list[int]:
        return [step.token for step in run(steps_of(weights, MoshiConversationSettings(seed=seed)), caller)]

    assert tokens(1) == tokens(1) != tokens(2)


def test_draws_follow_the_softmax_of_the_likeliest() -> None:
    random = torch.Generator().manual_seed(5)
    logits = torch.tensor([0.0, 2.0, 1.0, -1.0])
    draws = torch.stack([draw(logits, temperature=0.5, top_k=3, random=random) for _ in range(4_000)])
    found = draws.bincount(minlength=4) / len(draws)
    expected = torch.softmax(torch.tensor([0.0, 2.0, 1.0, -torch.inf]) / 0.5, dim=0)
    assert (found - expected).abs().max() < 0.03


def test_a_draw_from_no_number_is_a_token_all_the_same() -> None:
    random = torch.Generator().manual_seed(5)
    logits = torch.full((8,), torch.nan)
    for temperature in (0.0, 1.0):
        assert 0 <= int(draw(logits, temperature=temperature, top_k=4, random=random)) < 8
