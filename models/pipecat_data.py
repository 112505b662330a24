"""Paths of the data files in the Pipecat wheel.

The wheel carries the weights of the voice-activity and turn models. They are read by path, so that loading an
engine does not import Pipecat (0.9 s, and a child process does not need it).
"""

from importlib.util import find_spec
from pathlib import Path

from parley.core.errors import ConfigError


def pipecat_file(*parts: str) -> Path:
    """Return the absolute path of a file inside the installed ``pipecat`` package, without importing it.

    Raises:
        ConfigError: Pipecat is not installed, or this version does not carry the file.
    """
    spec = find_spec("pipecat")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("the package pipecat-ai is not installed")
    path = Path(spec.submodule_search_locations[0]).joinpath(*parts)
    if not path.is_file():
        raise ConfigError(f"this version of pipecat-ai does not contain {'/'.join(parts)}")
    return path
