"""Documents of every format as passages, and files that cannot be read."""

import zipfile
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from parley.core.errors import ConfigError
from parley.models.retrieval import files
from parley.models.retrieval.files import load_passages

PAGE = """<!doctype html><html><head><title>Fee guide</title><style>p {}</style></head><body>
<nav><a href="/">Home</a></nav><main><h2>Cards</h2>
<p>A card costs <b>two</b> euros, see <a href="/more">more</a>.</p>
<p>The price_list is short. <img src="x.png" alt="chart"></p>
<ul><li>Free for students.</li><li>Five euros abroad.</li></ul>
<table><tr><th>Card</th><th>Fee</th></tr><tr><td>Gold</td><td>9 euros</td></tr></table>
<script>alert("x")</script></main><footer>Copyright</footer></body></html>"""

SPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
WORD = """<?xml version="1.0"?>
<w:document xmlns:w="{space}"><w:body>
{heading}<w:p><w:r><w:t>Branches open at nine.</w:t></w:r></w:p>
<w:tbl><w:tr>{cells}</w:tr><w:tr><w:tc><w:p><w:r><w:t>Gold</w:t></w:r></w:p></w:tc>
<w:tc><w:p><w:r><w:t>9 euros</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:body></w:document>"""
HEADING = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Hours</w:t></w:r></w:p>'
CELLS = "".join(f"<w:tc><w:p><w:r><w:t>{name}</w:t></w:r></w:p></w:tc>" for name in ("Card", "Fee"))
STYLES = (
    '<?xml version="1.0"?><w:styles xmlns:w="' + SPACE + '">'
    '<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style></w:styles>'
)
TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="xml" ContentType="application/xml"/></Types>'
)
RELATIONS = (
    '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}" '
    'Target="{target}"/></Relationships>'
)


def write_word(path: Path, **more: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", TYPES)
        archive.writestr("_rels/.rels", RELATIONS.format(kind="officeDocument", target="word/document.xml"))
        archive.writestr("word/_rels/document.xml.rels", RELATIONS.format(kind="styles", target="styles.xml"))
        archive.writestr("word/document.xml", WORD.format(space=SPACE, heading=HEADING, cells=CELLS))
        archive.writestr("word/styles.xml", STYLES)
        for name, content in more.items():
            archive.writestr(name, content)


def write_pdf(
    path: Path, *pages: list[str], title: str = "", password: str = "", algorithm: str = "RC4-128"
) -> None:
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for lines in pages:
        page = writer.add_blank_page(width=595, height=842)
        shown = "".join(f"({line}) Tj 0 -16 Td " for line in lines)
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 60 780 Td {shown} ET".encode())
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        page[NameObject("/Contents")] = writer._add_object(content)
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm=algorithm)
    with path.open("wb") as file:
        writer.write(file)


def read(folder: Path) -> list[tuple[str, str, str]]:
    return [(passage.source, passage.title, passage.text) for passage in load_passages(folder)]


def test_a_web_page_is_read_without_what_is_around_its_content(tmp_path: Path):
    (tmp_path / "fees.html").write_text(PAGE, encoding="utf-8")
    assert read(tmp_path) == [
        ("Fee guide", "Cards", "A card costs two euros, see more."),
        ("Fee guide", "Cards", "The price_list is short."),
        ("Fee guide", "Cards", "Cards: Free for students. Cards: Five euros abroad."),
        ("Fee guide", "Cards", "Gold: 9 euros."),
    ]


def test_a_word_document_keeps_headings_and_tables(tmp_path: Path):
    write_word(tmp_path / "hours.docx")
    assert read(tmp_path) == [
        ("Hours", "Hours", "Branches open at nine."),
        ("Hours", "Hours", "Gold: 9 euros."),
    ]


def test_a_pdf_has_paragraphs_under_its_pages(tmp_path: Path):
    first = [
        "Branches open at nine in the morning on every work-",
        "ing day.",
        "1. Cards are blocked at any time of the day, also on",
        "Sundays and holidays.",
    ]
    write_pdf(tmp_path / "guide.pdf", first, ["Call us."], title="Branch guide")
    assert read(tmp_path) == [
        ("Branch guide", "Page 1", "Branches open at nine in the morning on every working day."),
        (
            "Branch guide",
            "Page 1",
            "1. Cards are blocked at any time of the day, also on Sundays and holidays.",
        ),
        ("Branch guide", "Page 2", "Call us."),
    ]


def test_plain_text_is_read(tmp_path: Path):
    (tmp_path / "opening hours.txt").write_text("Open at nine.\n\nClosed at five.\n", encoding="utf-8")
    assert [text for _, _, text in read(tmp_path)] == ["Open at nine.", "Closed at five."]


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_a_pdf_with_a_password_says_what_to_do(tmp_path: Path, algorithm: str):
    write_pdf(tmp_path / "secret.pdf", ["Hidden."], password="key", algorithm=algorithm)
    assert PdfReader(tmp_path / "secret.pdf").is_encrypted
    with pytest.raises(ConfigError, match=r"secret\.pdf is encrypted; save it without a password"):
        load_passages(tmp_path)


def test_a_pdf_of_pictures_is_not_taken_for_an_empty_one(tmp_path: Path):
    write_pdf(tmp_path / "scan.pdf", [], title="Scan")
    with pytest.raises(ConfigError, match=r"scan\.pdf has no text: its pages are pictures"):
        load_passages(tmp_path)


@pytest.mark.parametrize("suffix", [".pdf", ".docx"])
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str):
    (tmp_path / f"broken{suffix}").write_bytes(b"%PDF-1.7 PK\x03\x04 and then nothing of the kind")
    with pytest.raises(ConfigError, match=f"cannot read the document .*broken{suffix}: ."):
        load_passages(tmp_path)


def test_a_file_of_200_mb_is_refused_unread(tmp_path: Path):
    with (tmp_path / "all.txt").open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(ConfigError, match=r"all\.txt has 200 MB; the limit is 20 MB"):
        load_passages(tmp_path)


def test_an_archive_that_unpacks_to_much_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "MOST_UNPACKED_BYTES", 1_000_000)
    write_word(tmp_path / "bomb.docx", **{"word/media/x.bin": bytes(2_000_000)})
    with pytest.raises(ConfigError, match=r"bomb\.docx unpacks to 2 MB"):
        load_passages(tmp_path)


def test_a_document_without_headings_is_named_after_its_file(tmp_path: Path) -> None:
    (tmp_path / "opening_hours.md").write_text("Open at nine.\n\nClosed at five.", encoding="utf-8")
    passages = load_passages(tmp_path)
    assert [(p.text, p.title, p.source) for p in passages] == [
        ("Open at nine.", "opening hours", "opening hours"),
        ("Closed at five.", "opening hours", "opening hours"),
    ]


def test_files_are_read_in_order_with_sub_folders(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, text in (
        ("b/1.md", "Third."),
        ("a.md", "First."),
        ("b.md", "Second."),
        ("c.log", "Not read."),
        (".d.md", "Nor this."),
    ):
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
