"""Measured costs of a call, each with its source. ``python -m evals.plan measure`` writes the file.

A cost is time of one device (a processor core, or a GPU) for one piece of work. The committed file has those
of a small random model on a core, which show the ratios and check the arithmetic; a plan for a GPU needs the
file of a run with its model on it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from parley.core.errors import ConfigError
from parley.core.strict_model import StrictModel

COMMITTED = Path(__file__).with_name("costs.json")


class Figure(StrictModel):
    """Measured figure."""

    value: float = Field(ge=0, description="the figure")
    unit: str = Field(min_length=1, description="its unit")
    source: str = Field(min_length=1, description="command or document that it comes from")


class Costs(StrictModel):
    """Costs of one engine's calls."""

    device: str = Field(min_length=1, description="device that the times are of")
    generate_frame_ms: Figure = Field(description="device time of the large model for a frame that it speaks")
    read_frame_ms: Figure = Field(
        description="device time of the large model for a frame that it reads later"
    )
    controller_frame_ms: Figure = Field(description="device time of the small model for a frame")
    frame_ms: Figure = Field(description="length of a frame")
    gateway_cores: Figure = Field(description="cores of a call outside of the model")

    def figures(self) -> Mapping[str, Figure]:
        """Return the figures by name."""
        return {
            name: value
            for name in type(self).model_fields
            if isinstance(value := getattr(self, name), Figure)
        }


def read_costs(path: Path) -> Costs:
    """Read a file of costs.

    Raises:
        ConfigError: it does not exist, or is not one.
    """
    try:
        return Costs.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(
            f"--costs {path}: {error.strerror}; `python -m evals.plan measure` writes one"
        ) from error
    except (json.JSONDecodeError, ValidationError) as error:
        raise ConfigError(f"--costs {path}: not a file of costs: {error}") from error


def write_costs(path: Path, costs: Costs) -> None:
    """Write a file of costs."""
    values: dict[str, Any] = costs.model_dump()
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
