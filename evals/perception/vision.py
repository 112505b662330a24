"""``python -m evals.perception.vision``: measure the specialist of the camera on photographs, and its cost.

The photographs of ``evals.perception.pictures`` are judged one by one and mirrored: faces counted, look of
the largest face, gesture. The one photograph of a pointing hand is varied as well: in size, place,
brightness and noise. The processor time of a frame is that of the thread.

``--calls N`` places N calls over WebRTC with a camera to a real server with the embedded engines. In each the
picture of the pointing man appears and disappears while a recorded person speaks and while no one speaks.
Printed are the times from the first such frame at the client to its capture at the server, to the report and
to its place in the order of events (the replay of the journal has it), and the processor time of the whole
server per second of a call, in the arms of ``ARMS``: without specialists, with that of the voice, with a
camera that is watched, and with all specialists. Decoding of the video is included.
"""

import argparse
import asyncio
import fractions
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import cv2
import numpy as np
import yaml
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av import VideoFrame

from parley.core.errors import PeerError
from parley.evals.harness import sessions
from parley.evals.harness.command import machine, positive
from parley.evals.harness.launcher import running
from parley.evals.harness.manners import Manners, hear_greeting
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, cell, markdown, percentile, run_command
from parley.evals.harness.speech import Spoken, of_turn
from parley.evals.harness.webrtc_caller import Line
from parley.evals.human.archives import cache_folder
from parley.evals.human.callers import SpeechKind, open_callers
from parley.evals.perception.pictures import HAND_AT, HAND_WIDTH, MIRRORED, POINTING, Photograph, load
from parley.models.specialists import CameraFrame
from parley.models.specialists.vision import VisionSpecialist, VisionSpecialistSettings, VisionStream
from parley.sequencer.merge import Sequencer, SequencerSettings
from parley.sequencer.operations import Advance, from_json
from parley.session_store.events import Kind

WIDTH, HEIGHT, FRAMES_PER_S = 640, 480, 15
# Appearances of the pointing hand in a call: this long each, with as much without it after them.
SHOWN_S = 1.5
APPEARANCES = 3
GREY = 110
# Sizes of the pointing hand against its photograph, and variations of each.
SCALES, VARIATIONS = (2.0, 1.4, 1.0, 0.85, 0.7, 0.5), 40
VISION = "vision"
# Specialists of each arm of the calls; those with the one of the camera have a camera.
ARMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "none": (),
        "without_camera": ("prosody",),
        "watched": ("prosody", VISION),
        "all": ("prosody", "speakers", VISION),
    }
)


