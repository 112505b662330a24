"""Stages that take the pictures of one call: for a specialist of the camera, and for a model by turns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipecat.processors.frame_processor import FrameProcessor

from parley.pipelines.builder import Background
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.stages.shown_pictures import ShownPictures
from parley.processors.dialogue.rtvi import ShowPicture
from parley.processors.fusion.camera_specialist import CameraSpecialist
from parley.processors.perception.caller_camera import CallerCamera, NoCamera, TurnPictures
from parley.processors.perception.camera_tap import CameraTap
from parley.processors.perception.picture_sources import PictureSources


@dataclass(frozen=True)
class Sight:
    """Stages that take the pictures of one call.

    Attributes:
        stages: in the order of the data, at the head of the pipeline.
        background: tasks.
        is_on: pictures have an effect in this call.
        camera: pictures for the next turn.
        show: takes a picture that the caller shows; None where no model sees it.
    """

    stages: Sequence[FrameProcessor] = ()
    background: Background = ()
    is_on: bool = False
    camera: TurnPictures = NoCamera()
    show: ShowPicture | None = None


def sight_of(engines: Engines, call: Call, *, has_model: bool, passes_on: bool) -> Sight:
    """Return the stages for pictures; none where neither a model nor a specialist looks at them.

    Args:
        engines: of the process.
        call: the call.
        has_model: the model that answers takes pictures of the caller's camera.
        passes_on: a later stage takes pictures.
    """
    specialist = _watcher_of(engines, call)
    if not call.capabilities.video or not (has_model or specialist):
        return Sight()
    sources = PictureSources(call.events)
    background = [sources.run] if specialist is None else [sources.run, specialist.run]
    tap = CameraTap(sources.see, None if specialist is None else specialist.see, passes_on=passes_on)
    return Sight([tap], background, is_on=True)


def sight_by_turns(engines: Engines, call: Call) -> Sight:
    """Return the stages for pictures of a call whose model takes the newest one with a turn."""
    if not engines.answering.sees or not call.capabilities.video:
        return sight_of(engines, call, has_model=engines.cascade_sees, passes_on=False)
    sight = sight_of(engines, call, has_model=engines.cascade_sees, passes_on=True)
    camera = CallerCamera(engines.deployment.thinking.vision)
    shown = ShownPictures(engines.answering.pictures, call.conversation, camera, call.events)
    return replace(sight, stages=[*sight.stages, camera], camera=camera, show=shown.take)


def _watcher_of(engines: Engines, call: Call) -> CameraSpecialist | None:
    """Return the specialist of the camera in a call that has one; None without a specialist or a camera."""
    if not call.capabilities.video:
        return None
    return engines.camera_specialist_of(call.conversation, call.events)
