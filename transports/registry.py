"""Registry of transports: one row for each way in which a conversation reaches Parley.

A row states a transport's capabilities, its requirements, its routes on the gateway, how the command line
holds a call over it, and its factory. Product code queries capabilities and compares no name. Importing this
module loads no transport. ``docs/reference/transports.md`` is generated from the rows, and ``/status``
lists those of which the application has a route.

The webhook of a phone network is the row of the same name in ``serving.gateway.phone.carriers``. That of
calls as text, which have no media stream, is ``carriers.twilio_relay``.

Other packages add rooms (``Command.ROOM``): an entry point of the group ``parley.transport``, or a
``package.module:function`` in place of a name, leads to a function that returns a ``TransportRow``. Rows with
routes are Parley's own: the gateway serves them, and declares who may use each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from importlib import import_module
from typing import Any

from parley.core.errors import ConfigError, one_line
from parley.core.registry import Registry, Row, is_target


class Command(StrEnum):
    """Mode in which ``bot.py --transport NAME`` holds conversations."""

    SERVE = "serve"
    """It serves until a signal ends it."""
    RECORDING = "recording"
    """A call with a WAV as the caller."""
    SIMULATION = "simulation"
    """A call of a simulated caller, over the routes of a server on this machine."""
    DEVICES = "devices"
    """A call over the microphone and the loudspeaker of this machine."""
    ROOM = "room"
    """A call in a room that another server hosts."""
    AGENT = "agent"
    """A call to an agent elsewhere, over a socket that this process opens (row ``agent``)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a transport. Each field is a column of the table in ``docs/reference/transports.md``.

    Attributes:
        audio: it carries the voices of both sides.
        video: it carries pictures of the caller.
        receives_keys: it delivers the keys that the caller presses.
        sends_keys: the bot can press keys.
        reports_playout: it reports each packet of the bot's audio when it leaves or is played.
        cancels_echo: a client cancels the echo itself unless it declares that it does not.
        has_room: a microphone may pick up the loudspeaker.
        has_person: a human listens, who may fall silent.
        is_phone: it is a phone call.
        queues_callers: a caller may wait for a line.
        places_calls: the operator can have a number called, and a caller can be transferred to a human.
        goes_on: the network asks how a call goes on whose stream was lost.
        speaks_rtvi: the client reads and writes RTVI messages.
        has_clock: the caller's audio comes in real time; without a clock a client may send it faster.
    """

    audio: bool = True
    video: bool = False
    receives_keys: bool = False
    sends_keys: bool = False
    reports_playout: bool = False
    cancels_echo: bool = False
    has_room: bool = True
    has_person: bool = True
    is_phone: bool = False
    queues_callers: bool = False
    places_calls: bool = False
    goes_on: bool = False
    speaks_rtvi: bool = False
    has_clock: bool = True

    def named(self) -> tuple[str, ...]:
        """Return the names of the capabilities it has, in the order of the fields."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name))


