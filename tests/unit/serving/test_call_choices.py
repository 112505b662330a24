"""Choices of callers: the list of them, and the check of the fields of a call."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from parley.audio.wav import encode_wav
from parley.core.call_choices import CLONING, PROMPT_FIELDS, ChoiceField, ChoiceOffer
from parley.core.errors import PeerError
from parley.core.grants import ANONYMOUS, ClientIdentity, Grants
from parley.core.media import float_to_pcm16
from parley.protocols.minicpm_duplex import MOST_PROMPT_CHARS
from parley.serving.gateway.admin.operations import Operations
from parley.serving.gateway.admin.presets import Presets
from parley.serving.gateway.app import create_app
from parley.serving.gateway.call_choices import CallChooser, CallOffers
from parley.serving.gateway.reference_voices.voices import Voices
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.sockets.unmute_routes import unmute_router
from parley.transports.webrtc.signaling import Signaling
from tests.peers.operations_gateway import asking
from tests.unit.serving.test_presets import write

TONE = (0.3 * np.sin(np.arange(16_000) / 20)).astype(np.float32)
OFFERS = {
    "cascade": ChoiceOffer("a model", PROMPT_FIELDS | {ChoiceField.VOICE}, ("parley", "rms"), {"ash": "rms"}),
    "duplex": ChoiceOffer("an engine", CLONING),
}
TRUSTED = replace(ANONYMOUS, grants=Grants(instructions=True))


def offers(grants: bool = False) -> CallOffers:
    return CallOffers(OFFERS.__getitem__, lambda client: grants or client.grants.instructions)


@pytest.fixture
def presets(tmp_path: Path) -> Presets:
    bank = {"id": "bank", "name": "Bank", "description": "A bank.", "system_prompt": "You are a bank."}
    write(tmp_path / "presets", "half_duplex_audio", "bank.yaml", bank)
    content = [{"type": "text", "text": "You are a bank."}, {"type": "audio", "path": "voice.wav"}]
    spoken = {"id": "bank", "name": "Bank", "system_content": content}
    (tmp_path / "presets" / "voice.wav").write_bytes(encode_wav(float_to_pcm16(TONE), 16_000))
    write(tmp_path / "presets", "audio_duplex", "bank.yaml", spoken)
    return Presets(tmp_path / "presets")


@pytest.fixture
async def voices(tmp_path: Path) -> Voices:
    found = Voices(tmp_path / "voices")
    await found.add("Anna", encode_wav(float_to_pcm16(0.5 * TONE), 16_000))
    return found


@pytest.fixture
def chooser(presets: Presets, voices: Voices) -> CallChooser:
    return CallChooser(offers(), presets, voices, modes=("cascade", "duplex"), default_mode="cascade")


async def test_a_call_gets_the_voice_the_preset_and_the_instructions_that_it_names(chooser: CallChooser):
    body = {"voice": "rms", "preset": "bank", "instructions": " Be brief. ", "reference_voice": None}
    chosen = await chooser.choose(body, TRUSTED)
    assert (chosen.voice, chosen.preset_text, chosen.instructions) == ("rms", "You are a bank.", "Be brief.")
    assert chosen.reference_audio is None
    assert (await chooser.choose({"voice": "ash"}, ANONYMOUS)).voice == "rms"


async def test_an_engine_that_imitates_gets_the_voice_of_the_preset_or_the_chosen_one(
    chooser: CallChooser, voices: Voices
):
    of_preset = await chooser.choose({"mode": "duplex", "preset": "bank"}, ANONYMOUS)
    assert of_preset.reference_audio is not None and of_preset.reference_audio.max() > 0.25
    [anna] = voices.all()
    body = {"mode": "duplex", "preset": "bank", "reference_voice": anna.id}
    chosen = await chooser.choose(body, ANONYMOUS)
    assert chosen.reference_audio is not None and chosen.reference_audio.max() < 0.2
    assert chosen.preset_text == "You are a bank."


async def test_reference_voices_are_offered_where_the_engine_imitates(chooser: CallChooser, voices: Voices):
    [anna] = voices.all()
    assert await chooser.references_of("duplex") == [anna] and await chooser.references_of("cascade") == []
    assert (await chooser.imitated(anna.id)).max() > 0
    with pytest.raises(PeerError, match="there is no voice 'ben'"):
        await chooser.imitated("ben")
    app = FastAPI()
    app.include_router(unmute_router(lambda: {"tts": "hibari"}, chooser, "duplex"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        own, listed = (await client.get("/v1/voices")).json()
    assert (own["name"], own["comment"]) == ("parley", "hibari")
    assert (listed["name"], listed["source"]["path_on_server"]) == (anna.name, anna.id)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"voice": "alloy"}, r"there is no voice 'alloy' \(known: parley, rms\)"),
        ({"voice": 3}, "voice: expected a text or nothing"),
        ({"preset": "pirate"}, r"there is no preset 'pirate' of cascade \(known: bank\)"),
        ({"preset": "../x", "mode": "duplex"}, r"\(known: bank\)"),
        ({"mode": "duplex", "voice": "rms"}, r"an engine \(duplex\) takes no such choice \(known: instr"),
        ({"reference_voice": "x"}, r"reference_voice: a model \(cascade\) takes no such choice"),
        ({"mode": "duplex", "reference_voice": "x"}, r"there is no voice 'x' \(known: [0-9a-f-]{36}\)"),
        ({"instructions": "Be brief."}, "accepts none from this client"),
        ({"instructions": "a" * (MOST_PROMPT_CHARS + 1)}, f"over {MOST_PROMPT_CHARS} characters"),
    ],
)
async def test_what_a_call_cannot_have_is_refused_with_what_is_known(
    chooser: CallChooser, body: dict[str, Any], why: str
):
    with pytest.raises(PeerError, match=why):
        await chooser.choose(body, ANONYMOUS)


async def test_a_server_without_offers_takes_calls_that_choose_nothing():
    chooser = CallChooser(None, None, None, modes=("cascade",), default_mode="cascade")
    assert (await chooser.choose({"mode": "cascade", "voice": ""}, ANONYMOUS)).voice == ""
    with pytest.raises(PeerError, match="offers no choice"):
        await chooser.choose({"voice": "rms"}, ANONYMOUS)
    assert chooser.offered(ANONYMOUS).modes == {}
    assert chooser.voices.names == ("parley",)


def client_for(presets: Presets, voices: Voices, *, may_instruct: bool) -> Any:
    app = create_app(
        ServerTuning(),
        run_call=no_call,
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=1),
        operations=Operations(presets=presets, voices=voices),
        modes=("cascade", "duplex"),
        offers=offers(may_instruct),
    )
    return asking(app)


async def no_call(_arguments: object) -> None:
    raise AssertionError("no call is made here")


async def listed(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/api/choices")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_the_list_has_what_each_mode_takes(presets: Presets, voices: Voices):
    async with client_for(presets, voices, may_instruct=False) as client:
        found = await listed(client)
    [anna] = voices.all()
    assert found["modes"]["cascade"] == {
        "voices": ["parley", "rms"],
        "presets": [{"id": "bank", "name": "Bank", "description": "A bank."}],
        "reference_voices": [],
        "instructions": False,
    }
    assert found["modes"]["duplex"]["voices"] == []
    assert found["modes"]["duplex"]["reference_voices"] == [
        {"id": anna.id, "name": "Anna", "description": ""}
    ]
    assert found["speaks"] is False


async def test_a_call_that_names_something_unknown_is_refused_before_its_offer(
    presets: Presets, voices: Voices
):
    async with client_for(presets, voices, may_instruct=True) as client:
        assert (await listed(client))["modes"]["cascade"]["instructions"] is True
        body = {"voice": "alloy"}
        refused = await client.post("/start", json={"transport": "webrtc", "body": body})
        assert refused.status_code == 400
        assert refused.json() == {"error": "voice: there is no voice 'alloy' (known: parley, rms)"}
        body = {"voice": "rms", "preset": "bank", "instructions": "Be brief."}
        assert (await client.post("/start", json={"body": body})).status_code == 200
        held = {"session": None, "held": True}
        assert (await client.post("/start", json={"body": held})).status_code == 400


def test_the_rule_for_instructions_is_that_of_the_client():
    assert not offers().may_instruct(ClientIdentity())
    assert offers().may_instruct(TRUSTED)
