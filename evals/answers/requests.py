"""``python -m evals.answers.requests``: count the spoken requests that the language rules recognise.

``golden/requests.json`` has short turns of each kind that a rule is meant for: farewells, requests for a
person, commands, yes and no, backchannels, thanks, other media, numbers read out. Voices say them, the
product's recogniser transcribes them with a quarter of a second of quiet before and after, clean and over a
telephone line, and the rule of the kind judges the transcript. ``others`` are questions and statements that
contain such words; every rule judges them as they are written, and those that one accepts are listed.

Rules are chosen on the tuning half of the turns in the voices that tune (``--set tuning``), which prints the
transcripts that no rule accepts. The report set has the voices of other generators; it counts the tuning half
and the report half, which no rule was chosen on, apart and prints no transcript.

``--transcripts FILE`` keeps the transcripts, one JSON object a line, and ``--heard FILE`` judges kept ones:
that is how two versions of the rules are compared.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from parley.core.media import float_to_pcm16
from parley.core.tiers import Medium
from parley.evals.harness.command import exit_code, machine
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, check_outputs, markdown, publish
from parley.evals.human.conditions import by_phone
from parley.evals.human.conversations import PEAK
from parley.evals.human.generators import installed
from parley.evals.human.recordings import edges_of
from parley.evals.human.split import Split
from parley.evals.stt.measure import PIECE_SAMPLES, RATE_HZ
from parley.evals.stt.rows import create
from parley.language import find_language
from parley.language.intents import CallerIntent
from parley.models.stt import SpeechStream
from parley.turn_taking.clarification import is_made_of
from parley.turn_taking.human_answers import accepts, withdraws
from parley.turn_taking.utterances import Classifier, Utterance, UtteranceKind

GOLDEN = Path(__file__).resolve().parent / "golden" / "requests.json"
QUIET_SAMPLES = RATE_HZ // 4
LINES = ("clean", "phone")
DIGITS = "digits"
# Voice of a turn that is judged as it is written.
_WRITTEN_MS = 600
_ENGLISH = find_language("en")
_VOCABULARY, _INTENTS, _CLASSIFIER = _ENGLISH.vocabulary, _ENGLISH.intents, Classifier()


@dataclass(frozen=True, slots=True)
class Heard:
    """Transcript of a turn.

    Attributes:
        text: as it was said.
        voice: generator and voice.
        line: one of ``LINES``.
        off: quiet before it beyond ``QUIET_SAMPLES``, in samples.
        heard: recognised words.
        ms: length of the voice.
    """

    text: str
    voice: str
    line: str
    off: int
    heard: str
    ms: int


@dataclass(frozen=True, slots=True)
class Turn:
    """Turn of the golden set: its half, the kind of its request, its words, and the digits that it reads."""

    half: str
    kind: str
    text: str
    digits: str = ""


@cache
def golden() -> tuple[tuple[Turn, ...], tuple[str, ...]]:
    """Return the turns of both halves, and the other sentences."""
    read = json.loads(GOLDEN.read_text(encoding="utf-8"))
    turns: list[Turn] = []
    for half in (split.value for split in Split):
        turns += [Turn(half, kind, text) for kind, texts in read[half]["requests"].items() for text in texts]
        turns += [Turn(half, DIGITS, text, digits) for text, digits in read[half][DIGITS].items()]
    return tuple(turns), tuple(read["others"])


def _classified(heard: str, ms: int) -> UtteranceKind:
    return _CLASSIFIER.kind(Utterance(heard, stretches_ms=(ms,)))


def _declines(heard: str) -> bool:
    words = _VOCABULARY.words(heard)
    return is_made_of(words, _VOCABULARY.negative | _VOCABULARY.polite) or withdraws(words, _VOCABULARY)


def _thanks(heard: str) -> bool:
    intent = _ENGLISH.small_talk.exact_intent(_ENGLISH.small_talk.spoken_words(heard))
    return intent is not None and intent.name == "thanks"


def _asks_for(medium: Medium, *, is_shown: bool = False) -> Callable[[str, int], bool]:
    return lambda heard, _: _INTENTS.requested_medium(heard, is_shown=is_shown) is medium


def _intends(intent: CallerIntent) -> Callable[[str, int], bool]:
    return lambda heard, _: _INTENTS.caller_intent(heard) is intent


# The rule of each kind: over the bot a stop is one for turn-taking, after it one for the answerer.
RULES: Mapping[str, Callable[[str, int], bool]] = {
    "farewell": _intends(CallerIntent.FAREWELL),
    "human": lambda heard, _: _INTENTS.requests_human(heard),
    "moment": lambda heard, _: _INTENTS.asks_for_a_moment(heard),
    "stop": lambda heard, ms: _classified(heard, ms) is UtteranceKind.STOP,
    "repeat": _intends(CallerIntent.REPEAT),
    "more": _intends(CallerIntent.MORE),
    "yes": lambda heard, _: accepts(_VOCABULARY.words(heard), _VOCABULARY),
    "confirm": lambda heard, _: is_made_of(_VOCABULARY.words(heard), _VOCABULARY.affirmative),
    "no": lambda heard, _: _declines(heard),
    "withdraw": lambda heard, _: withdraws(_VOCABULARY.words(heard), _VOCABULARY),
    "backchannel": lambda heard, ms: _classified(heard, ms) is UtteranceKind.BACKCHANNEL,
    "thanks": lambda heard, _: _thanks(heard),
    "text": _asks_for(Medium.TEXT),
    "voice": _asks_for(Medium.VOICE),
    "video": _asks_for(Medium.VIDEO),
    "screen": _asks_for(Medium.SCREEN),
    "hide": _asks_for(Medium.VOICE, is_shown=True),
}


def is_recognised(turn: Turn, heard: str, ms: int = _WRITTEN_MS) -> bool:
    """Return whether the rule of a turn's kind accepts what was recognised.

    Args:
        turn: what was said.
        heard: transcript.
        ms: length of the voice.
    """
    if turn.kind == DIGITS:
        stated = _ENGLISH.facts.statements(f"my pin is {heard}")
        return [each.value for each in stated] == [turn.digits]
    return RULES[turn.kind](heard, ms)


def accepted_others() -> list[tuple[str, str]]:
    """Return the kinds of request that a rule takes another sentence for, with the sentence."""
    _, others = golden()
    return [(kind, text) for text in others for kind, rule in RULES.items() if rule(text, 3 * _WRITTEN_MS)]


def decode(
    split: Split, texts: Iterable[str], offsets: Sequence[int], voices: Sequence[str] = ()
) -> Iterator[Heard]:
    """Yield the transcripts of every text in the installed voices of a side.

    Args:
        split: side of the voices.
        texts: turns; each is said once.
        offsets: quiet before a turn beyond ``QUIET_SAMPLES``, in samples.
        voices: generators, or voices as "generator/voice". Empty for all.
    """
    said = tuple(dict.fromkeys(texts))
    stream = create("moonshine_tiny").open_stream()
    try:
        for generator in installed(split):
            for voice in generator.voices:
                name = f"{generator.name}/{voice}"
                if voices and not {name, generator.name}.intersection(voices):
                    continue
                say(name)
                for text in said:
                    sound = generator.say(voice, text).at_rate(RATE_HZ)
                    for off, line, heard, ms in _transcripts(stream, sound, offsets):
                        yield Heard(text, name, line, off, heard, ms)
    finally:
        stream.close()


def _transcripts(
    stream: SpeechStream, sound: np.ndarray, offsets: Sequence[int]
) -> Iterator[tuple[int, str, str, int]]:
    """Yield the quiet before a sound, the line, the recognised words and the length of the voice."""
    first, end = edges_of(sound, RATE_HZ)
    scaled = sound[first:end] * (PEAK / max(float(np.abs(sound).max()), 1e-6))
    for off in offsets:
        padded = np.pad(scaled, (QUIET_SAMPLES + off, QUIET_SAMPLES)).astype(np.float32)
        for line in LINES:
            arrived = by_phone(padded, 0.0, np.random.default_rng(1)) if line == "phone" else padded
            stream.start()
            for start in range(0, len(arrived), PIECE_SAMPLES):
                stream.feed(float_to_pcm16(arrived[start : start + PIECE_SAMPLES]))
            yield off, line, stream.finish().text, round(1_000 * len(scaled) / RATE_HZ)


def figures(heard: Iterable[Heard]) -> dict[str, Any]:
    """Return the turns whose rule accepted the transcript, by half, kind or voice, and line."""
    turns, _ = golden()
    by_text: dict[str, list[Turn]] = {}
    for turn in turns:
        by_text.setdefault(turn.text, []).append(turn)
    said, right = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    missed = Counter[tuple[str, str, str]]()
    for one in heard:
        for turn in by_text.get(one.text, ()):
            accepted = is_recognised(turn, one.heard, one.ms)
            missed[turn.kind, turn.text, one.heard] += not accepted
            for row in (turn.kind, one.voice, "all"):
                said[turn.half, row, one.line] += 1
                right[turn.half, row, one.line] += accepted
    rows = [
        {"half": half, "of": row, "line": line, "recognised": right[half, row, line], "said": count}
        for (half, row, line), count in said.items()
    ]
    others = [f"{kind}: {text}" for kind, text in accepted_others()]
    return {"rows": rows, "others": len(golden()[1]), "accepted_others": others, "missed": +missed}


def table(result: Mapping[str, Any]) -> str:
    """Return a Markdown table, a row for each kind and voice of a half, and the sentences taken wrongly."""
    cells = {(row["half"], row["of"], row["line"]): row for row in result["rows"]}
    shown = [
        (half, of, *(_share(cells.get((half, of, line))) for line in LINES))
        for half, of in dict.fromkeys((row["half"], row["of"]) for row in result["rows"])
    ]
    wrong = "".join(f"\n* {each}" for each in result["accepted_others"])
    counted = markdown(("half", "kind or voice", *LINES), shown)
    return f"{counted}\n\nOther sentences: {result['others']}; taken for a request:{wrong or ' none'}\n"


def _share(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{row['recognised']} of {row['said']} ({100 * row['recognised'] / row['said']:.0f} %)"


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.answers.requests",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--set", choices=[split.value for split in Split], default=Split.REPORT.value)
    parser.add_argument(
        "--offsets", nargs="+", type=int, default=[100], help="samples of quiet before a turn beyond 250 ms"
    )
    parser.add_argument(
        "--voices", nargs="+", default=[], help="generators, or voices as generator/voice; default: all"
    )
    parser.add_argument("--transcripts", type=Path, help="write the transcripts to this file of JSON lines")
    parser.add_argument("--heard", type=Path, help="judge the transcripts of this file in place of decoding")
    add_outputs(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the evaluation; return 0, or 2 after printing one line to standard error."""
    given = build_parser().parse_args(arguments)
    return exit_code(lambda: _measure(given))


def _measure(given: argparse.Namespace) -> int:
    check_outputs(given, "json", "table", "transcripts")
    split = Split(given.set)
    turns, _ = golden()
    if given.heard is not None:
        heard = [Heard(**json.loads(line)) for line in given.heard.read_text(encoding="utf-8").splitlines()]
    else:
        texts = [turn.text for turn in turns if split is Split.REPORT or turn.half == split.value]
        heard = list(decode(split, texts, given.offsets, given.voices))
    if given.transcripts is not None:
        lines = "".join(f"{json.dumps(asdict(one))}\n" for one in heard)
        given.transcripts.write_text(lines, encoding="utf-8")
    result = figures(heard)
    missed = result.pop("missed")
    if split is Split.TUNING:
        for (kind, text, transcript), count in sorted(missed.items()):
            say(f"{kind}: {text} -> {transcript} ({count})")
    return publish(given, {"set": split.value, **result, "machine": machine()}, table)


if __name__ == "__main__":
    raise SystemExit(main())