class FilmedPicture(MediaStreamTrack):
    """Video track of one picture with the noise of a sensor.

    Attributes:
        picture: may be replaced at any time.
        changes_us: wall-clock time of the first frame of each picture that was set.
    """

    kind = "video"

    def __init__(self, picture: np.ndarray) -> None:
        super().__init__()
        self.picture = self._last = picture
        self.changes_us: list[int] = []
        self._noise = np.random.default_rng(1).integers(-3, 4, (8, HEIGHT, WIDTH, 1), np.int16)
        self._frames = 0
        self._origin_s: float | None = None

    async def recv(self) -> VideoFrame:
        """Return the next frame when it is due."""
        if self.readyState != "live":
            raise MediaStreamError
        loop = asyncio.get_running_loop()
        if self._origin_s is None:
            self._origin_s = loop.time()
        await asyncio.sleep(max(0.0, self._origin_s + self._frames / FRAMES_PER_S - loop.time()))
        picture = self.picture
        if picture is not self._last:
            self.changes_us.append(time.time_ns() // 1000)
            self._last = picture
        pixels = np.clip(picture + self._noise[self._frames % 8], 0, 255).astype(np.uint8)
        frame = VideoFrame.from_ndarray(pixels, format="rgb24")
        frame.pts = self._frames * 90_000 // FRAMES_PER_S
        frame.time_base = fractions.Fraction(1, 90_000)
        self._frames += 1
        return frame


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.perception.vision",
        description="Measure what the specialist of the camera sees in photographs, its cost and its delay.",
    )
    root.add_argument("--models-dir", type=Path, default=Path("models-cache"))
    root.add_argument("--calls", type=positive, help="place this many calls as well")
    root.add_argument("--seed", type=int, default=1)
    add_outputs(root)
    root.add_argument("--out-dir", type=Path, default=Path("out/perception"))
    return root


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Judge the photographs, place the calls and return the JSON.

    Raises:
        AgentError: pictures, recordings or weights are missing, or a server does not answer.
    """
    photographs = list(load(cache_folder()))
    settings = VisionSpecialistSettings(models_dir=arguments.models_dir)
    specialist = VisionSpecialist(settings)
    judged = [_judged(specialist, one, mirrored) for one in photographs for mirrored in (False, True)]
    pointing = next(pixels for one, pixels in photographs if one.gesture == POINTING)
    result: dict[str, Any] = {
        "photographs": judged,
        "summary": summary(judged),
        "varied_hand": _varied(specialist.open_stream(), pointing, arguments.seed),
    }
    if arguments.calls:
        arguments.out_dir.mkdir(parents=True, exist_ok=True)
        result["calls"] = asyncio.run(_calls(arguments, pointing))
    return {**result, "settings": {"seed": arguments.seed, "calls": arguments.calls}, "machine": machine()}


def _judged(
    specialist: VisionSpecialist, one: tuple[Photograph, np.ndarray], mirrored: bool
) -> dict[str, Any]:
    photograph, pixels = one
    pixels = np.ascontiguousarray(pixels[:, ::-1]) if mirrored else pixels
    stream = specialist.open_stream()
    stream.look(CameraFrame(pixels, 0))
    began_s = time.thread_time()
    # So late that faces are judged again.
    (finding,) = stream.look(CameraFrame(pixels, 1_000_000))
    cpu_ms = (time.thread_time() - began_s) * 1000
    seen = finding.visual
    assert seen is not None
    gesture = photograph.gesture
    if mirrored and gesture is not None:
        gesture = MIRRORED[gesture]
    return {
        "name": photograph.name + (" mirrored" if mirrored else ""),
        "faces": [photograph.faces, seen.faces],
        "looking": [photograph.looking, seen.looking],
        "gesture": [gesture, seen.gesture],
        "smiling": [photograph.smiles, seen.facial_affect is not None],
        "confidence": round(finding.confidence, 2),
        "cpu_ms": round(cpu_ms, 1),
    }


def summary(judged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures over all photographs; a pair in a row is what is there and what was seen."""
    looks = [each["looking"] for each in judged if None not in each["looking"]]
    there = [each["gesture"] for each in judged if each["gesture"][0] is not None]
    cpu_ms = [each["cpu_ms"] for each in judged]
    return {
        "photographs": len(judged),
        "faces_there": sum(each["faces"][0] for each in judged),
        "faces_seen": sum(min(each["faces"]) for each in judged),
        "faces_too_many": sum(max(0, each["faces"][1] - each["faces"][0]) for each in judged),
        "looks_judged": len(looks),
        "looks_right": sum(one == other for one, other in looks),
        "gestures_there": len(there),
        "gestures_right": sum(one == other for one, other in there),
        "smiles_there": sum(each["smiling"][0] for each in judged),
        "smiles_seen": sum(all(each["smiling"]) for each in judged),
        "faces_without_smile": sum(each["faces"][0] > 0 and not each["smiling"][0] for each in judged),
        "smiles_invented": sum(each["smiling"] == [False, True] for each in judged),
        "without_gesture": len(judged) - len(there),
        "gestures_invented": sum(
            each["gesture"][0] is None and each["gesture"][1] is not None for each in judged
        ),
        "cpu_p50_ms": percentile(cpu_ms, 50),
        "cpu_max_ms": max(cpu_ms),
    }


def _varied(stream: VisionStream, pixels: np.ndarray, seed: int) -> dict[str, Any]:
    """Return how often the pointing hand is seen in variations of its photograph, by its width."""
    drawn = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    height, width = pixels.shape[:2]
    hand = np.array([HAND_AT[0] * width, HAND_AT[1] * height])
    for scale in SCALES:
        right = 0
        for number in range(VARIATIONS):
            at = np.array([drawn.uniform(0.3, 0.7) * width, drawn.uniform(0.35, 0.65) * height])
            moved = np.array([[scale, 0, at[0] - scale * hand[0]], [0, scale, at[1] - scale * hand[1]]])
            # The photograph is reduced without the false edges of a missing filter.
            blur = max(1e-3, 0.4 * (1 / scale - 1))
            source = cv2.GaussianBlur(pixels, (0, 0), blur) if scale < 1 else pixels
            frame = cv2.warpAffine(source, moved, (width, height), borderValue=(GREY, GREY, GREY))
            frame = frame * drawn.uniform(0.6, 1.3) + drawn.normal(0, 6, frame.shape)
            shown = np.clip(frame, 0, 255).astype(np.uint8)
            if number % 2:
                shown = np.ascontiguousarray(shown[:, ::-1])
            (finding,) = stream.look(CameraFrame(shown, 0))
            wanted = MIRRORED[POINTING] if number % 2 else POINTING
            right += finding.visual is not None and finding.visual.gesture == wanted
        found[f"{round(scale * HAND_WIDTH * width)} px"] = round(right / VARIATIONS, 3)
    return found


