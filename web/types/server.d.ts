// Messages and answers of the server, as the pages read them. A field that no page reads is left out.
// Sources: session_store/events.py, serving/gateway/, protocols/minicpm_duplex.py, telemetry/turns.py, pipelines/.

/** Session of the sessions API; `last_seq` is its number of events. */
export interface SessionInfo {
  id: string;
  last_seq: number;
}

/** Answer that begins a session, a call or a conversation, where the server requires tokens. */
export interface NextToken {
  next_token?: string;
}

/** Picture of a typed turn, as it is sent and stored. */
export interface Attached {
  media_type: string;
  /** The file, in base64. */
  data: string;
  width: number;
  height: number;
}

export interface UserTurn {
  text: string;
  pictures?: { key: string }[];
  transport?: string;
  /** It was typed in a call. */
  typed?: boolean;
  /** Text that the model reads, with what was perceived in brackets. */
  rendered?: string;
}

export interface Heard {
  reply_id: string;
  text: string;
}

/** Passage that an answer rests on; `number` is its place in the document, from 1. */
export interface CitedPassage {
  document: string;
  heading: string;
  number: number;
}

export interface BotTurn {
  reply_id: string;
  text?: string;
  truncated?: boolean;
  unheard?: string;
  transport?: string;
  passages?: CitedPassage[];
  /** Author, where no model wrote it. */
  by?: "human" | "deployment";
}

export type TierName = "agent" | "offered" | "waiting" | "human" | "back" | "step_offered" | "stepping";
export type MediumName = "text" | "voice" | "video" | "screen";

/** Change of the tier of a session. */
export interface TierChange {
  tier: TierName;
  epoch: number;
  reason: string;
  note?: string;
  /** Medium of a step. */
  to?: MediumName;
}

/** State of a call that its caller can put on hold, and the longest hold. */
export interface HoldState {
  kind: "hold";
  is_on: boolean;
  most_s: number;
}

/** Change of the tier in a call, where it concerns a step to another medium. */
export interface StepChange {
  kind: "tier";
  tier: TierName;
  to: MediumName;
  reason: string;
  epoch: number;
}

/** Session in the list of the desk. */
export interface DeskSession {
  id: string;
  tier: TierName;
  epoch: number;
  reason: string;
  /** Why a human was offered; empty where none was. */
  cause: string;
  /** Null for a session that never changed its tier. */
  since_s: number | null;
  place: number;
  in_call: boolean;
  can_speak: boolean;
  /** The desk that asks has it. */
  mine: boolean;
  last: string;
}

export interface DeskView {
  enabled: boolean;
  sessions: DeskSession[];
}

/** Report of a specialist, as it was placed in the order of events. */
export interface Annotated {
  call_id: string;
  /** The same for all revisions of one statement of the call. */
  statement: number;
  late?: boolean;
  body: {
    type: string;
    text?: string;
    words?: { text: string; start_us: number; end_us: number }[];
    start_us?: number;
    end_us?: number;
    speaker_id?: string;
    also?: string | null;
    gesture?: string | null;
    ref?: string | null;
    facial_affect?: string | null;
    looking?: string | null;
    anger?: number | null;
    stress?: number | null;
    joy?: number | null;
    level_offset_db?: number | null;
    pitch_offset_semitones?: number | null;
  };
}

export interface Visit {
  transport: string;
}

interface EventOf<Kind extends string, Payload> {
  seq: number;
  /** When it happened, in microseconds of Unix time. */
  event_us: number;
  key: string;
  kind: Kind;
  payload: Payload;
}

/** Another engine went on in place of one that failed, or one that had failed works again. */
export interface Failover {
  stage: "hearing" | "speaking";
  engine: string;
  successor: string;
  reason: "error" | "late" | "stalled" | "silent" | "broken" | "recovered";
  call_id: string;
}

