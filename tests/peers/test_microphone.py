"""``python bot.py --transport local`` on a sound server with two virtual devices.

Each test owns a PulseAudio server in a directory of its own, with two null sinks: the monitor of one is the
microphone, the other is the loudspeaker. The caller's speech is played into the first. Both monitors are
recorded, so the assertions are about sound. The sound server of the machine's user is not used.
"""

import asyncio
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from parley.audio.audible import AudibleMeter
from parley.core.media import pcm16_to_float
from parley.recording.folder import BOT_AUDIO, CALLER_AUDIO, read_recording
from parley.recording.merge import track_samples
from tests.peers.server import ROOT
from tests.peers.test_recording import recording_deployment
from tests.system import missing
from tests.voices import RATE_HZ, say, silence

ALSA_PLUGIN = "alsa-lib/libasound_module_pcm_pulse.so"
NEEDED = {
    "pulseaudio": shutil.which("pulseaudio"),
    "pulseaudio-utils": shutil.which("pacat") and shutil.which("parec"),
    "libasound2-plugins": [*Path("/usr/lib").glob(f"*/{ALSA_PLUGIN}"), *Path("/usr/lib").glob(ALSA_PLUGIN)],
    "PyAudio (pip install pyaudio, which needs portaudio19-dev)": find_spec("pyaudio"),
}

RAW = ("--raw", f"--rate={RATE_HZ}", "--channels=1", "--format=s16le", "--latency-msec=20")
SERVER = """
load-module module-null-sink sink_name=loudspeaker rate=48000
load-module module-null-sink sink_name=caller rate=48000
set-default-sink loudspeaker
set-default-source caller.monitor
load-module module-native-protocol-unix auth-anonymous=1 socket={socket}
"""
# The whole ALSA configuration, so that this machine's own cards stay out of it.
ALSA = """
pcm.default { type pulse }
ctl.default { type pulse }
"""


