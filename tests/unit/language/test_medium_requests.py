"""Requests for another medium in the caller's words."""

import pytest

from parley.core.tiers import Medium
from parley.language import find_language

MEDIUM = find_language().intents.requested_medium


@pytest.mark.parametrize(
    ("text", "medium"),
    [
        ("Can I talk to you?", Medium.VOICE),
        ("I'd rather talk about it.", Medium.VOICE),
        ("Okay, can we please switch to voice?", Medium.VOICE),
        ("Could I call you instead?", Medium.VOICE),
        ("Can I call you?", Medium.VOICE),
        ("No, I want to talk.", Medium.VOICE),
        ("I would prefer to write.", Medium.TEXT),
        ("Can we go on in writing, please?", Medium.TEXT),
        ("Let's chat instead.", Medium.TEXT),
        ("Let me show you something.", Medium.VIDEO),
        ("Can I show you this with my camera?", Medium.VIDEO),
        ("I want to turn on my camera.", Medium.VIDEO),
        ("Could you look at this?", Medium.VIDEO),
        ("Can I share my screen?", Medium.SCREEN),
        ("Would you have a look at my screen, please?", Medium.SCREEN),
        ("Well, let me share my screen with you.", Medium.SCREEN),
        ("can we do this in writing", Medium.TEXT),
        ("less switch to chat", Medium.TEXT),
        ("lets switch to voice", Medium.VOICE),
        ("can i show you", Medium.VIDEO),
        ("lemme show you", Medium.VIDEO),
        ("i'll show you my scream", Medium.SCREEN),
        # Anything else is a question.
        ("Can I show you something that I bought last week?", None),
        ("How do I turn on my camera?", None),
        ("What does a video call cost?", None),
        ("My screen is black.", None),
        ("I want to talk to a human.", None),
        ("Can you write that down?", None),
        ("I do not want to share my screen.", None),
        ("No camera.", None),
        ("I'll write.", None),
        ("I'll call you.", None),
        ("can i show you my contract", None),
        ("do you do this in writing", None),
        ("i can't show you", None),
        ("", None),
    ],
)
def test_a_request_for_a_medium_is_understood(text: str, medium: Medium | None) -> None:
    assert MEDIUM(text, is_shown=False) is medium


@pytest.mark.parametrize(
    "text",
    ["Turn off the camera.", "I want to stop sharing my screen.", "Please look away.", "Stop sharing."],
)
def test_who_shows_nothing_any_more_asks_for_voice(text: str) -> None:
    assert MEDIUM(text, is_shown=True) is Medium.VOICE
    assert MEDIUM(text, is_shown=False) is None
