"""Passages that an answer rests on, on their way with its words."""

from dataclasses import dataclass

from pipecat.frames.frames import DataFrame

from parley.core.passage_notes import CitedPassage


@dataclass
class PassagesCitedFrame(DataFrame):
    """The passages of the answer, pushed by what answers: before its first words, or before its end.

    It replaces an earlier one of the same answer, and belongs to the answer like its words: a guess that is
    withdrawn takes it along, and so does a model that fails.

    Attributes:
        passages: the best first; empty: the answer rests on none after all.
    """

    passages: tuple[CitedPassage, ...]
