import asyncio

from parley.serving.gateway.webrtc.started_sessions import StartedSessions
from tests.virtual_time import run

EXPIRE_S = 60.0


def test_a_waiting_session_is_forgotten_after_its_time():
    async def scenario() -> None:
        sessions = StartedSessions(max_sessions=10, expire_s=EXPIRE_S)
        session_id = sessions.open(b'{"a": 1}', client="here")
        await asyncio.sleep(EXPIRE_S - 1)
        session = sessions.get(session_id)
        assert session is not None and session.body() == {"a": 1}
        await asyncio.sleep(1)
        assert sessions.get(session_id) is None
        for _ in range(5):
            sessions.open(b"{}", client="here")
        await asyncio.sleep(EXPIRE_S)
        sessions.open(b"{}", client="here")
        assert len(sessions) == 1

    run(scenario())


def test_a_session_in_a_call_is_kept_and_its_time_starts_again_after_it():
    async def scenario() -> None:
        sessions = StartedSessions(max_sessions=1, expire_s=EXPIRE_S)
        session_id = sessions.open(b"{}", client="here")
        session = sessions.get(session_id)
        assert session is not None
        call = asyncio.create_task(asyncio.sleep(10 * EXPIRE_S))
        sessions.called(session, "p1", call)
        await asyncio.sleep(5 * EXPIRE_S)
        # Neither time nor other entries evict it.
        for _ in range(3):
            sessions.open(b"{}", client="here")
        assert sessions.get(session_id) is session
        assert len(sessions) == 2
        await call
        await asyncio.sleep(EXPIRE_S - 1)
        assert sessions.get(session_id) is session
        await asyncio.sleep(1)
        assert sessions.get(session_id) is None

    run(scenario())


def test_a_caller_who_floods_pushes_out_their_own():
    async def scenario() -> None:
        sessions = StartedSessions(max_sessions=10, expire_s=EXPIRE_S)
        modest = [sessions.open(b"{}", client="modest") for _ in range(2)]
        flood = [sessions.open(b"{}", client="flood") for _ in range(1_000)]
        assert len(sessions) == 10
        late = sessions.open(b"{}", client="late")
        assert len(sessions) == 10
        assert all(sessions.get(session_id) for session_id in (*modest, late, *flood[-7:]))
        assert not any(sessions.get(session_id) for session_id in flood[:-7])

    run(scenario())