def deployment_of(rows: Sequence[str], models_dir: Path) -> dict[str, Any]:
    """Return the deployment of an arm with these specialists."""
    return {
        "bot": {"greeting": "Hello there."},
        "hearing": {"specialists": [{"name": row} for row in rows], "spare_processes": False},
        "models_dir": str(models_dir.resolve()),
        "server": {"admission": "off"},
    }


async def _calls(arguments: argparse.Namespace, pointing: np.ndarray) -> dict[str, Any]:
    """Place the calls of each arm; return the figures."""
    turns = open_callers(SpeechKind.HUMAN).turns(2 * arguments.calls, arguments.seed)
    spoken = [of_turn(turn, gap_ms=0) for turn in turns]
    figures: dict[str, Any] = {}
    delays: dict[str, list[dict[str, int]]] = {"speaking": [], "silent": []}
    for name, rows in ARMS.items():
        watches = VISION in rows
        config = arguments.out_dir / f"vision_{name}.yaml"
        config.write_text(yaml.safe_dump(deployment_of(rows, arguments.models_dir)))
        shares = []
        async with running("parley", config, arguments.out_dir / f"vision_{name}.log") as server:
            # The children load and measure themselves for some seconds.
            await asyncio.sleep(8)
            for number in range(arguments.calls):
                camera = FilmedPicture(_framed(None)) if watches else None
                before_s, began_s = server.cpu_s() or 0.0, time.monotonic()
                moments = await _call(server.url, spoken[2 * number : 2 * number + 2], camera, pointing)
                lasted_s = time.monotonic() - began_s
                shares.append(100 * ((server.cpu_s() or 0.0) - before_s) / lasted_s)
                if camera is not None and name == "watched":
                    events = await sessions.newest(server.url)
                    for kind, place in moments:
                        delays[kind].append(delay_of(events, camera.changes_us[place]))
                say(f"{name}: call {number + 1} of {arguments.calls}")
        figures[f"{name}_percent_of_a_core"] = round(float(np.mean(shares)), 1)
    figures["camera_percent_of_a_core"] = round(
        figures["watched_percent_of_a_core"] - figures["without_camera_percent_of_a_core"], 1
    )
    figures["specialists_percent_of_a_core"] = round(
        figures["all_percent_of_a_core"] - figures["none_percent_of_a_core"], 1
    )
    for kind, found in delays.items():
        seen = [each for each in found if each]
        figures[kind] = {
            "shown": len(found),
            "seen": len(seen),
            **{
                f"{stage}_{name}_ms": percentile([each[stage] for each in seen], percent)
                for stage in ("captured", "reported", "ordered")
                for name, percent in (("p50", 50), ("p95", 95))
            },
        }
    return figures


async def _call(
    url: str, spoken: Sequence[Spoken], camera: FilmedPicture | None, pointing: np.ndarray
) -> list[tuple[str, int]]:
    """Hold a call; return for each appearance of the hand whether someone spoke and its change."""
    line = Line(url, camera=camera)
    moments: list[tuple[str, int]] = []
    try:
        await line.dial()
        await hear_greeting(line, Manners())
        for kind in ("silent", "speaking"):
            speaking = asyncio.create_task(_speak(line, spoken if kind == "speaking" else ()))
            for _ in range(APPEARANCES):
                for picture in (_framed(pointing), _framed(None)):
                    if camera is not None:
                        if picture[0, 0, 0] != GREY:
                            moments.append((kind, len(camera.changes_us)))
                        camera.picture = picture
                    await asyncio.sleep(SHOWN_S)
            speaking.cancel()
            await asyncio.wait({speaking})
        await line.wait_bot_quiet(1_200, 20_000)
        # The reports are stored with the end of a turn or of the call.
        await asyncio.sleep(1)
    finally:
        await line.hang_up()
    await asyncio.sleep(1)
    return moments


async def _speak(line: Line, spoken: Sequence[Spoken]) -> None:
    for each in spoken:
        await line.microphone.speak(each)


