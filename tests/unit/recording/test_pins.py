"""Pins of sessions on the disk."""

import uuid
from pathlib import Path

import pytest

from parley.core.errors import MediaError
from parley.recording.pins import Pins
from tests.recorded_call import record_call

SESSION = str(uuid.UUID(int=7))


async def test_a_pin_is_the_file_that_retention_looks_for(tmp_path: Path):
    session = (await record_call(tmp_path, SESSION)).parent
    pins = Pins(tmp_path)
    pins.add(SESSION)
    assert (session / "pinned").read_bytes() == b"" and pins.has(SESSION)
    # One that was made by hand counts too.
    pins.remove(SESSION)
    (session / "pinned").write_text("by hand")
    assert pins.has(SESSION)
    pins.remove(SESSION)
    assert not pins.has(SESSION)


async def test_a_link_is_no_pin_and_what_it_leads_to_stays(tmp_path: Path):
    session = (await record_call(tmp_path, SESSION)).parent
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (session / "pinned").symlink_to(elsewhere)
    assert not Pins(tmp_path).has(SESSION)
    with pytest.raises(MediaError, match="cannot be written"):
        Pins(tmp_path).add(SESSION)
    Pins(tmp_path).remove(SESSION)
    assert elsewhere.read_text() == "mine" and not (session / "pinned").exists()


@pytest.mark.parametrize("name", ["", "..", "../..", "pinned", f"{SESSION}/.."])
def test_a_name_that_is_no_session_is_refused(tmp_path: Path, name: str):
    for act in (Pins(tmp_path).has, Pins(tmp_path).add, Pins(tmp_path).remove):
        with pytest.raises(MediaError):
            act(name)


def test_a_session_without_a_call_has_no_pin(tmp_path: Path):
    (tmp_path / "sessions" / SESSION).mkdir(parents=True)
    for act in (Pins(tmp_path).has, Pins(tmp_path).add):
        with pytest.raises(MediaError, match="no recordings"):
            act(SESSION)
    Pins(tmp_path).remove(SESSION)
