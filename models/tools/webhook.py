"""Tool that calls a custom HTTP endpoint: sends the arguments as JSON, returns the response.

Decides what an HTTP outcome implies about the effect. Only outcomes that show that the request was not
carried out are plain failures: no connection, a 3xx or 4xx, a 503. Any later error or timeout leaves the
effect unknown. A redirect is refused, wherever it leads: the arguments and the secrets in the headers are for
the configured address.

Every request has a connection of its own. When the server has closed a kept connection meanwhile, the request
fails in a way that cannot be distinguished from one that was carried out.
"""

import asyncio
import json
import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import aiohttp
from pydantic import Field, field_validator, model_validator

from parley.core.errors import ConfigError, EngineError
from parley.models.tools import EffectUnknownError, ToolSettings
from parley.models.tools.arguments import schema_faults

# Timeout of a connection attempt: a server that has not answered the handshake by then has not received the
# arguments.
CONNECT_S = 3.0
# Length limit of the text that explains a refusal.
MAX_REASON_CHARS = 300
# Status by which a server reports that it carried nothing out.
NOT_CARRIED_OUT = 503
# RFC 9110, 5.6.2 (token) and 5.5 (no control characters in values).
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_OURS = frozenset(
    {"idempotency-key", "content-type", "content-length", "host", "connection", "transfer-encoding", "accept"}
)
_SECRET = re.compile(r"authorization|cookie|key|token|secret|password|signature", re.IGNORECASE)


class WebhookSettings(ToolSettings):
    """Tool of the ``webhook`` kind. ``timeout_s`` covers the connection and the whole response.

    A server for an ``idempotent`` tool must carry out requests with the same ``Idempotency-Key`` once.

    Attributes:
        parameters: JSON schema of the arguments; its supported rules: ``models.tools.arguments``.
        url: address; https, or http on this machine.
        url_env: the environment variable that holds the address, in place of ``url``.
        method: HTTP method.
        headers: sent as they are; must not be secret.
        headers_env: header to the environment variable that holds its whole value.
        max_response_bytes: limit of the response that the model gets; the rest is cut off.
        allow_plain_http: allow http to another machine.
    """

    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    url: str | None = None
    url_env: str | None = None
    method: Literal["POST"] = "POST"
    headers: dict[str, str] = Field(default_factory=dict)
    headers_env: dict[str, str] = Field(default_factory=dict)
    max_response_bytes: int = Field(default=16_384, ge=256, le=131_072)
    allow_plain_http: bool = False

    @field_validator("parameters")
    @classmethod
    def _are_checked(cls, value: dict[str, Any]) -> dict[str, Any]:
        faults = schema_faults(value)
        if faults:
            raise ValueError("; ".join(faults))
        return value

    @field_validator("headers", "headers_env")
    @classmethod
    def _are_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a header name")
            if name.lower() in _OURS:
                raise ValueError(f"{name!r} is set by the webhook itself")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("expected either url or url_env")
        if self.url is not None:
            check_address(self.url, allow_plain_http=self.allow_plain_http)
        for name, value in self.headers.items():
            if _SECRET.search(name):
                raise ValueError(f"the header {name!r} looks secret: give it in headers_env")
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"the header {name!r} has a value that a header cannot hold")
        twice = {name.lower() for name in self.headers} & {name.lower() for name in self.headers_env}
        if twice:
            raise ValueError(f"set both in headers and in headers_env: {', '.join(sorted(twice))}")
        return self

    def check(self) -> None:
        """Check that the tool can be used, without a connection.

        Raises:
            ConfigError: an environment variable is not set or has an invalid value, which is not quoted.
        """
        self.address()
        self.all_headers()

    def address(self) -> str:
        """Return the address.

        Raises:
            ConfigError: as ``check``.
        """
        if self.url is not None:
            return self.url
        assert self.url_env is not None
        url = self._from_environment(self.url_env)
        try:
            check_address(url, allow_plain_http=self.allow_plain_http)
        except ValueError as error:
            raise ConfigError(f"the tool {self.name!r}: {self.url_env}: {error}") from None
        return url

    def all_headers(self) -> dict[str, str]:
        """Return the headers of the settings, with their secrets.

        Raises:
            ConfigError: as ``check``.
        """
        headers = dict(self.headers)
        for name, env in self.headers_env.items():
            headers[name] = self._from_environment(env)
            if not _HEADER_VALUE.fullmatch(headers[name]):
                raise ConfigError(f"the tool {self.name!r}: {env} has a value that a header cannot hold")
        return headers

    def _from_environment(self, env: str) -> str:
        value = os.environ.get(env, "").strip()
        if not value:
            raise ConfigError(f"the tool {self.name!r} needs the environment variable {env}")
        return value


