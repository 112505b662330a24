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

# A failed assertion of a module of this package is explained as one of a test's own.
pytest.register_assert_rewrite(__name__)
