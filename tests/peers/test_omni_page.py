"""The full-duplex page over a WebSocket, in a real browser."""

import asyncio
import io
import json
import os
import re
import time
import wave
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
from PIL import Image
from playwright.async_api import expect

from parley.configs.deployment import DEFAULT_PROMPT
from parley.core.client_rules import prompt_of
from tests.peers.minicpm_server import MiniCpmServer, minicpm_server
from tests.peers.tcp_relay import relayed
from tests.peers.test_accessibility import serious
from tests.peers.test_browser import Visit, chromium, serving, visit
from tests.sounds import sound
from tests.voices import RATE_HZ, say, silence

__all__ = ["chromium"]

TONE_HZ = 1_000
FILM_SIZE = (320, 180)
SHOWN_SIZE = (120, 90)
DROP_S = 5.0
# Chromium's own fake microphone beeps once a second, which the stand-in takes for a question.
FLAGS = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream=device-count=2")


def film_of(seconds: int) -> bytes:
    """Return a film without sound, as WebM."""
    with io.BytesIO() as data:
        with av.open(data, "w", format="webm") as file:
            stream = file.add_stream("libvpx", rate=10)
            stream.width, stream.height = FILM_SIZE
            stream.pix_fmt = "yuv420p"
            for at in range(10 * seconds):
                picture = np.full((FILM_SIZE[1], FILM_SIZE[0], 3), 5 * at % 255, np.uint8)
                file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            file.mux(stream.encode())
        return data.getvalue()


def holds_tone(audio: np.ndarray) -> bool:
    """Return whether most of a chunk's power is at the tone's frequency."""
    power = np.abs(np.fft.rfft(audio)) ** 2
    at = round(TONE_HZ * len(audio) / RATE_HZ)
    return bool(power.sum() > 1 and power[at - 3 : at + 4].sum() > 0.8 * power.sum())


