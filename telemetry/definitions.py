"""Names, meanings and labels of all metrics of a server.

The metrics are made from these definitions, and docs/reference/metrics.md is written from them. Names that
Unmute has keep its prefix, so that its dashboards work. A label has few values: a stage, a transport, an
engine of the deployment. No label holds an id, a number, an address or words of a caller.
"""

from dataclasses import dataclass
from typing import Literal

# From a fast local engine to a caller who has hung up.
STAGE_BOUNDS_S = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
CALL_BOUNDS_S = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 7_200.0)
SPEECH_BOUNDS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
WORD_BOUNDS = (1.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
STALL_BOUNDS_S = (0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Definition:
    """Metric of a server.

    Attributes:
        name: as Prometheus shows it.
        kind: its type.
        about: its meaning.
        labels: names of its labels.
        bounds: upper bounds of a histogram.
    """

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


def _counter(name: str, about: str, *labels: str) -> Definition:
    return Definition(name, "counter", about, labels)


def _gauge(name: str, about: str, *labels: str) -> Definition:
    return Definition(name, "gauge", about, labels)


def _histogram(name: str, about: str, *labels: str, bounds: tuple[float, ...] = STAGE_BOUNDS_S) -> Definition:
    return Definition(name, "histogram", about, labels, bounds)


# Of calls, as Unmute has them.
SESSIONS = _counter("unmute_sessions_total", "calls that began")
ACTIVE_SESSIONS = _gauge("unmute_active_sessions", "calls that are running")
SESSION_DURATION = _histogram(
    "unmute_session_duration_seconds", "duration of a call that is over", bounds=CALL_BOUNDS_S
)
STT_TTFT = _histogram(
    "unmute_stt_ttft_seconds", "time from the caller's voice to the first words of the recogniser"
)
STT_FRAMES = _counter("unmute_stt_sent_frames_total", "frames of 20 ms of audio that recognisers received")
STT_WORDS = _counter("unmute_stt_recv_words_total", "final words of recognisers")
LLM_TTFT = _histogram(
    "unmute_vllm_ttft_seconds",
    "time from the beginning of a response to its first text",
)
REQUEST_WORDS = _histogram(
    "unmute_vllm_request_length_words",
    "words that the language model is shown with a turn",
    bounds=(25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0),
)
REPLY_WORDS = _histogram(
    "unmute_vllm_reply_length_words", "words of a response of the language model", bounds=WORD_BOUNDS
)
TTS_TTFT = _histogram("unmute_tts_ttft_seconds", "time from a clause at the voice to its first audio")
TTS_AUDIO = _histogram(
    "unmute_tts_audio_duration_seconds", "speech that a voice made in one stretch", bounds=SPEECH_BOUNDS_S
)
TTS_GENERATION = _histogram(
    "unmute_tts_gen_duration_seconds",
    "time that a voice took for one stretch of speech",
    bounds=SPEECH_BOUNDS_S,
)

# Of turns.
CALLS = _counter("parley_calls_total", "calls that began", "transport", "mode")
CALLS_OPEN = _gauge("parley_calls_open", "calls that are running", "transport", "mode")
CALL_ENDS = _counter(
    "parley_call_ends_total", "calls and conversations that the server ended, by its reason", "reason"
)
TURNS = _counter("parley_turns_total", "turns of callers with words")
VOICE_TO_VOICE = _histogram(
    "parley_voice_to_voice_seconds",
    "time from the last sound of the caller to the first of an answer that no filler and no tool preceded",
)
STAGE = _histogram(
    "parley_stage_seconds",
    "time of each stage of an answer; the stages add up to parley_voice_to_voice_seconds",
    "stage",
)
BARGE_IN = _histogram(
    "parley_barge_in_stop_seconds", "time from the caller's voice to the last packet of an interrupted reply"
)
INTERRUPTIONS = _counter("parley_interruptions_total", "replies that the caller interrupted")
CUT_INS = _counter(
    "parley_cut_ins_suspected_total",
    "turns after whose end the caller went on within a second: the bot may have cut in",
)
FILLERS = _counter("parley_fillers_total", "phrases that covered a late answer")
AHEAD = _counter("parley_answered_ahead_total", "answers that were begun before the turn was over")
RECORDINGS = _counter("parley_recordings_total", "calls whose recording began")
RECORDINGS_DEGRADED = _counter("parley_recordings_degraded_total", "losses of a part of a recording")
UPLOADS = _counter("parley_recording_uploads_total", "recordings that moved to the bucket")
UPLOAD_FAILURES = _counter(
    "parley_recording_upload_failures_total",
    "attempts to move a recording that S3 or the disk refused",
)
UPLOADS_WAITING = _gauge(
    "parley_recordings_awaiting_upload", "complete recordings that were not in the bucket at the last look"
)

# Of engines.
FAILURES = _counter("parley_engine_failures_total", "errors that engines and services reported", "stage")
FAILOVERS = _counter(
    "parley_engine_failovers_total", "times that a fallback took over from an engine", "stage"
)
TOKENS = _counter(
    "parley_llm_tokens_total",
    "tokens by kind; kind=cached_tokens are hits of the prompt cache",
    *("engine", "model", "kind"),
)
HEARD = _counter("parley_audio_heard_seconds_total", "audio that recognisers received", "engine")
SPOKEN = _counter("parley_audio_spoken_seconds_total", "speech that voices made", "engine")
CHARACTERS = _counter("parley_characters_total", "characters that voices received", "engine")
COST = _counter("parley_cost_total", "known cost of engines, by the price table", "engine", "currency")
UNPRICED = _counter(
    "parley_unpriced_usage_total",
    "turns with use of an engine that the price table has no price for: their cost is not known",
    *("engine", "model", "kind"),
)

# Of the process.
LATE_PACKETS = _counter("parley_late_packets_total", "packets of browser calls that left 10 ms late or more")
STALLS = _histogram(
    "parley_loop_stall_seconds",
    "stalls of the event loop of 50 ms or more; the log has the stack that stalled",
    bounds=STALL_BOUNDS_S,
)
LINES = _gauge("parley_lines", "calls that there may be now")
QUEUE_LENGTH = _gauge("parley_queue_length", "callers who wait for a line")
QUEUE_WAIT = _histogram("parley_queue_wait_seconds", "waits for a line that are over, fulfilled or not")
POOL_WORKERS = _gauge("parley_pool_workers", "workers of the pool", "state")
POOL_LEASES = _gauge("parley_pool_leases", "conversations that have a worker")
POOL_WAITING = _gauge("parley_pool_waiting", "conversations that wait for a worker")
DEVICE_USED = _gauge(
    "parley_device_memory_used_bytes",
    "memory in use, by all processes, on a CUDA device on which this process (no worker) or a worker of the "
    "pool runs an engine",
    "worker",
    "device",
)
DEVICE_TOTAL = _gauge("parley_device_memory_total_bytes", "memory of such a device", "worker", "device")
STORE_COMMIT = _histogram("parley_store_commit_seconds", "time from an append to its commit")
TENANT_USED = _gauge(
    "parley_tenant_used",
    "used part of a limit of a tenant, over all processes (1: used up)",
    "tenant",
    "limit",
)
TENANT_REFUSALS = _counter(
    "parley_tenant_refusals_total",
    "calls, turns and sessions refused by a limit of a tenant",
    "tenant",
    "limit",
)
STORE_AVAILABLE = _gauge("parley_store_available", "1 while the session store answers")

CALL_METRICS = (
    *(SESSIONS, ACTIVE_SESSIONS, SESSION_DURATION, STT_TTFT, STT_FRAMES, STT_WORDS, LLM_TTFT, REQUEST_WORDS),
    *(
        REPLY_WORDS,
        TTS_TTFT,
        TTS_AUDIO,
        TTS_GENERATION,
        CALLS,
        CALLS_OPEN,
        CALL_ENDS,
        TURNS,
        VOICE_TO_VOICE,
        STAGE,
    ),
    *(
        BARGE_IN,
        INTERRUPTIONS,
        CUT_INS,
        FILLERS,
        AHEAD,
        RECORDINGS,
        RECORDINGS_DEGRADED,
        FAILURES,
        FAILOVERS,
        TOKENS,
    ),
    *(HEARD, SPOKEN, CHARACTERS, COST, UNPRICED),
    *(LATE_PACKETS, STALLS),
)
PROCESS_METRICS = (
    *(
        LINES,
        QUEUE_LENGTH,
        QUEUE_WAIT,
        POOL_WORKERS,
        POOL_LEASES,
        POOL_WAITING,
        DEVICE_USED,
        DEVICE_TOTAL,
        TENANT_USED,
        TENANT_REFUSALS,
        STORE_COMMIT,
        STORE_AVAILABLE,
        UPLOADS,
        UPLOAD_FAILURES,
        UPLOADS_WAITING,
    ),
)
DEFINITIONS = (*CALL_METRICS, *PROCESS_METRICS)
