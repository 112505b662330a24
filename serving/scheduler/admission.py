"""Bound of the calls that a machine may hold at once, learnt from figures of its calls. Pure: times come in.

The bound is the least of four:

* ``most``, which the deployment sets.
* What the recognisers can take: their time for a second of speech, measured at the start and in every call,
  on the clock. A machine that is slower, or busy with something else, takes longer, so this needs no table of
  machines. Callers count as speaking all of the time until it was seen how much of it they do; from there on
  as many are admitted as will hardly ever speak at the same moment beyond what is heard in time.
* What was tried, of the calls that the recognisers hear. Speech is not all of the work: where all callers end
  their question at the same moment, each answer waits for those of the others. So a server begins with
  ``FIRST_SHARE`` of the callers who can be heard at the same moment. It takes a quarter more each time that
  as many as it takes were on for ``TRY_MS`` and their answers were in time, the median and the slow ones.
  Trouble takes that back.
* What was learnt. An event loop that is late, or answers that take longer than ``SLOWER`` times those of a
  call alone while the machine is busy, take the bound to one below the calls that are held. It falls further
  when no more calls than that are held and the trouble remains: until then the step has not taken effect.
  Without trouble it returns by a call every ``RETURN_MS``, and every ``RETURN_FREE_MS`` while it keeps no
  caller out. Slow answers of a machine that is not busy are those of a slow model: fewer calls would not make
  them faster.

A bound below the calls that are held ends none of them: it lets the next caller wait until one of them has
ended. ``LEAST_CALLS`` are always admitted.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

# Share of the recognisers' time that speech of all callers may take: the rest is for the search after the
# last word, for a caller whose channel is measured (1.5 s are decoded twice), and for what varies.
HEARD_SHARE = 0.8
# Taken for a recogniser's pace until it is known: slower than on any machine without other work on which it
# was measured. It is known with the first words of the first call at the latest.
ASSUMED_FACTOR = 0.25
# With one alone, a caller who vanished would keep all others out until that is noticed.
LEAST_CALLS = 2
# Callers who speak independently of each other are more than their mean by so many standard deviations in two
# of a hundred moments: words come some tenths of a second late then, and are not lost.
DEVIATIONS = 2.0
# Of the callers who can be heard at the same moment, so many are admitted first. Measured on two cores with
# callers in step (``evals.latency.overload``), eight of whom Moonshine tiny can hear: the answer to two takes
# 1.2 times that to one, to three 1.3 times at the median and 1.7 times in the 95th percentile, because the
# ends of their questions wait for each other.
FIRST_SHARE = 0.45
# More are tried after so long without trouble; later where what their answers took, or should, is not known.
TRY_MS, TRY_SILENT_MS = 20_000, 60_000
TRY_GROWTH = 0.25
# What was seen of how much callers speak counts half after so many seconds of calls. The share is never taken
# for less than this: a crowd that listens now may speak next.
SPEAKING_HALF_LIFE_S = 120.0
LEAST_SPEAKING = 0.2
# Answers of a loaded server may take so many times as long as those of a call alone: what
# ``evals.latency.capacity`` calls a capacity that callers do not notice.
SLOWER = 1.5
# More calls are tried while answers at each of these ranks are that near to the same rank in a call alone. A
# crowd makes the slow ones late first.
RANKS = (0.5, 0.9)
# A difference that is smaller is not heard, whatever it is a multiple of.
LEAST_SLOWER_MS = 100
# A loop so late, in the 95th percentile, plays audio late (``evals.latency.capacity``: LIMIT_MS).
LATE_MS = 40
ANSWERS, LEAST_ANSWERS = 20, 4
# A question that a document answers takes a third of the time of one that needs more: some of each kind.
ALONE_ANSWERS, LEAST_ALONE = 21, 8
# Signs that a machine is busy, one of which has to be there for slow answers to count: the loop's lateness
# (95th percentile), the share of the time of all processors, and how many calls are heard of those that can.
BUSY_LATE_MS, BUSY_PROCESSORS, BUSY_HEARING = 10, 0.8, 0.8
# Answers and lateness count for so long.
RECENT_MS = 15_000
LAGS = 400
# The bound falls again after this at the earliest (what it changed has to show), and rises after that.
FALL_MS, RETURN_MS, RETURN_FREE_MS = 5_000, 20_000, 5_000


@dataclass(frozen=True, slots=True)
class Admitted:
    """Bound of the calls that there may be now.

    Attributes:
        calls: of the kind that was looked up.
        why: what bounds them, for people.
    """

    calls: int
    why: str


class Admission:
    """The bound of one server.

    Args:
        most: calls that there may be on any machine.
        first_share: see ``FIRST_SHARE``.
    """

    def __init__(self, most: int, *, first_share: float = FIRST_SHARE) -> None:
        self._most = most
        self._first_share = first_share
        self._least = min(LEAST_CALLS, most)
        # Callers who can be heard at the same moment.
        self._heard: float | None = None
        self._factor = 0.0
        # Calls that are tried (None: the first share), for how long, and what the answers took meanwhile.
        self._tried: int | None = None
        self._tried_ms = 0
        self._looked_ms: int | None = None
        self._tried_answers: deque[int] = deque(maxlen=ANSWERS)
        self._speaking = 1.0
        self._learnt = most
        self._learnt_why = ""
        self._fallen_ms: int | None = None
        # When the bound rose, or there was trouble, last.
        self._unsettled_ms = 0
        self._processors = 0.0
        self._heard_calls = 0
        self._alone_ms: deque[int] = deque(maxlen=ALONE_ANSWERS)
        # The same with so many calls on.
        self._by_calls_ms: dict[int, deque[int]] = {}
        # At what time, how long they took.
        self._answers: deque[tuple[int, int]] = deque(maxlen=ANSWERS)
        self._lags: deque[tuple[int, int]] = deque(maxlen=LAGS)

    @property
    def alone_ms(self) -> int | None:
        """Time that an answer takes in a call alone; None before enough of them."""
        return round(median(self._alone_ms)) if len(self._alone_ms) >= LEAST_ALONE else None

    @property
    def admitted_in_all(self) -> Admitted:
        """The bound of all calls, those whose callers the recogniser does not hear included."""
        if self._learnt < self._most:
            return Admitted(self._learnt, self._learnt_why)
        return Admitted(self._most, f"every line is taken ({self._most} in all)")

    @property
    def admitted(self) -> Admitted:
        """The bound of calls whose callers the recogniser hears."""
        bounds = [self.admitted_in_all]
        if self._heard is not None:
            why = (
                f"this machine hears {max(1, int(self._heard))} at once: a second of speech takes its "
                f"recogniser {self._factor * 1000:.0f} ms, and callers speak {self._speaking:.0%} of the time"
            )
            bounds.append(Admitted(self._room(self._heard), why))
            tried = self._tried_calls(self._heard)
            bounds.append(Admitted(tried, f"more than {tried} calls are tried when these go well"))
        return min(bounds, key=lambda bound: bound.calls)

    def on_hearing(self, *, processes: int, real_time_factor: float | None) -> None:
        """Take how long the recognisers work on a second of one caller's speech.

        Args:
            processes: recognisers that work side by side.
            real_time_factor: seconds of work of one of them for a second of speech; None: not known yet.
        """
        self._factor = ASSUMED_FACTOR if real_time_factor is None else real_time_factor
        self._heard = HEARD_SHARE * processes / max(self._factor, 1e-6)

    def on_speaking(self, speaking: int, *, calls: int, seconds: float) -> None:
        """Take how many callers spoke.

        Args:
            speaking: at this moment.
            calls: whose callers are heard.
            seconds: since this was seen last.
        """
        self._heard_calls = calls
        if calls < 1:
            return
        kept = 0.5 ** (seconds * calls / SPEAKING_HALF_LIFE_S)
        share = min(1.0, speaking / calls)
        self._speaking = max(LEAST_SPEAKING, self._speaking * kept + share * (1 - kept))

    def on_processors(self, share: float) -> None:
        """Take the share of the time of all processors that any program used since this was seen last."""
        self._processors = share

    def on_answer(self, at_ms: int, latency_ms: int, *, calls: int) -> None:
        """Take how long a caller waited from their last word for the first sound of the answer.

        Args:
            at_ms: now.
            latency_ms: the wait.
            calls: that were held meanwhile.
        """
        self._by_calls_ms.setdefault(calls, deque(maxlen=LEAST_ALONE)).append(latency_ms)
        if calls <= 1:
            self._alone_ms.append(latency_ms)
        else:
            self._answers.append((at_ms, latency_ms))
            self._tried_answers.append(latency_ms)

    def on_lag(self, at_ms: int, lag_ms: int) -> None:
        """Take how late the event loop came to something that was due."""
        self._lags.append((at_ms, lag_ms))

    def look(self, at_ms: int, *, calls: int) -> None:
        """Learn from what was seen lately; once a second or so.

        Args:
            at_ms: now.
            calls: that are held.
        """
        for seen in (self._answers, self._lags):
            while seen and at_ms - seen[0][0] > RECENT_MS:
                seen.popleft()
        trouble = self._trouble()
        self._try_more(at_ms, in_trouble=bool(trouble) and calls > 1)
        if trouble and calls > 1:
            self._unsettled_ms = at_ms
            is_settled = self._fallen_ms is None or at_ms - self._fallen_ms >= FALL_MS
            # With more calls than the bound it has not taken effect yet: another step would punish twice.
            if calls <= self._learnt and is_settled:
                self._learnt = max(self._least, calls - 1)
                self._learnt_why = trouble
                self._fallen_ms = at_ms
                if self._heard is not None:
                    self._tried = min(self._tried_calls(self._heard), self._learnt)
                # What was seen with more calls says nothing of fewer.
                self._answers.clear()
                self._lags.clear()
        elif self._learnt < self._most:
            wait_ms = RETURN_FREE_MS if calls < self._learnt else RETURN_MS
            if at_ms - self._unsettled_ms >= wait_ms:
                self._learnt += 1
                self._unsettled_ms = at_ms

    def _tried_calls(self, heard: float) -> int:
        if self._tried is not None:
            return self._tried
        return min(self._most, max(self._least, int(self._first_share * heard)))

    def _try_more(self, at_ms: int, *, in_trouble: bool) -> None:
        """Take more calls when as many as are tried have gone well for long enough."""
        if self._heard is None:
            return
        tried = self._tried_calls(self._heard)
        since_ms = 0 if self._looked_ms is None else at_ms - self._looked_ms
        self._looked_ms = at_ms
        if in_trouble or self._heard_calls < tried / 2:
            self._try_anew()
        elif self._heard_calls >= tried:
            # A call that ends before the next one begins does not take this back.
            self._tried_ms += since_ms
        count, usual = len(self._tried_answers), self._usual
        if self._tried_ms < (TRY_MS if usual and count >= LEAST_ANSWERS else TRY_SILENT_MS):
            return
        # Strictly: with more calls a difference that is not heard yet becomes one that is.
        if not (usual and count) or all(
            ranked(self._tried_answers, rank) <= SLOWER * ranked(usual, rank) for rank in RANKS
        ):
            self._tried = min(self._most, tried + max(1, int(tried * TRY_GROWTH)))
        self._try_anew()

    def _try_anew(self) -> None:
        self._tried_ms = 0
        self._tried_answers.clear()

    @property
    def _usual(self) -> Sequence[int]:
        """Answers in a call alone, or with few calls on; empty while there are not enough of them."""
        if len(self._alone_ms) >= LEAST_ALONE:
            return self._alone_ms
        few: list[int] = []
        for calls in sorted(self._by_calls_ms):
            few += self._by_calls_ms[calls]
            if len(few) >= LEAST_ALONE:
                return few[:LEAST_ALONE]
        return ()

    def _room(self, heard: float) -> int:
        """The most callers of whom no more than ``heard`` speak at the same moment, nearly always.

        That is the largest ``n`` with ``n*share + DEVIATIONS * sqrt(n*share*(1-share)) <= heard``, which is
        quadratic in ``sqrt(n*share)``.
        """
        share = self._speaking
        half = DEVIATIONS / 2 * (1 - share) ** 0.5
        root = (half * half + heard) ** 0.5 - half
        return min(self._most, max(self._least, int(heard), int(root * root / share + 1e-9)))

    def _late_ms(self) -> int:
        """Lateness of the loop, 95th percentile; 0 while too little of it was seen."""
        if len(self._lags) < LAGS // 8:
            return 0
        lags = sorted(lag_ms for _, lag_ms in self._lags)
        return lags[len(lags) * 95 // 100]

    def _trouble(self) -> str:
        usual, late_ms = self._usual, self._late_ms()
        usual_ms = round(median(usual)) if usual else None
        if usual_ms is not None and len(self._answers) >= LEAST_ANSWERS and self._is_busy(late_ms):
            now_ms = round(median(latency_ms for _, latency_ms in self._answers))
            if now_ms > max(SLOWER * usual_ms, usual_ms + LEAST_SLOWER_MS):
                calls = "in a call alone" if self.alone_ms is not None else "with few calls"
                return f"answers take {now_ms} ms, and {usual_ms} ms {calls}"
        return f"the event loop is {late_ms} ms late" if late_ms > LATE_MS else ""

    def _is_busy(self, late_ms: int) -> bool:
        if late_ms > BUSY_LATE_MS or self._processors >= BUSY_PROCESSORS:
            return True
        if self._heard is None:
            return False
        return self._heard_calls >= BUSY_HEARING * min(self._heard, self._room(self._heard))


def ranked(values: Sequence[int], share: float) -> int:
    """Return the value than which a ``share`` of ``values`` is not larger (nearest rank)."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]
