"""Routes by which the operator holds a recorded call again with the configuration of the server.

    POST   /{id}/recordings/{call}/replays        begins a replay: 202 with its state
    GET    /{id}/recordings/{call}/replays        state of the last one, and the comparison when it is done
    DELETE /{id}/recordings/{call}/replays        cancels it, or forgets what it showed
    GET    /{id}/recordings/{call}/replays/page   the comparison as a page, to be saved

For the operator alone: a replay takes the processor time of a call. One begins where a further call would be
answered at once, and while no other replay is under way; otherwise it is a 503 with ``Retry-After``. A
recording that cannot be read is a 409 (its key is missing) or a 404, and one without audio of the caller a
409. Where the recording has been removed, what a replay of it showed is dropped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, HTTPException, Response
from fastapi.params import Depends

from parley.core.errors import CapacityError
from parley.recording.library import SilentCallError, recording_of, replayable_ms
from parley.recording.objects import RecordingBucket
from parley.serving.gateway.recording_routes import RecordingFiles, found_file
from parley.serving.gateway.replays.jobs import CallReplay, ReplayJobs, ReplayState

NO_ROOM = "calls need the machine: try again when fewer of them are on"
NO_REPLAY = "this call has not been replayed since the server started"
NO_PAGE = "there is no replay of this call that is over and has not failed"


@dataclass(frozen=True, slots=True)
class ReplayAccess:
    """Replays of a server, and their place next to its calls.

    Attributes:
        jobs: the replays.
        has_room: returns whether a further call would be answered at once.
    """

    jobs: ReplayJobs
    has_room: Callable[[], bool]


class ReplayRoutes:
    """Routes of the replays of recorded calls.

    Args:
        access: the replays.
        folder: of the recordings.
        bucket: to which they move; None: they stay.
        files: reads them in threads.
    """

    def __init__(
        self, access: ReplayAccess, folder: Path, bucket: RecordingBucket | None, files: RecordingFiles
    ) -> None:
        self._jobs, self._has_room = access.jobs, access.has_room
        self._folder, self._bucket, self._files = folder, bucket, files

    def add_to(self, router: APIRouter, *, for_operator: Sequence[Depends]) -> None:
        """Add the routes to those of a session.

        Args:
            router: of the sessions.
            for_operator: check that a client is the operator.
        """
        path = "/{session_id}/recordings/{call_id}/replays"
        router.post(path, status_code=202, dependencies=for_operator)(self.start)
        router.get(path, dependencies=for_operator)(self.state)
        router.delete(path, status_code=204, dependencies=for_operator)(self.cancel)
        router.get(f"{path}/page", dependencies=for_operator)(self.page)

    async def start(self, session_id: str, call_id: str) -> dict[str, object]:
        """Hold a recorded call again with the configuration of the server, and compare; one at a time."""
        duration_ms = await found_file(self._length_ms(session_id, call_id))
        if not self._has_room():
            raise CapacityError(NO_ROOM, limit=0)
        return self._jobs.start(session_id, call_id, duration_ms).as_message()

    async def state(self, session_id: str, call_id: str) -> dict[str, object]:
        """Return the state of the last replay of a recorded call, and what it changed when it is done."""
        # A page that asks before the first replay meets no error.
        none = CallReplay(session_id, call_id, 0, state=ReplayState.NONE)
        return (await self._found(session_id, call_id) or none).as_message()

    async def cancel(self, session_id: str, call_id: str) -> Response:
        """Cancel the replay of a recorded call, or forget what it showed."""
        replay = await self._found(session_id, call_id)
        if replay is None:
            raise HTTPException(404, NO_REPLAY)
        if replay.is_over:
            await self._jobs.forget(session_id, call_id)
        else:
            await self._jobs.cancel(replay)
        return Response(status_code=204)

    async def page(self, session_id: str, call_id: str) -> Response:
        """Return the comparison of a recorded call and its replay as a page of its own, to be saved."""
        replay = await self._found(session_id, call_id)
        if replay is None or not replay.page:
            raise HTTPException(404, NO_PAGE)
        return Response(
            replay.page,
            media_type="text/html",
            # Its style is in the page, which the pages of this server may not have.
            headers={"Content-Disposition": f'attachment; filename="replay-{call_id}.html"'},
        )

    async def _found(self, session_id: str, call_id: str) -> CallReplay | None:
        """Return the last replay of a call; where its recording is gone, drop it.

        Raises:
            HTTPException: see ``found_file``.
        """
        try:
            await found_file(
                self._files.in_thread(recording_of, self._folder, session_id, call_id, self._bucket)
            )
        except HTTPException as error:
            if error.status_code == 404:
                await self._jobs.forget(session_id, call_id)
            raise
        return self._jobs.get(session_id, call_id)

    async def _length_ms(self, session_id: str, call_id: str) -> int:
        try:
            return await self._files.in_thread(replayable_ms, self._folder, session_id, call_id, self._bucket)
        except SilentCallError as error:
            raise HTTPException(409, str(error)) from error
