"""``extends``: a deployment that holds the differences from another one."""

from pathlib import Path

import pytest

from parley.configs.load import PROJECT_DIR, load_deployment
from parley.configs.merging import merged
from parley.configs.print_config import as_yaml
from parley.core.errors import ConfigError


def written(folder: Path, **files: str) -> Path:
    """Write files by name and return the path of ``own``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / "own.yaml"


def test_a_shipped_deployment_holds_where_the_file_sets_nothing(tmp_path: Path):
    own = load_deployment(written(tmp_path, own="extends: claude\nname: own\nserver: {port: 9000}\n"))
    claude = load_deployment("claude")
    assert (own.name, own.server.port) == ("own", 9_000)
    assert own.thinking == claude.thinking and own.hearing == claude.hearing


def test_mappings_are_merged_and_lists_are_replaced(tmp_path: Path):
    base = (
        "bot: {name: Ada, greeting: Hi.}\n"
        "hearing: {endpoint: {patience: 0.3}, ask_back: null}\n"
        "speaking: {fallback: [{name: flite}, {name: espeak}], phrases: [One., Two.]}\n"
    )
    own = "extends: ./base.yaml\nbot: {greeting: Hello.}\nspeaking: {fallback: [], phrases: [Three.]}\n"
    loaded = load_deployment(written(tmp_path, base=base, own=own))
    assert (loaded.bot.name, loaded.bot.greeting) == ("Ada", "Hello.")
    assert (loaded.hearing.endpoint.patience, loaded.hearing.ask_back) == (0.3, None)
    assert (loaded.speaking.fallback, loaded.speaking.phrases) == ((), ("Three.",))


def test_another_engine_has_no_settings_of_the_first_one_and_the_same_engine_has(tmp_path: Path):
    base = "thinking: {llm: {name: anthropic, settings: {model: a, max_tokens: 100}}}\n"
    other = "extends: ./base.yaml\nthinking: {llm: {name: vllm, settings: {model: b}}}\n"
    assert load_deployment(written(tmp_path, base=base, own=other)).thinking.llm.settings == {"model": "b"}
    same = "extends: ./base.yaml\nthinking: {llm: {settings: {model: c}}}\n"
    llm = load_deployment(written(tmp_path, base=base, own=same)).thinking.llm
    assert (llm.name, llm.settings) == ("anthropic", {"model": "c", "max_tokens": 100})


def test_null_replaces_a_mapping(tmp_path: Path):
    loaded = load_deployment(written(tmp_path, own="extends: embedded\nhearing: {stop_words: null}\n"))
    assert loaded.hearing.stop_words is None


def test_a_path_starts_at_the_folder_of_the_file_that_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PARLEY_STORE_URL", raising=False)
    base = (
        "bot: {knowledge: papers}\nmodels_dir: weights\n"
        "remembering: {store: {url: 'sqlite:///kept.db'}}\noperations: {data_dir: changes}\n"
    )
    written(tmp_path / "shared", base=base)
    own = written(tmp_path / "mine", own="extends: ../shared/base.yaml\nmodels_dir: others\n")
    loaded = load_deployment(own)
    assert loaded.bot.knowledge.resolve() == tmp_path / "shared" / "papers"
    assert loaded.models_dir == tmp_path / "mine" / "others"
    assert loaded.operations.data_dir == tmp_path / "shared" / "changes"
    assert loaded.remembering.store.url == f"sqlite:////{str(tmp_path / 'shared' / 'kept.db').lstrip('/')}"
    assert loaded.operations.presets_dir == PROJECT_DIR / "presets"


def test_every_path_of_a_linked_file_starts_at_the_folder_of_the_file(tmp_path: Path):
    files = {"base": "bot: {name: Ada}\n", "own": "extends: ./base.yaml\nmodels_dir: weights\n"}
    own = written(tmp_path / "real", **files)
    written(tmp_path / "links", base="bot: {name: Eve}\n")
    link = tmp_path / "links" / "current.yaml"
    link.symlink_to(own)
    loaded = load_deployment(link)
    assert (loaded.bot.name, loaded.models_dir) == ("Ada", tmp_path / "real" / "weights")


def test_a_chain_of_files_is_followed(tmp_path: Path):
    files = {
        "first": "extends: embedded\nbot: {name: One}\nserver: {port: 1}\n",
        "second": "extends: ./first.yaml\nbot: {name: Two}\n",
        "own": "extends: ./second.yaml\nbot: {greeting: Hi.}\n",
    }
    loaded = load_deployment(written(tmp_path, **files))
    assert (loaded.bot.name, loaded.bot.greeting, loaded.server.port) == ("Two", "Hi.", 1)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"own": "extends: ./own.yaml\n"}, r"own.yaml: extends: a deployment cannot extend itself"),
        (
            {"own": "extends: ./base.yaml\n", "base": "extends: ./own.yaml\n"},
            r"base.yaml: extends: .* itself \(.*own.yaml -> .*base.yaml -> .*own.yaml\)",
        ),
        (
            {"own": "extends: nothing\n"},
            r"own.yaml: extends: there is no deployment 'nothing' \(known: claude",
        ),
        ({"own": "extends: ./none.yaml\n"}, r"cannot read .*none.yaml"),
        ({"own": "extends: [embedded]\n"}, r"own.yaml: extends: expected the name of a deployment or a file"),
        ({"own": "extends: embedded\nbot: {nmae: x}\n"}, r"unknown field 'bot.nmae'"),
    ],
)
def test_what_cannot_be_extended_is_refused_with_its_place(tmp_path: Path, files: dict[str, str], says: str):
    with pytest.raises(ConfigError, match=says):
        load_deployment(written(tmp_path, **files))


def test_a_printed_deployment_holds_everything_itself(tmp_path: Path):
    loaded = load_deployment(written(tmp_path, own="extends: claude\nbot: {name: Ada}\n"))
    printed = tmp_path / "printed.yaml"
    printed.write_text(as_yaml(loaded))
    assert "\n#extends: null\n" in printed.read_text()
    assert load_deployment(printed) == loaded


def test_merging_changes_neither_side():
    base, own = {"bot": {"name": "Ada"}}, {"bot": {"greeting": "Hi."}}
    assert merged(base, own) == {"bot": {"name": "Ada", "greeting": "Hi."}}
    assert (base, own) == ({"bot": {"name": "Ada"}}, {"bot": {"greeting": "Hi."}})
