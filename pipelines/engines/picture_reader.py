"""Pictures that clients send whole: decoded, scaled and encoded off the loop, one at a time in this process.

A picture of the permitted size takes up to half a second of a core. One thread bounds what all clients
together can make this process spend on pictures; recognition and voices have threads of their own. At most
``MOST_WAITING`` pictures wait, more are refused; a wait has a deadline. A cancelled wait leaves the picture
that is being decoded, which ends by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from parley.core.errors import CapacityError
from parley.core.pictures import Picture, picture_key
from parley.core.tuning import tuned
from parley.models.pictures import VisionSettings, VisionTuning, decode_base64, picture_of_file

MOST_WAITING = 32
READ_S = 20.0

T = TypeVar("T")
# Returns a picture that the session has already; None when it has none of that key.
FindPicture = Callable[[str], Awaitable[Picture | None]]


class PictureReader:
    """Reader of pictures for a process.

    Args:
        settings: bounds of a picture.
    """

    def __init__(self, settings: VisionSettings) -> None:
        self._settings = tuned(VisionTuning, settings)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pictures")
        self._waiting = 0

    async def read(
        self, data: str, *, media_type: str | None = None, find: FindPicture | None = None
    ) -> Picture:
        """Return the picture of a file in base64, as it is stored.

        Args:
            data: the file: JPEG, PNG or WebP.
            media_type: as its sender states it; None where it does not.
            find: looks for the picture in the session, where it needs not be decoded again.

        Raises:
            MediaError: no picture, a truncated or too large one, or one of another type than stated.
            CapacityError: too many pictures wait, or it was not read in time.
        """
        if self._waiting >= MOST_WAITING:
            raise CapacityError(
                "too many pictures are being read, send it again in a moment", limit=MOST_WAITING
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(READ_S):
                return await self._read(data, media_type, find)
        except TimeoutError as error:
            raise CapacityError(
                "the picture was not read in time, send it again in a moment", limit=MOST_WAITING
            ) from error
        finally:
            self._waiting -= 1

    async def _read(self, data: str, media_type: str | None, find: FindPicture | None) -> Picture:
        file, key = await self._run(partial(_keyed, data))
        known = await find(key) if find is not None else None
        if known is not None:
            return known
        return await self._run(partial(picture_of_file, file, self._settings, media_type=media_type))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """End the thread, after the picture that is being decoded. Returns at once."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _keyed(data: str) -> tuple[bytes, str]:
    file = decode_base64(data)
    return file, picture_key(file)
