"""Contracts of the engines as test classes, for packages that add one.

A package derives a test class and provides the fixture that the class names; pytest runs the inherited tests:

    class TestMyRecogniser(SpeechToTextContract):
        @pytest.fixture
        def engine(self) -> MyRecogniser:
            return MyRecogniser()

Parley's own engines pass the same tests. Needs the package pytest, and flite's library for the spoken input
(``speech``).
"""

import pytest

STAGES = (
    "echo_canceller",
    "omni_engine",
    "speech_to_text",
    "text_to_speech",
    "tools",
    "turn_completeness",
    "voice_activity",
)
# A failed assertion of these modules is explained as one of a test's own.
pytest.register_assert_rewrite(*(f"{__name__}.{stage}" for stage in STAGES))
