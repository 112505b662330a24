"""The codec gives the same result for a stream of frames as for the whole."""

import pytest
import torch
from torch import Tensor

from parley.models.omni.moshi.codec import DecoderStream, EncoderStream
from parley.models.omni.moshi.host import Weights

# More than three of the codec's attention windows (20 positions, two a frame).
FRAMES = 36
CODEBOOKS = 4
# For audio whose largest sample is about 0.5: rounding of float32 in some dozens of layers.
TOLERANCE = 1e-5


@pytest.fixture
def audio(weights: Weights) -> Tensor:
    random = torch.Generator().manual_seed(1)
    return 0.1 * torch.randn(FRAMES * weights.unit_samples, generator=random)


@pytest.fixture
def codes() -> Tensor:
    random = torch.Generator().manual_seed(2)
    return torch.randint(64, (CODEBOOKS, FRAMES), generator=random)


@torch.inference_mode()
def test_codes_of_single_frames_are_those_of_the_whole(weights: Weights, audio: Tensor) -> None:
    whole = weights.codec.encode(audio[None, None], num_quantizers=CODEBOOKS).audio_codes[0]
    stream = EncoderStream(weights.codec, CODEBOOKS)
    found = torch.cat([stream.encode(frame) for frame in audio.split(weights.unit_samples)], dim=-1)
    assert whole.unique().numel() > 8, "a codec that always says the same shows nothing"
    assert torch.equal(found, whole)


@pytest.mark.parametrize("frames", [[1] * FRAMES, [3, 1, 8, 1, 1, 22]])
@torch.inference_mode()
def test_audio_of_single_frames_is_that_of_the_whole(
    weights: Weights, codes: Tensor, frames: list[int]
) -> None:
    whole = weights.codec.decode(codes[None]).audio_values[0, 0]
    stream = DecoderStream(weights.codec)
    found = torch.cat([stream.decode(part) for part in codes.split(frames, dim=-1)])
    assert found.shape == whole.shape == (FRAMES * weights.unit_samples,)
    assert whole.std() > 0.05
    assert (found - whole).abs().max() < TOLERANCE


@torch.inference_mode()
def test_a_stream_takes_no_more_memory_the_longer_it_is(weights: Weights, audio: Tensor) -> None:
    ear, mouth = EncoderStream(weights.codec, CODEBOOKS), DecoderStream(weights.codec)
    sizes = []
    for frame in audio.split(weights.unit_samples):
        mouth.decode(ear.encode(frame))
        sizes.append(_size_bytes(vars(ear), set()) + _size_bytes(vars(mouth), set()))
    assert sizes[0] < sizes[FRAMES // 2] == sizes[-1]


@torch.inference_mode()
def test_a_stream_keeps_no_more_than_its_convolutions_reach_back(weights: Weights, audio: Tensor) -> None:
    ear, mouth = EncoderStream(weights.codec, CODEBOOKS), DecoderStream(weights.codec)
    for frame in audio.split(weights.unit_samples)[:3]:
        mouth.decode(ear.encode(frame))
    kept = [*ear._convolved.padding_cache, *mouth._before.values()]
    assert len(kept) > 20
    # Not as a view of all earlier frames.
    assert all(part.untyped_storage().nbytes() == part.numel() * part.element_size() for part in kept)


def _size_bytes(value: object, seen: set[int]) -> int:
    """Return the memory of the tensors in a value, views with all that they keep."""
    if isinstance(value, torch.nn.Module):
        # Weights are shared.
        return 0
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        if storage.data_ptr() in seen:
            return 0
        seen.add(storage.data_ptr())
        return storage.nbytes()
    if isinstance(value, dict):
        return sum(_size_bytes(part, seen) for part in value.values())
    if isinstance(value, list | tuple):
        return sum(_size_bytes(part, seen) for part in value)
    return _size_bytes(vars(value), seen) if hasattr(value, "__dict__") else 0