@dataclass(frozen=True, kw_only=True)
class TransportRow(Row):
    """Row of one transport.

    Attributes:
        name: name of the row.
        capabilities: capabilities of the transport.
        settings: section of a deployment that configures it; empty where there is none.
        routes: paths of the gateway that serve it; one of them is enough.
        command: mode in which the command line holds a call over it; None when it does not.
        arguments: class names of the runner arguments that bring a conversation over it.
        from_environment: ``"package.module:function"`` that makes such arguments from environment variables;
            empty for none.
        recorded_as: name in the records of sessions and queues; empty for the name of the row.
    """

    name: str
    capabilities: Capabilities
    settings: str = ""
    routes: tuple[str, ...] = ()
    command: Command | None = None
    arguments: tuple[str, ...] = ()
    from_environment: str = ""
    recorded_as: str = ""

    def read_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that it needs.

        Raises:
            ConfigError: one of them is not set.
        """
        missing = [name for name in self.env if not environ.get(name)]
        if missing:
            raise ConfigError(f"transport {self.name!r} needs {', '.join(missing)} in the environment")
        return {name: environ[name] for name in self.env}


class TransportRegistry(Registry[Any]):
    """Rows by name.

    A row with runner arguments has a coroutine function as its factory. It takes the arguments and a
    ``TransportRequest`` (``transports.request``), and returns Pipecat's ``BaseTransport``. The factory of a
    phone network returns the ``StreamProtocol`` by which ``PhoneStream`` reads and writes. A row without
    a target is opened by the code that holds its conversations, which alone has the file, the device or the
    socket.
    """

    def __init__(self, rows: Iterable[TransportRow]) -> None:
        self._by_name = {row.name: row for row in rows}
        super().__init__("transport", self._by_name)
        # Functions of other packages that return a row.
        self._makers = Registry[Any]("transport", {})
        self._added: dict[str, TransportRow] = {}

    def row(self, name: str) -> TransportRow:
        """Return the row of a name; that of another package is made when it is first needed.

        Raises:
            ConfigError: the name is unknown, and the message lists the known ones; or another package's row
                cannot be made or is not that of a room.
        """
        known = self._by_name.get(name) or self._added.get(name)
        if known is not None:
            return known
        if name not in self._makers:
            # Raises, with the known names.
            super().row(name)
        made = self._made(name)
        self._added[name] = self._added[made.name] = made
        return made

    def _made(self, name: str) -> TransportRow:
        make = self._makers.factory(name)
        try:
            made = make()
        except Exception as error:
            # Another package's function may raise anything.
            raise ConfigError(f"transport {name!r} has no row: {one_line(error)}") from error
        if not isinstance(made, TransportRow):
            raise ConfigError(f"transport {name!r}: expected a TransportRow, not {type(made).__name__}")
        if made.command is not Command.ROOM or made.routes or not (made.target and made.from_environment):
            raise ConfigError(
                f"transport {name!r}: a package adds rooms only: a row with Command.ROOM, a target and "
                "from_environment, and without routes"
            )
        if made.name in self._by_name or not (is_target(name) or made.name == name):
            raise ConfigError(f"transport {name!r}: its row has the name {made.name!r}")
        taken = {each for row in self._by_name.values() for each in row.arguments} & set(made.arguments)
        if taken:
            raise ConfigError(f"transport {name!r}: {', '.join(sorted(taken))} brings another transport")
        return made

    def factory(self, name: str) -> Callable[..., Any]:
        """Import and return the factory of a name.

        Raises:
            ConfigError: the name is unknown, the row has no factory, or a package of its extra is not
                installed.
        """
        if not self.row(name).target:
            raise ConfigError(f"transport {name!r} cannot be opened by a factory")
        return super().factory(name)

    def rows(self) -> tuple[TransportRow, ...]:
        """Return Parley's own rows, in the order of the table."""
        return tuple(self._by_name.values())

    def of_arguments(self, arguments: object) -> TransportRow:
        """Return the row whose conversations come with arguments of this class, or of a base of it.

        Raises:
            ConfigError: there is none.
        """
        names = [each.__name__ for each in type(arguments).__mro__]
        for rows in (self.rows, self._rooms):
            for name in names:
                for row in rows():
                    if name in row.arguments:
                        return row
        raise ConfigError(f"there is no transport for {names[0]}")

    def _rooms(self) -> Iterator[TransportRow]:
        """Yield the rooms of other packages: those in use, then those that are installed."""
        yield from list(self._added.values())
        yield from (self.row(name) for name in self._makers.names())

    def arguments_from(self, name: str, environ: Mapping[str, str]) -> Any:
        """Return the runner arguments of a conversation in the room that the environment names.

        Raises:
            ConfigError: a package of the row's extra is not installed, or a variable is not set.
        """
        row = self.row(name)
        try:
            self.factory(name)
        except ConfigError as error:
            raise ConfigError(f"{error}; and {', '.join(row.env)} in the environment") from error
        module_name, _, function = row.from_environment.partition(":")
        return getattr(import_module(module_name), function)(row.read_environment(environ))

    def held_by_command(self) -> tuple[str, ...]:
        """Return the names of the rows over which the command line holds calls, in the order of the table.

        The rooms of installed packages follow, whose modules are not imported for that.
        """
        own = (row.name for row in self._by_name.values() if row.command is not None)
        return (*own, *self._makers.names())

    def served(self, paths: Iterable[str]) -> list[str]:
        """Return the names of the rows that an application with these paths serves, in table order."""
        known = set(paths)
        return [row.name for row in self._by_name.values() if known & set(row.routes)]


