"""A duplex object with the interface of MiniCPM-o's that needs no weights.

It imports numpy only: the tests copy this file into a model directory, whose code imports it. After audible
input it speaks a turn of three units. Faults are requested in the prompt: ``"{nan 3}"`` gives NaN in the
third unit that is generated.
"""

import json
import os
import re
import threading
import time

import numpy as np

IN_HZ, OUT_HZ = 16_000, 24_000
TURN_UNITS = 3
LISTEN_TOKENS, SPEAK_TOKENS, TILE_TOKENS = 13, 32, 66
TELL = "tell me your settings"


class Decoder:
    """Stand-in for the decoder, with the length of the context."""

    def __init__(self, window):
        self.window = dict(window)
        self.tokens = 0

    def reset(self):
        self.tokens = 0

    def get_cache_length(self):
        return self.tokens

    def embed_token(self, token_id):
        return np.zeros((1, 4), np.float32)

    def feed(self, embeds, return_logits=False):
        self.tokens += len(embeds)

    def enforce_window(self):
        basic = self.window.get("sliding_window_mode", "off") == "basic"
        if basic and self.tokens > self.window["basic_window_high_tokens"]:
            self.tokens = self.window["basic_window_low_tokens"]


class StandInDuplex:
    """The duplex object of the server's copy of the model's code."""

    turn_eos_token_id = 151717

    def __init__(self, device="cpu", **config):
        self.device = device
        self.config = config
        self.generate_audio = config.get("generate_audio", True)
        self.ls_mode = config.get("ls_mode", "explicit")
        self.force_listen_count = config.get("force_listen_count", 0)
        self.tts_temperature = np.array([config.get("tts_temperature", 0.8)])
        self.CHUNK_MS = config.get("chunk_ms", 1000)
        self.FIRST_CHUNK_MS = config.get("first_chunk_ms", 1035)
        self.decoder = Decoder(config)
        self.session_stop_event = threading.Event()
        self.sessions = 0
        self._reset_streaming_state()

    # Attributes that the model's code has under the same names.

    def _reset_streaming_state(self):
        self.audio_buffer = np.zeros(0, np.float32)
        self.audio_chunk_idx = 0
        self.current_turn_ended = True
        self.pending_logits = None
        self.tts_text_start_pos = 0
        self.tts_past_key_values = None
        self.tts_current_turn_start_time = None
        self._pending_finalize = None
        self._streaming_generate_count = 0
        self._spoken = 0
        self._tokens = 0
        self._voice = False
        self.received = {}
        self.resets = 0

    def _reset_token2wav_for_new_turn(self):
        self.resets += 1

    def set_session_stop(self):
        self.session_stop_event.set()

    def clear_session_stop(self):
        self.session_stop_event.clear()

    def is_session_stop_set(self):
        return self.session_stop_event.is_set()

    @property
    def needs_finalize(self):
        return self._pending_finalize is not None

    def prepare(
        self, prefix_system_prompt=None, suffix_system_prompt=None, ref_audio=None, prompt_wav_path=None
    ):
        self.clear_session_stop()
        self._reset_streaming_state()
        self.decoder.reset()
        self.sessions += 1
        self._voice = bool(prompt_wav_path) and self.generate_audio
        if self._voice:
            # A vocoder reads the file here.
            with open(prompt_wav_path, "rb") as wav:
                self.received["wav_bytes"] = len(wav.read())
        self.prompt = prefix_system_prompt or ""
        self.received |= {
            "prompt": self.prompt,
            "suffix": suffix_system_prompt,
            "ref_samples": None if ref_audio is None else len(ref_audio),
            "sessions": self.sessions,
        }
        if "{refuse 0}" in self.prompt:
            raise RuntimeError("no session today")
        self.decoder.tokens += len(self.prompt.split())
        return self.prompt

    def streaming_prefill(
        self, audio_waveform=None, frame_list=None, max_slice_nums=1, batch_vision_feed=False
    ):
        if self.needs_finalize:
            raise RuntimeError("streaming_prefill called before finalize_unit()")
        began = time.monotonic()

        def result(success, reason=""):
            return {"success": success, "reason": reason, "cost_all": time.monotonic() - began}

        if self.is_session_stop_set():
            return result(False)
        if not frame_list and (audio_waveform is None or not len(audio_waveform)):
            return result(False)
        for frame in frame_list or ():
            if type(frame).__module__.partition(".")[0] != "PIL":
                raise TypeError("frames must be PIL images")
        self.pending_logits = None
        self.received["seen"] = [frame.size for frame in frame_list or ()]
        self.received["max_slice_nums"] = max_slice_nums
        self.received["batch_vision_feed"] = batch_vision_feed
        self.decoder.tokens += TILE_TOKENS * len(frame_list or ())
        self.audio_buffer = np.concatenate([self.audio_buffer, audio_waveform])
        needed = IN_HZ * self.CHUNK_MS // 1000
        if self.audio_chunk_idx == 0:
            needed = IN_HZ * self.FIRST_CHUNK_MS // 1000
            missing = max(0, needed - len(self.audio_buffer))
            self.audio_buffer = np.concatenate([np.zeros(missing, np.float32), self.audio_buffer])
        if self._fault("deaf") or len(self.audio_buffer) < needed:
            return result(False, f"audio not enough: {len(self.audio_buffer)}")
        self._heard, self.audio_buffer = self.audio_buffer[:needed], self.audio_buffer[needed:]
        self.audio_chunk_idx += 1
        self.pending_logits = np.zeros(4)
        return result(True)

    def streaming_generate(
        self,
        prompt_wav_path=None,
        max_new_speak_tokens_per_chunk=20,
        decode_mode="sampling",
        temperature=0.7,
        top_k=20,
        top_p=0.8,
        listen_prob_scale=1.0,
        listen_top_k=None,
        text_repetition_penalty=1.05,
        text_repetition_window_size=512,
        length_penalty=1.1,
        force_listen_override=False,
    ):
        given = {name: value for name, value in locals().items() if name not in ("self", "prompt_wav_path")}
        return self._generated(given, force_listen_override)

    def finalize_unit(self):
        state, self._pending_finalize = self._pending_finalize, None
        if state is not None:
            self.decoder.tokens += state
            self.decoder.enforce_window()

    # The stand-in's behaviour.

    def _fault(self, name):
        """Return whether this fault is due in this unit; the first unit is 1."""
        asked = re.search(rf"\{{{name} (\d+)\}}", self.prompt)
        return asked is not None and int(asked[1]) == self._streaming_generate_count + 1

    def _generated(self, given, override, *, finalizes=True):
        if self.is_session_stop_set():
            self._pending_finalize = None
            return self._result(end_of_turn=True)
        if self.pending_logits is None:
            self._pending_finalize = None
            return self._result()
        faults = {name: self._fault(name) for name in ("hang", "die", "nan", "long", "wide", "raise", "odd")}
        self.pending_logits = None
        forced = self._streaming_generate_count < self.force_listen_count or override
        self._streaming_generate_count += 1
        if faults["die"]:
            os._exit(3)
        if faults["raise"]:
            raise RuntimeError("CUDA out of memory")
        if faults["hang"]:
            time.sleep(30)
        if override and not self.current_turn_ended:
            self.decoder.feed(self.decoder.embed_token(self.turn_eos_token_id))
            self.current_turn_ended = True
            self._reset_token2wav_for_new_turn()
        # Once a turn is open the model may not listen before the turn's end, whatever it hears.
        listens = forced or (self.current_turn_ended and np.abs(self._heard).mean() < 0.01)
        tokens = LISTEN_TOKENS if listens else SPEAK_TOKENS
        if finalizes:
            self._pending_finalize = tokens
        else:
            self.decoder.tokens += tokens
            self.decoder.enforce_window()
        if listens:
            return self._result()
        if self.current_turn_ended:
            self.current_turn_ended, self._spoken = False, 0
        self._spoken += 1
        ends = self._spoken == TURN_UNITS
        self.current_turn_ended = ends
        text = f" {self.audio_chunk_idx}"
        if TELL in self.prompt:
            text = json.dumps(
                self.received
                | given
                | {
                    "ls_mode": self.ls_mode,
                    "force_listen_count": self.force_listen_count,
                    "tts_temperature": float(self.tts_temperature[0]),
                    "config": self.config,
                    "heard": len(self._heard),
                }
            )
        audio = None if not self.generate_audio else self._speech(ends)
        if not self._voice:
            audio = None
        if faults["nan"]:
            audio = np.full(OUT_HZ, np.nan, np.float32)
        if faults["long"]:
            audio = np.zeros(48_000 * 2, np.float32)
        if faults["wide"]:
            audio = np.zeros((2, OUT_HZ), np.float32)
        if faults["odd"]:
            return {"is_listen": "no"}
        return self._result(is_listen=False, text=text, audio=audio, end_of_turn=ends, tokens=5)

    def _speech(self, ends):
        """Return the audio of a unit: 0.6 s after silence first, then 1.04 s, and 0.3 s in the last."""
        length_s = {1: 0.6, TURN_UNITS: 0.3}.get(self._spoken, 1.04)
        at_s = np.arange(round(length_s * OUT_HZ)) / OUT_HZ
        speech = (0.3 * np.cos(2 * np.pi * 440 * at_s)).astype(np.float32)
        if len(speech) < OUT_HZ and not ends:
            speech = np.pad(speech, (OUT_HZ - len(speech), 0))
        return speech

    def _result(self, is_listen=True, text="", audio=None, end_of_turn=False, tokens=0):
        if audio is None:
            audio = np.zeros(OUT_HZ, np.float32)
        return {
            "is_listen": is_listen,
            "text": text,
            "audio_waveform": audio,
            "end_of_turn": end_of_turn,
            "current_time": self.audio_chunk_idx,
            "cost_llm": 0.001,
            "cost_tts_prep": 0.0,
            "cost_tts": 0.001,
            "cost_token2wav": 0.0,
            "cost_all": 0.002,
            "n_tokens": tokens,
            "n_tts_tokens": 0 if is_listen else 26,
        }