/** Committed event of a session. */
export type SessionEvent =
  | EventOf<"user_turn", UserTurn>
  | EventOf<"heard", Heard>
  | EventOf<"bot_turn", BotTurn>
  /** A user turn after it names it by its key. */
  | EventOf<"picture", Attached>
  | EventOf<"joined" | "left", Visit>
  | EventOf<"annotation", Annotated>
  | EventOf<"tier", TierChange>
  | EventOf<"failover", Failover>
  /** All tags of the session from here on. */
  | EventOf<"tags", { tags: string[] }>
  | EventOf<
      | "tool_call"
      | "tool_result"
      | "state"
      | "summary"
      | "voices"
      | "consent"
      | "disclosed"
      | "evidence"
      | "usage"
      | "journal"
      | "recording"
      | "listened",
      Record<string, unknown>
    >;

/** Session in the list of a search. */
export interface FoundSession {
  id: string;
  created_us: number;
  turns: number;
  transports: string[];
  first_words: string;
  tags: string[];
}

/** Page of a search; `before` is where the next one begins, null at the end. */
export interface SessionPage {
  sessions: FoundSession[];
  before: string | null;
}

/** Recorded call in the list of a session. */
export interface RecordingSummary {
  call_id: string;
  transport: string;
  began_us: number;
  duration_ms: number;
  lost_ms: number;
  /** Its end was written; false also for a call that a crash ended. */
  is_over: boolean;
  has_replay: boolean;
  has_film: boolean;
  pictures: number;
  /** Why an encrypted call cannot be read; empty when it can. */
  problem: string;
  /** Name of the recording that its client has uploaded; empty without one. */
  client_replay: string;
}

/** Event of a recorded call: the fields that the page reads, of any kind. */
export interface RecordingEvent {
  /** From the beginning of the recording. */
  at_ms: number;
  event: string;
  reply_id?: string;
  text?: string;
  unheard?: string;
  truncated?: boolean;
  voiced_ms?: number;
  silence_ms?: number;
  /** Of ReplyCut. */
  reason?: string;
  voice_ms?: number | null;
  /** Of VoteChanged. */
  vote?: string;
  /** Of AnswerHeard, with stages_ms. */
  latency_ms?: number;
  /** Of LatencyHeard, with the fields of HeardLatency. */
  server_ms?: number;
  stages_ms?: [string, number][];
  heard_ms?: number;
  round_trip_ms?: number;
  jitter_buffer_ms?: number;
  output_ms?: number;
}

/** Recorded call, as a page draws it. */
export interface RecordingDetail {
  call_id: string;
  began_us: number;
  duration_ms: number;
  events: RecordingEvent[];
  /** Times of the camera's pictures, in milliseconds. */
  pictures: number[];
  /** Pictures of the caller's turns, in order, with the time at which each turn was committed. */
  images: { at_ms: number; name: string }[];
  /** Highest sample of every interval, in percent; null where the stereo file was not made. */
  peaks: { interval_ms: number; caller: number[]; bot: number[] } | null;
}

/** Turn of a call that was held again: times from the caller's arrival. */
export interface ReplayedTurn {
  at_ms: number;
  text: string;
  waited_ms: number | null;
  heard: string;
  unheard: string;
  is_cut: boolean;
  latency_ms: number | null;
  tool_calls: number;
  cost: number | null;
}

/** The same turn then and now; null where one of the calls does not have it. */
export interface ComparedTurn {
  differences: string[];
  is_decided_alike: boolean;
  reasons: string[];
  then: ReplayedTurn | null;
  now: ReplayedTurn | null;
}

export interface ReplayComparison {
  summary: string;
  is_decided_alike: boolean;
  notes: string[];
  median: Record<"waited_ms" | "latency_ms", { then: number; now: number } | null>;
  cost: { then: number | null; now: number | null; currency: string };
  turns: ComparedTurn[];
}

/** Replay of a recorded call with the configuration of the server. */
export interface CallReplay {
  call_id: string;
  state: "none" | "loading" | "replaying" | "done" | "failed" | "cancelled";
  at_ms: number;
  duration_ms: number;
  /** Why it failed; empty otherwise. */
  reason: string;
  comparison: ReplayComparison | null;
}