async def model_has(condition: Callable[[], bool]) -> None:
    """Wait until the model has received something."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.1)


async def take_shot(person: Visit, name: str) -> None:
    if shots := os.environ.get("PARLEY_SCREENSHOTS"):
        await person.page.screenshot(path=f"{shots}/omni-{name}.png")


async def test_a_person_talks_with_the_two_tier_engine(chromium: str, tmp_path: Path):
    speech = silence(3_000) + say("What are your opening hours on saturday?") + silence(20_000)
    microphone = tmp_path / "microphone.wav"
    with wave.open(str(microphone), "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(speech)
    flags = ("--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop")
    with serving(tmp_path, "llm: {name: documents}") as served:
        async with visit(chromium, f"{served.address}/omni?raw", *flags) as person:
            await person.part("talk").click()
            await expect(person.part("state")).to_have_text("Listening")
            await expect(person.part("said")).to_contain_text("ten until two")
            await expect(person.part("answered")).to_contain_text("ms")
            await expect(person.part("latency-summary")).to_contain_text("Last answer")
            await person.part("talk").click()
            await expect(person.part("state")).to_have_text("Ready")
            await expect(person.part("notice")).to_be_hidden()
            assert not person.complaints and len(person.hosts) == 1


async def test_pictures_pauses_and_a_model_that_has_to_listen(chromium: str, tmp_path: Path):
    with minicpm_server() as model:
        engine = f"{{name: minicpm_worker, settings: {{url: '{model.url}', sees: true}}}}"
        seeing = f"duplex: {{engine: {engine}}}\n"
        with serving(tmp_path, "llm: {name: documents}", more=seeing, takes_instructions=True) as served:
            async with visit(chromium, f"{served.address}/omni?raw", *FLAGS) as person:
                await person.page.locator("textarea").fill("Be a lighthouse keeper.")
                await person.part("talk").click()
                await expect(person.part("state")).to_have_text("Listening")
                await look_at_the_picture(person, model)
                assert model.prepared[0]["system_prompt"] == prompt_of(
                    DEFAULT_PROMPT, "Be a lighthouse keeper."
                )
                await person.part("pause").click()
                await expect(person.part("state")).to_have_text("Paused")
                heard = len(model.chunks)
                await asyncio.sleep(2.5)
                assert len(model.chunks) <= heard + 1
                await person.part("pause").click()
                await expect(person.part("state")).to_have_text("Listening")
                await person.part("listen").dispatch_event("pointerdown")
                await model_has(lambda: any(chunk["force_listen"] for chunk in model.chunks))
                served.process.kill()
                await expect(person.part("state")).to_have_text("Reconnecting")
                await expect(person.part("notice")).to_contain_text(
                    "The connection was lost. Trying to go on."
                )
                await person.part("talk").click()
                await expect(person.part("state")).to_have_text("Ready")


async def look_at_the_picture(person: Visit, model: MiniCpmServer) -> None:
    """Show the camera in a conversation, and use everything that lies over its picture."""
    stage, picture = person.part("stage"), person.part("picture")
    await person.part("camera").click()
    await expect(picture).to_be_visible()
    await model_has(lambda: any(chunk["frames"] for chunk in model.chunks))

    # Mirrored for the user; the setting is kept.
    await expect(picture).to_have_css("transform", re.compile(r"matrix\(-1,"))
    await person.part("mirror").click()
    await expect(picture).to_have_css("transform", "none")
    await person.part("mirror").click()
    assert await person.page.evaluate("localStorage['parley.mirrored']") == "true"

    cameras = person.part("choose-camera")
    await expect(cameras.locator("option")).to_have_count(3)
    await expect(cameras).to_have_value("")
    open_camera = (
        "() => document.querySelector('[data-role=picture]').srcObject.getTracks()[0].getSettings().deviceId"
    )
    first = await person.page.evaluate(open_camera)
    await person.part("flip").click()
    await expect(cameras).not_to_have_value("")
    assert await cameras.input_value() != first
    await person.part("sound-open").click()
    await cameras.select_option(first)
    seen = len(model.chunks)
    await model_has(lambda: any(chunk["frames"] for chunk in model.chunks[seen + 2 :]))
    assert await person.page.evaluate(open_camera) == first

    # The microphone is changed without an end of what the model hears.
    microphones = person.part("choose-microphone")
    other = await microphones.locator("option").last.get_attribute("value")
    await microphones.select_option(other)
    heard = len(model.heard)
    await model_has(lambda: any(np.abs(audio).max() > 0.01 for audio in model.heard[heard + 2 :]))
    await expect(person.part("notice")).to_be_hidden()
    chosen = json.loads(await person.page.evaluate("localStorage['parley.devices']"))
    assert (chosen["microphone"]["id"], chosen["camera"]["id"]) == (other, first)
    await person.page.keyboard.press("Escape")

    # The bot's words appear over the picture as they are heard, in full screen too.
    await person.part("whole").click()
    await person.page.wait_for_function("document.fullscreenElement?.dataset.role === 'stage'")
    await expect(stage.locator('[data-role="subtitles"]')).to_have_text(re.compile(r"\d"))
    await expect(stage.locator('[data-role="talk"]')).to_be_in_viewport()
    await take_shot(person, "whole")
    await person.part("subtitles-switch").click()
    await expect(person.part("subtitles")).to_be_hidden()
    await person.part("subtitles-switch").click()
    await person.part("whole").click()
    await person.page.wait_for_function("!document.fullscreenElement")

    # A telephone without full screen: the picture covers the page, and nothing below it can be reached.
    await person.page.evaluate("Object.defineProperty(document, 'fullscreenEnabled', {value: false})")
    await person.part("whole").click()
    box = await stage.bounding_box()
    assert box is not None and box["height"] == person.page.viewport_size["height"]  # type: ignore[index]
    assert await person.page.evaluate("document.querySelector('header').inert")
    await person.page.keyboard.press("Escape")
    assert not await person.page.evaluate("document.querySelector('header').inert")


async def test_a_file_is_heard_and_seen_in_place_of_the_devices_and_the_conversation_is_kept(
    chromium: str, tmp_path: Path
):
    with minicpm_server() as model:
        engine = f"{{name: minicpm_worker, settings: {{url: '{model.url}', sees: true}}}}"
        recording = f"recording: {{enabled: true, folder: {tmp_path / 'data'}, min_free_gb: 0}}\n"
        with serving(
            tmp_path, "llm: {name: documents}", more=f"duplex: {{engine: {engine}}}\n{recording}"
        ) as served:
            async with visit(chromium, f"{served.address}/omni?raw", *FLAGS) as person:
                await person.part("language").select_option("de")
                await person.part("file").set_input_files(
                    {"name": "notes.wav", "mimeType": "audio/wav", "buffer": b"no sound at all"}
                )
                await expect(person.part("notice")).to_contain_text("kann notes.wav nicht abspielen")
                tone = {"name": "tone.wav", "mimeType": "audio/wav", "buffer": sound("wav", 2.5, hz=TONE_HZ)}
                await person.part("file").set_input_files(tone)
                await expect(person.part("file-time")).to_have_text("0:00 von 0:02")
                # The microphone is not opened before the file is over.
                await person.part("talk").click()
                await expect(person.part("talk-label")).to_have_text("Auflegen")
                await model_has(lambda: any(map(holds_tone, model.heard)))
                heard = len(model.heard)
                await expect(person.part("file-bar")).to_be_hidden()
                await model_has(lambda: any(np.abs(audio).max() > 0.01 for audio in model.heard[heard + 2 :]))

                film = {"name": "film.webm", "mimeType": "video/webm", "buffer": film_of(40)}
                await person.part("file").set_input_files(film)
                await model_has(
                    lambda: FILM_SIZE in [size for chunk in model.chunks for size in chunk["frames"]]
                )
                await take_shot(person, "film")
                assert not await serious(person.page)
                await person.part("file-stop").click()
                await expect(person.part("file-bar")).to_be_hidden()

                await person.part("talk").click()
                await expect(person.part("state")).to_have_text("Bereit")
                await expect(person.part("kept-download")).to_be_visible()
                path = await person.part("kept-download").get_attribute("href")
                kept = await person.page.request.get(f"{served.address}{path}")
                assert (await kept.body()).startswith(b"RIFF")
                await person.part("kept-read").click()
                await expect(person.part("recordings")).to_contain_text("Aufnahmen")
                # A file that was chosen is read at an address of the page's own, without a host.
                assert not person.complaints and len(person.hosts - {""}) == 1


def picture_of(width: int, height: int) -> bytes:
    with io.BytesIO() as data:
        Image.new("RGB", (width, height), "teal").save(data, "PNG")
        return data.getvalue()


async def test_the_conversation_goes_on_after_the_network_was_away(chromium: str, tmp_path: Path):
    with minicpm_server() as model:
        engine = f"{{name: minicpm_worker, settings: {{url: '{model.url}'}}}}"
        # The only line is that of the socket whose end the server does not learn of meanwhile.
        with serving(tmp_path, "llm: {name: documents}", more=f"duplex: {{engine: {engine}}}\n") as served:
            async with (
                relayed(served.address) as relay,
                visit(chromium, f"{relay.address}/omni?raw", *FLAGS) as person,
            ):
                await person.part("talk").click()
                await model_has(lambda: len(model.heard) > 2)
                began_s = time.monotonic()
                relay.down()
                await expect(person.part("state")).to_have_text("Reconnecting", timeout=10_000)
                await expect(person.part("notice")).to_contain_text("Trying to go on")
                await asyncio.sleep(max(0.0, began_s + DROP_S - time.monotonic()))
                heard = len(model.heard)
                relay.up()
                await expect(person.part("said")).to_contain_text("is there again", timeout=60_000)
                await expect(person.part("state")).to_have_text(re.compile("Listening|Speaking"))
                await expect(person.part("notice")).to_be_hidden()
                await model_has(lambda: len(model.heard) > heard + 2)
                assert len(model.prepared) == 2
                await person.part("talk").click()
                await expect(person.part("kept-read")).to_be_visible()
                path = await person.part("kept-read").get_attribute("href")
                assert path is not None
                timeline = f"{served.address}/api/sessions/{path.removeprefix('/s/')}/timeline?kind=joined"
                joined = (await (await person.page.request.get(timeline)).json())["events"]
                assert len(joined) == 2


async def test_the_sound_of_both_sides_is_metered_and_the_user_mutes_types_and_shows(
    chromium: str, tmp_path: Path
):
    with minicpm_server() as model:
        engine = f"{{name: minicpm_worker, settings: {{url: '{model.url}', sees: true}}}}"
        with serving(tmp_path, "llm: {name: documents}", more=f"duplex: {{engine: {engine}}}\n") as served:
            async with visit(chromium, f"{served.address}/omni?raw", *FLAGS) as person:
                await expect(person.part("typing")).to_be_hidden()
                await person.part("talk").click()
                await expect(person.part("state")).to_have_text("Listening")
                for side in ("level-you", "level-bot"):
                    await expect(person.part(side)).not_to_have_attribute("aria-valuenow", "0")
                await mute_and_push(person, model)
                await type_and_show(person, model)
                await expect(person.part("latency-summary")).to_contain_text("Last answer")
                await person.part("latency").locator("summary").click()
                await expect(person.part("latency-legend")).to_contain_text("the model")
                await take_shot(person, "sound")
                assert not await serious(person.page)
                # What was set there is in force on the page of a call.
                await person.page.goto(f"{served.address}/")
                await person.part("sound-open").click()
                await expect(person.part("gain")).to_have_value("6")
                assert not person.complaints


async def hears_nothing(model: MiniCpmServer) -> None:
    """Wait until the model hears no sound of the microphone any more."""
    await model_has(lambda: all(np.abs(audio).max() < 1e-3 for audio in model.heard[-2:]))


async def mute_and_push(person: Visit, model: MiniCpmServer) -> None:
    """Mute the microphone by its key, and open it by another one with push to talk."""
    await person.page.keyboard.press("m")
    await expect(person.part("microphone")).to_have_attribute("aria-pressed", "true")
    await hears_nothing(model)
    await person.page.keyboard.press("m")
    await model_has(lambda: np.abs(model.heard[-1]).max() > 0.01)
    await person.page.keyboard.press("?")
    await expect(person.part("shortcuts")).to_be_visible()
    await person.page.keyboard.press("Escape")
    await person.part("sound-open").click()
    await expect(person.part("loudness-you")).to_contain_text("LUFS")
    await expect(person.part("loudness-bot")).to_contain_text("LUFS")
    await person.part("gain").fill("6")
    await person.part("push-to-talk").check()
    await person.page.keyboard.press("Escape")
    await hears_nothing(model)
    await person.page.keyboard.down(" ")
    await expect(person.part("state")).to_have_text("On air")
    await model_has(lambda: np.abs(model.heard[-1]).max() > 0.01)
    await person.page.keyboard.up(" ")
    await hears_nothing(model)


async def type_and_show(person: Visit, model: MiniCpmServer) -> None:
    """Type a question, which is answered aloud, and show a picture with another one."""
    await person.type("What are your opening hours on saturday?")
    said = person.part("said")
    await expect(said).to_contain_text("You: What are your opening hours")
    await expect(said).to_contain_text("ten until two")
    shown = {"name": "shown.png", "mimeType": "image/png", "buffer": picture_of(*SHOWN_SIZE)}
    await person.part("files").set_input_files(shown)
    await expect(person.part("attached").locator("img")).to_have_count(1)
    await person.part("send").click()
    await model_has(lambda: SHOWN_SIZE in [size for chunk in model.chunks for size in chunk["frames"]])
    await expect(said.locator("img")).to_have_count(1)
    await expect(person.part("attached")).to_be_hidden()