class Recording:
    """Audio that a monitor delivers, with the positions of sounds in it."""

    def __init__(self) -> None:
        self._meter = AudibleMeter(RATE_HZ)
        # The energy up to the end of each piece, as (samples, sum of squares).
        self._energy: list[tuple[int, float]] = [(0, 0.0)]
        self._origin_s: float | None = None
        self._news = asyncio.Condition()

    async def follow(self, stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(RATE_HZ // 50 * 2):
            if len(piece) % 2:
                piece += await stream.readexactly(1)
            async with self._news:
                samples = pcm16_to_float(piece)
                self._meter.feed(samples)
                energy = self._energy[-1][1] + float(np.square(samples, dtype=np.float64).sum())
                self._energy.append((self._meter.samples_seen, energy))
                # The piece with the least delay gives the best estimate of the recording's start.
                began_s = time.monotonic() - self._meter.samples_seen / RATE_HZ
                self._origin_s = began_s if self._origin_s is None else min(self._origin_s, began_s)
                self._news.notify_all()

    def now(self) -> int:
        """Return the position of the newest sample."""
        return self._meter.samples_seen

    def when_s(self, sample: int) -> float:
        """Return the time of a sample on the machine's monotonic clock, to about 20 ms."""
        assert self._origin_s is not None
        return self._origin_s + sample / RATE_HZ

    @property
    def sounding(self) -> bool:
        return self._meter.sounding

    @property
    def last_audible(self) -> int:
        return self._meter.last_audible or 0

    @property
    def first_audible(self) -> int:
        return self._meter.first_audible or 0

    def level_db(self, begin_s: float, end_s: float) -> float:
        """Return the mean level between two moments of the monotonic clock, in dBFS."""
        assert self._origin_s is not None
        begin, end = ((moment_s - self._origin_s) * RATE_HZ for moment_s in (begin_s, end_s))
        inside = [entry for entry in self._energy if begin <= entry[0] <= end]
        (first, before), (last, behind) = inside[0], inside[-1]
        return 10 * math.log10((behind - before) / (last - first) + 1e-10)

    def quiet_ms(self) -> int:
        return (self.now() - self.last_audible) * 1000 // RATE_HZ

    async def until(self, condition: Callable[[], bool], *, within_s: float = 60) -> None:
        async with asyncio.timeout(within_s), self._news:
            await self._news.wait_for(condition)


@dataclass
class Sound:
    """A sound server with a caller's side and a bot's side.

    Attributes:
        server: its process.
        environment: environment of the processes that connect to it.
        caller: recording of the microphone.
        bot: recording of the loudspeaker.
    """

    server: Process
    environment: dict[str, str]
    caller: Recording
    bot: Recording

    async def play(self, pcm: bytes) -> None:
        """Play audio into the microphone; return when it has been played."""
        player = await asyncio.create_subprocess_exec(
            "pacat", "--playback", "--device=caller", *RAW, env=self.environment, stdin=PIPE
        )
        try:
            await asyncio.wait_for(player.communicate(pcm), len(pcm) / 2 / RATE_HZ + 5)
        finally:
            await end(player)

    async def hear_the_loudspeaker(self, *, volume_percent: int) -> None:
        """Feed the loudspeaker back into the microphone from now on, with a short delay."""
        loopback = ("source=loudspeaker.monitor", "sink=caller", "latency_msec=40", "source_dont_move=1")
        await self._control("load-module", "module-loopback", *loopback)
        played = (await self._control("list", "short", "sink-inputs")).split()
        await self._control("set-sink-input-volume", played[0], f"{volume_percent}%")

    async def _control(self, *command: str) -> str:
        control = await asyncio.create_subprocess_exec("pactl", *command, env=self.environment, stdout=PIPE)
        said, _ = await asyncio.wait_for(control.communicate(), 5)
        assert control.returncode == 0
        return said.decode()


async def end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def private_environment(folder: Path) -> dict[str, str]:
    (folder / "asound.conf").write_text(ALSA)
    strangers = ("PULSE_", "PIPEWIRE_", "DBUS_", "DISPLAY", "ALSA_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(strangers)}
    return own | {
        "XDG_RUNTIME_DIR": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "PULSE_COOKIE": str(folder / "cookie"),
        "PULSE_SERVER": f"unix:{folder}/native",
        "ALSA_CONFIG_PATH": str(folder / "asound.conf"),
        "JACK_NO_START_SERVER": "1",
    }


@pytest.fixture(autouse=True)
def system() -> None:
    absent = [name for name, found in NEEDED.items() if not found]
    if absent:
        missing(*absent)


@pytest.fixture
async def sound() -> AsyncIterator[Sound]:
    # Not pytest's folder: the path of a socket may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="parley-sound-"))
    environment = private_environment(folder)
    script = folder / "default.pa"
    script.write_text(SERVER.format(socket=folder / "native"))
    own = {name: value for name, value in environment.items() if name != "PULSE_SERVER"}
    children: list[Process] = []
    followers: list[asyncio.Task[None]] = []
    try:
        server = await asyncio.create_subprocess_exec(
            "pulseaudio", "-n", f"--file={script}", "--daemonize=no", "--exit-idle-time=-1",
            "--use-pid-file=no", env=own, stderr=DEVNULL,
        )  # fmt: skip
        children.append(server)
        recordings: list[Recording] = []
        for sink in ("caller", "loudspeaker"):
            recorder = await record(sink, environment, server)
            children.append(recorder)
            recordings.append(Recording())
            assert recorder.stdout is not None
            followers.append(
                asyncio.create_task(recordings[-1].follow(recorder.stdout), name=f"record.{sink}")
            )
        for recording in recordings:
            await recording.until(lambda recording=recording: recording.now() > 0)
        yield Sound(server, environment, *recordings)
    finally:
        for child in reversed(children):
            await end(child)
        await asyncio.gather(*followers)
        shutil.rmtree(folder)


async def record(sink: str, environment: dict[str, str], server: Process) -> Process:
    """Return a recorder that has reached the server, which takes a moment."""
    async with asyncio.timeout(60):
        while True:
            assert server.returncode is None, "the sound server ended"
            asked = await asyncio.create_subprocess_exec(
                "pactl", "info", env=environment, stdout=DEVNULL, stderr=DEVNULL
            )
            if await asked.wait() == 0:
                return await asyncio.create_subprocess_exec(
                    "parec", f"--device={sink}.monitor", *RAW, env=environment, stdout=PIPE
                )


@dataclass
class Command:
    """``python bot.py --transport local`` in a process group of its own, as a shell starts it."""

    process: Process

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None

    def press_ctrl_c(self) -> None:
        """Signal the whole group, child processes included, as the terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    async def ended(self, *, within_s: float = 60) -> tuple[int, str]:
        """Return the exit status and the error output of the command."""
        _, error = await asyncio.wait_for(self.process.communicate(), within_s)
        lines = [line for line in error.decode().splitlines() if "ᓚᘏᗢ" not in line]
        assert self.process.returncode is not None
        return self.process.returncode, "\n".join(lines)


@asynccontextmanager
async def talking(environment: dict[str, str], *arguments: str) -> AsyncIterator[Command]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "bot.py"), "--transport", "local", *arguments,
        cwd=ROOT, env=environment, stdout=DEVNULL, stderr=PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def greeting_begins(sound: Sound, command: Command) -> None:
    await sound.bot.until(lambda: sound.bot.sounding or command.has_ended)
    if command.has_ended:
        pytest.fail(f"the command ended: {await command.ended(within_s=1)}")


@pytest.mark.alone
@pytest.mark.parametrize("mode", ["cascade", "duplex"])
async def test_the_caller_is_greeted_and_answered_and_ctrl_c_ends_the_call(sound: Sound, mode: str):
    bot, caller = sound.bot, sound.caller
    async with talking(sound.environment, "--mode", mode) as command:
        await greeting_begins(sound, command)
        greeted = bot.last_audible
        await bot.until(lambda: bot.quiet_ms() > 800)
        assert bot.last_audible - greeted > 3 * RATE_HZ

        await sound.play(say("How do I block a lost card?") + silence(200))
        asked_s = caller.when_s(caller.last_audible)
        await bot.until(lambda: bot.sounding)
        answered = bot.last_audible
        assert bot.when_s(answered) > asked_s
        await bot.until(lambda: bot.last_audible > answered + 2 * RATE_HZ)

        # In the middle of a word, with audio on its way to the device.
        command.press_ctrl_c()
        status, complaint = await command.ended(within_s=3)
        assert status in (0, 130), complaint
        assert "Traceback" not in complaint
        assert "ran dry" not in complaint
        ended = bot.now()
        await bot.until(lambda: bot.now() > ended + RATE_HZ)
        # Nothing of the answer, which goes on for seconds, is heard once the process is gone.
        assert bot.last_audible < ended + RATE_HZ // 2


@pytest.mark.alone
async def test_a_call_on_this_machine_is_recorded_as_its_devices_had_it(sound: Sound, tmp_path: Path):
    config, question = recording_deployment(tmp_path), say("How do I block a lost card?")
    async with talking(sound.environment, "--config", str(config)) as command:
        await greeting_begins(sound, command)
        await sound.bot.until(lambda: sound.bot.quiet_ms() > 800)
        await sound.play(question + silence(200))
        asked = sound.bot.now()
        await sound.bot.until(lambda: sound.bot.last_audible > asked + 2 * RATE_HZ)
        command.press_ctrl_c()
        status, complaint = await command.ended()
        assert status in (0, 130), complaint
    (meta,) = (tmp_path / "data").rglob("meta.json")
    recording = read_recording(meta.parent)
    assert recording.meta["transport"] == "local" and recording.meta["mode"] == "cascade"
    heard, said = (track_samples(recording, name, RATE_HZ) for name in (CALLER_AUDIO, BOT_AUDIO))
    # A busy machine tears apart what a sound server plays, so that windows of it are like no other.
    levels = [float(np.sqrt(np.mean(each**2))) for each in np.array_split(heard, len(heard) // 800)]
    assert max(levels) > 0.01 and np.quantile(levels, 0.1) < 0.001
    # The greeting, and at least two seconds of the answer.
    assert np.count_nonzero(np.abs(said) > 0.001) > 2 * RATE_HZ
    names = [each["event"] for each in recording.timeline()["events"]]
    assert "TurnEnded" in names and names.count("ReplyStarted") == 2


async def talk_over_the_greeting(sound: Sound, command: Command) -> tuple[float, float]:
    """Return when the bot's greeting and the caller's words over it begin, and when those end."""
    bot, caller = sound.bot, sound.caller
    await greeting_begins(sound, command)
    began_s = bot.when_s(bot.last_audible)
    # By now the bot has measured that no echo comes back.
    await bot.until(lambda: bot.when_s(bot.now()) > began_s + 0.3)
    over = say("Hold on please, I would like to ask you about something else instead.")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sound.play(over), name="caller")
        await caller.until(lambda: caller.sounding)
        onset_s = caller.when_s(caller.first_audible)
        # The greeting lasts more than three seconds, the caller's words as well.
        assert onset_s - began_s < 1.5
    return began_s, onset_s


@pytest.mark.alone
async def test_the_bot_speaks_lower_and_then_stops_when_the_caller_talks_over_its_greeting(sound: Sound):
    bot = sound.bot
    async with talking(sound.environment) as command:
        began_s, onset_s = await talk_over_the_greeting(sound, command)
        # The two recordings are aligned to about 20 ms each. The bot ducks when voice activity has noticed a
        # voice, and is cut when the voice has lasted for 0.7 s: 0.91 to 0.93 s when it was measured.
        ducked_db = bot.level_db(onset_s + 0.35, onset_s + 0.65) - bot.level_db(began_s, onset_s)
        assert ducked_db < -6
        assert 0.6 < bot.when_s(bot.last_audible) - onset_s < 1.1


@pytest.mark.alone
async def test_without_barge_in_rules_any_voice_stops_the_bot_at_once(sound: Sound, tmp_path: Path):
    bot = sound.bot
    config = tmp_path / "at_once.yaml"
    config.write_text("name: at_once\nhearing: {barge_in: null}\n")
    async with talking(sound.environment, "--config", str(config)) as command:
        _, onset_s = await talk_over_the_greeting(sound, command)
        # 190 to 290 ms when it was measured; the two recordings are aligned to about 20 ms each.
        assert bot.when_s(bot.last_audible) - onset_s < 0.4


@pytest.mark.alone
async def test_a_bot_that_hears_itself_says_its_greeting_to_the_end(sound: Sound):
    """A bot without a headset says its whole greeting.

    The loudspeaker is 18 dB louder than the microphone's signal of it.
    """
    bot, caller = sound.bot, sound.caller
    await sound.hear_the_loudspeaker(volume_percent=50)
    async with talking(sound.environment) as command:
        await greeting_begins(sound, command)
        greeted = bot.last_audible
        await caller.until(lambda: caller.sounding)
        await bot.until(lambda: bot.quiet_ms() > 1_500)
        # A bot that takes itself for a caller falls silent within half a second, and then asks the caller to
        # repeat.
        assert bot.last_audible - greeted > 3 * RATE_HZ

        await sound.play(say("How do I block a lost card?") + silence(200))
        await bot.until(lambda: bot.sounding)
        command.press_ctrl_c()
        status, complaint = await command.ended()
        assert status in (0, 130), complaint
        assert "echo control failed" not in complaint


async def test_a_sound_server_that_dies_ends_the_command_with_one_line(sound: Sound):
    async with talking(sound.environment) as command:
        await greeting_begins(sound, command)
        sound.server.kill()
        status, complaint = await command.ended()
    assert status == 2
    assert "Traceback" not in complaint
    # PortAudio prints lines of its own before.
    said = complaint.splitlines()[-1]
    assert re.fullmatch(r"bot.py: the (microphone|loudspeaker) 'default' has gone: nothing .*", said)


async def test_no_sound_server_is_one_line_and_status_2(tmp_path: Path):
    async with talking(private_environment(tmp_path)) as command:
        status, complaint = await command.ended()
    assert status == 2
    assert complaint.startswith("bot.py: ")
    assert len(complaint.splitlines()) == 1
