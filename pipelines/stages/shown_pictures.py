"""Pictures that the client of a call sends for the caller's next turn, typed or spoken.

Input: files in base64 of the call's messages (RTVI's ``send-file``), one at a time. Output: pictures in the
holder of the caller's pictures (``CallerCamera``), from which the turn takes them. The bounds and checks are
those of a typed turn: a file is read by the one thread for all clients, and counted into the session before
it is held; a file that is refused costs the client an answer and the call nothing. What one call may have
read is limited before it is read, since a small file may be a large picture. What waits at the end of a
private pause is dropped, frames of the camera and of a screen too: a turn after it is stored and recorded.
"""

from parley.core.call_events import PrivatePauseEnded
from parley.core.errors import CapacityError
from parley.core.pictures import PictureFile
from parley.core.token_bucket import TokenBucket
from parley.pipelines.engines.picture_reader import PictureReader
from parley.processors.perception.caller_camera import MOST_SHOWN, CallerCamera
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.session_store.conversation import Conversation

# Two turns full of pictures at once, and then as many as a caller can speak about.
FILES_PER_S, BURST_FILES = 0.5, 2 * MOST_SHOWN
_US_PER_S = 1_000_000


class ShownPictures:
    """Pictures that the client of one call sends.

    Args:
        reader: of the process.
        conversation: session of the call.
        camera: holds the pictures until the next turn.
        events: events of the call.
    """

    def __init__(
        self, reader: PictureReader, conversation: Conversation, camera: CallerCamera, events: CallEvents
    ) -> None:
        self._reader, self._conversation, self._camera = reader, conversation, camera
        self._pauses = 0
        events.subscribe(PrivatePauseEnded, self._on_pause_ended)
        self._pace = TokenBucket(FILES_PER_S, BURST_FILES)
        self._clock = LoopClock()

    async def take(self, file: PictureFile) -> None:
        """Read a file and hold it for the next turn.

        Raises:
            MediaError: no picture, a truncated or too large one, or one of another type than stated.
            CapacityError: too many pictures wait, or came in a short time.
        """
        if self._camera.holds_most:
            raise CapacityError(
                f"{MOST_SHOWN} pictures wait already: say or type what they are for", limit=MOST_SHOWN
            )
        if wait_us := self._pace.take_or_wait_us(1, self._clock.now_us()):
            raise CapacityError(
                f"too many pictures, try again in {wait_us / _US_PER_S:.0f} s", limit=BURST_FILES
            )
        pauses = self._pauses
        picture = await self._reader.read(
            file.data, media_type=file.media_type, find=self._conversation.picture
        )
        if wait_s := self._conversation.take_pictures([picture]):
            raise CapacityError(
                f"too many pictures were put into this session, try again in {wait_s:.0f} s", limit=MOST_SHOWN
            )
        if pauses == self._pauses:
            self._camera.show(picture)

    def _on_pause_ended(self, _event: PrivatePauseEnded) -> None:
        self._pauses += 1
        self._camera.forget()
