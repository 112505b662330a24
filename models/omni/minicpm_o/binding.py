"""Uniform interface to the model's duplex object, for both editions of its code.

The code of MiniCPM-o 4.5 comes in two editions with the same weights: with the weights (``as_duplex``), and
in its server (``init_unified``). The server's edition takes ``force_listen_override`` and ``length_penalty``
and ends a unit with ``finalize_unit``. Some revisions of the other edition lack them, end a unit themselves,
and add the marks of the prompt themselves. The arguments of an edition are read from its signatures, never
from a version. Whether it marks the prompt is read from its return value.

Imports no torch: tensors are recognised by their methods. Runs in the worker's environment.
"""

import inspect
import tempfile
import wave
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from parley.core.errors import ConfigError, EngineError
from parley.models.library_internals import listening, weigh_listening

ENGINE = "minicpm_o"
VOICE_RATE_HZ = 16_000
SYSTEM = "<|im_start|>system"
# Options of ``streaming_generate``, passed with every unit.
GENERATE = (
    "decode_mode",
    "temperature",
    "top_k",
    "top_p",
    "listen_prob_scale",
    "listen_top_k",
    "text_repetition_penalty",
    "text_repetition_window_size",
    "length_penalty",
    "max_new_speak_tokens_per_chunk",
)
# Options of ``streaming_prefill``, passed with every unit.
PREFILL = ("max_slice_nums", "batch_vision_feed")
# Set at loading, but plain attributes: set again before every conversation.
ATTRIBUTES = ("force_listen_count", "ls_mode", "generate_audio")
# State that an abandoned turn of the voice leaves; the model's own end of a turn clears the same.
TURN_OF_THE_VOICE = {
    "tts_text_start_pos": 0,
    "tts_past_key_values": None,
    "tts_current_turn_start_time": None,
}
VOCODER_CACHES = ("stream_cache", "hift_cache_dict", "cache")


