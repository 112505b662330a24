"""Steps of the two transformers in one conversation: take the caller's codes, return the bot's text and
codes.

At each position the large transformer gets a text token, the bot's codes and the caller's codes, each of the
previous step. From its output a text token is drawn and, through the small (depth) transformer, the bot's
codes, one codebook after the other.

All codebooks but the first run one frame late (the acoustic delay): the codes of a step are the first one of
a frame f and the others of frame f - 1. Of the caller's frames the first code is thus fed at once and the
others a step later. A frame of the bot's is complete a step after its first code. Position 0 has neither: all
streams begin with a token that stands for nothing.

A prompt is a run of frames that are given and not drawn. They take the positions before the first frame of
the caller's, in the same layout.

    position      0      1       2       3
    caller, 1st   -      f0      f1      f2
    caller, rest  -      -       f0      f1
    bot, 1st      -      g0      g1      g2       g0 was drawn at position 0
    bot, rest     -      -       g0      g1       g0's rest at position 1: it is whole in the first unit
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache, MoshiForConditionalGeneration

from parley.core.errors import EngineError
from parley.models.omni.moshi.settings import ENGINE, MoshiConversationSettings
from parley.models.omni.moshi.window import RingCache


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """Frame of a prompt.

    Attributes:
        token: the text token.
        bot: codes of the bot's stream, int64, (codebooks,).
        caller: codes of the caller's stream, int64, (codebooks,).
    """

    token: int
    bot: Tensor
    caller: Tensor


@dataclass(frozen=True, slots=True)
class MoshiStep:
    """Result of a position.

    Attributes:
        token: the text token.
        codes: the bot's frame that is now complete, int64, (codebooks,); meaningless at position 0.
        text_logits: float32, (text vocabulary,).
        audio_logits: float32, (codebooks, codes); None when the bot's output was given and not drawn.
    """

    token: int
    codes: Tensor
    text_logits: Tensor
    audio_logits: Tensor | None


class MoshiSteps:
    """Steps of one conversation.

    Args:
        model: shared weights.
        talk: sampling settings.
        window: number of positions that are attended to.
        silence: output when the bot must not speak: a text token, and codes, int64, (codebooks,).
        is_stopped: called before each transformer runs.
    """

    def __init__(
        self,
        model: MoshiForConditionalGeneration,
        talk: MoshiConversationSettings,
        *,
        window: int,
        silence: tuple[int, Tensor],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._model, self._talk, self._silence, self._is_stopped = model, talk, silence, is_stopped
        self._window = RingCache(model.config.num_hidden_layers, window)
        self._random = torch.Generator(model.device)
        if talk.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(talk.seed)
        self._nothing = torch.full(
            (model.config.num_codebooks,), model.config.audio_vocab_size, device=model.device
        )
        self._token = model.config.vocab_size
        self._bot = self._caller = self._nothing

    @property
    def window(self) -> RingCache:
        """Cache of the positions that are attended to."""
        return self._window

    def begin(self, prompt: Sequence[PromptFrame] = ()) -> MoshiStep | None:
        """Compute position 0 and those of a prompt; return the step of the last one, or None when stopped.

        Raises:
            EngineError: the model returns values that are not finite.
        """
        # There is no frame before the first one, so its rest is empty.
        heard, rest = self._nothing, self._nothing[1:]
        for frame in prompt:
            if self._take(heard, given=(frame.token, torch.cat((frame.bot[:1], rest)))) is None:
                return None
            heard, self._caller = torch.cat((frame.caller[:1], self._caller[1:])), frame.caller
            rest = frame.bot[1:]
        step = self._take(heard)
        self._bot = torch.cat((self._bot[:1], rest))
        return step

    def step(self, caller: Tensor, *, is_silent: bool = False) -> MoshiStep | None:
        """Compute the step for a frame of the caller's; return None when stopped.

        Args:
            caller: codes, int64, (codebooks,).
            is_silent: make the bot silent, and record silence in its context.

        Raises:
            EngineError: the model returns values that are not finite.
        """
        heard = torch.cat((caller[:1], self._caller[1:]))
        self._caller = caller
        return self._take(heard, given=self._silence if is_silent else None)

    def _take(self, heard: Tensor, given: tuple[int, Tensor] | None = None) -> MoshiStep | None:
        """Compute a position; ``given`` is the next text token and codes, where they are not drawn."""
        if self._is_stopped():
            return None
        model, before = self._model, self._bot
        out = model(
            input_ids=torch.tensor([[self._token]], device=model.device),
            moshi_audio_codes=before[None, :, None],
            user_audio_codes=heard[None, :, None],
            past_key_values=self._window,
            use_cache=True,
        )
        text_logits = _finite(out.logits[0, -1].float(), "text")
        audio_logits = None
        if given is not None:
            self._token, self._bot = given
        else:
            token = self._text(text_logits)
            said = self._codes(token, out.last_hidden_state)
            if said is None:
                return None
            self._bot, audio_logits = said
            self._token = int(token)
        return MoshiStep(self._token, torch.cat((before[:1], self._bot[1:])), text_logits, audio_logits)

    def _text(self, logits: Tensor) -> Tensor:
        talk = self._talk
        return draw(logits, temperature=talk.text_temperature, top_k=talk.text_top_k, random=self._random)

    def _codes(self, token: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return codes, (codebooks,), and their logits, (codebooks, codes); None when stopped."""
        talk, depth = self._talk, self._model.depth_decoder
        cache = DynamicCache(config=depth.config)
        codes: list[Tensor] = []
        logits: list[Tensor] = []
        for _ in range(self._model.config.num_codebooks):
            if self._is_stopped():
                return None
            out = depth(
                input_ids=token.view(1, 1), last_hidden_state=hidden, past_key_values=cache, use_cache=True
            )
            logits.append(out.logits[0, -1].float())
            token = draw(
                logits[-1],
                temperature=talk.audio_temperature,
                top_k=talk.audio_top_k,
                random=self._random,
            )
            codes.append(token)
        return torch.stack(codes), _finite(torch.stack(logits), "audio")


def draw(logits: Tensor, *, temperature: float, top_k: int, random: torch.Generator) -> Tensor:
    """Return a token, int64, (), drawn from logits, float32, (vocabulary,); always a valid one.

    It is the largest of the logits with Gumbel noise, which equals a draw from their softmax. This avoids a
    check of the probabilities, which would make the CUDA device fail for all conversations, or wait.
    """
    if temperature == 0:
        return logits.argmax()
    values, tokens = logits.topk(min(top_k, len(logits)))
    exponential = torch.empty_like(values).exponential_(generator=random)
    return tokens[(values / temperature - exponential.log()).argmax()]


def _finite(logits: Tensor, what: str) -> Tensor:
    """Return ``logits``; raise EngineError when they are not finite."""
    if not bool(torch.isfinite(logits).all()):
        raise EngineError(f"the model gives {what} that is not finite", engine=ENGINE)
    return logits
