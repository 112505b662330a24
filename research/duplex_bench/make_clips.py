"""Make the shipped clips of ``evals.duplex_bench``: synthetic callers, with the times of their words.

    python -m research.duplex_bench.make_clips evals/duplex_bench/data

The layout is that of Full-Duplex-Bench: a folder for each task, a numbered folder for each clip. The latter
contains ``input.opus``, the annotation by which the task is scored and ``transcription.json``;
``events.json`` lists everything in the clip. Everything is drawn from the seed and the place of the clip:
another seed, or more clips, is another set.

Callers ask questions that the shipped documents (``knowledge/``) answer, in words on which nothing of
``research.turn_taking`` was fitted. Clips with speech over the bot use questions whose answers take ten
seconds or more, so that the bot is in the middle of one. Callers are flite's rms, awb and kal16 and
espeak-ng's en-us; the bot of the shipped deployment is slt. Pauses inside turns have the law of
``turn_taking.endpointing.pauses``, from ``HOLD_MS`` on, and are marked as people mark them
(``research.turn_taking.prosody``). The format is Opus, as a browser sends it, because 23 minutes of WAV are
44 MB.
"""

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from parley.audio.audible import audible_spans
from parley.evals.echo.rooms import Speakerphone, at_level, impulse_response
from parley.evals.turns import audio, sounds
from parley.evals.turns.callers import ScriptedTurn, Silence
from parley.turn_taking.endpointing.pauses import PauseLaw
from research.turn_taking.prosody import marked
from research.turn_taking.synthetic_speech import pieces

RATE_HZ = 16_000
VOICES: tuple[tuple[str, str], ...] = (
    ("flite", "rms"),
    ("flite", "awb"),
    ("flite", "kal16"),
    ("espeak", "en-us"),
)
CALLER_DBFS, ROOM_DBFS = -24.0, -70.0
LEAD_MS = 500
HOLD_MS = (400, 2_500)
# From the end of the question to the speech over the answer.
OVER_MS = (3_500, 4_500)
TURN_TAIL_MS, INTERRUPTION_TAIL_MS, OVER_TAIL_MS = 3_500, 4_500, 4_000
END_MS = 200
ASIDE_DB, BACKGROUND_DB, TIC_DB = -10.0, (-20.0, -15.0), 3.0
BIT_RATE_QUALITY = 0.9
# A listener's moment: so long after the end of a sentence that is not the last (benchmarks of listeners put
# it there), in bins of this length.
CUE_MS, BIN_MS = (200, 1_000), 200

