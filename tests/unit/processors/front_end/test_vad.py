import asyncio
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from pipecat.audio.vad.vad_analyzer import VADParams, VADState

from parley.core.call_events import VoicePaused, VoiceResumed
from parley.core.errors import ConfigError
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.models.vad.silero import SileroVad
from parley.processors.front_end.vad import SharedVadAnalyzer, VadSettings
from parley.runtime.event_stream import CallEvents
from tests.fakes.vad import EnergyVad
from tests.voices import say, silence, tone

FRAME_BYTES = 640
WINDOW_MS = 32
PARAMS = VADParams(confidence=0.7, start_secs=0.128, stop_secs=0.2, min_volume=0.5)


class CountingExecutor(ThreadPoolExecutor):
    """Real executor that counts its jobs."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.jobs = 0

    def submit(self, *args, **kwargs):
        self.jobs += 1
        return super().submit(*args, **kwargs)


def analyzer(**changes: object) -> SharedVadAnalyzer:
    made = SharedVadAnalyzer(EnergyVad(), executor=None, params=PARAMS.model_copy(update=changes))
    made.set_sample_rate(16_000)
    return made


async def states(vad: SharedVadAnalyzer, pcm: bytes, frame_bytes: int = FRAME_BYTES) -> list[VADState]:
    return [await vad.analyze_audio(pcm[at : at + frame_bytes]) for at in range(0, len(pcm), frame_bytes)]


def changes(heard: list[VADState]) -> list[VADState]:
    return [state for before, state in zip([None, *heard], heard, strict=False) if state is not before]


async def test_speech_starts_after_its_windows_and_stops_after_quiet() -> None:
    heard = await states(analyzer(), silence(320) + tone(640) + silence(640))
    assert changes(heard) == [
        VADState.QUIET,
        VADState.STARTING,
        VADState.SPEAKING,
        VADState.STOPPING,
        VADState.QUIET,
    ]


async def test_a_short_noise_does_not_start_speech() -> None:
    heard = await states(analyzer(), silence(320) + tone(3 * WINDOW_MS) + silence(640))
    assert VADState.SPEAKING not in heard


async def test_a_short_pause_does_not_stop_speech() -> None:
    heard = await states(analyzer(), tone(640) + silence(5 * WINDOW_MS) + tone(640))
    assert VADState.QUIET not in heard[heard.index(VADState.SPEAKING) :]


async def test_where_speech_began_and_ended_is_known_to_one_window() -> None:
    vad = analyzer()
    assert vad.speech_started_sample is None
    await states(vad, silence(320) + tone(640) + silence(640))
    window = EnergyVad.window_samples
    assert vad.speech_started_sample == pytest.approx(320 * 16, abs=window)
    assert vad.speech_stopped_sample == pytest.approx(960 * 16, abs=window)


async def test_the_frame_size_does_not_change_the_decision() -> None:
    audio = silence(320) + tone(640) + silence(640)
    positions = []
    for frame_bytes in (320, 640, 1_024, 4_000, len(audio)):
        vad = analyzer()
        assert (await states(vad, audio, frame_bytes))[-1] is VADState.QUIET
        positions.append((vad.speech_started_sample, vad.speech_stopped_sample))
    assert len(set(positions)) == 1


async def test_a_voice_below_the_volume_is_ignored() -> None:
    # -20 dB against a floor of 0.95, which is -15 dB.
    heard = await states(analyzer(min_volume=0.95), tone(640, level=0.1))
    assert set(heard) == {VADState.QUIET}


async def test_audio_without_a_whole_window_costs_no_thread() -> None:
    executor = CountingExecutor()
    vad = SharedVadAnalyzer(EnergyVad(), executor=executor, params=PARAMS)
    vad.set_sample_rate(16_000)
    await states(vad, silence(30))
    assert executor.jobs == 0
    await states(vad, silence(2_970))
    windows = 3_000 * 16 // EnergyVad.window_samples
    assert executor.jobs == windows
    executor.shutdown()


async def test_no_thread_of_its_own_is_started() -> None:
    executor = ThreadPoolExecutor(max_workers=1)
    analyzers = [SharedVadAnalyzer(EnergyVad(), executor=executor) for _ in range(20)]
    for vad in analyzers:
        vad.set_sample_rate(16_000)
    await asyncio.gather(*(vad.analyze_audio(silence(100)) for vad in analyzers))
    assert len(executor._threads) == 1
    assert not any(vad._executor._threads for vad in analyzers)
    for vad in analyzers:
        await vad.cleanup()
    # The shared executor outlives the calls.
    assert executor.submit(lambda: 7).result() == 7
    executor.shutdown()


def test_another_input_rate_is_refused() -> None:
    with pytest.raises(ConfigError, match="8000"):
        SharedVadAnalyzer(EnergyVad(), executor=None).set_sample_rate(8_000)


def test_settings_become_pipecat_parameters() -> None:
    assert VadSettings(start_ms=96, stop_ms=320).params() == VADParams(
        confidence=0.7, start_secs=0.096, stop_secs=0.32, min_volume=0.5
    )


@pytest.mark.parametrize("voice", ["rms", "awb", "kal16", "slt"])
async def test_a_spoken_sentence_is_one_speech(voice: str) -> None:
    vad = SharedVadAnalyzer(SileroVad(), executor=None)
    vad.set_sample_rate(16_000)
    audio = silence(500) + say("how much is a replacement card", voice) + silence(600)
    heard = await states(vad, audio)
    assert changes(heard).count(VADState.SPEAKING) <= 2
    assert heard[-1] is VADState.QUIET
    assert vad.speech_started_sample is not None
    # Detected within half a second of the first sound.
    assert heard.index(VADState.SPEAKING) * FRAME_BYTES / PCM_BYTES_PER_SAMPLE / 16 < 1_000


@pytest.mark.parametrize(
    ("pause_windows", "received"),
    [(2, []), (3, ["pause", "resume"]), (5, ["pause", "resume"]), (10, ["pause"])],
)
async def test_a_pause_is_told_and_so_is_speech_that_goes_on_after_it(
    pause_windows: int, received: list[str]
):
    heard: list[str] = []
    events = CallEvents()
    events.subscribe(VoicePaused, lambda _event: heard.append("pause"))
    events.subscribe(VoiceResumed, lambda _event: heard.append("resume"))
    vad = SharedVadAnalyzer(
        EnergyVad(),
        executor=None,
        params=PARAMS,
        events=events,
    )
    vad.set_sample_rate(16_000)
    # Whole windows; the voice after a pause is long enough to be speech again when the first one had ended.
    pcm = tone(20 * WINDOW_MS) + silence(pause_windows * WINDOW_MS) + tone(20 * WINDOW_MS)
    await states(vad, pcm)
    assert heard == received


async def test_the_level_of_a_voice_is_that_of_its_loudest_syllable() -> None:
    vad = analyzer()
    assert vad.voice_level_db is None
    await states(vad, silence(320) + tone(320, level=0.1) + tone(320, level=0.3) + silence(640))
    # Of a sine: the amplitude over the square root of two.
    assert vad.voice_level_db == pytest.approx(20 * math.log10(0.3) - 3.01, abs=0.5)
    await states(vad, tone(320, level=0.05))
    assert vad.voice_level_db == pytest.approx(20 * math.log10(0.05) - 3.01, abs=0.5)
    # A sound that is too short for a voice changes nothing, and a loud sound before a voice is not its level.
    before_db = vad.voice_level_db
    await states(vad, silence(640) + tone(WINDOW_MS, level=0.9) + silence(640))
    assert vad.voice_level_db == before_db
    await states(vad, tone(WINDOW_MS, level=0.9) + silence(WINDOW_MS * 2) + tone(320, level=0.05))
    assert vad.voice_level_db == pytest.approx(20 * math.log10(0.05) - 3.01, abs=0.5)
