"""Replacements of settings that were removed, for the message that refuses them."""

from collections.abc import Mapping
from types import MappingProxyType

from parley.serving.gateway.desk.settings import PHRASES as DESK_PHRASES
from parley.turn_taking.tier_settings import PHRASES as TIER_PHRASES

_PATIENCE = "hearing.endpoint.patience, which is of hearing.endpoint.kind: predictive"
_FIRST_TOKEN = "thinking.guard.first_token_ms, to which the other limits are in proportion"
_IN_DUPLEX = "hearing.endpoint, with duplex.turns.kind and duplex.turns.patience for full duplex alone"

_PHRASES = (*(("desk", name) for name in DESK_PHRASES), *(("tiers", name) for name in TIER_PHRASES))


def _variable(name: str) -> str:
    return f"the variable {name} of the environment, by this name"


# A removed setting without an entry has no successor: its value is fixed at its former default.
REPLACED: Mapping[str, str] = MappingProxyType(
    {
        "bot.idle.enabled": "bot.idle: null, or nothing",
        **{f"{group}.{name}": f"{group}.phrases.{name}" for group, name in _PHRASES},
        "bot.idle.hang_up_on_farewell": "phone.ends_on_goodbye, which is of phone calls",
        "chat_sockets": "sockets, whose open_s is of every socket",
        "desk.fetch_on": "a rule of desk.offers: {cause: policy, on: [words], ask: false}",
        "desk.offer_after_repairs": "a rule of desk.offers: {cause: repairs, after: 3}",
        "desk.offer_after_tense": "a rule of desk.offers: {cause: tension, after: 3}",
        "desk.offer_after_unknown": "a rule of desk.offers: {cause: unknown, after: 2}",
        "desk.offer_on": "a rule of desk.offers: {cause: policy, on: [words]}",
        "duplex.ticks.tick": "duplex.ticks.gating",
        "duplex.turns.backchannel": "true or false; what is hummed is speaking.backchannel.tokens",
        "duplex.turns.barge_in": "hearing.barge_in, with duplex.turns.confirm_ms for full duplex alone",
        "duplex.turns.endpoint": _IN_DUPLEX,
        "duplex.turns.speculation": "thinking.speculation",
        "duplex.engine (two_tier).policy": f"hearing.barge_in and {_IN_DUPLEX}",
        "hearing.barge_in.looks": "true or false",
        "hearing.endpoint.complete_probability": _PATIENCE,
        "hearing.endpoint.max_silence_ms": _PATIENCE,
        "hearing.endpoint.min_silence_ms": _PATIENCE,
        "hearing.endpoint.unfinished_probability": _PATIENCE,
        "operations.voices": "duplex.tts_voice, which is the default of clients too",
        "phone.account_sid_env": _variable("TWILIO_ACCOUNT_SID"),
        "phone.api_key_env": _variable("TWILIO_API_KEY"),
        "phone.api_secret_env": _variable("TWILIO_API_SECRET"),
        "phone.auth_token_env": _variable("TWILIO_AUTH_TOKEN"),
        "phone.remember_callers.key_env": _variable("PARLEY_CALLER_KEY"),
        "phone.shared_key_env": _variable("TWILIO_WEBHOOK_KEY"),
        "server.admin_token_env": _variable("PARLEY_ADMIN_TOKEN"),
        "server.call_keys_env": _variable("PARLEY_CALL_KEYS"),
        "server.conversations.filler": "thinking.guard.waiting.filler",
        "sockets.prepare_s": "sockets.open_s",
        "speaking.backchannel.enabled": "speaking.backchannel: {}, or null for none",
        "speaking.backchannel.profile": "speaking.backchannel: {}, or null for none",
        "telemetry.traces.headers_env": _variable("OTEL_EXPORTER_OTLP_HEADERS"),
        "telemetry.traces.service_name": _variable("OTEL_SERVICE_NAME"),
        "thinking.guard.silence_budget_ms": _FIRST_TOKEN,
        "thinking.guard.silent_gap_ms": _FIRST_TOKEN,
        "thinking.guard.token_gap_ms": _FIRST_TOKEN,
        "workers.eta": "PUT /api/config/eta, while the server runs",
        "workers.secret_env": _variable("PARLEY_WORKER_SECRET"),
    }
)


def instead_of(path: str, *, where: str) -> str:
    """Return a clause that names the replacement of a setting; empty where there is none.

    Args:
        path: of the setting.
        where: start of the path, as in the message.
    """
    instead = REPLACED.get(path) or REPLACED.get(f"{where}.{path}")
    return f", write {instead}" if instead else ""