# Each is answered with at least 31 words.
QUESTIONS = (
    "I lost my card. What should I do?",
    "Can I freeze my card for a while?",
    "How do I open an account?",
    "What about a joint account?",
    "When are your branches open?",
    "Where can I deposit cash?",
    "How do I apply for a mortgage?",
    "How do standing orders work?",
    "How do I dispute a card payment?",
    "What happens if I miss a loan payment?",
    "How do I check my balance?",
    "What happens after a transfer to the wrong person?",
    "Where can I get foreign currency?",
    "How long does a transfer take?",
    "Do you have an overdraft limit?",
    "How do I change my address?",
    "Are my deposits insured?",
    "Can I use my card abroad?",
    "How do I deposit a check?",
    "What is the overdraft interest?",
)
TURNS = (
    "How do I close an account?",
    "How can I make a complaint?",
    "What does a domestic wire cost?",
    "I would like to book an appointment.",
    "How much is a safe deposit box?",
    "What is the interest on a car loan?",
    "Can I stop a direct debit?",
    "What does a gold credit card cost?",
    "I want to know my credit score.",
    "What is the transfer limit?",
    "Can I pay a mortgage early?",
    "What happens after three wrong pins?",
    "Please tell me the number of customer service.",
    "How long does a replacement card take?",
    "How do I log in with a fingerprint?",
    "I need to change my name.",
    "What does a student account include?",
    "Is there a fee for contactless payments?",
    "When do you send account statements?",
    "How does switching from another bank work?",
)
INTERRUPTIONS = (
    "Wait, what does express delivery cost?",
    "No, I mean the business account.",
    "Sorry, where is the main branch?",
    "Hold on, how much is the monthly account fee?",
    "Excuse me, do you have cash machines?",
    "Okay stop, what is the card spending limit?",
    "But what does an international wire cost?",
    "No wait, I want to cancel a transfer.",
    "And how do I set a travel notice?",
    "Actually, can children get a debit card?",
    "One moment, what is the cash withdrawal limit?",
    "I don't need that, tell me about personal loans.",
    "Stop please, how do I close an account?",
    "No no, what is the rate for a mortgage?",
    "Can you tell me the transfer limit instead?",
    "Sorry, I have another question about my pin.",
    "What about a student account?",
    "Hang on, is the app free?",
    "Let me ask about the credit card bill.",
    "That is enough, what does a car loan cost?",
)
# A turn with pauses in it; a bar marks a place for one.
HELD = (
    "I would like to know | how long it takes | until the money arrives",
    "Can you tell me um | what the fee is for | a transfer to another country",
    "I have been looking for | a branch near the station | that is open on Saturday",
    "My daughter wants | a card of her own | and I do not know how that works",
    "I bought something online and | the shop charged me twice | for the same thing",
    "We are planning a trip to | Canada and Mexico | so we need some money",
    "The thing is uh | I forgot the pin of | my new credit card",
    "I want to send about | four hundred dollars | to my brother in Spain",
    "Yesterday I was at | a cash machine in the city and | it kept my card",
    "What I would like to ask is | whether the account costs | anything at all",
    "I moved last week and | my new address is | in the center of town",
    "If I pay back | a part of the mortgage um | does that cost extra",
    "Is it possible to | see my statements from | two or three years ago",
    "There was a letter about | the overdraft on | my second account",
    "I need um | an appointment with somebody who | knows about business accounts",
    "My wife and I | would like to open | an account that we share",
    "Somebody told me that | the fee is gone when | my salary comes in",
    "I think that | the standing order for the rent | was paid too late",
    "Could you please explain | how I can put | a check into my account",
    "For my old car | I would like to borrow | about five thousand dollars",
)
STORIES = (
    "So last month I went on a trip with my sister. | We wanted to see the coast and the old towns. | "
    "On the second day we stopped at a small market. | I paid for lunch with my card as always. | "
    "Later in the evening I looked at my account. | And there it was, the same payment twice. | "
    "I thought it would go away but it is still there.",
    "I have had this account for about eleven years. | "
    "My parents opened it for me when I was a student. | "
    "Back then the branch was right around the corner. | "
    "Then it moved to the other side of the river. | So I started to do everything on the phone. | "
    "That worked well until the phone broke. | And now I am looking for another way.",
    "We are thinking about buying a house next year. | "
    "It is a bit outside of the city near the lake. | My husband has a new job there since spring. | "
    "The children would go to school by bus. | We have saved some money over the years. | "
    "But of course it will not be enough. | And we have no idea where to begin.",
    "My neighbor is an old lady who lives alone. | She asked me to help her with her letters. | "
    "There were some papers from the bank on the table. | "
    "She did not understand what they were about. | We read them together for almost an hour. | "
    "In the end we put them all in a folder. | And I promised to give you a call about it.",
    "I run a little shop for flowers and plants. | Most people pay with a card these days. | "
    "But on Saturdays there is still a lot of cash. | I used to bring it in on Monday morning. | "
    "Now the counter opens later than it used to. | So the money stays in the drawer for days. | "
    "That is what worries me a little.",
    "Our son is going to study in another country. | He leaves at the end of the summer. | "
    "The rent over there is due every month. | His mother wants to send it from her account. | "
    "We tried that once with a small amount. | It took more than a week to get there. | "
    "So we would like to find something better.",
)
LISTENER = ("Okay.", "Uh huh.", "Right.", "Yeah.", "I see.")
ASIDES = (
    "Anna, could you close the window?",
    "No honey, the keys are on the kitchen table.",
    "Peter, can you turn down the radio a bit?",
    "I will be there in a minute, mom.",
    "Put that on the desk over there, thanks.",
    "Did you feed the cat this morning?",
    "Tell him that I am on the phone.",
    "Just leave the box next to the door.",
    "Maria, dinner is in the oven.",
    "We can go to the park after this.",
    "Yes dear, your shoes are upstairs.",
    "Thomas, please don't jump on the sofa.",
    "Give the ball to your sister.",
    "Can somebody get the door please?",
    "I think the dog wants to go out.",
    "Not now, ask your father about it.",
)
OTHERS = (
    "The train to the airport leaves from platform seven.",
    "They said it would rain the whole weekend.",
    "I told her that the meeting was moved to Thursday.",
    "And then he painted the fence in a different color.",
    "The second half was much better than the first one.",
    "Have you seen the new film about the mountain?",
    "We should buy some bread and milk on the way home.",
    "It was the best soup that I had in years.",
    "The garden looks lovely at this time of the year.",
    "Nobody knew where the teacher had gone.",
    "Her brother works at a hospital in the north.",
    "You could take the bus instead of the car.",
    "The museum was closed because of the holiday.",
    "My uncle built this house with his own hands.",
    "The concert starts at eight in the evening.",
    "Two coffees and a piece of cake, please.",
)


