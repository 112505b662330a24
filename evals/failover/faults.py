"""Stages of a call, and the ways in which one fails."""

from collections.abc import Mapping, Sequence
from enum import StrEnum


class Stage(StrEnum):
    """Stage of a call. ``REALTIME`` is a service in place of the other three, which are its fallback."""

    RECOGNISER = "recogniser"
    MODEL = "model"
    VOICE = "voice"
    REALTIME = "realtime"


# Stages of the cascade, each of which fails in calls that are answered by it.
OF_CASCADES = (Stage.RECOGNISER, Stage.MODEL, Stage.VOICE)


class Fault(StrEnum):
    """Failure of a service, from one moment on.

    ``KILLED``: its connections break, and it accepts none. ``CUT``: its connections break, and it accepts new
    ones. ``REFUSES``: it answers everything with an error of its protocol. ``HANGS``: it sends nothing more,
    and answers no handshake. ``GARBAGE``: it sends what is no message of its protocol. ``CHILD_KILLED``: the
    process of the embedded recogniser is killed.
    """

    KILLED = "killed"
    CUT = "cut"
    REFUSES = "refuses"
    HANGS = "hangs"
    GARBAGE = "garbage"
    CHILD_KILLED = "child killed"


OF_SERVICES: Sequence[Fault] = (Fault.KILLED, Fault.CUT, Fault.REFUSES, Fault.HANGS, Fault.GARBAGE)


def faults_of(stage: Stage, *, embedded_recogniser: bool) -> Sequence[Fault]:
    """Return the ways in which a stage of a lane fails."""
    if stage is Stage.RECOGNISER and embedded_recogniser:
        return (Fault.CHILD_KILLED,)
    return OF_SERVICES


Outages = Mapping[Stage, Fault | None]
