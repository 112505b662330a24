"""Streaming for Mimi, a frame at a time, with the same codes and audio as for the whole at once.

The library streams encoding: it keeps the state of the convolutions and the transformer. It does not stream
decoding: its transformer takes a cache, but its convolutions start anew at each call. Here each of them also
gets the previous inputs, as many as its kernel covers, and the output that it computes a second time is
dropped. All of Mimi's convolutions are causal, so the result of a stream equals that of a whole except for
rounding (``tests/unit/models/omni/moshi/test_codec.py``).

The state is bounded: some inputs of each convolution, and the window of each transformer.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, MimiModel
from transformers.models.mimi.modeling_mimi import MimiConv1d, MimiConvTranspose1d, MimiResnetBlock

from parley.core.errors import EngineError
from parley.models.omni.moshi.settings import ENGINE


def check_codec(codec: MimiModel) -> None:
    """Make sure that the codec can be streamed.

    Raises:
        EngineError: it looks ahead, or has layers of unknown types.
    """
    config = codec.config
    if not config.use_causal_conv or config.trim_right_ratio != 1.0 or config.pad_mode != "constant":
        raise EngineError("the codec is not causal", engine=ENGINE, retryable=False)
    if config.audio_channels != 1 or codec.decoder.upsample is None or codec.encoder.downsample is None:
        raise EngineError(
            "the codec is not mono, or has an unsupported layout", engine=ENGINE, retryable=False
        )
    unknown = {
        type(layer).__name__
        for layer in codec.decoder.decoder_seanet.layers
        if not isinstance(layer, MimiConv1d | MimiConvTranspose1d | MimiResnetBlock | nn.ELU)
    }
    if unknown:
        raise EngineError(
            f"the codec has unsupported layers {sorted(unknown)}", engine=ENGINE, retryable=False
        )


class EncoderStream:
    """Encoder of one conversation's audio.

    Args:
        codec: shared; must pass ``check_codec``.
        codebooks: number of codes for each frame.
    """

    def __init__(self, codec: MimiModel, codebooks: int) -> None:
        self._codec, self._codebooks = codec, codebooks
        self._attended: Any = None
        self._convolved: Any = None

    def encode(self, audio: Tensor) -> Tensor:
        """Encode some frames.

        Args:
            audio: float32, (samples,), whole frames, at the codec's rate.

        Returns:
            Codes, int64, (codebooks, frames).
        """
        out = self._codec.encode(
            audio[None, None],
            num_quantizers=self._codebooks,
            encoder_past_key_values=self._attended,
            padding_cache=self._convolved,
            use_streaming=True,
        )
        self._attended, self._convolved = out.encoder_past_key_values, out.padding_cache
        # The library keeps views of whole inputs, of which it needs only a few samples.
        cached = self._convolved.padding_cache
        for index, kept in enumerate(cached):
            if kept is not None:
                cached[index] = kept.clone()
        result: Tensor = out.audio_codes[0]
        return result


class DecoderStream:
    """Decoder of one conversation's codes.

    Args:
        codec: shared; must pass ``check_codec``.
    """

    def __init__(self, codec: MimiModel) -> None:
        self._codec = codec
        self._attended = DynamicCache(config=codec.decoder.config)
        self._before: dict[nn.Module, Tensor] = {}

    def decode(self, codes: Tensor) -> Tensor:
        """Decode some frames.

        Args:
            codes: int64, (codebooks, frames).

        Returns:
            Audio, float32, (samples,).
        """
        decoder = self._codec.decoder
        hidden = self._upsampled(decoder.upsample, self._codec.quantizer.decode(codes[None]))
        hidden = decoder.decoder_transformer(
            hidden.transpose(1, 2), past_key_values=self._attended, use_cache=True
        ).last_hidden_state.transpose(1, 2)
        for layer in decoder.decoder_seanet.layers:
            hidden = self._through(layer, hidden)
        return hidden[0, 0]

    def _through(self, layer: nn.Module, hidden: Tensor) -> Tensor:
        if isinstance(layer, MimiConv1d):
            return self._convolve(layer, hidden)
        if isinstance(layer, MimiConvTranspose1d):
            return self._upsampled(layer, hidden)
        if isinstance(layer, MimiResnetBlock):
            inner = hidden
            for part in layer.block:
                inner = self._through(part, inner)
            return self._through(layer.shortcut, hidden) + inner
        result: Tensor = layer(hidden)
        return result

    def _convolve(self, layer: MimiConv1d, hidden: Tensor) -> Tensor:
        conv = layer.conv
        reach = (conv.kernel_size[0] - 1) * conv.dilation[0] + 1 - conv.stride[0]
        result: Tensor = conv(self._with_before(layer, hidden, reach))
        return result

    def _upsampled(self, layer: MimiConvTranspose1d, hidden: Tensor) -> Tensor:
        conv = layer.conv
        kernel, stride = conv.kernel_size[0], conv.stride[0]
        # Number of inputs before its own that an output sample depends on.
        reach = -(-kernel // stride) - 1
        out = conv(self._with_before(layer, hidden, reach))
        result: Tensor = out[..., reach * stride : (reach + hidden.shape[-1]) * stride]
        return result

    def _with_before(self, layer: nn.Module, hidden: Tensor, reach: int) -> Tensor:
        """Return the inputs preceded by the last ``reach`` ones; by zeros at the start, as the codec pads."""
        before = self._before.get(layer)
        if before is None:
            before = hidden.new_zeros(*hidden.shape[:-1], reach)
        joined = torch.cat((before, hidden), dim=-1)
        # A copy: a view would keep the whole joined tensor alive.
        self._before[layer] = joined[..., joined.shape[-1] - reach :].clone()
        return joined
