"""A bot and a caller on virtual time around the barge-in machine: scheduled events happen in time."""

from collections.abc import Callable

from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.barge_in.table import BargeInState, Cut, Decision, Duck, Restore, ResumeReply

# Delay of the front end's voice activity detector.
MAYBE_LAG_MS = 32
START_LAG_MS = 128
PAUSE_LAG_MS = 96
STOP_LAG_MS = 160
# Time from a detected end to the final words.
FINAL_LAG_MS = 120
# Deadlines of one run: more would mean a machine that does not come to rest.
MOST_DEADLINES = 5_000

Happening = Callable[[int], Decision | None]


class Floor:
    """A call with the barge-in machine.

    Args:
        settings: settings of the machine.
    """

    def __init__(self, settings: BargeInTuning | None = None) -> None:
        self.machine = BargeIn(settings)
        self.decisions: list[Decision] = []
        self.states: list[tuple[int, BargeInState]] = [(0, BargeInState.LISTENING)]
        self.now_ms = 0
        self._happenings: list[tuple[int, int, Happening]] = []
        self._resumed = 0

    def at(self, at_ms: int, happening: Happening) -> None:
        self._happenings.append((at_ms, len(self._happenings), happening))
        self._happenings.sort(key=lambda each: each[:2])

    def reply(self, reply_id: str, at_ms: int, until_ms: int, *, protected: bool = False) -> None:
        self.at(at_ms, lambda now: self.machine.on_bot_started(now, reply_id, protected=protected))
        self.at(until_ms, lambda now: self.machine.on_bot_stopped(now, reply_id))

    def voice(
        self,
        at_ms: int,
        length_ms: int,
        *,
        partials: tuple[tuple[int, str, float], ...] = (),
        final: tuple[str, float] | None = None,
    ) -> None:
        """Send a voice as the front end reports it; a partial is (ms from its start, text, sure)."""
        machine, end_ms = self.machine, at_ms + length_ms
        self.at(at_ms + MAYBE_LAG_MS, machine.on_maybe_voice)
        if length_ms >= START_LAG_MS:
            self.at(
                at_ms + START_LAG_MS,
                lambda now: machine.on_voice_started(now, voiced_ms=START_LAG_MS),
            )
            self.at(end_ms + PAUSE_LAG_MS, machine.on_maybe_quiet)
            self.at(end_ms + STOP_LAG_MS, lambda now: machine.on_voice_stopped(now, silence_ms=STOP_LAG_MS))
        for after_ms, text, confidence in partials:
            self.at(
                at_ms + after_ms,
                lambda now, text=text, sure=confidence: machine.on_partial(now, text, confidences=(sure,)),
            )
        if final is not None:
            text, confidence = final
            self.at(
                end_ms + STOP_LAG_MS + FINAL_LAG_MS,
                lambda now: machine.on_final(now, text, confidences=(confidence,)),
            )

    def run(self, until_ms: int) -> None:
        """Run all events up to a moment."""
        for _ in range(MOST_DEADLINES):
            due_ms = self.machine.next_deadline_ms()
            assert due_ms is not None or self.machine.state is BargeInState.LISTENING
            next_ms = self._happenings[0][0] if self._happenings else None
            if due_ms is not None and due_ms <= until_ms and (next_ms is None or due_ms < next_ms):
                self.now_ms = max(self.now_ms, due_ms)
                self._note(self.machine.on_deadline(self.now_ms))
            elif next_ms is not None and next_ms <= until_ms:
                at_ms, _, happening = self._happenings.pop(0)
                self.now_ms = max(self.now_ms, at_ms)
                self._note(happening(self.now_ms))
            else:
                return
        raise AssertionError(f"no rest at {self.now_ms} ms in {self.machine.state}")

    def _note(self, decision: Decision | None) -> None:
        if self.machine.state is not self.states[-1][1]:
            self.states.append((self.now_ms, self.machine.state))
        if decision is None:
            return
        self.decisions.append(decision)
        if isinstance(decision, ResumeReply):
            # The rest of the reply, 200 ms later.
            self._resumed += 1
            reply_id = f"rest {self._resumed}"
            self._note(self.machine.on_reply(self.now_ms, reply_id))
            self.reply(reply_id, self.now_ms + 200, self.now_ms + 30_200)

    def of(self, kind: type) -> list[Decision]:
        return [decision for decision in self.decisions if isinstance(decision, kind)]

    @property
    def cuts(self) -> list[Cut]:
        return [decision for decision in self.decisions if isinstance(decision, Cut)]


def check_invariants(decisions: list[Decision]) -> None:
    """Assert that no reply is cut twice, and that a duck ends in one restore or cut.

    Nothing is restored that was not ducked.
    """
    cut_replies = [cut.reply_id for cut in decisions if isinstance(cut, Cut) and cut.reply_id is not None]
    assert len(cut_replies) == len(set(cut_replies))
    ducked = False
    for decision in decisions:
        if isinstance(decision, Duck):
            assert not ducked
            ducked = True
        elif isinstance(decision, Restore):
            assert ducked
            ducked = False
        elif isinstance(decision, Cut):
            ducked = False
    times = [decision.at_ms for decision in decisions]
    assert times == sorted(times)