def _framed(pixels: np.ndarray | None) -> np.ndarray:
    """Return a frame of the camera with the picture in its middle: int16, (HEIGHT, WIDTH, 3)."""
    frame = np.full((HEIGHT, WIDTH, 3), GREY, np.int16)
    if pixels is not None:
        top = (HEIGHT - pixels.shape[0]) // 2
        frame[top : top + pixels.shape[0], : pixels.shape[1]] = pixels
        frame[0, 0] = GREY + 1
    return frame


def delay_of(events: Sequence[Mapping[str, Any]], shown_us: int) -> dict[str, int]:
    """Return the milliseconds from a moment until a gesture was captured, reported and put in its place.

    Args:
        events: timeline of the session.
        shown_us: first frame of the gesture at the client, wall-clock time.

    Returns:
        Nothing when no gesture was reported before the picture was changed again.
    """
    for event in events:
        body = event["payload"].get("body", {})
        if event["kind"] != Kind.ANNOTATION.value or event["source"] != VISION or not body.get("gesture"):
            continue
        identity, start_us = event["payload"]["identity"], body["start_us"]
        if event["payload"]["revision"] or not shown_us <= start_us < shown_us + SHOWN_S * 1_000_000:
            continue
        ordered_us = _commits(events).get(identity)
        if ordered_us is None:
            raise PeerError("the journal of the call has no place for a report of its timeline")
        stages = {"captured": start_us, "reported": event["arrival_us"], "ordered": ordered_us}
        return {name: round((at_us - shown_us) / 1000) for name, at_us in stages.items()}
    return {}


def _commits(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return when each statement of the camera got its place: the journal is played back."""
    sequencer: Sequencer[None] | None = None
    found: dict[str, int] = {}
    for event in sorted(events, key=lambda each: each["seq"]):
        if event["kind"] != Kind.JOURNAL.value:
            continue
        payload = event["payload"]
        if "settings" in payload:
            sequencer = Sequencer(SequencerSettings.model_validate(payload["settings"]))
        assert sequencer is not None
        for line in payload["operations"]:
            operation = from_json(line, lambda _body: None)
            for one in sequencer.apply(operation):
                if one.stream == VISION and one.identity is not None and isinstance(operation, Advance):
                    found.setdefault(one.identity, operation.now_us)
    return found


def table(result: Mapping[str, Any]) -> str:
    """Format the figures."""
    found = result["summary"]
    rows = [
        [
            each["name"],
            *(f"{one} / {other}" for one, other in (each["faces"], each["looking"], each["gesture"])),
        ]
        for each in result["photographs"]
    ]
    parts = [
        markdown(["photograph", "faces: there / seen", "look", "gesture"], rows),
        markdown(
            ["figure", "value"],
            [
                ["faces seen, of those there", f"{found['faces_seen']} of {found['faces_there']}"],
                ["faces that are none", cell(found["faces_too_many"])],
                ["looks right", f"{found['looks_right']} of {found['looks_judged']}"],
                ["smiles seen", f"{found['smiles_seen']} of {found['smiles_there']}"],
                [
                    "pictures of people without a smile in which one was seen",
                    f"{found['smiles_invented']} of {found['faces_without_smile']}",
                ],
                ["gestures right", f"{found['gestures_right']} of {found['gestures_there']}"],
                [
                    "pictures without a gesture in which one was seen",
                    f"{found['gestures_invented']} of {found['without_gesture']}",
                ],
                [
                    "processor time of a frame, p50 and most, ms",
                    f"{found['cpu_p50_ms']}, {found['cpu_max_ms']}",
                ],
                *(
                    [f"pointing seen in variations, hand of {size}", f"{share:.0%}"]
                    for size, share in result["varied_hand"].items()
                ),
            ],
        ),
    ]
    if "calls" in result:
        calls = result["calls"]
        parts.append(
            markdown(
                ["processor, % of a core", "value"],
                [
                    [name.replace("_percent_of_a_core", "").replace("_", " "), cell(calls[name])]
                    for name in calls
                    if name.endswith("core")
                ],
            )
        )
        columns = [name for name in calls["silent"] if name.endswith("ms")]
        parts.append(
            markdown(
                ["hand appears while the caller is", "seen", *(name.replace("_", " ") for name in columns)],
                [
                    [
                        kind,
                        f"{calls[kind]['seen']} of {calls[kind]['shown']}",
                        *(cell(calls[kind][name]) for name in columns),
                    ]
                    for kind in ("silent", "speaking")
                ],
            )
        )
    return "\n\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: measure(arguments), table)


if __name__ == "__main__":
    sys.exit(main())
