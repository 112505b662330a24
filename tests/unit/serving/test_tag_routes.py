"""Routes of the tags of a session, which are the operator's alone."""

from pathlib import Path

from parley.session_store.tags import MOST_TAGS
from tests.peers.session_gateway import Turns, application, client_of


async def test_an_operator_tags_a_session_and_finds_it_and_its_owner_does_not(tmp_path: Path):
    async with (
        application(tmp_path, Turns()) as (app, _),
        client_of(app) as owner,
        client_of(app, operator=True) as operator,
    ):
        session = (await owner.post("/api/sessions")).json()["id"]
        other = (await owner.post("/api/sessions")).json()["id"]
        path = f"/api/sessions/{session}/tags"
        for answer in (await owner.get(path), await owner.post(path, json={"tag": "mine"})):
            assert answer.status_code == 403

        assert (await operator.post(path, json={"tag": " Call  BACK"})).json() == {"tags": ["call back"]}
        assert (await operator.post(path, json={"tag": "a/b"})).json() == {"tags": ["a/b", "call back"]}
        assert (await operator.get(path)).json() == {"tags": ["a/b", "call back"]}
        found = (await operator.get("/api/sessions/search", params={"tag": "CALL back"})).json()["sessions"]
        assert [(each["id"], each["tags"]) for each in found] == [(session, ["a/b", "call back"])]
        assert (await operator.delete(path, params={"tag": "A/B"})).json() == {"tags": ["call back"]}
        everything = (await operator.get("/api/sessions/search")).json()["sessions"]
        assert {each["id"]: each["tags"] for each in everything} == {session: ["call back"], other: []}


async def test_what_is_no_tag_and_one_too_many_are_refused_with_a_reason(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, _), client_of(app, operator=True) as operator:
        session = (await operator.post("/api/sessions")).json()["id"]
        path = f"/api/sessions/{session}/tags"
        for tag in ("", "a,b", "x" * 41):
            answer = await operator.post(path, json={"tag": tag})
            assert answer.status_code == 422 and answer.json()["error"].startswith("tag: a tag has")
        for number in range(MOST_TAGS):
            assert (await operator.post(path, json={"tag": str(number)})).status_code == 200
        assert (await operator.post(path, json={"tag": "more"})).status_code == 409
        assert (await operator.get("/api/sessions/search", params={"tag": "a,b"})).status_code == 422
        missing = "/api/sessions/00000000-0000-0000-0000-000000000000/tags"
        assert (await operator.post(missing, json={"tag": "a"})).status_code == 404