/** Comment of a reader on a session. */
export interface SessionComment {
  id: string;
  /** Time that it is about, on the session clock. */
  at_us: number;
  created_us: number;
  /** As the author gave it; empty without one. */
  name: string;
  role: "client" | "operator";
  text: string;
  may_delete: boolean;
}

/** Link by which a session is read without a credential. */
export interface ShareLink {
  id: string;
  created_us: number;
  until_us: number;
  revoked_us: number | null;
  state: "open" | "expired" | "revoked";
}

/** Page of a timeline; `after` is where the next one begins, null at the end. */
export interface TimelinePage {
  events: SessionEvent[];
  after: string | null;
}

/** Server-sent event of a typed turn. An `error` is thrown instead. */
export type AnswerEvent =
  | { name: "turn"; data: SessionEvent }
  | { name: "delta"; data: { text: string } }
  | { name: "done"; data: BotTurn }
  | { name: "held"; data: { seq: number; tier: string } };

export interface CallCode {
  code: string;
  number: string;
  expires_s: number;
}

/** Latency of an answer as it was heard, in milliseconds. */
export interface HeardLatency {
  /** From the last sound of the user to the first of the answer, at the user's ear. */
  heard_ms: number;
  round_trip_ms: number;
  jitter_buffer_ms: number;
  output_ms: number;
}

/** Milliseconds of the parts of an exchange of two turns, by name. */
export type Spans = Record<string, number>;

/** Record of an exchange of two turns. */
export interface TurnRecord {
  kind: "turn";
  user_text?: string;
  interrupted?: boolean;
  spans?: Spans;
  endpoint_silence_ms?: number | null;
}

/** Place of a caller in the queue for a line; 0 when the caller no longer waits. */
export interface LineQueue {
  kind: "queue";
  position: number;
  wait_s?: number | null;
  refused?: string;
}

/** Decisions of a full-duplex engine, one letter per unit: l(istens), s(peaks), b(ackchannels), y(ields). */
export interface Votes {
  kind: "votes";
  votes: string;
  unit_ms: number;
}

/** Passages of the reply that is over; its turn record follows. */
export interface Passages {
  kind: "passages";
  passages: CitedPassage[];
}

export type ServerMessage =
  | TurnRecord
  | Passages
  | LineQueue
  | Votes
  | StepChange
  | HoldState
  | HeardReply
  | { kind: "session"; id: string }
  | { kind: "session_lost"; reason?: string }
  | { kind: "server_shutdown" }
  | { kind: "ended_by_operator" | "grants_expired" | "tenant_limit"; reason?: string };

export interface UserInput {
  text: string;
  /** "chat" for typed text. */
  input_type?: string;
  final?: boolean;
}

/** What was heard of a reply that is over; it comes before the record of its turn. */
export interface HeardReply {
  kind: "heard";
  text: string;
  unheard: string;
  truncated: boolean;
  /** False for a filler. */
  in_context: boolean;
}

export interface BotOutput {
  text: string;
  /** False for a sentence that is about to be spoken; true for words at the moment they are heard. */
  spoken?: boolean;
  segment_id?: number | string;
}

/** RTVI message of a call. */
export type RtviMessage =
  | { type: "user-input"; data: UserInput }
  | { type: "bot-output"; data: BotOutput }
  | { type: "server-message"; data?: ServerMessage }
  | { type: "error" | "error-response"; /** Of the message that is refused. */ id?: string; data?: { error?: unknown } }
  | {
      type:
        | "bot-ready"
        | "user-started-speaking"
        | "user-stopped-speaking"
        | "bot-llm-started"
        | "bot-llm-stopped"
        | "bot-started-speaking"
        | "bot-stopped-speaking"
        | "bot-interrupted";
      data?: undefined;
    };

/** Message of a call's data channel: RTVI, or signalling of the connection itself. */
export type ChannelMessage = RtviMessage | { type: "signalling"; message?: { type: string } };

export interface StartedCall extends NextToken {
  sessionId: string;
  iceConfig?: { iceServers: RTCIceServer[] };
}

