"""Documents of several formats as markdown: Markdown, plain text, HTML, PDF and Word.

Input: a folder, read recursively in name order, or a file. Output: the text of each file as markdown, which
``markdown.parse_passages`` divides into passages. Headings, lists and tables of HTML and Word stay what they
are. A PDF has lines with places on a page and no structure. Its paragraphs are what its blank lines and
sentence ends suggest, and each page is a heading.

Blocking, for up to seconds for a long PDF. Files come from the operator, and their cost is bounded all the
same: the size of a file, of what an archive unpacks to, and the pages of a PDF. Libraries are imported when a
file needs them.
"""

import logging
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

from parley.core.errors import ConfigError
from parley.models.retrieval import Passage
from parley.models.retrieval.markdown import parse_passages

# A book of 1,000 pages has about 3 MB of text; what is larger is pictures.
MOST_BYTES = 20_000_000
MOST_UNPACKED_BYTES = 200_000_000
MOST_PAGES = 2_000
# Parts of a page around its content.
_AROUND = (
    "script",
    "style",
    "noscript",
    "template",
    "nav",
    "header",
    "footer",
    "aside",
    "form",
    "svg",
    "iframe",
)
_HYPHENATED = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
_SENTENCE_ENDS = (".", "!", "?", ":")
# A shorter line that ends a sentence ends its paragraph too.
_FULL_LINE = 0.8


def load_passages(folder: Path) -> list[Passage]:
    """Return every passage of the documents below ``folder``; see ``load_documents``."""
    return [passage for passages in load_documents(folder).values() for passage in passages]


def load_documents(folder: Path) -> dict[Path, list[Passage]]:
    """Return the passages of each document below ``folder``, in the order of file names and lines.

    The first ``#`` heading of a file names the source; without one its front matter does, or the file name.
    Deeper headings are titles. Files of other formats, and hidden ones, are left out.

    Raises:
        ConfigError: the folder is missing, a document cannot be read, or there is no passage: a server that
            can only say "I don't know" is a mistake and not a deployment. Names the path.
    """
    if not folder.is_dir():
        raise ConfigError(f"the documents folder {folder} does not exist or is not a folder")
    documents = {path: read_passages(path) for path in document_files(folder)}
    if not any(documents.values()):
        raise ConfigError(
            f"the documents folder {folder} contains no passage: it needs files with paragraphs "
            f"({', '.join(FORMATS)})"
        )
    return documents


def read_passages(path: Path) -> list[Passage]:
    """Return the passages of a document. Raises as ``read_document``."""
    return parse_passages(read_document(path), default_source=path.stem.replace("_", " ").replace("-", " "))


def document_files(folder: Path) -> list[Path]:
    """Return the documents below a folder, in the order of their names."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in FORMATS
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def read_document(path: Path) -> str:
    """Return a document as markdown.

    Raises:
        ConfigError: the file is unreadable, damaged, encrypted or too large, or has another format; names it.
    """
    read = FORMATS.get(path.suffix.lower())
    if read is None:
        raise ConfigError(f"{path.name}: documents have the formats {', '.join(FORMATS)}")
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ConfigError(
                f"the document {path} has {size / 1e6:.0f} MB; the limit is {MOST_BYTES / 1e6:.0f} MB"
            )
        return read(path)
    except ConfigError:
        raise
    except Exception as error:
        # The libraries raise errors of many types on damaged files.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ConfigError(f"cannot read the document {path}: {reason}") from error


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")


def _read_html(path: Path) -> str:
    return _html_as_markdown(path.read_bytes())


def _html_as_markdown(html: bytes | str) -> str:
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    page = BeautifulSoup(html, "html.parser")
    title = page.title.get_text(" ", strip=True) if page.title is not None else ""
    # The declared main part, where there is one, is without menus and advertisements.
    content = page.find("main") or page.find("article") or page.body or page
    for around in content.find_all(_AROUND):
        around.decompose()
    converter = MarkdownConverter(heading_style="ATX", strip=["a", "img"], table_infer_header=True)
    text = str(converter.convert_soup(content))
    return text if content.find("h1") is not None or not title else f"# {title}\n\n{text}"


def _read_word(path: Path) -> str:
    import mammoth

    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MOST_UNPACKED_BYTES:
        raise ConfigError(f"the document {path} unpacks to {unpacked / 1e6:.0f} MB")
    with path.open("rb") as file:
        # Pictures would be embedded as text.
        html = mammoth.convert_to_html(
            file, convert_image=mammoth.images.img_element(lambda _image: {})
        ).value
    return _html_as_markdown(html)


def _read_pdf(path: Path) -> str:
    from pypdf import PdfReader

    # Its warnings about a damaged file come before the error and name no file.
    logging.getLogger("pypdf").setLevel(logging.ERROR)
    reader = PdfReader(path)
    if reader.is_encrypted and not reader.decrypt(""):
        raise ConfigError(f"the document {path} is encrypted; save it without a password")
    if len(reader.pages) > MOST_PAGES:
        raise ConfigError(f"the document {path} has {len(reader.pages)} pages; the limit is {MOST_PAGES}")
    title = (reader.metadata.title or "").strip() if reader.metadata is not None else ""
    parts = [f"# {' '.join(title.split())}"] if title else []
    for number, page in enumerate(reader.pages, start=1):
        paragraphs = _paragraphs(page.extract_text())
        if paragraphs:
            parts += [f"## Page {number}", *paragraphs]
    if len(parts) <= 1:
        raise ConfigError(f"the document {path} has no text: its pages are pictures")
    return "\n\n".join(parts)


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a page, each on one line."""
    lines = [line.strip() for line in text.splitlines()]
    full_chars = _FULL_LINE * max((len(line) for line in lines), default=0)
    paragraphs: list[str] = []
    held: list[str] = []
    for line in [*lines, ""]:
        if line:
            held.append(line)
        if held and (not line or (line.endswith(_SENTENCE_ENDS) and len(line) < full_chars)):
            paragraphs.append(_escaped(_HYPHENATED.sub("", "\n".join(held)).replace("\n", " ")))
            held = []
    return paragraphs


def _escaped(text: str) -> str:
    """Return a line that markdown reads as a paragraph, also where it begins like a heading or a list."""
    return re.sub(r"^(\d*)([#>+*.)-])(?=\s)", r"\1\\\2", text)


# Suffix of a file's name -> function that reads it.
FORMATS: dict[str, Callable[[Path], str]] = {
    ".md": _read_text,
    ".txt": _read_text,
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": _read_pdf,
    ".docx": _read_word,
}
