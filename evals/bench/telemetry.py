"""``python -m evals.bench telemetry``: processor time of metrics, costs and traces, for each call.

The events of a call (a turn of the caller and a reply every eight seconds, as the event stream of a cascade
has them) are published to the observers of a server, and to none. The difference in processor time, over the
time that such calls last, is the share of a core. Calls are published as fast as possible, because a share of
a thousandth is not visible in a call that runs in real time. With ``--traces`` the spans are sent to a
collector in another process. What Pipecat's services spend on their reports is not in it. Output: one JSON
line.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from parley.core.call_events import (
    AnswerHeard,
    BotTurnEnded,
    CallEvent,
    EngineUsed,
    FinalWords,
    PartialWords,
    ReplyFinished,
    ReplyStarted,
    ResponseEnded,
    ResponseStarted,
    ResponseText,
    SpeechMade,
    SpeechStarted,
    TurnEndDecided,
    TurnEnded,
    TurnStarted,
    VoiceEnded,
    VoiceStarted,
)
from parley.core.timeline import HeardMark, HeardReply
from parley.core.usage import Stage, Usage
from parley.evals.harness.command import exit_code, machine, positive, quiet_log
from parley.evals.harness.progress import Progress
from parley.evals.virtual_time import run as run_virtual
from parley.pipelines.usage_records import UsageRecords
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import CallObserver, ObservedCall
from parley.runtime.trace_context import CallTrace
from parley.telemetry.call_metrics import CallMetrics
from parley.telemetry.call_traces import CallTraces
from parley.telemetry.metrics import ServerMetrics
from parley.telemetry.prices import PriceRow, PriceSettings, PriceTable
from parley.telemetry.settings import TraceSettings
from parley.telemetry.trace_export import TraceExport
from parley.telemetry.turns import SPANS
from parley.telemetry.usage_ledger import CallLedger, UsageLedger

TURN_MS = 8_000
# Of a reply of three seconds: pieces of speech of 40 ms, and tokens of the model.
PIECES, TOKENS, PARTIALS = 75, 40, 6
SCRAPE_S = 15
ENGINES = {Stage.STT: "deepgram", Stage.LLM: "anthropic", Stage.TTS: "cartesia"}
PRICES = PriceTable(
    PriceSettings(
        rows=(
            PriceRow(engine="deepgram", heard_per_minute=0.006),
            PriceRow(engine="anthropic", prompt_per_million_tokens=1, completion_per_million_tokens=5),
            PriceRow(engine="cartesia", per_million_characters=50),
        ),
        in_session=False,
    )
)
Observe = Callable[[CallEvents, ObservedCall], Sequence[CallObserver]]
COLLECTOR = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"])); self.send_response(200); self.end_headers()
    def log_message(self, *arguments): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def turn_of(number: int) -> list[CallEvent]:
    """Return the events of one turn and its reply."""
    at_ms = number * TURN_MS
    reply = HeardReply("r", "words", "", False, HeardMark("r", 3_000, 9), True, 0, 1)
    used = {
        Stage.STT: Usage(heard_ms=2_000),
        Stage.LLM: Usage(prompt_tokens=900, cached_tokens=600, completion_tokens=TOKENS),
    }
    stages_ms = tuple((name, 110.0) for name, _, _ in SPANS)
    return [
        VoiceStarted(at_ms + 200, 200),
        TurnStarted(at_ms + 200),
        *(PartialWords(at_ms + 300 * place, "words so far") for place in range(1, PARTIALS + 1)),
        VoiceEnded(at_ms + 2_200, 200),
        FinalWords(at_ms + 2_250, "what are your opening hours on saturday", None),
        EngineUsed(at_ms + 2_250, Stage.STT, "model", used[Stage.STT]),
        TurnEndDecided(at_ms + 2_400, 400, 0.9),
        TurnEnded(at_ms + 2_400, "what are your opening hours on saturday"),
        ResponseStarted(at_ms + 2_410),
        *(ResponseText(at_ms + 2_500 + 10 * place, "word ") for place in range(TOKENS)),
        ResponseEnded(at_ms + 2_900),
        EngineUsed(at_ms + 2_900, Stage.LLM, "model", used[Stage.LLM]),
        SpeechStarted(at_ms + 2_600),
        *(EngineUsed(at_ms + 2_600, Stage.TTS, "model", Usage(characters=80)) for _ in range(2)),
        *(SpeechMade(at_ms + 2_650 + 10 * place, 40.0) for place in range(PIECES)),
        ReplyStarted(at_ms + 2_660, "r"),
        AnswerHeard(at_ms + 2_660, 660, stages_ms),
        ReplyFinished(at_ms + 5_700, reply),
        BotTurnEnded(at_ms + 5_700, "words", False),
    ]


def published_s(observe: Observe, *, calls: int, turns: int) -> float:
    """Return the processor time of publishing the events of some calls, in seconds."""

    async def publish() -> float:
        made = [turn_of(number) for number in range(turns)]
        began_s = time.process_time()
        for number in range(calls):
            events = CallEvents()
            call = ObservedCall(f"session-{number}", f"call-{number}", "webrtc", "cascade")
            observers = observe(events, call)
            for turn in made:
                for event in turn:
                    events.publish(event)
            for observer in observers:
                observer.close()
        return time.process_time() - began_s

    return run_virtual(publish())


def none(_events: CallEvents, _call: ObservedCall) -> Sequence[CallObserver]:
    """Return no observers."""
    return ()


@contextmanager
def collector() -> Iterator[str]:
    """Run a collector of traces in a process of its own; yield its address."""
    with subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(child.stdout.readline())}/v1/traces"
        finally:
            child.terminate()


def measure(*, calls: int, minutes: float, traces: bool) -> dict[str, object]:
    """Return the shares of a core for each call, and the cost of a scrape."""
    turns = max(1, round(minutes * 60_000 / TURN_MS))
    lasted_s = calls * turns * TURN_MS / 1_000
    metrics, ledger = ServerMetrics(), UsageLedger()

    def observe(events: CallEvents, call: ObservedCall) -> Sequence[CallObserver]:
        # Without a session, so without the writes into it.
        priced: Any = SimpleNamespace(events=events, call_id=call.call_id)
        UsageRecords(priced, PRICES, ENGINES)
        return CallMetrics(events, call, metrics, ENGINES, "USD"), CallLedger(events, call, ledger)

    progress = Progress("steps", 4 if traces else 3)
    # The first calls fill the caches of the interpreter.
    published_s(observe, calls=2, turns=turns)
    progress.step("first calls")
    without_s = published_s(none, calls=calls, turns=turns)
    progress.step(f"{calls} calls without observers")
    with_s = published_s(observe, calls=calls, turns=turns)
    progress.step(f"{calls} calls with metrics and costs")
    found: dict[str, object] = {
        "calls": calls,
        "turns": turns,
        "events_per_s": round(len(turn_of(0)) / (TURN_MS / 1_000), 1),
        "metrics_percent_per_call": round(100 * (with_s - without_s) / lasted_s, 4),
        "us_per_turn": round(1e6 * (with_s - without_s) / (calls * turns)),
    }
    if traces:
        with collector() as endpoint:
            export = TraceExport(TraceSettings(endpoint=endpoint))

            def trace(events: CallEvents, call: ObservedCall) -> Sequence[CallObserver]:
                return (CallTraces(events, call, export.tracer, ENGINES, CallTrace()),)

            began_s = time.process_time()
            published_s(trace, calls=calls, turns=turns)
            export.close()
            traced_s = time.process_time() - began_s
        progress.step(f"{calls} calls with traces")
        found["traces_percent_per_call"] = round(100 * (traced_s - without_s) / lasted_s, 4)
    return {**found, **_scraped(metrics)}


def _scraped(metrics: ServerMetrics) -> dict[str, object]:
    """Return the series and the cost of a scrape."""
    text, _ = metrics.render("")
    began_s, scrapes = time.process_time(), 20
    for _ in range(scrapes):
        metrics.render("")
    scrape_s = (time.process_time() - began_s) / scrapes
    return {
        "series": sum(not line.startswith("#") for line in text.decode().splitlines()),
        "scrape_kb": round(len(text) / 1_000, 1),
        "scrape_ms": round(1_000 * scrape_s, 2),
        "scrapes_percent": round(100 * scrape_s / SCRAPE_S, 4),
    }


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.bench telemetry",
        description="Measure the processor time of metrics, costs and traces.",
    )
    parser.add_argument("--calls", type=positive, default=200, help="calls, one after the other")
    parser.add_argument("--minutes", type=float, default=5.0, help="length of each call")
    parser.add_argument("--traces", action="store_true", help="traces too (extra otel)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    given = build_parser().parse_args(argv)
    return exit_code(lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    quiet_log()
    found = measure(calls=given.calls, minutes=given.minutes, traces=given.traces)
    print(json.dumps({**found, "machine": machine()}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
