"""The product without one of the things that make it quick, to see what that thing is worth.

``write`` makes the deployment of a measurement: the given one with some techniques switched off, each by the
setting that anybody would use.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from configs.load import load_deployment

ADMISSION = "admission"
IDLE_PROMPTS = "idle-prompts"
# What a server has to be without whose limit is looked for: the bound that keeps it from its limit, and a
# question of the bot into a caller's long silence, which a recording cannot tell from a reply that stalled.
CAPACITY_WITHOUT = (ADMISSION, IDLE_PROMPTS)
# Technique to the setting that switches it off: the way to it in the deployment, and its value.
TECHNIQUES: Mapping[str, tuple[tuple[str, ...], Any]] = MappingProxyType(
    {
        "speculation": (("thinking", "speculation", "on"), "off"),
        "speculation-on-partials": (("thinking", "speculation", "on"), "finals"),
        "arrival": (("server", "jitter_buffer"), True),
        "masking": (("thinking", "guard", "waiting", "masking"), None),
        "barge-in": (("hearing", "barge_in"), None),
        IDLE_PROMPTS: (("bot", "idle"), None),
        "completeness": (("hearing", "turn"), None),
        "adaptive-wait": (("hearing", "endpoint", "kind"), "timer"),
        ADMISSION: (("server", "admission"), "off"),
    }
)


def write(config: Path, without: Sequence[str], path: Path) -> Path:
    """Write the deployment of ``config`` without these techniques to ``path``, folders absolute.

    Raises:
        ConfigError: ``config`` is not a deployment.
        KeyError: a technique is not among ``TECHNIQUES``.
    """
    # What the deployment leaves out stays so: a recogniser's figures take the place of that.
    settings = load_deployment(config).model_dump(mode="json", exclude_unset=True)
    # It may come from the environment with a password in it, and the measured server is given another one.
    settings.get("remembering", {}).get("store", {}).pop("url", None)
    for name in without:
        way, value = TECHNIQUES[name]
        part = settings
        for step in way[:-1]:
            part = part.setdefault(step, {})
        part[way[-1]] = value
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path
