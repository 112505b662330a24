"""The product without one of its techniques for low latency, to measure the effect of that technique.

``write`` makes the deployment of a measurement: the given one with some techniques switched off, each by its
public setting.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from parley.configs.load import load_deployment

ADMISSION = "admission"
IDLE_PROMPTS = "idle-prompts"
# Techniques to switch off when a server's limit is measured. One is the admission bound that keeps it below
# its limit. The other is the bot's question into a caller's long silence, which a recording cannot
# distinguish from a stalled reply.
CAPACITY_WITHOUT = (ADMISSION, IDLE_PROMPTS)
# Technique to the setting that switches it off: the path in the deployment, and its value.
TECHNIQUES: Mapping[str, tuple[tuple[str, ...], Any]] = MappingProxyType(
    {
        "speculation": (("thinking", "speculation", "on"), "off"),
        "speculation-on-partials": (("thinking", "speculation", "on"), "finals"),
        "masking": (("thinking", "guard", "waiting", "masking"), None),
        "barge-in": (("hearing", "barge_in"), None),
        IDLE_PROMPTS: (("bot", "idle"), None),
        "completeness": (("hearing", "turn"), None),
        "adaptive-wait": (("hearing", "endpoint", "kind"), "timer"),
        ADMISSION: (("server", "admission"), "off"),
        "specialists": (("hearing", "specialists"), []),
    }
)


def write(config: Path, without: Sequence[str], path: Path) -> Path:
    """Write the deployment of ``config`` without these techniques to ``path``, folders absolute.

    Raises:
        ConfigError: ``config`` is not a deployment.
        KeyError: a technique is not among ``TECHNIQUES``.
    """
    # Unset values stay unset, so that the recogniser's own figures replace them.
    settings = load_deployment(config).model_dump(mode="json", exclude_unset=True)
    # The URL may come from the environment with a password in it, and the measured server gets another one.
    settings.get("remembering", {}).get("store", {}).pop("url", None)
    for name in without:
        way, value = TECHNIQUES[name]
        part = settings
        for step in way[:-1]:
            part = part.setdefault(step, {})
        part[way[-1]] = value
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path
