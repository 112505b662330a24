"""Streaming speech recognition with NVIDIA NeMo: cache-aware encoders and transducer decoders.

Input: 16 kHz audio of one utterance at a time. Output: partials with each chunk that the encoder takes, then
the words with the frames at which the decoder placed them, and its confidence in them. For models with a
cache-aware encoder ("...streaming..." in their names) and an RNN-T or TDT decoder; others are refused.

NeMo has a Python environment of its own (``requirements/nemo.txt``), so this engine runs in a worker
(``python runner.py --role worker --engine nemo``). ``model`` is a ``.nemo`` file, or a name that NeMo
downloads when the worker loads.

Mel frames are computed here piece by piece, and equal those of the whole utterance exactly. A frame is made
when all audio under its window has arrived. The encoder takes chunks as long as its look-ahead
(``att_context_size``) and reads nothing twice. Its cache and the decoder's state belong to the stream. Steps
of different streams are serialised by a lock, because the encoder's streaming configuration and the decoder's
buffers belong to the model. A step is a few milliseconds on a GPU.

Slow: audio waits in the caller of ``feed``. A failing step is an ``EngineError``.
"""

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from parley.core.errors import ConfigError, EngineError, ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, pcm16_to_float, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.models.stt import Transcript
from parley.models.stt.nemo_decoding import change_decoding, confidences
from parley.models.stt.words import fit_words, plain_words

try:
    import torch
    from nemo.collections.asr.models import ASRModel, EncDecRNNTModel
    from nemo.collections.asr.parts.mixins.streaming import StreamingEncoder
    from nemo.collections.asr.parts.utils.rnnt_utils import Hypothesis
    from nemo.utils import logging as nemo_logging
    from omegaconf import open_dict
except ImportError as missing:
    raise ConfigError(
        "'nemo' has its own Python environment (requirements/nemo.txt) and runs in a worker; see "
        f"docs/how-to/workers.md ({missing})"
    ) from missing

ENGINE = "nemo"
RATE_HZ = 16_000
# Mel frames computed before the wanted ones. The first frames of a piece have padding under their windows,
# and its first sample has no pre-emphasis. Two frames are affected (half a window is 1.6 hops).
CONTEXT_FRAMES = 3
# Mark of Sentencepiece at the beginning of a word.
WORD_START = "\u2581"


class NemoSettings(StrictModel):
    """Model, device and look-ahead."""

    model: str = Field(
        "stt_en_fastconformer_hybrid_large_streaming_multi",
        min_length=1,
        description="a .nemo file, or the name of a model that NeMo downloads",
    )
    device: str = Field("cpu", description="torch device: cpu, cuda or cuda:1")
    threads: int = Field(2, ge=1, le=64, description="threads of torch on the CPU")
    att_context_size: tuple[int, int] | None = Field(
        None,
        description="encoder frames of left and right context, a pair that the model was trained with: 80 "
        "ms of look-ahead per frame for most models; null: the model's own",
    )

    def check(self) -> None:
        """Check that a model given as a file exists, as ``core.files.Checked`` requires."""
        if self.model.endswith(".nemo") and not Path(self.model).is_file():
            raise ConfigError(f"{ENGINE!r} needs {self.model}, which does not exist")