_BROWSER = Capabilities(
    video=True,
    reports_playout=True,
    cancels_echo=True,
    queues_callers=True,
    speaks_rtvi=True,
)
# Pipecat's transports do not report when a packet leaves.
_ROOM = Capabilities(video=True, receives_keys=True, sends_keys=True, cancels_echo=True, speaks_rtvi=True)
_PHONE_NETWORK = Capabilities(receives_keys=True, sends_keys=True, reports_playout=True, is_phone=True)
_QUEUED_PHONE_NETWORK = Capabilities(
    receives_keys=True, sends_keys=True, reports_playout=True, is_phone=True, queues_callers=True
)
_PHONE = "phone"

TRANSPORTS = TransportRegistry(
    [
        TransportRow(
            name="webrtc",
            summary="a browser, or a client of Pipecat's",
            target="parley.transports.webrtc.opening:open_browser",
            capabilities=_BROWSER,
            settings="server",
            routes=("/api/offer",),
            command=Command.SERVE,
            arguments=("SmallWebRTCRunnerArguments",),
        ),
        TransportRow(
            name="websocket",
            summary="a program with a socket: OpenAI's realtime API, Unmute's, MiniCPM-o's",
            target="",
            capabilities=Capabilities(
                video=True, reports_playout=True, cancels_echo=True, queues_callers=True, has_clock=False
            ),
            settings="sockets",
            routes=(
                "/v1/realtime",
                "/ws/duplex/{client_id}",
                "/ws/half_duplex/{name}",
                "/ws/half_duplex_omni/{name}",
                "/ws/chat",
                "/ws/streaming/{name}",
            ),
            command=Command.AGENT,
            arguments=("SocketArguments", "ChatArguments", "ChatRequestArguments"),
        ),
        TransportRow(
            name="realtime_webrtc",
            summary="a page or an app of OpenAI's realtime API over WebRTC",
            target="",
            capabilities=Capabilities(video=True, reports_playout=True, cancels_echo=True),
            settings="sockets",
            routes=("/v1/realtime/calls",),
            arguments=("RealtimeCallArguments",),
        ),
        TransportRow(
            name="file",
            summary="a WAV as the caller",
            target="",
            capabilities=Capabilities(reports_playout=True, has_room=False, has_person=False),
            command=Command.RECORDING,
        ),
        TransportRow(
            name="local",
            summary="the microphone and the loudspeaker of this machine",
            target="",
            capabilities=Capabilities(reports_playout=True),
            extra="local",
            command=Command.DEVICES,
        ),
        TransportRow(
            name="twilio",
            summary="a phone call of Twilio's",
            target="parley.transports.twilio.protocol:TwilioProtocol",
            capabilities=Capabilities(
                receives_keys=True,
                sends_keys=True,
                reports_playout=True,
                is_phone=True,
                queues_callers=True,
                places_calls=True,
                goes_on=True,
            ),
            settings=_PHONE,
            routes=("/twilio/media/{token}",),
            command=Command.SIMULATION,
            recorded_as=_PHONE,
        ),
        TransportRow(
            name="twilio_relay",
            summary="a phone call of Twilio's as text (ConversationRelay): Twilio recognises and speaks",
            target="",
            capabilities=Capabilities(
                audio=False, receives_keys=True, sends_keys=True, has_room=False, is_phone=True
            ),
            settings=_PHONE,
            routes=("/twilio_relay/media/{token}",),
        ),
        TransportRow(
            name="telnyx",
            summary="a phone call of Telnyx's, by TeXML",
            target="parley.transports.telephony.telnyx:TelnyxStream",
            env=("TELNYX_PUBLIC_KEY",),
            capabilities=_QUEUED_PHONE_NETWORK,
            settings=_PHONE,
            routes=("/telnyx/media/{token}",),
            recorded_as=_PHONE,
        ),
        TransportRow(
            name="plivo",
            summary="a phone call of Plivo's",
            target="parley.transports.telephony.plivo:PlivoStream",
            env=("PLIVO_AUTH_TOKEN",),
            capabilities=_QUEUED_PHONE_NETWORK,
            settings=_PHONE,
            routes=("/plivo/media/{token}",),
            recorded_as=_PHONE,
        ),
        TransportRow(
            name="vonage",
            summary="a phone call of Vonage's Voice API",
            target="parley.transports.telephony.vonage:VonageStream",
            env=("VONAGE_SIGNATURE_SECRET",),
            capabilities=_PHONE_NETWORK,
            settings=_PHONE,
            routes=("/vonage/media/{token}",),
            recorded_as=_PHONE,
        ),
        TransportRow(
            name="exotel",
            summary="a phone call of Exotel's, by its Voicebot applet",
            target="parley.transports.telephony.exotel:ExotelStream",
            env=("EXOTEL_USER", "EXOTEL_PASSWORD"),
            capabilities=_PHONE_NETWORK,
            settings=_PHONE,
            routes=("/exotel/media/{token}",),
            recorded_as=_PHONE,
        ),
        TransportRow(
            name="livekit",
            summary="a room of LiveKit's",
            target="parley.transports.rooms.livekit:open_livekit",
            extra="livekit",
            env=("LIVEKIT_URL", "LIVEKIT_ROOM_NAME", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"),
            capabilities=_ROOM,
            command=Command.ROOM,
            arguments=("LiveKitRunnerArguments",),
            from_environment="parley.transports.rooms.livekit:livekit_arguments",
        ),
        TransportRow(
            name="daily",
            summary="a room of Daily's",
            target="parley.transports.rooms.daily:open_daily",
            extra="daily",
            env=("DAILY_ROOM_URL", "DAILY_TOKEN"),
            capabilities=_ROOM,
            command=Command.ROOM,
            arguments=("DailyRunnerArguments",),
            from_environment="parley.transports.rooms.daily:daily_arguments",
        ),
        TransportRow(
            name="text",
            summary="typed turns over HTTP, without a call",
            target="",
            capabilities=Capabilities(audio=False, has_room=False),
            settings="remembering",
            routes=("/api/sessions/{session_id}/messages", "/v1/chat/completions"),
        ),
        TransportRow(
            name="pipecat",
            summary="a client of Pipecat's over a WebSocket: Protocol Buffers and RTVI",
            target="parley.transports.websocket.pipecat_socket:open_pipecat",
            capabilities=Capabilities(cancels_echo=True, queues_callers=True, speaks_rtvi=True),
            settings="server",
            routes=("/ws",),
            arguments=("PipecatSocketArguments",),
        ),
        TransportRow(
            name="agent",
            summary="an agent elsewhere that speaks Pipecat's frames over a WebSocket, called from here",
            target="parley.transports.websocket.agent_client:open_agent",
            capabilities=Capabilities(reports_playout=True, has_room=False, has_person=False),
            arguments=("AgentArguments",),
        ),
        TransportRow(
            name="eval",
            summary="Pipecat's evaluation tool",
            target="parley.transports.pipecat_transports:open_eval",
            capabilities=Capabilities(
                has_room=False, has_person=False, queues_callers=True, speaks_rtvi=True
            ),
            settings="server",
            routes=("/ws",),
            arguments=("WebSocketRunnerArguments", "EvalRunnerArguments"),
        ),
    ]
)
