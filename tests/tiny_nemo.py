"""Tiny random streaming transducers of NeMo: a ``.nemo`` file, and NeMo's own result for a recording.

This module runs in NeMo's environment. ``python -m tests.tiny_nemo FOLDER WAV KIND ...`` writes
``FOLDER/KIND.nemo`` of each kind. It prints one line of JSON: by kind, the text, tokens and frames that
NeMo's own streaming loop (``CacheAwareStreamingAudioBuffer``) returns for the whole recording. Kinds are
``tdt``, ``rnnt``, ``hybrid`` (the transducer and a CTC decoder), and ``whole``, which cannot stream: its
result is the text of NeMo's own ``transcribe``.
"""

import json
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from nemo.collections.asr.models import EncDecHybridRNNTCTCBPEModel, EncDecRNNTBPEModel
from nemo.collections.asr.parts.utils.streaming_utils import CacheAwareStreamingAudioBuffer
from omegaconf import OmegaConf

VOCABULARY = 32
FEATURES = 64
# Four frames of 80 ms ahead, or one.
LOOK_AHEADS = [[16, 3], [16, 0]]


def build(kind: str, folder: Path) -> EncDecRNNTBPEModel:
    """Return a model of random weights, the same at every call; write it as ``FOLDER/KIND.nemo``."""
    torch.manual_seed(5)
    durations = [0, 1, 2, 3, 4] if kind == "tdt" else []
    hidden = 32
    config = OmegaConf.create(
        {
            "sample_rate": 16_000,
            "compute_eval_loss": False,
            "model_defaults": {"enc_hidden": hidden, "pred_hidden": hidden, "joint_hidden": hidden,
                               "tdt_durations": durations, "num_tdt_durations": len(durations)},
            "tokenizer": {"dir": str(_tokenizer(folder)), "type": "bpe"},
            "preprocessor": {
                "_target_": "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor",
                "sample_rate": 16_000, "normalize": "NA", "window_size": 0.025, "window_stride": 0.01,
                "window": "hann", "features": FEATURES, "n_fft": 512, "log": True, "frame_splicing": 1,
                "dither": 1e-5, "pad_to": 0, "pad_value": 0.0,
            },
            "encoder": {
                "_target_": "nemo.collections.asr.modules.ConformerEncoder",
                "feat_in": FEATURES, "feat_out": -1, "n_layers": 2, "d_model": hidden,
                "subsampling": "dw_striding", "subsampling_factor": 8, "subsampling_conv_channels": 16,
                "causal_downsampling": True, "ff_expansion_factor": 2, "self_attention_model": "rel_pos",
                "n_heads": 2, "att_context_size": LOOK_AHEADS, "att_context_style": "chunked_limited",
                "xscaling": False, "conv_kernel_size": 9, "conv_norm_type": "layer_norm",
                "conv_context_size": "causal", "dropout": 0.0, "dropout_pre_encoder": 0.0,
                "dropout_emb": 0.0, "dropout_att": 0.0,
            },
            "decoder": {
                "_target_": "nemo.collections.asr.modules.RNNTDecoder",
                "normalization_mode": None, "random_state_sampling": False, "blank_as_pad": True,
                "prednet": {"pred_hidden": hidden, "pred_rnn_layers": 1, "t_max": None, "dropout": 0.0},
            },
            "joint": {
                "_target_": "nemo.collections.asr.modules.RNNTJoint",
                "log_softmax": None, "preserve_memory": False, "fuse_loss_wer": False,
                "fused_batch_size": -1, "num_extra_outputs": len(durations),
                "jointnet": {"joint_hidden": hidden, "activation": "relu", "dropout": 0.0,
                             "encoder_hidden": hidden, "pred_hidden": hidden},
            },
            "decoding": {
                "strategy": "greedy_batch",
                "greedy": {"max_symbols": 3},
                "beam": {"beam_size": 2, "return_best_hypothesis": True},
                **({"model_type": "tdt", "durations": durations} if durations else {}),
            },
            "loss": {
                "loss_name": "tdt" if durations else "default",
                **({"tdt_kwargs": {"fastemit_lambda": 0.0, "clamp": -1.0, "durations": durations,
                                   "sigma": 0.0, "omega": 0.0}} if durations else {}),
            },
            "optim": {"name": "adamw", "lr": 1e-3},
        }
    )  # fmt: skip
    if kind == "whole":
        config.encoder.att_context_size = [-1, -1]
        config.encoder.att_context_style = "regular"
    if kind == "hybrid":
        config.aux_ctc = {
            "ctc_loss_weight": 0.3,
            "use_cer": False,
            "ctc_reduction": "mean_batch",
            "decoder": {
                "_target_": "nemo.collections.asr.modules.ConvASRDecoder",
                "feat_in": None,
                "num_classes": -1,
                "vocabulary": [],
            },
            "decoding": {"strategy": "greedy"},
        }
    model = (EncDecHybridRNNTCTCBPEModel if kind == "hybrid" else EncDecRNNTBPEModel)(cfg=config)
    with torch.no_grad():
        # Random weights return one token for ever; larger ones follow the audio.
        for name, parameter in model.named_parameters():
            if name.startswith("joint.") and parameter.dim() == 2:
                parameter.mul_(6.0)
    model.eval()
    _hear_nothing_in_silence(model)
    model.save_to(str(folder / f"{kind}.nemo"))
    return model


