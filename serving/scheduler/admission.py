"""Bound of the calls that a machine may hold at once, learnt from figures of its calls. Pure: times come in.

The bound is the least of four:

* ``most``, which the deployment sets.
* The capacity of the recognisers: their time for a second of speech, measured at the start and in every call
  by the clock. A machine that is slower, or busy with other work, takes longer, so this needs no table of
  machines. Callers count as speaking all of the time until their share of speech has been observed. From then
  on the bound admits as many as hardly ever exceed, by speaking at the same moment, the number that is
  recognised in time.
* The number that has been tried, of the calls that use the recogniser. Speech is not all of the work: when
  all callers end their questions at the same moment, each answer waits for those of the others. A server
  therefore begins with ``FIRST_SHARE`` of the callers who can be recognised at the same moment. It adds a
  quarter each time that as many calls as it takes were running for ``TRY_MS`` and their answers were in time,
  the median and the slow ones. Trouble reverses that.
* The learnt bound. Two kinds of trouble lower it to one below the present calls: an event loop that is late,
  and answers that take longer than ``SLOWER`` times those of a call alone while the machine is busy. It falls
  further when no more calls than that are held and the trouble remains; until then the step has not taken
  effect. Without trouble it rises by a call every ``RETURN_MS``, and every ``RETURN_FREE_MS`` while it keeps
  no caller out. Slow answers of a machine that is not busy are those of a slow model, which fewer calls would
  not make faster.

A bound below the present calls ends none of them: the next caller waits until one of them has ended.
``LEAST_CALLS`` are always admitted.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

# Share of the recognisers' time that speech of all callers may take. The rest is for the search after the
# last word, for a caller whose channel is measured (1.5 s are decoded twice), and for variation.
HEARD_SHARE = 0.8
# Assumed pace of a recogniser until it is measured: slower than on any machine without other work on which it
# was measured. It is measured with the first words of the first call at the latest.
ASSUMED_FACTOR = 0.25
# With a single one, a caller who vanished would keep all others out until that is noticed.
LEAST_CALLS = 2
# In two of a hundred moments, the number of independent callers who speak exceeds its mean by this many
# standard deviations. Words then come some tenths of a second late, and are not lost.
DEVIATIONS = 2.0
# Share of the callers who can be recognised at the same moment that is admitted first. Measured on two cores
# with callers in step (``evals.latency.overload``), eight of whom Moonshine tiny can recognise. The answer to
# two takes 1.2 times that to one; to three, 1.3 times at the median and 1.7 times in the 95th percentile,
# because the ends of their questions wait for each other.
FIRST_SHARE = 0.45
# More are tried after this time without trouble; after the longer one where the actual or expected time of
# their answers is unknown.
TRY_MS, TRY_SILENT_MS = 20_000, 60_000
TRY_GROWTH = 0.25
# Observations of the callers' share of speech count half after this many seconds of calls. The share has a
# minimum: a crowd that listens now may speak next.
SPEAKING_HALF_LIFE_S = 120.0
LEAST_SPEAKING = 0.2
# Factor by which answers of a loaded server may exceed those of a call alone. ``evals.latency.capacity``
# defines by it a capacity that callers do not notice.
SLOWER = 1.5
# More calls are tried while answers at each of these ranks are that near to the same rank in a call alone.
# Load delays the slow ones first.
RANKS = (0.5, 0.9)
# A smaller difference is not noticed, whatever multiple it is.
LEAST_SLOWER_MS = 100
# A loop that is this late, in the 95th percentile, plays audio late (``evals.latency.capacity``: LIMIT_MS).
LATE_MS = 40
ANSWERS, LEAST_ANSWERS = 20, 4
# A question that a document answers takes a third of the time of one that needs more; this needs some of each
# kind.
ALONE_ANSWERS, LEAST_ALONE = 21, 8
# Signs of a busy machine, one of which must be present for slow answers to count: the loop's lateness (95th
# percentile), the share of the time of all processors, and the share of the recognisable calls.
BUSY_LATE_MS, BUSY_PROCESSORS, BUSY_HEARING = 10, 0.8, 0.8
# Time for which answers and lateness count.
RECENT_MS = 15_000
LAGS = 400
# The bound falls again after the first time at the earliest, because the effect of a fall must show, and
# rises after the others.
FALL_MS, RETURN_MS, RETURN_FREE_MS = 5_000, 20_000, 5_000


@dataclass(frozen=True, slots=True)
class Admitted:
    """Bound of the present number of calls.

    Attributes:
        calls: of the requested kind.
        why: the limiting factor, for people.
    """

    calls: int
    why: str


class Admission:
    """Learner of the bound of one server.

    Args:
        most: maximum number of calls on any machine.
        first_share: as ``FIRST_SHARE``.
    """

    def __init__(self, most: int, *, first_share: float = FIRST_SHARE) -> None:
        self._most = most
        self._first_share = first_share
        self._least = min(LEAST_CALLS, most)
        # Callers who can be recognised at the same moment.
        self._heard: float | None = None
        self._factor = 0.0
        # Calls that are being tried (None: the first share), for how long, and the times of their answers.
        self._tried: int | None = None
        self._tried_ms = 0
        self._looked_ms: int | None = None
        self._tried_answers: deque[int] = deque(maxlen=ANSWERS)
        self._speaking = 1.0
        self._learnt = most
        self._learnt_why = ""
        self._fallen_ms: int | None = None
        # Time at which the bound last rose, or trouble was last seen.
        self._unsettled_ms = 0
        self._processors = 0.0
        self._heard_calls = 0
        self._alone_ms: deque[int] = deque(maxlen=ALONE_ANSWERS)
        # The same by the number of calls.
        self._by_calls_ms: dict[int, deque[int]] = {}
        # Pairs of a time and the latency of an answer.
        self._answers: deque[tuple[int, int]] = deque(maxlen=ANSWERS)
        self._lags: deque[tuple[int, int]] = deque(maxlen=LAGS)

    @property
    def alone_ms(self) -> int | None:
        """Time of an answer in a call alone; None before enough of them."""
        return round(median(self._alone_ms)) if len(self._alone_ms) >= LEAST_ALONE else None

    @property
    def admitted_in_all(self) -> Admitted:
        """Bound of all calls, including those that do not use the recogniser."""
        if self._learnt < self._most:
            return Admitted(self._learnt, self._learnt_why)
        return Admitted(self._most, f"all {self._most} lines are in use")

    @property
    def admitted(self) -> Admitted:
        """Bound of calls that use the recogniser."""
        bounds = [self.admitted_in_all]
        if self._heard is not None:
            why = (
                f"this machine can recognise {max(1, int(self._heard))} callers at once: a second of speech "
                f"takes its recogniser {self._factor * 1000:.0f} ms, and callers speak {self._speaking:.0%} "
                "of the time"
            )
            bounds.append(Admitted(self._room(self._heard), why))
            tried = self._tried_calls(self._heard)
            bounds.append(Admitted(tried, f"more than {tried} calls are tried when these go well"))
        return min(bounds, key=lambda bound: bound.calls)

    def on_hearing(self, *, processes: int, real_time_factor: float | None) -> None:
        """Record the recognisers' time for a second of one caller's speech.

        Args:
            processes: recognisers that run in parallel.
            real_time_factor: seconds of work of one of them per second of speech; None: not measured yet.
        """
        self._factor = ASSUMED_FACTOR if real_time_factor is None else real_time_factor
        self._heard = HEARD_SHARE * processes / max(self._factor, 1e-6)

    def on_speaking(self, speaking: int, *, calls: int, seconds: float) -> None:
        """Record how many callers speak.

        Args:
            speaking: at this moment.
            calls: that use the recogniser.
            seconds: since the last record.
        """
        self._heard_calls = calls
        if calls < 1:
            return
        kept = 0.5 ** (seconds * calls / SPEAKING_HALF_LIFE_S)
        share = min(1.0, speaking / calls)
        self._speaking = max(LEAST_SPEAKING, self._speaking * kept + share * (1 - kept))

    def on_processors(self, share: float) -> None:
        """Record the share of the time of all processors that any program has used since the last record."""
        self._processors = share

    def on_answer(self, at_ms: int, latency_ms: int, *, calls: int) -> None:
        """Record a caller's wait from their last word to the first sound of the answer.

        Args:
            at_ms: now.
            latency_ms: the wait.
            calls: number of calls meanwhile.
        """
        self._by_calls_ms.setdefault(calls, deque(maxlen=LEAST_ALONE)).append(latency_ms)
        if calls <= 1:
            self._alone_ms.append(latency_ms)
        else:
            self._answers.append((at_ms, latency_ms))
            self._tried_answers.append(latency_ms)

    def on_lag(self, at_ms: int, lag_ms: int) -> None:
        """Record how late the event loop ran a due callback."""
        self._lags.append((at_ms, lag_ms))

    def look(self, at_ms: int, *, calls: int) -> None:
        """Update the bound from recent records; called about once a second.

        Args:
            at_ms: now.
            calls: present number.
        """
        for seen in (self._answers, self._lags):
            while seen and at_ms - seen[0][0] > RECENT_MS:
                seen.popleft()
        trouble = self._trouble()
        self._try_more(at_ms, in_trouble=bool(trouble) and calls > 1)
        if trouble and calls > 1:
            self._unsettled_ms = at_ms
            is_settled = self._fallen_ms is None or at_ms - self._fallen_ms >= FALL_MS
            # With more calls than the bound, the last step has not taken effect yet: another one would count
            # twice.
            if calls <= self._learnt and is_settled:
                self._learnt = max(self._least, calls - 1)
                self._learnt_why = trouble
                self._fallen_ms = at_ms
                if self._heard is not None:
                    self._tried = min(self._tried_calls(self._heard), self._learnt)
                # Records with more calls are not valid for fewer.
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
        """Try more calls when the present number has gone well for long enough."""
        if self._heard is None:
            return
        tried = self._tried_calls(self._heard)
        since_ms = 0 if self._looked_ms is None else at_ms - self._looked_ms
        self._looked_ms = at_ms
        if in_trouble or self._heard_calls < tried / 2:
            self._try_anew()
        elif self._heard_calls >= tried:
            # A call that ends before the next one begins does not reset this.
            self._tried_ms += since_ms
        count, usual = len(self._tried_answers), self._usual
        if self._tried_ms < (TRY_MS if usual and count >= LEAST_ANSWERS else TRY_SILENT_MS):
            return
        # Strictly: with more calls a difference that is not noticed yet becomes noticeable.
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
        """Answers in a call alone, or with few calls; empty while there are not enough of them."""
        if len(self._alone_ms) >= LEAST_ALONE:
            return self._alone_ms
        few: list[int] = []
        for calls in sorted(self._by_calls_ms):
            few += self._by_calls_ms[calls]
            if len(few) >= LEAST_ALONE:
                return few[:LEAST_ALONE]
        return ()

    def _room(self, heard: float) -> int:
        """Return the most callers of whom, nearly always, at most ``heard`` speak at the same moment.

        That is the largest ``n`` with ``n*share + DEVIATIONS * sqrt(n*share*(1-share)) <= heard``, which is
        quadratic in ``sqrt(n*share)``.
        """
        share = self._speaking
        half = DEVIATIONS / 2 * (1 - share) ** 0.5
        root = (half * half + heard) ** 0.5 - half
        return min(self._most, max(self._least, int(heard), int(root * root / share + 1e-9)))

    def _late_ms(self) -> int:
        """Return the lateness of the loop, 95th percentile; 0 while there are too few records."""
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
    """Return the smallest value such that a ``share`` of ``values`` is not larger (nearest rank)."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]
