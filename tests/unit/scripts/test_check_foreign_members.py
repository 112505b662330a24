"""Detection of private members of a library, and the modules that may use them."""

import textwrap

import pytest

from scripts.check_foreign_members import Project

OWN = frozenset({"transports", "processors"})


def found(text: str, path: str = "transports/some.py", **more: str) -> list[str]:
    sources = {path: textwrap.dedent(text)}
    sources |= {f"{name.replace('__', '/')}.py": textwrap.dedent(more[name]) for name in more}
    return [finding.what for finding in Project(sources, OWN).findings()]


@pytest.mark.parametrize(
    "text",
    [
        "def f(connection): return connection._data_channel",
        "def f(connection): connection.pc._closed = True",
        "def f(receiver): return getattr(receiver, '_enabled')",
        "def f(receiver): return vars(receiver)['_enabled']",
        "BUFFER = '_RTCRtpReceiver__jitter_buffer'",
        "from pipecat.utils.base_object import _secret",
        "import uvicorn._types",
        "from uvicorn._types import Scope",
        "def f(aggregator): aggregator(_paired_user_aggregator=None)",
        "from aiortc import RTCSctpTransport\nRTCSctpTransport.start = None",
        "import aiortc.rtcsctptransport\naiortc.rtcsctptransport.USERDATA_MAX_LENGTH = 1",
        "from aiortc import RTCSctpTransport\nsetattr(RTCSctpTransport, 'start', None)",
    ],
)
def test_a_private_member_of_another_is_found(text: str):
    assert len(found(text)) == 1


@pytest.mark.parametrize(
    "body",
    [
        "def name_of(self): return self._name",
        "def rename(self): self._name = 'other'",
        "def _call_event_handler(self): ...",
        "def call(self): super()._call_event_handler('x')",
        "_event_tasks = ()",
    ],
)
@pytest.mark.parametrize("base", ["BaseObject", "Between"])
def test_a_private_member_of_a_librarys_base_class_is_found(base: str, body: str):
    text = f"""
        from pipecat.utils.base_object import BaseObject
        from parley.processors.between import Between

        class Ours({base}):
            {body}
    """
    between = """
        from pipecat.utils.base_object import BaseObject

        class Between(BaseObject): ...
    """
    assert len(found(text, processors__between=between)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "class Ours:\n    def f(self): return self._name",
        "class Ours:\n    def f(self): self._x = 1\n    def g(self, other): return other._x",
        "import os\nos._exit(1)",
        "def f(row): return row._replace(a=1)",
        "from pipecat.utils.base_object import BaseObject\n"
        "class Ours(BaseObject):\n    def set(self):\n        self._mine = 1",
        "def f(frame): frame.audio = b''",
        "def f(x): return x.__class__",
    ],
)
def test_what_is_ours_or_public_is_let_pass(text: str):
    assert found(text) == []


def test_a_name_that_only_a_nested_class_of_a_library_has_is_ours():
    # ``BaseOutputTransport.MediaSender`` has the member, and the output itself has none.
    text = """
        from pipecat.transports.base_output import BaseOutputTransport

        class Output(BaseOutputTransport):
            def f(self): self._resampler = None
    """
    assert found(text) == []


def test_a_folder_has_one_door():
    touching = "def f(connection): return connection._data_channel"
    assert found(touching, "transports/pipecat_internals.py") == []
    assert found(touching, "transports/webrtc/pipecat_internals.py") != []
    assert found(touching, "transports/a_internals.py", transports__b_internals=touching) != []


def test_a_library_that_is_not_installed_is_named():
    project = Project({"transports/some.py": "from nowhere import Base\nclass Ours(Base): ..."}, OWN)
    assert project.findings() == []
    assert [note for note in project.notes if "nowhere" in note]