def _hear_nothing_in_silence(model: EncDecRNNTBPEModel) -> None:
    """Make the joint network return "blank" for the encoding of digital silence, and not for that of noise.

    Random weights return something for any audio: one row is set so that it tells these two apart.
    """
    draw = np.random.default_rng(3)
    sounds = [np.zeros(24_000, np.float32)]
    sounds += [draw.normal(0, level, 24_000).astype(np.float32) for level in (0.02, 0.1, 0.3)]
    with torch.no_grad():
        hidden = [_joint_hidden(model, samples) for samples in sounds]
        out, blank = model.joint.joint_net[-1], VOCABULARY
        known = torch.cat(hidden)
        others = (known @ out.weight[:blank].T + out.bias[:blank]).max(dim=1).values
        margin = torch.full_like(others, -8.0)
        margin[: len(hidden[0])] = 8.0
        # Least squares, a little short of exact, because there are many rows of noise.
        weights = torch.tensor([50.0] * len(hidden[0]) + [1.0] * (len(known) - len(hidden[0])))[:, None]
        with_bias = torch.cat((known, torch.ones(len(known), 1)), dim=1)
        square = with_bias.T @ (weights * with_bias) + 1e-4 * torch.eye(with_bias.shape[1])
        row = torch.linalg.solve(square, with_bias.T @ (weights[:, 0] * (others + margin)))
        out.weight[blank], out.bias[blank] = row[:-1], row[-1]


def _joint_hidden(model: EncDecRNNTBPEModel, samples: np.ndarray) -> torch.Tensor:
    """Return the input of the joint network's last layer at the beginning of each frame: (frames, hidden)."""
    audio = torch.from_numpy(samples).unsqueeze(0)
    encoded, _ = model.forward(input_signal=audio, input_signal_length=torch.tensor([len(samples)]))
    predicted, _ = model.decoder.predict(None, None, add_sos=False, batch_size=1)
    hidden = model.joint.enc(encoded.transpose(1, 2)) + model.joint.pred(predicted)
    return torch.relu(hidden[0])


def heard_by_nemo(model: EncDecRNNTBPEModel, samples: np.ndarray) -> dict[str, Any]:
    """Run NeMo's own loop over the whole recording, whose features are computed at once."""
    model.encoder.setup_streaming_params()
    buffer = CacheAwareStreamingAudioBuffer(model=model, online_normalization=False)
    features, lengths = buffer.preprocess_audio(samples)
    # NeMo's own call gives the encoder one frame more, after the last whole one, which is padding.
    buffer.append_processed_signal(features[:, :, : int(lengths)])
    cache = model.encoder.get_initial_cache_state(batch_size=1)
    hypotheses, texts = None, []
    for number, (chunk, lengths) in enumerate(buffer):
        with torch.inference_mode():
            _, texts, *cache, hypotheses = model.conformer_stream_step(
                processed_signal=chunk,
                processed_signal_length=lengths,
                cache_last_channel=cache[0],
                cache_last_time=cache[1],
                cache_last_channel_len=cache[2],
                keep_all_outputs=buffer.is_buffer_empty(),
                previous_hypotheses=hypotheses,
                drop_extra_pre_encoded=model.encoder.streaming_cfg.drop_extra_pre_encoded if number else 0,
                return_transcription=True,
            )
    assert hypotheses is not None
    best = hypotheses[0]
    tokens = torch.as_tensor(best.y_sequence).tolist()
    return {"text": best.text, "tokens": tokens, "frames": torch.as_tensor(best.timestamp).tolist()}


def _tokenizer(folder: Path) -> Path:
    made = folder / "tokenizer"
    made.mkdir(parents=True, exist_ok=True)
    words = "what is your pin how much is a replacement card the monthly fee is five dollars".split()
    text = made / "text.txt"
    text.write_text("\n".join(" ".join(words[at:] + words[:at]) for at in range(len(words))))
    sentencepiece.SentencePieceTrainer.Train(
        f"--input={text} --model_prefix={made / 'tokenizer'} --vocab_size={VOCABULARY} --model_type=bpe "
        "--bos_id=-1 --eos_id=-1 --unk_id=0 --character_coverage=1.0"
    )
    pieces = sentencepiece.SentencePieceProcessor(str(made / "tokenizer.model"))
    names = [pieces.IdToPiece(number) for number in range(pieces.GetPieceSize())]
    (made / "vocab.txt").write_text("\n".join(names))
    return made


def main() -> None:
    """Write the models and print NeMo's results."""
    folder, recording, kinds = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    with wave.open(recording) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32_768
    models = {kind: build(kind, folder) for kind in kinds}
    heard = {kind: heard_by_nemo(model, samples) for kind, model in models.items() if kind != "whole"}
    if (whole := models.get("whole")) is not None:
        (best,) = whole.transcribe([samples], batch_size=1, return_hypotheses=True, verbose=False)
        heard["whole"] = {"text": best.text}
    print(json.dumps(heard))


if __name__ == "__main__":
    main()
