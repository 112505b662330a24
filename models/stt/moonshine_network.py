"""Moonshine's encoder and decoder in ONNX Runtime: audio of one line to tokens with probabilities.

Reads the three files of a non-streaming Moonshine model (``encoder_model.ort``, ``decoder_model_merged.ort``,
``tokenizer.bin``) without the ``moonshine-voice`` library. That library keeps the state of one line for the
whole process, decodes the open line from its first word for each partial and reports no probabilities. It
takes 0.08 s of processor time per second of audio where this takes 0.017, and 0.64 with a partial every 300
ms.

The encoder reads the whole line (6 ms per second of audio). The decoder is autoregressive (2.4 ms per token),
so a pass starts with a draft, the tokens of the previous pass. One run of the decoder scores all of them, and
the search continues from the first token that this longer audio contradicts. The result is the greedy one,
apart from rounding: the weights are 8-bit and activations are quantised per run.

A greedy decoder can repeat itself without end. A phrase that comes ``LOOP_COPIES`` times in a row, or a word
``WORD_COPIES`` times, ends the line with its first copy. A line has no more than ``TOKENS_PER_S`` tokens per
second of audio.

Recordings are decoded in padded batches (``decode_batch``): one run of the decoder takes a token of every
line. Eight lines at a time take 0.011 s of processor time per second of audio where lines alone take 0.015.
Activations are quantised per run, so a line's text may depend on the lines it shares a batch with.

``models.stt.moonshine_tiny`` decides when to read and what to keep.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime

from parley.core.errors import EngineError

ENGINE = "moonshine_tiny"
RATE_HZ = 16_000
ENCODER_FILE = "encoder_model.ort"
DECODER_FILE = "decoder_model_merged.ort"
TOKENIZER_FILE = "tokenizer.bin"
LAYERS, HEADS, HEAD_DIM = 6, 8, 36
BEGIN, END = 1, 2
SPACE = "\u2581"
# Shorter audio gives the encoder's convolutions no frame.
LEAST_SAMPLES = 1_600
# The authors' limit for English (arXiv 2410.15608), and some for a short line.
TOKENS_PER_S = 6.5
SPARE_TOKENS = 8
# Repetitions in real speech: "no" or a digit four times in a row, "what, what, what, what is" when a caller
# stutters, a longer phrase twice at most.
LOOP_COPIES = 3
WORD_COPIES = 6
# Number of tokens of a word with its comma.
WORD_TOKENS = 2
LONGEST_LOOP = 24
# Longest audio of one pass.
MOST_SAMPLES = 40 * RATE_HZ


@dataclass(frozen=True, slots=True)
class DecodedLine:
    """Tokens of a line, without marks of its beginning and end.

    Attributes:
        tokens: token ids of the tokenizer.
    """

    tokens: tuple[int, ...]
    # Rows of the decoder's output, one before each token and one before the end: (count, vocabulary) each.
    _scores: tuple[np.ndarray, ...] = field(repr=False, compare=False)
    # Inputs of the decoder's next run, for another search: 0.6 MB per second of audio.
    _state: dict[str, np.ndarray] = field(repr=False, compare=False)
    _most_tokens: int = field(repr=False, compare=False)

    def probabilities(self) -> list[float]:
        """Return the probability of each token. Takes 0.1 ms per token, so it is meant for reported lines
        only.
        """
        chosen: list[float] = []
        for rows in self._scores:
            tokens = self.tokens[len(chosen) : len(chosen) + len(rows)]
            chosen.extend(np.exp(log_softmax(rows[: len(tokens)])[range(len(tokens)), tokens]).tolist())
        return chosen

    def row(self, place: int) -> np.ndarray:
        """Return the scores before a token, or before the end of the line: float32, (vocabulary,)."""
        for rows in self._scores:
            if place < len(rows):
                break
            place -= len(rows)
        found: np.ndarray = rows[place]
        return found

    def log_likelihood(self, start: int) -> float:
        """Return the logarithm of the probability of the tokens from a place on, with the end of the line."""
        rows = np.stack([self.row(place) for place in range(start, len(self.tokens) + 1)])
        return float(log_softmax(rows)[range(len(rows)), (*self.tokens[start:], END)].sum())


# Takes the rows of scores before the newest tokens of a line, and these; returns whether the search goes on.
GoesOn = Callable[[np.ndarray, Sequence[int]], bool]


def _always(rows: np.ndarray, tokens: Sequence[int]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """Tokens of a line of a batch.

    Attributes:
        tokens: token ids of the tokenizer, without marks of the line's beginning and end.
        probabilities: probability of each token.
    """

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]


class MoonshineNetwork:
    """Network with shared weights. Thread-safe.

    Args:
        folder: holds the three files.
        threads: threads of one pass.

    Attributes:
        sha256: digest of the encoder's file, hexadecimal; identifies it for models fitted on its states.

    Raises:
        EngineError: the files are not a Moonshine model of this size.
    """

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # A thread that waits for work by spinning would occupy the core that paces audio.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._encoder, self._decoder = (
                onnxruntime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
                for name in (ENCODER_FILE, DECODER_FILE)
            )
            self._pieces = read_tokenizer((folder / TOKENIZER_FILE).read_bytes())
            self._token_of = {piece: token for token, piece in reversed(list(enumerate(self._pieces)))}
            self.sha256 = hashlib.sha256((folder / ENCODER_FILE).read_bytes()).hexdigest()
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError(
                f"cannot load moonshine from {folder}: {error}", engine=ENGINE, retryable=False
            ) from error
        names = [output.name for output in self._decoder.get_outputs()]
        self._first_outputs = names
        # Keys and values of the encoder's output do not change after the first run.
        self._step_outputs = [name for name in names if ".encoder." not in name]
        self._ones = np.ones((1, MOST_SAMPLES), np.int64)

    def decode(self, samples: np.ndarray, draft: Sequence[int] = ()) -> DecodedLine:
        """Decode a line.

        Args:
            samples: float32, (samples,), 16 kHz, in [-1, 1].
            draft: tokens that the line probably begins with; costs less than finding them anew.

        Raises:
            EngineError: the network failed.
        """
        samples = _bounded(samples)
        most = _most_tokens(samples)
        try:
            return self._search(self._encode(samples), list(draft[:most]), most)
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError(f"a decoding pass failed: {type(error).__name__}", engine=ENGINE) from error

    def decode_batch(self, lines: Sequence[np.ndarray]) -> list[ScoredLine]:
        """Decode lines together. They are padded to the longest, so lines of similar length are cheap.

        Args:
            lines: float32, (samples,) each, 16 kHz, in [-1, 1].

        Raises:
            EngineError: the network failed.
        """
        if not lines:
            return []
        bounded = [_bounded(samples) for samples in lines]
        most = [_most_tokens(samples) for samples in bounded]
        try:
            encoded, mask = self._encode_batch(bounded)
            return self._search_batch(encoded, mask, most)
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError(f"a decoding pass failed: {type(error).__name__}", engine=ENGINE) from error

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Return the encoder's states: float32, (states, 288), one for each 24 ms; ``samples`` as for
        ``decode``.

        Raises:
            EngineError: the network failed.
        """
        try:
            states: np.ndarray = self._encode(_bounded(samples))[0]
            return states
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError(f"the encoder failed: {type(error).__name__}", engine=ENGINE) from error

    def search_again(
        self, line: DecodedLine, start: int, draft: Sequence[int], *, kept: int, goes_on: GoesOn
    ) -> DecodedLine | None:
        """Decode the rest of a line again.

        Args:
            line: the audio, and the tokens before ``start``.
            start: number of tokens of the line that stay.
            draft: the tokens after them, at least one.
            kept: number of tokens of the draft that are taken whatever their scores; the others are checked
                as in ``decode``.
            goes_on: asked before each further run of the decoder.

        Returns:
            The line; None when ``goes_on`` ended the search before the line was over.

        Raises:
            EngineError: the network failed.
        """
        draft = list(draft[: max(kept, line._most_tokens - start)])
        try:
            rows, feeds = self._run_after(line, start, draft)
            rows = np.concatenate([line.row(start)[None], rows])
            before = [line.row(place)[None] for place in range(start)]
            settled, most = list(line.tokens[:start]), line._most_tokens
            return self._settled(settled, before, rows, feeds, draft, most, kept, goes_on)
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError(f"a decoding pass failed: {type(error).__name__}", engine=ENGINE) from error

    def row_after(self, line: DecodedLine, start: int, tokens: Sequence[int]) -> np.ndarray:
        """Return the scores after ``tokens`` in the place of those from ``start`` on: float32, (vocabulary,).

        Raises:
            EngineError: the network failed.
        """
        try:
            row: np.ndarray = self._run_after(line, start, tokens)[0][-1]
            return row
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError(f"a decoding pass failed: {type(error).__name__}", engine=ENGINE) from error

    def _run_after(
        self, line: DecodedLine, start: int, tokens: Sequence[int]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Run the decoder on tokens after a beginning of a line, which it has read before.

        Returns:
            The scores after each token, and the inputs of the next run.
        """
        feeds = {
            # The mark of the beginning comes before the first token.
            name: value[:, :, : start + 1] if ".decoder." in name else value
            for name, value in line._state.items()
        }
        feeds["input_ids"] = np.array([tokens], np.int64)
        outputs = dict(zip(self._step_outputs, self._decoder.run(self._step_outputs, feeds), strict=True))
        rows: np.ndarray = outputs.pop("logits")[0]
        return rows, feeds | {_past(name): value for name, value in outputs.items()}

    def tokens(self, text: str) -> tuple[int, ...]:
        """Return the tokens of words with a space before the first; empty where there are none for them.

        The tokenizer's file has no rules of its own: as in every byte-pair encoding, the pair of pieces that
        was learned first is merged first, and the pieces are in the order in which they were learned.
        """
        parts = [letter.encode() for letter in SPACE + text.replace(" ", SPACE)]
        while len(parts) > 1:
            merged = (self._token_of.get(one + other) for one, other in pairwise(parts))
            found = [(token, place) for place, token in enumerate(merged) if token is not None]
            if not found:
                break
            _, place = min(found)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        known = [self._token_of.get(part) for part in parts]
        return tuple(token for token in known if token is not None) if None not in known else ()

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        written = b"".join(self._pieces[token] for token in tokens).decode("utf-8", errors="ignore")
        return written.replace(SPACE, " ").strip()

    def begins_word(self, token: int) -> bool:
        """Return True when a token starts with a space."""
        return self._pieces[token].startswith(SPACE.encode())

    def _encode(self, samples: np.ndarray) -> np.ndarray:
        mask = self._ones[:, : len(samples)]
        encoded: np.ndarray = self._encoder.run(
            None, {"input_values": samples[None].astype(np.float32, copy=False), "attention_mask": mask}
        )[0]
        return encoded

    def _search(self, encoded: np.ndarray, draft: list[int], most: int) -> DecodedLine:
        # One element of the mask is valid for all frames.
        feeds = _first_feeds(encoded, self._ones[:, :1], np.array([[BEGIN, *draft]], np.int64))
        outputs = dict(zip(self._first_outputs, self._decoder.run(None, feeds), strict=True))
        rows = outputs.pop("logits")[0]
        feeds |= {_past(name): value for name, value in outputs.items()}
        feeds["use_cache_branch"] = np.array([True])
        line = self._settled([], [], rows, feeds, draft, most, 0, _always)
        assert line is not None
        return line

    def _settled(
        self,
        tokens: list[int],
        scores: list[np.ndarray],
        rows: np.ndarray,
        feeds: dict[str, np.ndarray],
        draft: list[int],
        most: int,
        kept: int,
        goes_on: GoesOn,
    ) -> DecodedLine | None:
        """Return the line that begins with ``tokens`` and as much of the draft as the scores confirm.

        Args:
            tokens: first tokens of the line.
            scores: rows before each of them.
            rows: rows before each token of the draft, and after the last.
            feeds: inputs of the decoder's next run, with the state of tokens and draft.
            draft: the tokens that probably follow.
            most: greatest number of tokens.
            kept: number of tokens of the draft that are taken whatever their scores.
            goes_on: asked before each further run.

        Returns:
            The line; None when ``goes_on`` ended the search.
        """
        best = rows.argmax(axis=1)
        while kept < len(draft) and best[kept] == draft[kept]:
            kept += 1
        tokens = [*tokens, *draft[:kept]]
        scores = [*scores, rows[: kept + 1]]
        following = int(best[kept])
        for name, value in feeds.items():
            if ".decoder." in name:
                # Remove the state that was computed for the rejected part of the draft.
                feeds[name] = value[:, :, : len(tokens) + 1]
        if not goes_on(rows[:kept], draft[:kept]):
            return None
        while following != END and len(tokens) < most:
            tokens.append(following)
            if not goes_on(scores[-1][-1:], tokens[-1:]):
                return None
            if copies := looping(tokens):
                tokens = tokens[: len(tokens) - copies]
                break
            feeds["input_ids"] = np.array([[following]], np.int64)
            step = dict(zip(self._step_outputs, self._decoder.run(self._step_outputs, feeds), strict=True))
            row = step.pop("logits")[0]
            scores.append(row)
            following = int(row[-1].argmax())
            for name, value in step.items():
                feeds[_past(name)] = value
        return DecodedLine(tuple(tokens), tuple(scores), feeds, most)

    def _encode_batch(self, lines: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the encoder's states of padded lines, and the mask of their samples."""
        longest = max(map(len, lines))
        padded = np.zeros((len(lines), longest), np.float32)
        mask = np.zeros((len(lines), longest), np.int64)
        for row, samples in enumerate(lines):
            padded[row, : len(samples)] = samples
            mask[row, : len(samples)] = 1
        encoded: np.ndarray = self._encoder.run(None, {"input_values": padded, "attention_mask": mask})[0]
        return encoded, mask

    def _search_batch(self, encoded: np.ndarray, mask: np.ndarray, most: Sequence[int]) -> list[ScoredLine]:
        feeds = _first_feeds(encoded, mask, np.full((len(most), 1), BEGIN, np.int64))
        names = self._first_outputs
        tokens: list[list[int]] = [[] for _ in most]
        chosen: list[list[float]] = [[] for _ in most]
        # Lines that are not at their end, in the order of the rows.
        open_lines = list(range(len(most)))
        while open_lines:
            outputs = dict(zip(names, self._decoder.run(names, feeds), strict=True))
            rows = outputs.pop("logits")[:, -1]
            for name, value in outputs.items():
                feeds[_past(name)] = value
            best = rows.argmax(axis=1)
            probabilities = 1.0 / np.exp(rows - rows.max(axis=1, keepdims=True)).sum(axis=1)
            kept: list[int] = []
            for row, line in enumerate(open_lines):
                following = int(best[row])
                if following == END or len(tokens[line]) >= most[line]:
                    continue
                tokens[line].append(following)
                chosen[line].append(float(probabilities[row]))
                if copies := looping(tokens[line]):
                    del tokens[line][-copies:], chosen[line][-copies:]
                    continue
                kept.append(row)
            if len(kept) < len(open_lines):
                open_lines = [open_lines[row] for row in kept]
                best = best[kept]
                for name in feeds:
                    if name != "use_cache_branch":
                        feeds[name] = feeds[name][kept]
            feeds["input_ids"] = best[:, None].astype(np.int64)
            feeds["use_cache_branch"] = np.array([True])
            names = self._step_outputs
        return [ScoredLine(tuple(ids), tuple(scores)) for ids, scores in zip(tokens, chosen, strict=True)]


def log_softmax(rows: np.ndarray) -> np.ndarray:
    """Return the logarithms of the probabilities of scores: float32, (count, vocabulary)."""
    rows = rows - rows.max(axis=1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return rows


def _past(name: str) -> str:
    """Return the input of the next run for an output of the decoder's state."""
    return name.replace("present", "past_key_values")


def _first_feeds(encoded: np.ndarray, mask: np.ndarray, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs of the decoder's first run, which has no keys and values yet."""
    feeds = {
        "encoder_attention_mask": mask,
        "encoder_hidden_states": encoded,
        "input_ids": tokens,
        "use_cache_branch": np.array([False]),
    }
    for layer in range(LAYERS):
        for part, length in (("decoder", 0), ("encoder", encoded.shape[1])):
            for kind in ("key", "value"):
                nothing = np.zeros((len(encoded), HEADS, length, HEAD_DIM), np.float32)
                feeds[f"past_key_values.{layer}.{part}.{kind}"] = nothing
    return feeds


def _most_tokens(samples: np.ndarray) -> int:
    return int(len(samples) / RATE_HZ * TOKENS_PER_S) + SPARE_TOKENS


def _bounded(samples: np.ndarray) -> np.ndarray:
    """Return the audio for the network: a short line padded with silence, the end of a long one."""
    if len(samples) < LEAST_SAMPLES:
        samples = np.pad(samples, (0, LEAST_SAMPLES - len(samples)))
    return samples[-MOST_SAMPLES:]


def looping(tokens: Sequence[int]) -> int:
    """Return the number of tokens at the end that only repeat the tokens before them; 0 for none."""
    count = len(tokens)
    for period in range(1, min(LONGEST_LOOP, count // LOOP_COPIES) + 1):
        copies = WORD_COPIES if period <= WORD_TOKENS else LOOP_COPIES
        span = period * copies
        if span <= count and all(
            tokens[-place] == tokens[-place - period] for place in range(1, span - period + 1)
        ):
            return span - period
    return 0


def read_tokenizer(data: bytes) -> list[bytes]:
    """Return the pieces of Moonshine's ``tokenizer.bin``: each a length and its bytes.

    Lengths below 128 take one byte, longer ones two, the low seven bits first.

    Raises:
        ValueError: the file ends inside a piece.
    """
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        length = data[at]
        at += 1
        if length >= 128:
            if at >= len(data):
                raise ValueError("the tokenizer file is truncated")
            length += data[at] * 128 - 128
            at += 1
        if at + length > len(data):
            raise ValueError("the tokenizer file is truncated")
        pieces.append(data[at : at + length])
        at += length
    return pieces
