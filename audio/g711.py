"""G.711: 8-bit companded speech at 8 kHz, as used by telephone networks (ITU-T G.711 (11/1988)).

Both laws use tables in both directions. Encoding rounds to the nearest value that the law has, so that
encoding again what was decoded loses nothing.
"""

from enum import Enum

import numpy as np

from parley.core.errors import ShapeError


class Law(Enum):
    """Companding law."""

    MU = "mu"
    A = "a"


def _mu_values() -> np.ndarray:
    """Return the 16-bit value of each code word (G.711, table 2a and 2b, shifted to 16 bits)."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    exponent, mantissa = (code >> 4) & 7, code & 15
    magnitude = ((2 * mantissa + 33) << (exponent + 2)) - 132
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _a_values() -> np.ndarray:
    """Return the 16-bit value of each code word (G.711, table 1a and 1b, shifted to 16 bits)."""
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent, mantissa = (code >> 4) & 7, code & 15
    linear = (2 * mantissa + 1) << 3
    magnitude = np.where(exponent == 0, linear, (linear + 0x100) << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


def _codes(values: np.ndarray) -> np.ndarray:
    """Return the code word of the nearest value, for each 16-bit sample from -32768."""
    order = np.argsort(values, kind="stable")
    edges = values[order].astype(np.int32)
    middles = (edges[1:] + edges[:-1]) // 2
    samples = np.arange(-32_768, 32_768)
    codes = order[np.searchsorted(middles, samples, side="left")].astype(np.uint8)
    # The mu-law has two zeros; silence is the positive one, as on telephone lines.
    zeros = np.flatnonzero(values == 0)
    if len(zeros):
        codes[(samples >= 0) & (values[codes] == 0)] = zeros[-1]
    return codes


_VALUES = {Law.MU: _mu_values(), Law.A: _a_values()}
_CODES = {law: _codes(values) for law, values in _VALUES.items()}


def decode(data: bytes, law: Law) -> np.ndarray:
    """Return int16, (samples,), one for each code word."""
    return _VALUES[law][np.frombuffer(data, np.uint8)]


def encode(samples: np.ndarray, law: Law) -> bytes:
    """Return a code word for each sample of int16, (samples,).

    Raises:
        ShapeError: another shape or dtype.
    """
    if samples.ndim != 1 or samples.dtype != np.int16:
        raise ShapeError(f"expected int16, (samples,), got {samples.dtype}, {samples.shape}")
    return _CODES[law][samples.astype(np.int32) + 32_768].tobytes()