def check_address(url: str, *, allow_plain_http: bool) -> None:
    """Check the address of a server.

    Raises:
        ValueError: it is not one, or would send the arguments without encryption. The text does not quote the
            address, which may come from the environment.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("the address is not a valid URL") from None
    if parts.scheme not in ("https", "http") or not host:
        raise ValueError("the address must begin with https:// or http:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address contains a password: send it in headers_env")
    if parts.scheme == "http" and not allow_plain_http and not _is_loopback(host):
        raise ValueError("http to another machine is not encrypted: use https, or set allow_plain_http")


class WebhookTool:
    """Tool that sends its arguments to a webhook; implements ``Tool``.

    Args:
        settings: checked.
        http: session of the process; its owner closes it.

    Raises:
        ConfigError: see ``WebhookSettings.check``.
    """

    def __init__(self, settings: WebhookSettings, http: aiohttp.ClientSession) -> None:
        self.name = settings.name
        self.description = settings.description
        self.parameters: Mapping[str, Any] = settings.parameters
        self.idempotent = settings.idempotent
        self.timeout_s = settings.timeout_s
        self._max_bytes = settings.max_response_bytes
        self._url = settings.address()
        self._headers = {
            **settings.all_headers(),
            "Content-Type": "application/json",
            "Accept": "application/json, text/plain;q=0.9, */*;q=0.5",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        self._http = http

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """Send the arguments and return the response, as ``Tool.run``."""
        refused: int | None = None
        try:
            async with (
                asyncio.timeout(self.timeout_s),
                self._http.post(
                    self._url,
                    data=json.dumps(arguments).encode(),
                    headers={**self._headers, "Idempotency-Key": key},
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT_S, self.timeout_s)),
                ) as response,
            ):
                if not 200 <= response.status < 300:
                    refused = response.status
                    raise self._refusal(refused, await self._explanation(response))
                body, cut = await self._body(response)
                return _result(body, response.content_type, response.charset, cut=cut)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise self._failure("its server cannot be reached") from None
        except TimeoutError:
            if refused is not None:
                # The status has decided already; only its explanation is late.
                raise self._refusal(refused, "") from None
            raise self._unknown(f"its server did not answer within {self.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError):
            raise self._unknown("the connection to its server broke") from None

    async def _body(self, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        """Return the response up to the limit, and true if there is more."""
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._max_bytes:
                return bytes(body[: self._max_bytes]), True
        return bytes(body), False

    async def _explanation(self, response: aiohttp.ClientResponse) -> str:
        """Return the server's explanation of a refusal; empty for an HTML page, which is useless to a
        model.
        """
        if not (_is_json(response.content_type) or response.content_type == "text/plain"):
            return ""
        try:
            body, _ = await self._body(response)
        except (aiohttp.ClientError, OSError):
            return ""
        return " ".join(_text(body, response.charset).split())[:MAX_REASON_CHARS]

    def _refusal(self, status: int, explanation: str) -> EngineError:
        said = f": {explanation}" if explanation else ""
        if status < 400:
            return self._failure(f"its server sent it elsewhere (status {status}), which is not followed")
        if status < 500:
            return self._failure(f"its server refused (status {status}){said}")
        if status == NOT_CARRIED_OUT:
            return self._failure(f"its server is not available (status {status}){said}")
        return self._unknown(f"its server failed (status {status}){said}")

    def _failure(self, reason: str) -> EngineError:
        return EngineError(reason, engine=self.name)

    def _unknown(self, reason: str) -> EffectUnknownError:
        return EffectUnknownError(reason, engine=self.name)


def _result(body: bytes, content_type: str, charset: str | None, *, cut: bool) -> Mapping[str, Any]:
    """Return a JSON object unchanged, another JSON value under ``result``, anything else as ``text``."""
    if not body.strip():
        return {}
    if _is_json(content_type) and not cut:
        try:
            value = json.loads(body, parse_constant=_refuse)
        except (ValueError, RecursionError):
            # The body is not the JSON that its type promises: the model gets it as text.
            pass
        else:
            return value if isinstance(value, dict) else {"result": value}
    text: dict[str, Any] = {"text": _text(body, charset)}
    return {**text, "cut_off": True} if cut else text


def _text(body: bytes, charset: str | None) -> str:
    try:
        return body.decode(charset or "utf-8", errors="replace")
    except LookupError:
        return body.decode(errors="replace")


def _is_json(content_type: str) -> bool:
    return content_type == "application/json" or content_type.endswith("+json")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
