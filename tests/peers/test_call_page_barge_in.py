"""A caller interrupts the bot at the page: its sound stops, and the words that were not heard are struck."""

import itertools
import wave
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.test_browser import AUDIBLE_RMS, LISTEN, Visit, answered_by, chromium, serving, visit
from tests.voices import RATE_HZ, say, silence

__all__ = ["chromium"]
pytestmark = [pytest.mark.browser, pytest.mark.paired]

# Half a minute of speech: the answer has begun long before the caller speaks, and would end long after.
ANSWER = (
    "On weekdays we open at nine in the morning and close at six in the evening. On Saturdays we open at ten "
    "and close at two in the afternoon. On Sundays and on public holidays every branch is closed, but the "
    "hotline answers day and night. You find a branch in each large town, and most of them have a machine "
    "for cash in the hall, which is open at any hour. For advice about a loan please make an appointment."
)
SPEAKS_AT_MS = 12_000
INTERRUPTION = "Wait a moment please. How do I report a lost card?"
# The last packets before the decision are still on their way, and in the jitter buffer.
STOPPED_MS = 1_000
# The bot is ducked while a voice may be an interruption.
DUCKED_MS = 2_000

# Times of the page at which a reply is shown as cut off, and at which the next one appears.
WATCH = """() => {
  const look = () => {
    const replies = [...document.querySelectorAll('[data-role="bot-turn"]')];
    if (replies.some((each) => each.dataset.cut)) window.cut_ms ??= performance.now();
  };
  const watch = new MutationObserver(look);
  watch.observe(document.body, { subtree: true, childList: true, attributes: true });
}"""


def microphone_in(folder: Path) -> Path:
    """Write the sound of the microphone: silence, an interruption, silence."""
    path = folder / "microphone.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(silence(SPEAKS_AT_MS) + say(INTERRUPTION) + silence(60_000))
    return path


async def test_the_bot_falls_silent_at_the_caller_who_interrupts_it(chromium: str, tmp_path: Path):
    flags = (
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone_in(tmp_path)}%noloop",
    )
    pieces = [f"{word} " for word in ANSWER.split()]
    async with OpenAiServer(
        [Turn(pieces=pieces), Turn(pieces=["Please ", "call ", "the ", "hotline."])]
    ) as model:
        with serving(tmp_path, answered_by(model), more="bot: {greeting: ''}\n") as served:
            async with visit(chromium, f"{served.address}/?raw=1", *flags) as person:
                await person.part("talk").click()
                await person.state("listening")
                await person.page.evaluate(LISTEN)
                await person.page.evaluate(WATCH)
                await person.type("When are you open?")
                await person.state("speaking")
                await expect(person.part("bot-turn").first).to_have_attribute("data-cut", "true")
                await person.answered("hotline.")
                await struck(person)
                samples = await person.page.evaluate("window.heard")
                cut_ms = await person.page.evaluate("window.cut_ms")
                await person.part("talk").click()
                await person.state("ready")
            assert person.complaints == []

    before = [
        each["rms"] for each in samples if cut_ms - DUCKED_MS - 4_000 < each["at_ms"] < cut_ms - DUCKED_MS
    ]
    assert loud_share(before) > 0.4, "the bot was not heard before it was interrupted"
    after = list(itertools.takewhile(until_it_speaks(), (s for s in samples if s["at_ms"] > cut_ms)))
    heard_ms = max((each["at_ms"] - cut_ms for each in after if each["rms"] >= AUDIBLE_RMS), default=0)
    print(f"the bot was audible for {heard_ms:.0f} ms after its reply was shown as cut off")
    assert heard_ms < STOPPED_MS
    assert after[-1]["at_ms"] - cut_ms > STOPPED_MS, "the next answer came before silence could be seen"


def until_it_speaks() -> Any:
    """Return a condition that holds until the page says that the bot speaks anew, after it did not."""
    was_quiet = False

    def holds(sample: dict[str, Any]) -> bool:
        nonlocal was_quiet
        was_quiet = was_quiet or sample["state"] != "speaking"
        return not (was_quiet and sample["state"] == "speaking")

    return holds


def loud_share(levels: list[float]) -> float:
    return sum(level >= AUDIBLE_RMS for level in levels) / max(1, len(levels))


async def struck(person: Visit) -> None:
    """Expect the reply with the words that were heard, and struck those that were not."""
    reply = person.part("bot-turn").first
    words, unheard = reply.locator(".bubble"), reply.locator(".unheard")
    await expect(words).to_contain_text("On weekdays we open at nine")
    await expect(reply).to_contain_text("cut off")
    await expect(unheard.first).to_have_css("text-decoration-line", "line-through")
    heard = await reply.locator(".spoken").all_inner_texts()
    assert heard and len(heard) < len(ANSWER.split())
    assert "appointment" not in heard