class DuplexBinding:
    """Interface to one model, one conversation at a time. Not thread-safe except for ``stop``.

    Args:
        duplex: the model's duplex object.
        model: owner of ``duplex``; None when only ``duplex`` is available.
        has_voice: the model was loaded with its voice.

    Raises:
        EngineError: the model lacks a required method.
    """

    def __init__(self, duplex: Any, model: Any = None, *, has_voice: bool = True) -> None:
        self._duplex, self._model = duplex, model
        self._has_voice = has_voice
        for name in ("prepare", "streaming_prefill", "streaming_generate", "set_session_stop", "decoder"):
            if not hasattr(duplex, name):
                raise EngineError(f"{ENGINE}: the model has no {name}", engine=ENGINE, retryable=False)
        self._prepare_takes = _parameters(duplex.prepare)
        self._prefill_takes = _parameters(duplex.streaming_prefill)
        self._generate_takes = _parameters(duplex.streaming_generate)
        # Attempts at marking the prompt here; the edition that takes its end leaves the marks to its caller.
        self._ways = (True, False) if "suffix_system_prompt" in self._prepare_takes else (False,)
        self._finalizes = callable(getattr(duplex, "finalize_unit", None))
        weigh_listening(duplex)
        self._settings: Mapping[str, Any] = {}
        self._wav: Any = None

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the settings that this edition of the model uses."""
        given = [name for name in GENERATE if name in self._generate_takes]
        given += [name for name in PREFILL if name in self._prefill_takes]
        kept = [name for name in (*ATTRIBUTES, "tts_temperature") if hasattr(self._duplex, name)]
        return (*given, *kept)

    def prepare(
        self,
        prompt: str,
        *,
        llm_voice: np.ndarray | None,
        tts_voice: np.ndarray | None,
        settings: Mapping[str, Any],
    ) -> None:
        """Begin a conversation.

        Args:
            prompt: description of the bot.
            llm_voice: float32, (samples,), at 16 kHz; None for none.
            tts_voice: the same, for the vocoder.
            settings: all settings, by name; those that the model does not take are left out.

        Raises:
            ConfigError: the model is to speak and has no voice.
            EngineError: the prompt is not marked correctly.
        """
        self._settings = dict(settings)
        speaks = bool(settings.get("generate_audio", True))
        if speaks and not self._has_voice:
            raise ConfigError(
                f"{ENGINE}: the model was loaded without a voice, because generate_audio is false"
            )
        if speaks and tts_voice is None:
            # The vocoder would stay silent while the model reports speech.
            raise ConfigError(f"{ENGINE}: speech needs a voice: set `voice`, or give a reference")
        for name in ATTRIBUTES:
            if name in settings and hasattr(self._duplex, name):
                setattr(self._duplex, name, settings[name])
        if "tts_temperature" in settings and hasattr(self._duplex, "tts_temperature"):
            # A tensor with one element, on the model's device.
            self._duplex.tts_temperature[:] = settings["tts_temperature"]
        self._begin(prompt, llm_voice, self._voice_file(tts_voice))

    def prefill(self, audio: np.ndarray, pictures: Sequence[Any]) -> float:
        """Read a unit of audio and pictures; return the time it took, in ms.

        Args:
            audio: float32, (samples,), at 16 kHz.
            pictures: PIL images, because arrays take 18 GB of memory.

        Raises:
            EngineError: the model refused the unit.
        """
        options = {name: self._settings[name] for name in PREFILL if name in self._prefill_takes}
        result = self._duplex.streaming_prefill(
            audio_waveform=audio, frame_list=list(pictures) or None, **options
        )
        if not result.get("success", False) and not self._is_stopped():
            raise EngineError(
                f"{ENGINE}: a unit could not be processed: {result.get('reason', '')}", engine=ENGINE
            )
        return _ms(result, "cost_all")

    def generate(self, *, forced: bool) -> tuple[dict[str, Any], np.ndarray]:
        """Decide on a unit and speak; return (facts of the result, float32, (samples,), at 24 kHz).

        Raises:
            EngineError: the model's result is invalid.
        """
        options = {name: self._settings[name] for name in GENERATE if name in self._generate_takes}
        if "prompt_wav_path" in self._generate_takes:
            options["prompt_wav_path"] = self._wav.name if self._wav is not None else None
        speaks = not getattr(self._duplex, "current_turn_ended", True)
        if not forced:
            result = self._duplex.streaming_generate(**options)
        elif "force_listen_override" in self._generate_takes:
            result = self._duplex.streaming_generate(**options, force_listen_override=True)
        else:
            with listening(self._duplex):
                result = self._duplex.streaming_generate(**options)
        if forced and speaks:
            for name, value in TURN_OF_THE_VOICE.items():
                if hasattr(self._duplex, name):
                    setattr(self._duplex, name, value)
        is_listen, ends = result.get("is_listen"), result.get("end_of_turn", False)
        text = result.get("text", "")
        if not isinstance(is_listen, bool) or not isinstance(text, str):
            raise EngineError(f"{ENGINE}: a result neither listens nor speaks", engine=ENGINE)
        facts = {
            "is_listen": is_listen,
            "text": text,
            "end_of_turn": bool(ends),
            "n_tokens": int(result.get("n_tokens") or 0),
            "n_tts_tokens": int(result.get("n_tts_tokens") or 0),
            "cost_llm_ms": _ms(result, "cost_llm"),
            "cost_tts_ms": sum(_ms(result, name) for name in ("cost_tts_prep", "cost_tts", "cost_token2wav")),
            "kv_tokens": self.kv_tokens,
        }
        speaks = not is_listen and self._settings.get("generate_audio", True)
        return facts, _array(result.get("audio_waveform") if speaks else None)

    def finalize(self) -> None:
        """End the unit; has no effect in the edition that does so itself."""
        if self._finalizes and getattr(self._duplex, "needs_finalize", True):
            self._duplex.finalize_unit()

    def stop(self) -> None:
        """Stop reading and speaking in this conversation. Callable from any thread."""
        self._duplex.set_session_stop()

    def cleanup(self) -> None:
        """Release the resources of the conversation: its context, and the caches of its voice."""
        duplex = self._duplex
        duplex.set_session_stop()
        _call(duplex, "_reset_streaming_state")
        _call(duplex.decoder, "reset")
        vocoder = getattr(getattr(self._owner, "tts", None), "audio_tokenizer", None)
        for name in VOCODER_CACHES:
            if getattr(vocoder, name, None) is not None:
                setattr(vocoder, name, None)
        reset = getattr(self._owner, "reset_session", None)
        if callable(reset):
            reset(reset_token2wav_cache=True)
        self._settings = {}
        self._forget_voice()

    @property
    def kv_tokens(self) -> int:
        """Length of the context in tokens; 0 when the model does not report it."""
        length = getattr(self._duplex.decoder, "get_cache_length", None)
        return int(length()) if callable(length) else 0

    @property
    def _owner(self) -> Any:
        return self._model if self._model is not None else getattr(self._duplex, "model", None)

    def _is_stopped(self) -> bool:
        asked = getattr(self._duplex, "is_session_stop_set", None)
        return bool(asked()) if callable(asked) else False

    def _begin(self, prompt: str, voice: np.ndarray | None, wav: str | None) -> None:
        for marks in self._ways:
            text, end = prompt, {}
            if marks:
                text = f"{SYSTEM}\n{prompt}" + ("\n<|audio_start|>" if voice is not None else "")
                end = {"suffix_system_prompt": ("<|audio_end|>" if voice is not None else "") + "<|im_end|>"}
            fed = self._duplex.prepare(prefix_system_prompt=text, ref_audio=voice, prompt_wav_path=wav, **end)
            # The model returns the prompt that it read; a prompt that is marked twice, or not at all, is
            # wrong.
            if not isinstance(fed, str) or fed.count(SYSTEM) == prompt.count(SYSTEM) + 1:
                self._ways = (marks,)
                return
        raise EngineError(f"{ENGINE}: the prompt is not marked as a prompt", engine=ENGINE, retryable=False)

    def _voice_file(self, voice: np.ndarray | None) -> str | None:
        """Write the voice to a temporary file, which the vocoder requires; deleted with the conversation."""
        self._forget_voice()
        if voice is None:
            return None
        self._wav = tempfile.NamedTemporaryFile(suffix=".wav")
        with wave.open(self._wav.name, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(VOICE_RATE_HZ)
            out.writeframes((voice.clip(-1, 1) * 32_767).astype("<i2").tobytes())
        name: str = self._wav.name
        return name

    def _forget_voice(self) -> None:
        wav, self._wav = self._wav, None
        if wav is not None:
            # The folder of temporary files may have been emptied meanwhile.
            with suppress(FileNotFoundError):
                wav.close()


def _parameters(call: Any) -> frozenset[str]:
    return frozenset(inspect.signature(call).parameters)


def _call(owner: Any, name: str) -> None:
    call = getattr(owner, name, None)
    if callable(call):
        call()


def _ms(result: Mapping[str, Any], name: str) -> float:
    return max(0.0, 1000 * float(result.get(name) or 0.0))


def _array(waveform: Any) -> np.ndarray:
    if waveform is None:
        return np.zeros(0, np.float32)
    if hasattr(waveform, "detach"):
        waveform = waveform.detach().cpu().float().numpy()
    audio = np.asarray(waveform, dtype=np.float32)
    # A batch of one is reduced to its element.
    return audio[0] if audio.ndim == 2 and len(audio) == 1 else audio