class ColdDuplex(StandInDuplex):
    """The same, whose first conversation in a process takes a second to prepare."""

    def prepare(
        self, prefix_system_prompt=None, suffix_system_prompt=None, ref_audio=None, prompt_wav_path=None
    ):
        if not self.sessions:
            time.sleep(1)
        return super().prepare(prefix_system_prompt, suffix_system_prompt, ref_audio, prompt_wav_path)


class HubDuplex(StandInDuplex):
    """The duplex object of the code published with the weights: no override, no finalize, other marks."""

    finalize_unit = None

    @property
    def needs_finalize(self):
        return False

    def prepare(self, prefix_system_prompt=None, ref_audio=None, prompt_wav_path=None):
        prompt = f"<|im_start|>system\n{prefix_system_prompt}"
        return super().prepare(prompt, "<|im_end|>", ref_audio, prompt_wav_path)

    def streaming_generate(
        self,
        prompt_wav_path=None,
        max_new_speak_tokens_per_chunk=20,
        decode_mode="sampling",
        temperature=0.7,
        top_k=20,
        top_p=0.8,
        listen_prob_scale=1.0,
        listen_top_k=None,
        text_repetition_penalty=1.05,
        text_repetition_window_size=512,
    ):
        given = {name: value for name, value in locals().items() if name not in ("self", "prompt_wav_path")}
        return self._generated(given, False, finalizes=False)
