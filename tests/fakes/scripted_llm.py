"""Language models that follow a script: an engine and a Pipecat service.

A script is a list of steps for one answer: a string is a piece of text, a number is a pause in seconds, an
exception is raised, ``HANG`` never goes on, ``TOOL`` calls the function ``look_up``, ``Use`` another
one, a frame is pushed by the service.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipecat.frames.frames import Frame, LLMContextFrame, LLMFullResponseEndFrame, LLMFullResponseStartFrame
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import FunctionCallFromLLM, LLMService
from pipecat.services.settings import LLMSettings

from parley.core.passage_notes import CitedPassage
from parley.models.llm import Message
from parley.processors.dialogue.engine_llm import EngineLlmAdapter
from parley.processors.service_rows import NOTHING_SHARED, Shared

HANG = object()


@dataclass(frozen=True)
class Use:
    """Step that calls a function, with its arguments."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


TOOL = Use("look_up")
Step = str | float | Exception | object
Script = Sequence[Step]


class ScriptedLanguageModel:
    """A ``models.llm.LanguageModel`` that answers request ``n`` with script ``n``; the last one repeats."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self.asked: list[list[Message]] = []
        self.hangs = asyncio.Event()
        self.closed = 0

    async def reply(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        script = self._scripts[min(len(self.asked), len(self._scripts) - 1)]
        self.asked.append(list(messages))
        try:
            for step in script:
                if isinstance(step, str):
                    yield step
                elif isinstance(step, (int, float)):
                    await asyncio.sleep(step)
                elif isinstance(step, Exception):
                    raise step
                else:
                    self.hangs.set()
                    await asyncio.Event().wait()
        finally:
            self.closed += 1


class CitingLanguageModel(ScriptedLanguageModel):
    """Scripted model that names the passages of its answers (``CitingModel``).

    Args:
        scripts: as above.
        passages: of answers that contain the key.
    """

    def __init__(self, *scripts: Script, passages: Mapping[str, CitedPassage]) -> None:
        super().__init__(*scripts)
        self._passages = passages

    async def cited(self, answer: str) -> tuple[CitedPassage, ...]:
        return tuple(passage for words, passage in self._passages.items() if words in answer)


class ScriptedLlmService(LLMService[EngineLlmAdapter]):
    """Service that pushes frames and errors in the order in which Pipecat's own services do."""

    adapter_class = EngineLlmAdapter

    def __init__(self, *scripts: Script, system_instruction: str | None = None, **kwargs: Any) -> None:
        super().__init__(
            settings=LLMSettings(
                model="scripted",
                system_instruction=system_instruction,
                temperature=None,
                max_tokens=None,
                top_p=None,
                top_k=None,
                frequency_penalty=None,
                presence_penalty=None,
                seed=None,
                filter_incomplete_user_turns=False,
                user_turn_completion_config=None,
            ),
            **kwargs,
        )
        self._scripts = list(scripts)
        self.requests = 0
        self.cancelled = 0

    def can_generate_metrics(self) -> bool:
        return True

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        script = self._scripts[min(self.requests, len(self._scripts) - 1)]
        self.requests += 1
        await self.push_frame(LLMFullResponseStartFrame())
        try:
            await self.start_ttfb_metrics()
            for step in script:
                if isinstance(step, str):
                    await self.stop_ttfb_metrics()
                    await self._push_llm_text(step)
                elif isinstance(step, (int, float)):
                    await asyncio.sleep(step)
                elif isinstance(step, Exception):
                    raise step
                elif isinstance(step, Frame):
                    await self.push_frame(step)
                elif isinstance(step, Use):
                    await self.run_function_calls(
                        [
                            FunctionCallFromLLM(
                                function_name=step.name,
                                tool_call_id=f"call-{self.requests}",
                                arguments=dict(step.arguments),
                                context=frame.context,
                            )
                        ]
                    )
                else:
                    await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        except Exception as error:
            await self.push_error(f"scripted: {error}", exception=error)
        finally:
            await self.push_frame(LLMFullResponseEndFrame())


class ScriptedRow:
    """Registry row whose services follow one script each."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self.services: list[ScriptedLlmService] = []

    def check(self) -> None:
        pass

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> ScriptedLlmService:
        service = ScriptedLlmService(*self._scripts, system_instruction=system_instruction)
        self.services.append(service)
        return service
