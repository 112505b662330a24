"""The worker of MiniCPM-o with a stand-in for its model. It needs no torch, so it starts at once.

The setting ``model`` selects the stand-in: ``server`` and ``hub`` are the editions of the model's code; other
values fail to load.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any

from parley.models.omni.minicpm_o.binding import DuplexBinding
from parley.models.omni.minicpm_o.worker import main
from tests.fakes.minicpm_duplex import ColdDuplex, HubDuplex, StandInDuplex


def load(facts: Mapping[str, Any]) -> DuplexBinding:
    """Return the stand-in that the settings select."""
    match facts["model"]:
        case "server":
            duplex = StandInDuplex(**facts["duplex"])
        case "hub":
            duplex = HubDuplex(**facts["duplex"])
        case "cold":
            duplex = ColdDuplex(**facts["duplex"])
        case "no package":
            raise ModuleNotFoundError("No module named 'stepaudio2'")
        case "hangs":
            time.sleep(60)
        case "no duplex":
            duplex = object()
        case name:
            raise OSError(f"{name} is no directory")
    return DuplexBinding(duplex, has_voice=facts["duplex"]["generate_audio"])


if __name__ == "__main__":
    main(sys.argv[1:], load)
