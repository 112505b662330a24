"""The example for Modal: a call through the part that needs no Modal, and the application in its library."""

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml
from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamTrack

from parley.core.errors import PeerError
from parley.evals.foreign.programs import install, output_of
from parley.evals.harness.launcher import free_port
from tests.peers.server import ROOT

EXAMPLE = ROOT / "deploy" / "modal"
LOUD = 1_000
MODAL = "modal==1.6.4"
# Prints the names of what the application has; a deprecated option is an error.
LOAD = "import warnings; warnings.simplefilter('error'); import parley_modal as p; print(p.app.name, p.Call)"


def line_module() -> ModuleType:
    found = importlib.util.spec_from_file_location("line", EXAMPLE / "line.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


async def until_loud(track: MediaStreamTrack) -> None:
    while True:
        frame = await track.recv()
        if np.abs(frame.to_ndarray().astype(int)).max() > LOUD:  # type: ignore[union-attr]
            return


async def test_a_line_answers_one_call_and_waits_for_its_end(tmp_path: Path):
    line = line_module()
    config = tmp_path / "modal.yaml"
    settings = {
        "extends": "embedded",
        "remembering": {"store": {"url": f"sqlite:///{tmp_path}/sessions.db"}},
        "operations": {"data_dir": str(tmp_path / "data")},
    }
    config.write_text(yaml.safe_dump(settings))
    async with line.Line(str(config), free_port()) as opened, asyncio.timeout(60):
        with pytest.raises(line.LineError, match="SDP"):
            await opened.answer({"sdp": "no offer", "type": "offer"})
        peer = RTCPeerConnection()
        heard: asyncio.Queue[MediaStreamTrack] = asyncio.Queue()
        peer.on("track", heard.put_nowait)
        peer.addTransceiver("audio", direction="sendrecv")
        channel = peer.createDataChannel("rtvi")
        channel.on("open", lambda: channel.send('{"label": "rtvi-ai", "type": "client-ready", "id": "1"}'))
        await peer.setLocalDescription(await peer.createOffer())
        offer = peer.localDescription
        answer = await opened.answer({"sdp": offer.sdp, "type": offer.type, "requestData": {}})
        await peer.setRemoteDescription(RTCSessionDescription(answer["sdp"], answer["type"]))
        over = asyncio.create_task(opened.until_over())
        await until_loud(await heard.get())
        assert not over.done()
        await peer.close()
        await over


async def test_a_server_that_does_not_start_is_an_error_of_the_line(tmp_path: Path):
    line = line_module()
    with pytest.raises(line.LineError, match="ended with status 2"):
        async with line.Line(str(tmp_path / "nothing.yaml"), free_port()):
            raise AssertionError


async def test_the_application_is_one_of_modal(tmp_path: Path):
    environment = tmp_path / "environment"
    try:
        python = await install((MODAL,), environment)
    except PeerError as error:
        # A registry without it is no fault of this product.
        pytest.skip(str(error))
    variables = {"PYTHONPATH": str(EXAMPLE)}
    shown = await output_of([python, "-c", LOAD], "modal", within_s=60, variables=variables)
    assert shown.decode().split()[0] == "parley"
