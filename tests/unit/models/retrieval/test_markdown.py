import pytest

from parley.models.retrieval.markdown import parse_passages, plain_text, sentences

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
        "Abroad: Forty dollars. Abroad: two days.",
    ]


def statements(markdown: str) -> list[str]:
    passages = parse_passages(markdown, default_source="guide")
    return [statement.text for passage in passages for statement in passage.statements]


def test_an_item_is_said_with_the_words_that_lead_to_it() -> None:
    text = (
        "## Returns\n\nPumps can be returned. The following can't be returned:\n\n- cut cables\n- seal kits\n"
    )
    assert statements(text) == [
        "Pumps can be returned.",
        "The following can't be returned: cut cables.",
        "The following can't be returned: seal kits.",
    ]


def test_an_item_that_is_no_sentence_is_said_with_its_heading() -> None:
    text = "## What is not covered\n\n- Damage by frost\n- Lightning is never covered by us.\n"
    assert statements(text) == ["What is not covered: Damage by frost.", "Lightning is never covered by us."]


def test_a_nested_item_is_said_with_the_items_above_it() -> None:
    text = "## Supply\n\n- Fuse:\n  - K100: 10 amperes\n  - K400: 16 amperes\n"
    assert statements(text) == ["Fuse: K100: 10 amperes.", "Fuse: K400: 16 amperes."]


def test_a_cell_is_said_with_its_row_and_column() -> None:
    text = "| Model | Weight | Outdoor use |\n|---|---|---|\n| K100 | 3.2 kg | no |\n| K200 | | yes |\n"
    assert statements(text) == ["K100, weight: 3.2 kg.", "K100, outdoor use: no.", "K200, outdoor use: yes."]


def test_a_table_of_two_columns_is_a_list_of_entries() -> None:
    assert statements("| word | meaning |\n|---|---|\n| turn | one side speaks |\n") == [
        "turn: one side speaks."
    ]


def test_a_row_without_the_line_under_a_header_is_read_without_bars() -> None:
    assert statements("| a | broken table |") == ["a, broken table"]


def test_front_matter_names_the_document_and_is_not_spoken() -> None:
    text = "---\ntitle: The pump handbook\nrevision: 7\n---\n\n## Modes\n\nThere are three.\n"
    passages = parse_passages(text, default_source="file")
    assert [(p.text, p.source) for p in passages] == [("There are three.", "The pump handbook")]


@pytest.mark.parametrize("text", [": [", "at: 2026-13-40", "a: " + "[" * 2_000])
def test_front_matter_that_is_no_yaml_is_left_out_all_the_same(text: str) -> None:
    assert statements(f"---\n{text}\n---\nThere are three.\n") == ["There are three."]


def test_a_word_in_angle_brackets_is_no_tag() -> None:
    assert statements("Read `<key>` or <value>, not <b>both</b>.") == ["Read key or value, not both."]


def test_headings_above_a_title_are_its_context() -> None:
    passages = parse_passages("# Guide\n\n## K100\n\n### Price\n\nIt is low.\n", default_source="x")
    assert [(p.above, p.title) for p in passages] == [(("K100",), "Price")]


def test_one_command_is_said_with_the_words_that_lead_to_it() -> None:
    assert statements("Read a value with:\n\n```\npump read\n```\n") == ["Read a value with: pump read."]


def test_commands_with_a_comment_are_said_with_it() -> None:
    text = "```sh\nmake run     # starts the server\nmake clean\n```\n"
    assert statements(text) == ["make run: starts the server."]


def test_other_code_is_not_spoken() -> None:
    assert statements("Text.\n\n```python\nx = 1  # one\n```\n") == ["Text."]


@pytest.mark.parametrize(
    "text", ["> " * 300 + "deep", "- " * 300 + "deep", "#" * 5_000, "|" * 5_000, "[" * 5_000]
)
def test_text_that_nests_without_end_is_read_or_left_out(text: str) -> None:
    assert len(parse_passages(text, default_source="x")) <= 1


def test_an_abbreviation_ends_no_sentence() -> None:
    assert sentences("Keep approx. 20 cm free. Use e.g. Type B.") == [
        "Keep approx. 20 cm free.",
        "Use e.g. Type B.",
    ]


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
