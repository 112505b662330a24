"""The entry points of a server, and the settings that may close them."""

from pathlib import Path

import pytest

from parley.serving.gateway.admin.apps import APP_IDS, AppDisabledError, AppId, Apps, UnknownAppError
from parley.serving.gateway.admin.operations import Operations, OperationsSettings
from tests.peers.operations_gateway import BEARER, asking, gateway
from tests.peers.webrtc_caller import Caller


def open_apps(apps: Apps) -> set[str]:
    return {app.app_id for app in apps.enabled()}


def test_everything_is_open_unless_the_deployment_says_otherwise():
    assert open_apps(Apps()) == set(APP_IDS)
    assert open_apps(Apps({"omni": False})) == set(APP_IDS) - {"omni"}


@pytest.mark.parametrize("app_id", APP_IDS)
async def test_a_closed_app_lets_no_one_in_and_says_which_it_is(app_id: AppId):
    apps = Apps()
    apps.check(app_id)
    await apps.switch(app_id, enabled=False)
    with pytest.raises(AppDisabledError, match=rf"\({app_id}\) is switched off") as refused:
        apps.check(app_id)
    assert refused.value.app_id == app_id
    for other in set(APP_IDS) - {app_id}:
        apps.check(other)


async def test_what_was_switched_holds_over_a_restart_and_over_the_deployment(tmp_path: Path):
    path = tmp_path / "data" / "apps.json"
    first = Apps({"omni": False}, path=path)
    await first.switch("omni", enabled=True)
    await first.switch("unmute", enabled=False)
    assert open_apps(Apps({"omni": False}, path=path)) == set(APP_IDS) - {"unmute"}
    # An entry that was never switched follows the deployment.
    assert open_apps(Apps({"turnbased": False}, path=path)) == set(APP_IDS) - {"unmute", "turnbased"}


@pytest.mark.parametrize("content", [b"", b'{"omni": fal', b"[]", b'{"omni": "perhaps"}', b"\xff\xfe"])
async def test_a_file_that_cannot_be_read_switches_nothing_and_is_replaced(tmp_path: Path, content: bytes):
    path = tmp_path / "apps.json"
    path.write_bytes(content)
    apps = Apps(path=path)
    assert open_apps(apps) == set(APP_IDS)
    await apps.switch("omni", enabled=False)
    assert open_apps(Apps(path=path)) == set(APP_IDS) - {"omni"}


def test_an_app_of_another_release_is_passed_over(tmp_path: Path):
    path = tmp_path / "apps.json"
    path.write_text('{"omni": false, "telepathy": true}')
    assert open_apps(Apps(path=path)) == set(APP_IDS) - {"omni"}


async def test_a_switch_that_is_not_written_down_has_not_happened(tmp_path: Path):
    folder = tmp_path / "data"
    folder.write_text("a file where the folder should be")
    apps = Apps(path=folder / "apps.json")
    with pytest.raises(OSError, match="data"):
        await apps.switch("omni", enabled=False)
    apps.check("omni")


async def test_there_is_no_switch_for_what_there_is_not():
    with pytest.raises(UnknownAppError, match="'telepathy'"):
        await Apps().switch("telepathy", enabled=False)


async def test_an_operator_closes_an_app_and_everybody_sees_it(tmp_path: Path):
    operations = Operations.open(OperationsSettings(data_dir=tmp_path), pool=None)
    async with asking(gateway(operations), headers=BEARER) as client:
        answer = await client.put("/api/admin/apps/omni", json={"enabled": False})
        assert answer.json()["app_id"] == "omni" and answer.json()["enabled"] is False
        shown = (await client.get("/api/apps")).json()["apps"]
        assert [app["app_id"] for app in shown] == [app_id for app_id in APP_IDS if app_id != "omni"]
        listed = (await client.get("/api/admin/apps")).json()["apps"]
        assert {app["app_id"]: app["enabled"] for app in listed} == {
            app_id: app_id != "omni" for app_id in APP_IDS
        }
        assert set(listed[0]) == {"app_id", "name", "route", "enabled"}
    again = Operations.open(OperationsSettings(data_dir=tmp_path), pool=None)
    assert open_apps(again.apps) == set(APP_IDS) - {"omni"}


@pytest.mark.parametrize("body", [{}, {"enabled": "false"}, {"enabled": 0}, {"enabled": True, "x": 1}])
async def test_a_switch_is_a_truth_value_and_nothing_else(body: dict[str, object]):
    async with asking(gateway(), headers=BEARER) as client:
        assert (await client.put("/api/admin/apps/omni", json=body)).status_code == 422
        assert len((await client.get("/api/apps")).json()["apps"]) == len(APP_IDS)


async def test_an_unknown_app_is_404():
    async with asking(gateway(), headers=BEARER) as client:
        answer = await client.put("/api/admin/apps/telepathy", json={"enabled": True})
        assert answer.status_code == 404


@pytest.mark.parametrize("path", ["/start", "/api/offer"])
async def test_no_browser_calls_while_browser_calls_are_closed(path: str):
    apps = Apps({"browser": False})
    async with asking(gateway(Operations(apps=apps))) as client:
        caller = Caller()
        refused = await client.post(path, json=await caller.offer())
        await caller.hang_up()
        assert refused.status_code == 403
        assert "Browser call (browser) is switched off" in refused.json()["error"]
        await apps.switch("browser", enabled=True)
        assert (await client.post("/start", json={})).status_code == 200