export interface CallAnswer {
  sdp: string;
  type: RTCSdpType;
  pc_id: string;
}

/** Place of a conversation in the queue for an engine; 0 when it no longer waits. */
export interface EngineQueue {
  position: number;
  estimated_wait_s: number | null;
}

export interface Prepared extends NextToken {
  /** Under which everything of the conversation is kept. */
  session_id: string;
  /** Length of the engine's units. */
  unit_ms: number;
  /** What the caller may send with their voice. */
  takes?: ("text" | "pictures")[];
}

/** Answer to a chunk of audio. */
export interface DuplexResult {
  is_listen: boolean;
  text: string;
  /** Float32 samples at 24 kHz as little-endian bytes in base64; empty for silence. */
  audio_data: string;
  end_of_turn: boolean;
  interrupted: boolean;
  cost_llm_ms: number;
  cost_all_ms: number;
  wall_clock_ms: number;
  kv_cache_length: number;
}

/** Message of `/ws/duplex`. */
export type DuplexMessage =
  | ({ type: "queued" | "queue_update" } & EngineQueue)
  | { type: "queue_done" }
  | ({ type: "prepared" } & Prepared)
  | ({ type: "result" } & DuplexResult)
  | { type: "paused" | "resumed" }
  | { type: "error"; error: string; code: string; param?: string }
  | { type: "timeout"; reason: string }
  | { type: "stopped" };

/** Preset or reference voice that a call may choose. */
export interface NamedChoice {
  id: string;
  name: string;
  description: string;
}

/** What a call of one mode may choose. */
export interface ModeChoices {
  /** The deployment's own first. */
  voices: string[];
  presets: NamedChoice[];
  reference_voices: NamedChoice[];
  instructions: boolean;
}

/** What calls may choose, from `/api/choices`. */
export interface CallChoices {
  modes: Record<string, ModeChoices>;
  most_instruction_chars: number;
  /** This client may request a sample of a voice. */
  speaks: boolean;
}

/** Sound of the deployment; `data`: float32 samples at 16 kHz in base64, only where they were asked for. */
export interface PresetSound {
  name: string;
  data?: string;
}

/** Ready-made beginning of a conversation, from `/api/presets`. */
export interface Preset {
  id: string;
  name: string;
  description?: string;
  system_prompt?: string;
  system_content?: { type: "text" | "audio"; text?: string }[];
  ref_audio?: PresetSound;
}

/** Reference voice in the list of `/api/assets/ref_audio`. */
export interface ReferenceVoice {
  id: string;
  name: string;
}

/** State of the server, from `/status`. */
export interface Status {
  deployment?: string;
  /** What a call does that names no mode. */
  mode?: string;
  stt?: string;
  turn?: string;
  llm?: string;
  fallback?: string;
  tts?: string;
  omni?: string;
  sees?: boolean;
  cascade_sees?: boolean;
  /** Typed turns may have pictures. */
  reads_pictures?: boolean;
  telephone?: string;
  exposure?: string;
  calls: number;
  waiting: number;
  queue_length: number;
  total_workers: number;
  duplex_workers: number;
  busy_workers: number;
  idle_workers: number;
  loading_workers: number;
  error_workers: number;
  offline_workers: number;
}

/** Use of one model since the start of the server; a cost that is not known is null. */
export interface ModelUse {
  stage: "stt" | "llm" | "tts";
  engine: string;
  model: string;
  amounts: Record<string, number>;
  cost: string | null;
  known_cost: string | null;
  unpriced: string[];
}

/** Cost of one of the newest calls. */
export interface CallUse {
  call_id: string;
  session_id: string;
  transport: string;
  mode: string;
  began_at: string;
  is_over: boolean;
  turns: number;
  last_cost: string | null;
  cost: string | null;
  known_cost: string | null;
}

export interface LiveCall {
  call_id: string;
  session_id: string;
  transport: string;
  mode: string;
  began_at: string;
  listeners: number;
  /** False for a conversation in writing, and for the call of a human at the desk. */
  has_audio: boolean;
}

