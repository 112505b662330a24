"""File of a multipart form, passed on while it arrives.

Input: the pieces of a request's body. Output: the media type that the sender claims for the file, and its
content, piece by piece. Nothing is kept: a file of any length costs the memory of one piece, and is never on
the disk in the clear. The first file of the given field counts; other fields are ignored.
"""

from collections import deque
from collections.abc import AsyncGenerator

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from parley.serving.gateway.http.requests import BodyError

# Of the headers of one part.
MOST_HEADER_BYTES = 4_096
CUT_OFF = "the file is cut off"


class FileField:
    """File in a field of a form.

    Args:
        request: whose headers name the boundary of the parts.
        pieces: of its body, as they arrive.
        name: of the field.

    Raises:
        BodyError: 400, the body is no multipart form.
    """

    def __init__(self, request: Request, pieces: AsyncGenerator[bytes, None], name: str) -> None:
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise BodyError("the body must be multipart/form-data with a file", status=400)
        self._pieces, self._name = pieces, name.encode()
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_name,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
            },
        )
        self._header_name = self._header_value = b""
        self._header_bytes = 0
        self._headers: dict[bytes, bytes] = {}
        self._is_in_file = False
        self._is_complete = False
        self._media_type: str | None = None
        self._content: deque[bytes] = deque()

    async def media_type(self) -> str:
        """Return the media type of the file, in lower case and without parameters, when its head has come.

        Raises:
            BodyError: 400, the form has no such file, or cannot be read; otherwise as the pieces do.
        """
        while self._media_type is None:
            if not await self._read():
                raise BodyError("the form has no file", status=400)
        return self._media_type

    async def content(self) -> AsyncGenerator[bytes, None]:
        """Yield the content of the file.

        Raises:
            BodyError: 400, it is cut off, or the form cannot be read; otherwise as the pieces do.
        """
        while True:
            while self._content:
                yield self._content.popleft()
            if self._is_complete:
                # To its end: an answer to a request whose body is not read may be lost with the connection.
                async for _ in self._pieces:
                    pass
                return
            if not await self._read():
                raise BodyError(CUT_OFF, status=400)

    async def _read(self) -> bool:
        """Read a piece of the body; return False at its end."""
        piece = await anext(self._pieces, None)
        if piece is None:
            return False
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise BodyError(f"the form cannot be read: {error}", status=400) from error
        return True

    def _on_part_begin(self) -> None:
        self._headers, self._header_bytes = {}, 0

    def _on_header_name(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._header_value += data[start:end]

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MOST_HEADER_BYTES:
            raise BodyError(f"the headers of a part are over {MOST_HEADER_BYTES} bytes", status=400)

    def _on_header_end(self) -> None:
        self._headers[self._header_name.lower()] = self._header_value
        self._header_name = self._header_value = b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        is_file = options.get(b"name") == self._name and b"filename" in options
        if is_file and self._media_type is None:
            kind, _ = parse_options_header(self._headers.get(b"content-type", b""))
            self._media_type = kind.decode("latin-1").strip().lower()
            self._is_in_file = True

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_in_file and end > start:
            self._content.append(data[start:end])

    def _on_part_end(self) -> None:
        self._is_complete = self._is_complete or self._is_in_file
        self._is_in_file = False