class NemoStt:
    """Recogniser with shared weights. Opening and using streams is thread-safe, one stream is not.

    Args:
        settings: model, device and look-ahead.

    Raises:
        ConfigError: the model is not a streaming transducer, or was not trained with this look-ahead.
        EngineError: it does not load.
    """

    rate_hz = RATE_HZ

    def __init__(self, settings: NemoSettings) -> None:
        settings.check()
        # NeMo logs whole configurations otherwise.
        nemo_logging.setLevel(nemo_logging.ERROR)
        torch.set_num_threads(settings.threads)
        self._lock = threading.Lock()
        self._model = _load(settings)
        self._preprocessor = _preprocessor(self._model)
        encoder, config = self._model.encoder, self._model.cfg
        self.hop_samples = round(config.preprocessor.window_stride * RATE_HZ)
        self.half_window_samples = int(self._preprocessor.featurizer.n_fft) // 2
        self.frame_ms = round(config.preprocessor.window_stride * 1000 * encoder.subsampling_factor)
        self.chunks = _Chunks.of(encoder)
        self._warm_up()

    def open_stream(self) -> "NemoStream":
        """Return a stream for a new caller. Costs nothing until an utterance starts."""
        return NemoStream(self)

    def mel_frames(self, samples: torch.Tensor) -> torch.Tensor:
        """Convert float32, (samples,), to mel frames, (features, frames)."""
        audio = samples.unsqueeze(0).to(self._model.device)
        length = torch.tensor([audio.shape[1]], device=audio.device)
        with torch.inference_mode():
            frames, _ = self._preprocessor(input_signal=audio, length=length)
        features: torch.Tensor = frames[0]
        return features

    def begin(self) -> "Decoded":
        """Return the initial state of an utterance."""
        cache = self._model.encoder.get_initial_cache_state(batch_size=1)
        return Decoded(tuple(cache))

    def step(self, chunk: torch.Tensor, so_far: "Decoded", *, is_last: bool) -> None:
        """Decode a chunk of mel frames, (features, frames), and add the result to ``so_far``.

        The chunk includes the frames before it that the encoder's first layers read again.
        """
        channel, time, channel_length = so_far.cache
        with self._lock, torch.inference_mode():
            _, _, channel, time, channel_length, best = self._model.conformer_stream_step(
                processed_signal=chunk.unsqueeze(0),
                processed_signal_length=torch.tensor([chunk.shape[1]], device=chunk.device),
                cache_last_channel=channel,
                cache_last_time=time,
                cache_last_channel_len=channel_length,
                keep_all_outputs=is_last,
                previous_hypotheses=None if so_far.state is None else [_continued(so_far.state)],
                drop_extra_pre_encoded=0 if so_far.is_new else self.chunks.drop_pre_encoded,
                return_transcription=True,
            )
        so_far.cache = (channel, time, channel_length)
        so_far.is_new = False
        so_far.take(best[0])

    def _warm_up(self) -> None:
        """Process a second of silence, so that the first caller does not wait for torch's initialisation."""
        stream = self.open_stream()
        stream.start()
        stream.feed(bytes(RATE_HZ * PCM_BYTES_PER_SAMPLE))
        stream.finish()

    def pieces_of(self, tokens: Sequence[int]) -> list[str]:
        """Return the pieces of words that tokens represent."""
        pieces: list[str] = self._model.decoding.decode_ids_to_tokens(list(tokens))
        return pieces


