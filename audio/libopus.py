"""libopus, called directly: the library inside PyAV's wheel, or else the system's."""

import ctypes
import ctypes.util
from functools import cache
from pathlib import Path

import av


@cache
def library_of_opus() -> ctypes.PyDLL | None:
    """Return the library; None when it is not here."""
    folder = Path(av.__file__).parent
    bundled = [*folder.with_name("av.libs").glob("libopus*.so*"), *folder.glob(".dylibs/libopus*.dylib")]
    for path in (*map(str, bundled), ctypes.util.find_library("opus")):
        if path is None:
            continue
        try:
            # Unlike CDLL it keeps the interpreter lock: these calls take 20 us, and to get the lock back
            # from a busy thread takes 5 ms.
            library = ctypes.PyDLL(path)
            _declare(library)
        except (OSError, AttributeError):
            continue
        return library
    return None


def is_available() -> bool:
    """Return whether libopus can be called."""
    return library_of_opus() is not None


def _declare(library: ctypes.PyDLL) -> None:
    """Declare the arguments of the functions that are called.

    Raises:
        AttributeError: the library has no such function.
    """
    address, data, whole, long = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int32
    library.opus_decode.argtypes = (address, data, long, address, whole, whole)
    library.opus_decoder_init.argtypes = (address, long, whole)
    library.opus_encode.argtypes = (address, data, whole, address, long)
    library.opus_encoder_init.argtypes = (address, long, whole, whole)
    # The value of a setting follows as a variable argument.
    library.opus_encoder_ctl.argtypes = (address, whole)