/** Live calls of the server. */
export interface LiveCallList {
  can_listen: boolean;
  calls: LiveCall[];
}

/** `currency` is null where the deployment has no prices. */
export interface Usage {
  since: string;
  currency: string | null;
  models: ModelUse[];
  calls: CallUse[];
}

/** Session whose recordings retention removes next. */
export interface NextRemoval {
  session_id: string;
  bytes: number;
  due_at: string;
  reason: "age" | "capacity";
}

/** Recordings of the server, as they were measured. */
export interface StoredRecordings {
  measured_at: string;
  sessions: number;
  calls: number;
  bytes: number;
  pinned_sessions: number;
  pinned_bytes: number;
  free_bytes: number;
  disk_bytes: number;
  next: NextRemoval[];
}

/** Run of retention by hand. */
export interface RetentionRun {
  at: string;
  dry_run: boolean;
  sessions: number;
  bytes: number;
  removed: { session_id: string; bytes: number; reason: string }[];
  kept: number;
  problem: string;
}

export interface Storage {
  retention_days: number | null;
  max_storage_gb: number | null;
  job: "" | "measuring" | "dry run" | "removing";
  problem: string;
  recordings: StoredRecordings | null;
  run: RetentionRun | null;
  uploads: { moved: number; failures: number; waiting: number } | null;
  store_bytes: number | null;
}

/** Circuit breaker of an engine that has a fallback. */
export interface Circuit {
  stage: string;
  engine: string;
  state: "closed" | "open" | "probing";
  retry_ms: number;
}

/** Child process with an engine. */
export interface EngineProcess {
  engine: string;
  is_ready: boolean;
  restarts: number;
  ended_at: string | null;
  reason: string;
}

/** Failures of one kind since the start of the server. */
export interface FailureCount {
  kind: string;
  stage: string;
  engine: string;
  successor: string;
  reason: string;
  count: number;
  last_at: string;
}

export interface Failures {
  since: string;
  circuits: Circuit[];
  processes: EngineProcess[];
  failures: FailureCount[];
  stalls: { over_ms: number; count: number; longest_ms: number; last_at: string | null; last_ms: number | null } | null;
}

/** Setting of the deployment. */
export interface SettingInForce {
  path: string;
  value: string;
  /** Empty where there is none, and where the value is the default. */
  default: string;
  is_given: boolean;
  meaning: string;
}

export interface OperatorState {
  is_operator: boolean;
  token_env: string;
}

export interface App {
  app_id: string;
  name: string;
  route: string;
  enabled: boolean;
}

export interface WorkerView {
  worker_id: string;
  host: string | null;
  port: number | null;
  gpu_id: number | null;
  status: string;
  state: string | null;
  current_session_id: string | null;
  total_requests: number;
  last_heartbeat: string | null;
  current_request_type: string | null;
  task_started_at: string | null;
}

export interface Ticket {
  kind: string;
  ticket_id: string;
  request_type: string | null;
  session_id: string | null;
  transport: string | null;
  position: number;
  estimated_wait_s: number | null;
  wait_elapsed_s: number;
}

type Task = "chat" | "half_duplex" | "audio_duplex" | "omni_duplex";

/** Baselines of the estimated lengths of conversations. */
export type EstimateSettings = Record<`eta_${Task}_s` | "ema_alpha", number>;

/** Baselines, and the lengths that were measured: null before a conversation has ended well. */
export type Estimates = { config: EstimateSettings; ema_min_samples: number } & Record<
  `ema_${Task}_s`,
  number | null
> &
  Record<`ema_${Task}_samples`, number>;

export interface Voice {
  id: string;
  name: string;
  duration_ms: number;
}

export interface StoredDocument {
  name: string;
  size_bytes: number;
  passages: number;
}

export interface DocumentList {
  documents: StoredDocument[];
  passages: number;
  /** Largest file that is taken. */
  most_bytes: number;
}

export interface VoiceAdded {
  message: string;
}
