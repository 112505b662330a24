from pathlib import Path

import pytest

from configs.deployment import Bot, Choice, Deployment, Hearing, Speaking, Thinking
from core.errors import ConfigError
from models.stt.pocketsphinx import PocketsphinxSettings
from pipelines.engines import plan


def test_the_default_needs_nothing_from_outside():
    planned = plan(Deployment())
    assert isinstance(planned.stt, PocketsphinxSettings)
    assert not planned.answering.guarded


def test_an_unknown_engine_lists_engines_and_services():
    with pytest.raises(
        ConfigError, match="hearing.stt: unknown engine 'ears' .known: deepgram, moonshine, pock"
    ):
        plan(Deployment(hearing=Hearing(stt=Choice(name="ears"))))


def test_an_unknown_setting_of_an_engine_lists_the_known_ones():
    choice = Choice(name="flite", settings={"pitch": 3})
    with pytest.raises(
        ConfigError, match=r"speaking.tts \(flite\): unknown field 'pitch' .known: gain_percent"
    ):
        plan(Deployment(speaking=Speaking(tts=choice)))


def test_a_missing_documents_folder_is_named():
    with pytest.raises(ConfigError, match="bot.knowledge: there is no folder 'nowhere'"):
        plan(Deployment(bot=Bot(knowledge=Path("nowhere"))))


def test_a_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        plan(Deployment(thinking=Thinking(llm=Choice(name="anthropic"))))


def test_a_missing_extra_is_named():
    with pytest.raises(ConfigError, match=r"pip install '.\[deepgram\]'"):
        plan(Deployment(hearing=Hearing(stt=Choice(name="deepgram"))))


def test_a_fallback_stands_behind_another_model(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    thinking = Thinking(llm=Choice(name="anthropic"), fallback=Choice(name="documents"))
    planned = plan(Deployment(thinking=thinking))
    assert planned.answering.guarded
    assert planned.answering.documents is not None


def test_an_unknown_fallback_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="thinking.fallback: unknown engine 'oracle'"):
        plan(Deployment(thinking=Thinking(fallback=Choice(name="oracle"))))
