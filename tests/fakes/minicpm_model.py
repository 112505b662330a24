"""A model directory like that on the hub: a configuration, its own code, and a few bytes of weights.

With ``trust_remote_code``, ``AutoModel.from_pretrained`` loads a real transformers model from it. The duplex
object of that model is the stand-in.
"""

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.fakes import minicpm_duplex

CODE = '''
import torch
from transformers import PretrainedConfig, PreTrainedModel

from .minicpm_duplex import HubDuplex, StandInDuplex


class StandInConfig(PretrainedConfig):
    model_type = "minicpmo_stand_in"

    def __init__(self, edition="hub", init_vision=True, **kwargs):
        self.edition, self.init_vision = edition, init_vision
        super().__init__(**kwargs)


class Owner:
    """What every edition has: the weights, and the state between conversations."""

    def made(self, kind, device, config):
        duplex = kind(device=device, **config)
        duplex.model = self
        duplex.tts_temperature = torch.tensor([config["tts_temperature"]])
        weight = self.weight
        duplex.told_of_weights = f"{weight.dtype} {weight.device} {self.config._attn_implementation}"
        duplex._init_vision = self.config.init_vision
        prepare = duplex.prepare

        def prepare_and_record(**kwargs):
            result = prepare(**kwargs)
            duplex.received |= {"weights": duplex.told_of_weights, "init_vision": duplex._init_vision}
            duplex.received |= {"model_resets": self.resets}
            return result

        prepare_and_record.__signature__ = __import__("inspect").signature(prepare)
        duplex.prepare = prepare_and_record
        speech = duplex._speech
        # A tensor, as a model gives it.
        duplex._speech = lambda ends: torch.from_numpy(speech(ends))
        return duplex

    def reset_session(self, reset_token2wav_cache=True):
        self.resets += 1


class StandIn(Owner, PreTrainedModel):
    config_class = StandInConfig
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        self.weight = torch.nn.Parameter(torch.zeros(4))
        self.resets = 0
        if config.edition == "server":
            self.init_unified = self.unified
        if config.edition == "hub":
            self.as_duplex = self.duplexed
        self.post_init()

    def unified(self, pt_path=None, preload_both_tts=True, duplex_config=None, device="cuda"):
        self.duplex = self.made(StandInDuplex, device, duplex_config)

    def duplexed(self, device=None, **kwargs):
        return self.made(HubDuplex, device, kwargs)

    def _init_weights(self, module):
        pass
'''


def write_model(folder: Path, *, edition: str) -> Path:
    """Write a model directory of an edition: ``hub``, ``server``, or one without a duplex mode."""
    folder.mkdir()
    shutil.copy(minicpm_duplex.__file__, folder / "minicpm_duplex.py")
    (folder / "modeling_stand_in.py").write_text(CODE)
    config = {
        "architectures": ["StandIn"],
        "model_type": "minicpmo_stand_in",
        "edition": edition,
        "auto_map": {
            "AutoConfig": "modeling_stand_in.StandInConfig",
            "AutoModel": "modeling_stand_in.StandIn",
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"weight": np.ones(4, np.float32)}, folder / "model.safetensors", {"format": "pt"})
    return folder
