"""Make tests/golden/questions_heard.json: the evaluation questions as the embedded recogniser hears them.

Run by hand in the product's environment: ``python scripts/make_misheard_questions.py``. Every question of
tests/golden/questions.json is spoken by the flite command, in a voice that changes from one question to the
next, and transcribed by pocketsphinx with its stock language model: the wrong words in the result are real
ones.
"""

import json
import subprocess
import tempfile
import wave
from pathlib import Path

from pocketsphinx import Decoder

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
VOICES = ("slt", "rms", "awb")


def hear(decoder: Decoder, text: str, voice: str) -> str:
    """Return pocketsphinx's transcript of ``text`` spoken by a flite voice."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spoken.wav"
        subprocess.run(["flite", "-voice", voice, "-t", text, "-o", str(path)], check=True, timeout=60)
        with wave.open(str(path)) as spoken:
            pcm = spoken.readframes(spoken.getnframes())
    decoder.start_utt()
    decoder.process_raw(pcm, False, True)
    decoder.end_utt()
    hypothesis = decoder.hyp()
    return hypothesis.hypstr if hypothesis else ""


def main() -> None:
    """Write each part of the evaluation set again with its questions as transcribed."""
    decoder = Decoder(samprate=16_000, fwdflat=False, loglevel="FATAL")
    written = json.loads((GOLDEN / "questions.json").read_text(encoding="utf-8"))
    heard: dict[str, list[object]] = {}
    number = 0
    for part, rows in written.items():
        heard[part] = []
        for row in rows:
            question = row if isinstance(row, str) else row[1]
            text = hear(decoder, question, VOICES[number % len(VOICES)])
            heard[part].append(text if isinstance(row, str) else [row[0], text])
            number += 1
    lines = [
        f' "{part}": [\n' + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n ]"
        for part, rows in heard.items()
    ]
    target = GOLDEN / "questions_heard.json"
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