@dataclass
class Script:
    """A clip in the making.

    Attributes:
        rng: source of everything that is drawn for it.
        voice: the caller's.
        parts: (sample, sound) of its audio.
        events: its events, in the form of ``events.json``.
        chunks: words with their times, in the form of ``transcription.json``.
        at: end of the last part.
    """

    rng: np.random.Generator
    voice: tuple[str, str]
    parts: list[tuple[int, np.ndarray]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    at: int = LEAD_MS * RATE_HZ // 1000

    def silence(self, ms: float) -> None:
        """Append silence."""
        self.at += round(ms * RATE_HZ / 1000)

    def sound(
        self, samples: np.ndarray, level_dbfs: float, kind: str | None, text: str = ""
    ) -> tuple[float, float]:
        """Append a sound; return when it begins and ends, in seconds."""
        begun, ended = self.at, self.at + len(samples)
        self.parts.append((begun, at_level(samples, level_dbfs)))
        self.at = ended
        span = (round(begun / RATE_HZ, 3), round(ended / RATE_HZ, 3))
        if kind is not None:
            self.events.append({"kind": kind, "timestamp": list(span), "text": text})
        return span

    def say(self, text: str, kind: str | None, *, over_db: float = 0.0) -> tuple[float, float]:
        """Append words of the caller; return when they begin and end, in seconds."""
        samples, words = spoken(self.voice, text)
        begun_s = self.at / RATE_HZ
        self.chunks += [
            {"text": word, "timestamp": [round(begun_s + start, 3), round(begun_s + end, 3)]}
            for word, start, end in words
        ]
        return self.sound(samples, CALLER_DBFS + over_db, kind, text)

    def heard(self) -> np.ndarray:
        """Return the audio with the room: float32, (samples,)."""
        whole = 10 ** (ROOM_DBFS / 20) * self.rng.standard_normal(self.at)
        for at, part in self.parts:
            whole[at : at + len(part)] += part[: self.at - at]
        return np.clip(whole, -1, 1).astype(np.float32)


SPEAKERS = audio.Speakers()


def spoken(voice: tuple[str, str], text: str) -> tuple[np.ndarray, list[tuple[str, float, float]]]:
    """Return speech without silence at both ends, and its words.

    The speech is float32, (samples,); the words have seconds from its first sample.
    """
    samples, words = SPEAKERS.speak(*voice, text)
    first = audible_spans(samples, RATE_HZ)[0].first / RATE_HZ
    cut = audio.trimmed(samples)
    most = len(cut) / RATE_HZ

    def placed(ms: int) -> float:
        return min(max(0.0, ms / 1000 - first), most)

    return cut, [(word.text, placed(word.start_ms), placed(word.end_ms)) for word in words]


def pauses(text: str, rng: np.random.Generator, hold_ms: tuple[int, int]) -> list[Silence]:
    """Return the pieces between bars, each with the silence after it; the last one ends the turn."""
    law = PauseLaw()
    pieces = [piece.strip() for piece in text.split("|")]
    silences = []
    for place, piece in enumerate(pieces):
        length_ms = None
        while place + 1 < len(pieces) and length_ms is None:
            drawn = round(law.sample(rng))
            length_ms = drawn if hold_ms[0] <= drawn <= hold_ms[1] else None
        plain = "".join(letter for letter in piece.lower() if letter.isalnum() or letter in " '")
        inside = not piece.endswith((".", "?"))
        silences.append(Silence(length_ms, (), plain, plain, inside))
    return silences


def held(script: Script, text: str, hold_ms: tuple[int, int]) -> list[tuple[float, float]]:
    """Say a turn with pauses; return the places of the pauses, in seconds."""
    silences = pauses(text, script.rng, hold_ms)
    found = []
    turn = ScriptedTurn("", tuple(silences))
    for silence, piece in zip(silences, pieces(turn, *script.voice, SPEAKERS), strict=True):
        samples = marked(piece.samples, RATE_HZ, piece.ending, 1.0, script.rng)
        begun, ended = script.sound(samples, CALLER_DBFS, None)
        script.chunks.append({"text": silence.said, "timestamp": [begun, ended]})
        if silence.length_ms is not None:
            script.silence(silence.length_ms)
            found.append((ended, round(script.at / RATE_HZ, 3)))
            script.events.append({"kind": "pause", "timestamp": list(found[-1]), "text": ""})
    return found


def breath(rng: np.random.Generator) -> np.ndarray:
    """Return a sharp breath: noise that swells and falls, 300 to 500 ms."""
    size = int(rng.integers(300, 500)) * RATE_HZ // 1000
    noise = np.diff(rng.standard_normal(size + 1), prepend=0.0)[:size]
    return (np.hanning(size) * noise).astype(np.float32)


def clear_throat(rng: np.random.Generator) -> np.ndarray:
    """Return two coughs that are more voice than noise, one after the other."""
    gap = np.zeros(int(rng.integers(60, 120)) * RATE_HZ // 1000, np.float32)
    return np.concatenate((0.6 * sounds.hum(rng), gap, 0.5 * sounds.cough(rng))).astype(np.float32)


Made = tuple[Script, str, list[dict[str, Any]]]


def pause_clip(script: Script, place: int) -> Made:
    """Make a turn that is not over before the clip is."""
    found = held(script, HELD[place % len(HELD)], HOLD_MS)
    script.silence(END_MS)
    return script, "pause.json", [{"text": "[PAUSE]", "timestamp": list(span)} for span in found]


def turn_clip(script: Script, place: int) -> Made:
    """Make a question, and silence for its answer."""
    text = TURNS[place % len(TURNS)]
    _, ended = script.say(text, "turn")
    script.silence(TURN_TAIL_MS)
    return script, "turn_taking.json", [{"text": text, "timestamp": [ended, script.at / RATE_HZ]}]


def backchannel_clip(script: Script, place: int) -> Made:
    """Make a story that asks nothing."""
    held(script, STORIES[place % len(STORIES)], (250, 900))
    script.silence(END_MS)
    return script, "", []


def interruption_clip(script: Script, place: int) -> Made:
    """Make a question, and another one over its answer."""
    asked, text = QUESTIONS[place % len(QUESTIONS)], INTERRUPTIONS[place % len(INTERRUPTIONS)]
    script.say(asked, "turn")
    script.silence(script.rng.uniform(*OVER_MS))
    span = script.say(text, "interruption")
    script.silence(INTERRUPTION_TAIL_MS)
    return script, "interrupt.json", [{"context": asked, "interrupt": text, "timestamp": list(span)}]


def over(script: Script, place: int) -> None:
    """Append a question, and silence for a part of its answer."""
    script.say(QUESTIONS[place % len(QUESTIONS)], "turn")
    script.silence(script.rng.uniform(*OVER_MS))


def ended(script: Script, span: tuple[float, float], text: str) -> Made:
    """Append silence for the reaction of the bot, and annotate the span."""
    script.silence(OVER_TAIL_MS)
    return script, "metadata.json", [{"text": text, "timestamp": list(span)}]


def user_backchannel_clip(script: Script, place: int) -> Made:
    """Make a hum of the caller, or a listener's word."""
    over(script, place)
    if place % 2:
        span = script.sound(sounds.hum(script.rng), CALLER_DBFS, "backchannel", "[HUM]")
        return ended(script, span, "[HUM]")
    text = LISTENER[place // 2 % len(LISTENER)]
    return ended(script, script.say(text, "backchannel"), text)


def talking_clip(script: Script, place: int) -> Made:
    """Make words of the caller, turned away, to another person."""
    over(script, place)
    text = ASIDES[place % len(ASIDES)]
    return ended(script, script.say(text, "talking_to_other", over_db=ASIDE_DB), text)


def background_clip(script: Script, place: int) -> Made:
    """Make the speech of another person, further away, in a room."""
    over(script, place)
    text = OTHERS[place % len(OTHERS)]
    other = VOICES[(VOICES.index(script.voice) + 1 + place // len(VOICES) % 3) % len(VOICES)]
    phone = Speakerphone(seed=place, delay_ms=0.0, reverb_ms=400.0, direct_db=-3.0)
    dry, _ = spoken(other, text)
    samples = np.convolve(dry, impulse_response(phone))[: len(dry)].astype(np.float32)
    level_dbfs = CALLER_DBFS + float(script.rng.uniform(*BACKGROUND_DB))
    return ended(script, script.sound(samples, level_dbfs, "background", text), text)


def tic_clip(script: Script, place: int) -> Made:
    """Make a cough, a cleared throat or a breath over the answer; every other clip begins with one too."""
    makers = (sounds.cough, clear_throat, breath)
    levels_db = (TIC_DB, 0.0, -12.0)
    if place % 2:
        which = (place // 2) % 3
        sound = makers[which](script.rng)
        script.sound(sound, CALLER_DBFS + levels_db[which], "tic", "[TIC]")
        script.silence(2_500)
    over(script, place)
    which = (place // 2 + place) % 3
    span = script.sound(makers[which](script.rng), CALLER_DBFS + levels_db[which], "tic", "[TIC]")
    return ended(script, span, "[TIC]")


TASKS = {
    "synthetic_pause_handling": (pause_clip, 20),
    "synthetic_turn_taking": (turn_clip, 20),
    "synthetic_backchannel": (backchannel_clip, 6),
    "synthetic_user_interruption": (interruption_clip, 20),
    "user_backchannel": (user_backchannel_clip, 20),
    "talking_to_other": (talking_clip, 16),
    "background_speech": (background_clip, 16),
    "vocal_tics": (tic_clip, 14),
}


def listeners_share(script: Script) -> list[float]:
    """Return the share per ``BIN_MS`` of the moments in which a listener would hum: after pauses."""
    bins = np.zeros(-(-script.at * 1000 // RATE_HZ // BIN_MS))
    for event in script.events:
        cue_ms = event["timestamp"][0] * 1000
        first, last = (round((cue_ms + ms) / BIN_MS) for ms in CUE_MS)
        bins[first:last] += 1
    return [round(share, 6) for share in bins / bins.sum()]


def main() -> None:
    """Make all clips."""
    root = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    root.add_argument("folder", type=Path)
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--clips", type=int, help="clips of each task; default: as shipped")
    arguments = root.parse_args()
    for number, (name, (make, usual)) in enumerate(TASKS.items()):
        shares = {}
        for place in range(arguments.clips or usual):
            rng = np.random.default_rng([arguments.seed, number, place])
            # Another voice for the same question in another task.
            script, annotation, rows = make(Script(rng, VOICES[(place + number) % len(VOICES)]), place)
            folder = arguments.folder / name / f"{place + 1:02d}"
            folder.mkdir(parents=True, exist_ok=True)
            soundfile.write(
                folder / "input.opus",
                script.heard(),
                RATE_HZ,
                format="OGG",
                subtype="OPUS",
                compression_level=BIT_RATE_QUALITY,
            )
            if annotation:
                write(folder / annotation, rows)
            text = " ".join(chunk["text"] for chunk in script.chunks)
            write(folder / "transcription.json", {"text": text, "chunks": script.chunks})
            write(folder / "events.json", {"voice": " ".join(script.voice), "events": script.events})
            if make is backchannel_clip:
                shares[folder.name] = listeners_share(script)
        if shares:
            write(arguments.folder / name / "gt_distribution.json", shares)


def write(path: Path, value: object) -> None:
    """Write a value as JSON."""
    path.write_text(json.dumps(value) + "\n")


if __name__ == "__main__":
    main()