@dataclass(slots=True)
class Decoded:
    """Decoding state of an utterance.

    Attributes:
        cache: cache of the encoder.
        state: state of the decoder.
        is_new: no chunk was taken yet.
        tokens: recognised tokens, with the encoder's frame of each and the confidence in it.
    """

    cache: tuple[torch.Tensor, ...]
    state: Any = None
    is_new: bool = True
    tokens: list[tuple[int, int, float]] = field(default_factory=list)

    def take(self, new: Hypothesis) -> None:
        """Add the result of one chunk."""
        self.state = new.dec_state
        tokens = torch.as_tensor(new.y_sequence).tolist()
        frames = torch.as_tensor(new.timestamp).tolist()
        shares = new.token_confidence or [1.0] * len(tokens)
        self.tokens += zip(tokens, frames, map(float, shares), strict=True)


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Sizes of an encoder's chunks, each for the first chunk and for later ones.

    Attributes:
        sizes: frames of a chunk.
        shifts: frames from one to the next.
        seen: frames before it that are repeated.
        least: fewer frames cannot be encoded.
        drop_pre_encoded: number of encoded frames from ``seen`` to drop.
    """

    sizes: tuple[int, int]
    shifts: tuple[int, int]
    seen: tuple[int, int]
    least: tuple[int, int]
    drop_pre_encoded: int

    @classmethod
    def of(cls, encoder: Any) -> "_Chunks":
        streaming = encoder.streaming_cfg
        sampling = encoder.pre_encode.get_sampling_frames()
        return cls(
            _pair(streaming.chunk_size),
            _pair(streaming.shift_size),
            _pair(streaming.pre_encode_cache_size),
            _pair(sampling),
            int(streaming.drop_extra_pre_encoded),
        )


class NemoStream:
    """Stream of one caller. Not thread-safe."""

    def __init__(self, engine: NemoStt) -> None:
        self._engine = engine
        # None outside an utterance.
        self._decoded: Decoded | None = None
        # Audio from the sample ``_audio_at`` on, which is ``CONTEXT_FRAMES`` before the next mel frame.
        self._audio = torch.zeros(0)
        self._audio_at = 0
        self._heard_samples = 0
        self._made_frames = 0
        # Mel frames from ``_frames_at`` on, of which those before ``_next`` were encoded.
        self._frames = torch.zeros(0)
        self._frames_at = 0
        self._next = 0
        self._partial = ""

    def start(self) -> None:
        """Begin an utterance. Discards an open one."""
        self._decoded = self._engine.begin()
        self._audio = torch.zeros(0)
        self._audio_at = self._heard_samples = self._made_frames = 0
        self._frames = torch.zeros(0)
        self._frames_at = self._next = 0
        self._partial = ""

    def feed(self, pcm: bytes) -> Transcript | None:
        """Take 16-bit mono PCM at 16 kHz; return a partial when a chunk changed the text.

        Raises:
            EngineError: outside an utterance, or a step failed.
            ShapeError: an odd number of bytes.
        """
        decoded = self._open()
        if len(pcm) % PCM_BYTES_PER_SAMPLE:
            raise ShapeError(f"{len(pcm)} bytes are not a whole number of 16-bit samples")
        self._audio = torch.cat((self._audio, torch.from_numpy(pcm16_to_float(pcm))))
        self._heard_samples += len(pcm) // PCM_BYTES_PER_SAMPLE
        if not self._read(decoded, is_last=False):
            return None
        text = " ".join(word.text for word in self._words(decoded))
        if text == self._partial:
            return None
        self._partial = text
        return Transcript(text)

    def finish(self) -> Transcript:
        """End the utterance; return its words with times and confidences.

        Raises:
            EngineError: outside an utterance, or a step failed.
        """
        decoded = self._open()
        try:
            self._read(decoded, is_last=True)
            words = self._words(decoded)
        finally:
            self.discard()
        confidence = sum(word.confidence for word in words) / len(words) if words else 0.0
        return Transcript(" ".join(word.text for word in words), words, confidence, final=True)

    def discard(self) -> None:
        """End the utterance without a transcript. Allowed outside one."""
        self._decoded = None

    def close(self) -> None:
        """Release the stream."""
        self.discard()

    def _open(self) -> Decoded:
        if self._decoded is None:
            raise EngineError("no utterance is open", engine=ENGINE, retryable=False)
        return self._decoded

    def _read(self, decoded: Decoded, *, is_last: bool) -> bool:
        """Encode and decode the audio so far; return whether a chunk was taken."""
        try:
            self._make_frames(is_last=is_last)
            return self._take_chunks(decoded, is_last=is_last)
        except Exception as error:  # torch's errors have no common base class
            raise EngineError(f"a decoding step failed: {type(error).__name__}", engine=ENGINE) from error

    def _make_frames(self, *, is_last: bool) -> None:
        """Compute the mel frames whose windows are full, or all remaining ones at the end."""
        engine = self._engine
        hop = engine.hop_samples
        until = self._heard_samples // hop if is_last else self._full_frames()
        # The last frame is that of the last whole hop; shorter audio has none.
        if until <= self._made_frames or (is_last and self._heard_samples < hop):
            return
        end = self._heard_samples if is_last else (until - 1) * hop + engine.half_window_samples
        made = engine.mel_frames(self._audio[: max(end, until * hop) - self._audio_at])
        first = self._audio_at // hop
        new = made[:, self._made_frames - first : until - first]
        self._frames = new if not self._frames.numel() else torch.cat((self._frames, new), dim=1)
        self._made_frames = until
        kept_from = max(0, until - CONTEXT_FRAMES) * hop
        self._audio = self._audio[kept_from - self._audio_at :]
        self._audio_at = kept_from

    def _full_frames(self) -> int:
        engine = self._engine
        result: int = max(0, (self._heard_samples - engine.half_window_samples) // engine.hop_samples)
        return result

    def _take_chunks(self, decoded: Decoded, *, is_last: bool) -> bool:
        chunks, taken = self._engine.chunks, False
        while True:
            later = int(self._next > 0)
            left = self._made_frames - self._next
            is_whole = left >= chunks.sizes[later] + (0 if is_last else 1)
            if not is_whole and not (is_last and left >= chunks.least[later]):
                return taken
            count = min(left, chunks.sizes[later])
            self._engine.step(
                self._chunk(count, chunks.seen[later]), decoded, is_last=is_last and count == left
            )
            taken = True
            self._next += chunks.shifts[later]
            self._forget(chunks.seen[1])

    def _chunk(self, count: int, seen: int) -> torch.Tensor:
        """Return the next frames with those before them; silence before the first one."""
        at = self._next - self._frames_at
        before = self._frames[:, max(0, at - seen) : at]
        missing = seen - before.shape[1]
        return torch.cat(
            (before.new_zeros(before.shape[0], missing), before, self._frames[:, at : at + count]), dim=1
        )

    def _forget(self, seen: int) -> None:
        kept_from = max(self._frames_at, min(self._next, self._made_frames) - seen)
        self._frames = self._frames[:, kept_from - self._frames_at :]
        self._frames_at = kept_from

    def _words(self, decoded: Decoded) -> tuple[WordTime, ...]:
        pieces = self._engine.pieces_of([token for token, _, _ in decoded.tokens])
        words = plain_words(
            words_of(
                [
                    (piece, frame, share)
                    for piece, (_, frame, share) in zip(pieces, decoded.tokens, strict=True)
                ],
                self._engine.frame_ms,
            )
        )
        return fit_words(words, samples_to_ms(self._heard_samples, RATE_HZ))


def words_of(pieces: Sequence[tuple[str, int, float]], frame_ms: int) -> list[WordTime]:
    """Return the words of pieces (text, frame of the encoder, confidence).

    A word lasts from the frame of its first piece to the end of the frame of its last one. The durations of
    the decoder are those of its next step, and not of the sound.
    """
    words: list[WordTime] = []
    parts: list[list[tuple[str, int, float]]] = []
    for piece in pieces:
        # A model of letters has a token of its own for a space between words.
        if not parts or piece[0].startswith((WORD_START, " ")):
            parts.append([])
        parts[-1].append(piece)
    for part in parts:
        text = "".join(piece.replace(WORD_START, " ") for piece, _, _ in part).strip()
        if text:
            share = sum(share for _, _, share in part) / len(part)
            words.append(
                WordTime(
                    text,
                    part[0][1] * frame_ms,
                    (part[-1][1] + 1) * frame_ms,
                    min(1.0, max(0.0, share)),
                )
            )
    return words


def _load(settings: NemoSettings) -> Any:
    try:
        if settings.model.endswith(".nemo"):
            model = ASRModel.restore_from(settings.model, map_location=settings.device)
        else:
            model = ASRModel.from_pretrained(settings.model, map_location=settings.device)
    except Exception as error:  # errors of torch, the hub and tar files have no common base class
        raise EngineError(
            f"{ENGINE}: cannot load {settings.model}: {type(error).__name__}: {error}",
            engine=ENGINE,
            retryable=False,
        ) from error
    if not isinstance(model, EncDecRNNTModel) or not isinstance(model.encoder, StreamingEncoder):
        raise ConfigError(f"{ENGINE!r}: {settings.model} is not a transducer with a streaming encoder")
    model.eval()
    model.freeze()
    _set_look_ahead(model, settings)
    _set_decoding(model)
    return model


def _set_look_ahead(model: Any, settings: NemoSettings) -> None:
    encoder = model.encoder
    if settings.att_context_size is not None:
        known = [tuple(size) for size in encoder.att_context_size_all]
        if settings.att_context_size not in known:
            sizes = ", ".join(str(list(size)) for size in known)
            raise ConfigError(
                f"{ENGINE!r}: {settings.model} was trained with an att_context_size of {sizes}, not "
                f"{list(settings.att_context_size)}"
            )
        encoder.set_default_att_context_size(list(settings.att_context_size))
    if encoder.streaming_cfg is None or settings.att_context_size is None:
        encoder.setup_streaming_params()
    if encoder.att_context_size[1] < 0 or not hasattr(encoder.pre_encode, "get_sampling_frames"):
        raise ConfigError(f"{ENGINE!r}: {settings.model} attends to the whole utterance and cannot stream")
    if str(model.cfg.preprocessor.normalize) not in ("NA", "None"):
        raise ConfigError(
            f"{ENGINE!r}: {settings.model} normalises its audio over the whole utterance and cannot stream"
        )


def _set_decoding(model: Any) -> None:
    """Configure greedy decoding, a chunk at a time, with the confidence in each token."""
    decoding = copy.deepcopy(model.cfg.decoding)
    with open_dict(decoding):
        decoding.strategy = "greedy_batch"
        decoding.fused_batch_size = -1
        decoding.compute_timestamps = False
        decoding.preserve_alignments = False
        # CUDA graphs are recorded for streams that step together; here each steps alone.
        decoding.greedy.use_cuda_graph_decoder = False
        decoding.greedy.loop_labels = True
        decoding.confidence_cfg = confidences(words=False)
    change_decoding(model, decoding)


def _preprocessor(model: Any) -> Any:
    """Return the model's preprocessor, without options that change the frames of a piece."""
    config = copy.deepcopy(model.cfg.preprocessor)
    with open_dict(config):
        config.dither = 0.0
        config.pad_to = 0
    return model.from_config_dict(config).to(model.device).eval()


def _continued(state: Any) -> Hypothesis:
    """Return the hypothesis that a chunk continues: the decoder's state alone. The stream keeps the
    tokens.
    """
    nothing = torch.zeros(0, dtype=torch.long)
    return Hypothesis(score=0.0, y_sequence=nothing, timestamp=nothing, dec_state=state)


def _pair(value: Any) -> tuple[int, int]:
    first, later = value if isinstance(value, Sequence) else (value, value)
    return int(first), int(later)
