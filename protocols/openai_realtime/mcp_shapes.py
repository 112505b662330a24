"""Fields of MCP servers in OpenAI's realtime events, read and written. This module has no state.

The secrets of a server, its headers and its access token, are read and never written.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from parley.protocols.client_mcp import (
    McpApprovalRules,
    McpDeclaration,
    McpFault,
    McpToolFilter,
)
from parley.protocols.client_protocol import Message, ProtocolError

MOST_SERVERS, MOST_NAMES = 8, 64
LABEL_CHARS, URL_CHARS, NAME_CHARS, DESCRIPTION_CHARS = 64, 2_000, 200, 2_000
MOST_HEADERS, HEADER_CHARS = 16, 8_192
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,64}")
# RFC 9110, 5.6.2 (token) and 5.5 (no control characters in values).
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
# Of the connection and of the protocol, which are set here.
_OURS = frozenset(
    (
        "accept accept-encoding connection content-encoding content-length content-type expect host "
        "keep-alive last-event-id mcp-protocol-version mcp-session-id te trailer transfer-encoding upgrade"
    ).split()
)
# Fields that events repeat. Any other field might be a secret.
_SHOWN = ("server_label", "server_description", "allowed_tools", "require_approval")
# Other ways to name a server, which only OpenAI's own service has.
_ELSEWHERE = {
    "connector_id": "connectors are OpenAI's own; name a server with server_url",
    "tunnel_id": "tunnels are OpenAI's own; name a server with server_url",
}


def mcp_server(given: Message, param: str) -> McpDeclaration:
    """Return an MCP server as a client has declared it.

    Raises:
        ProtocolError: a part of it is missing or not supported.
    """
    for name, why in _ELSEWHERE.items():
        if given.get(name) is not None:
            raise ProtocolError(f"{param}.{name}: {why}", code="not_supported", param=f"{param}.{name}")
    callers = given.get("allowed_callers")
    if given.get("defer_loading") or (callers is not None and "direct" not in _texts(callers, param)):
        raise ProtocolError(
            f"{param}: tools are offered to the model directly", code="not_supported", param=param
        )
    label = _text(given, "server_label", param, most_chars=LABEL_CHARS)
    if not _LABEL.fullmatch(label):
        raise _invalid(f"{param}.server_label", f"expected at most {LABEL_CHARS} letters, digits, _ and -")
    described = given.get("server_description")
    if described is not None:
        described = _text(given, "server_description", param, most_chars=DESCRIPTION_CHARS)
    return McpDeclaration(
        label=label,
        url=_url(_text(given, "server_url", param, most_chars=URL_CHARS), f"{param}.server_url"),
        headers=_headers(given, param),
        description=described or "",
        allowed=_filter(given.get("allowed_tools"), f"{param}.allowed_tools"),
        approval=_approval(given.get("require_approval"), f"{param}.require_approval"),
    )


def shown_server(given: Message) -> Message:
    """Return a client's declaration without its secrets, as events report it."""
    parts = urlsplit(str(given.get("server_url")))
    return {
        "type": "mcp",
        **{name: given[name] for name in _SHOWN if given.get(name) is not None},
        # Some servers have a key in their path; OpenAI's API writes it the same way.
        "server_url": f"{parts.scheme}://{parts.netloc}/<redacted>",
    }


def shown_fault(fault: McpFault | None) -> Message | None:
    """Return the ``error`` of a call."""
    if fault is None:
        return None
    if fault.http_status is not None:
        return {"type": "http_error", "code": fault.http_status, "message": fault.message}
    if fault.rpc_code is not None:
        return {"type": "protocol_error", "code": fault.rpc_code, "message": fault.message}
    return {"type": "tool_execution_error", "message": fault.message}


def _text(given: Message, name: str, param: str, *, most_chars: int) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most_chars:
        raise _invalid(f"{param}.{name}", f"expected a text of at most {most_chars} characters")
    return value


def _url(url: str, param: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    # Of a client's text, only what a header and a log line can hold.
    if host is None or parts.scheme not in ("https", "http") or not re.fullmatch(r"[\x21-\x7e]+", url):
        raise _invalid(param, "expected https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise _invalid(param, "it contains a password: send it in authorization or headers")
    return url


def _headers(given: Message, param: str) -> tuple[tuple[str, str], ...]:
    place = f"{param}.headers"
    headers = given.get("headers")
    if headers is None:
        headers = {}
    if not isinstance(headers, dict) or len(headers) > MOST_HEADERS:
        raise _invalid(place, f"expected up to {MOST_HEADERS} headers")
    found: dict[str, str] = {}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise _invalid(place, f"a header cannot be named {name[:64]!r}")
        found[name.lower()] = _secret(value, place)
    token = given.get("authorization")
    if token is not None:
        if "authorization" in found:
            raise _invalid(f"{param}.authorization", "headers have it already")
        found["authorization"] = f"Bearer {_secret(token, f'{param}.authorization')}"
    return tuple(found.items())


def _secret(value: object, param: str) -> str:
    """Return the value of a header; a refusal does not repeat it."""
    if not isinstance(value, str) or len(value) > HEADER_CHARS or not _HEADER_VALUE.fullmatch(value):
        raise _invalid(param, f"expected at most {HEADER_CHARS} printable ASCII characters")
    return value


def _filter(given: object, param: str) -> McpToolFilter | None:
    if given is None:
        return None
    if isinstance(given, list):
        return McpToolFilter(frozenset(_texts(given, param)))
    if not isinstance(given, dict) or not given.keys() <= {"tool_names", "read_only"}:
        raise _invalid(param, "expected names of tools, or an object with tool_names and read_only")
    names, is_read_only = given.get("tool_names"), given.get("read_only")
    if is_read_only is not None and not isinstance(is_read_only, bool):
        raise _invalid(f"{param}.read_only", "expected true or false")
    return McpToolFilter(
        None if names is None else frozenset(_texts(names, f"{param}.tool_names")), is_read_only
    )


def _texts(given: object, param: str) -> list[str]:
    if (
        not isinstance(given, list)
        or len(given) > MOST_NAMES
        or not all(isinstance(each, str) and len(each) <= NAME_CHARS for each in given)
    ):
        raise _invalid(param, f"expected up to {MOST_NAMES} names")
    return given


def _approval(given: object, param: str) -> McpApprovalRules:
    if given is None or given == "always":
        return McpApprovalRules()
    if given == "never":
        return McpApprovalRules(never=McpToolFilter())
    if not isinstance(given, dict) or not given.keys() <= {"always", "never"}:
        raise _invalid(param, "expected always, never, or an object with filters of that name")
    return McpApprovalRules(
        *(_filter(_object(given.get(name), param), f"{param}.{name}") for name in ("always", "never"))
    )


def _object(given: object, param: str) -> Mapping[str, Any] | None:
    if given is not None and not isinstance(given, dict):
        raise _invalid(param, "expected objects with tool_names and read_only")
    return given


def _invalid(param: str, why: str) -> ProtocolError:
    return ProtocolError(f"{param}: {why}", code="invalid_value", param=param)
