from pathlib import Path

import pytest

from core.errors import ConfigError
from models.retrieval.markdown import load_passages, parse_passages, plain_text, sentences

DOCUMENT = """\
# The fee guide

Fees are **low**.

## Wires
A wire costs [twenty dollars](https://example.org/fees)
and leaves *today*.

### Abroad
- Forty dollars
- two days;

```
not spoken
```
| a | table |
<!-- a
comment -->
## Empty
"""


def test_headings_name_source_and_title() -> None:
    passages = parse_passages(DOCUMENT, default_source="fees")
    assert [(p.title, p.source) for p in passages] == [
        ("The fee guide", "The fee guide"),
        ("Wires", "The fee guide"),
        ("Abroad", "The fee guide"),
    ]


def test_only_what_can_be_spoken_is_kept() -> None:
    texts = [p.text for p in parse_passages(DOCUMENT, default_source="fees")]
    assert texts == [
        "Fees are low.",
        "A wire costs twenty dollars and leaves today.",
        "Forty dollars. two days;",
    ]


def test_a_document_without_headings_is_named_after_its_file(tmp_path: Path) -> None:
    (tmp_path / "opening_hours.md").write_text("Open at nine.\n\nClosed at five.", encoding="utf-8")
    passages = load_passages(tmp_path)
    assert [(p.text, p.title, p.source) for p in passages] == [
        ("Open at nine.", "opening hours", "opening hours"),
        ("Closed at five.", "opening hours", "opening hours"),
    ]


def test_files_are_read_in_order_with_sub_folders(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, text in (("b/1.md", "Third."), ("a.md", "First."), ("b.md", "Second."), ("c.txt", "Not read.")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert sorted(p.text for p in load_passages(tmp_path)) == ["First.", "Second.", "Third."]


@pytest.mark.parametrize("content", [None, "", "# Only a heading\n"])
def test_a_folder_without_passages_is_named_in_the_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "empty.md").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=str(tmp_path)):
        load_passages(tmp_path)


def test_a_missing_folder_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load_passages(tmp_path / "nowhere")


def test_a_file_that_is_not_utf_8_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    with pytest.raises(ConfigError, match="latin.md"):
        load_passages(tmp_path)


@pytest.mark.parametrize(
    ("markdown", "spoken"),
    [
        ("**bold *and* italic**", "bold and italic"),
        ("`code` and ~~gone~~", "code and gone"),
        ("![logo](x.png) Hello <b>you</b>", "Hello you"),
        ("2 * 3 is 6", "2 * 3 is 6"),
    ],
)
def test_marks_are_removed(markdown: str, spoken: str) -> None:
    assert plain_text(markdown) == spoken


def test_sentences_end_at_a_stop_before_a_capital() -> None:
    text = "It costs 2.40 dollars. Is that much? No! ask about e.g. fees."
    assert sentences(text) == ["It costs 2.40 dollars.", "Is that much?", "No! ask about e.g. fees."]
