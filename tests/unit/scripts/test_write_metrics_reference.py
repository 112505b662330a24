"""The reference of the metrics."""

from scripts.write_metrics_reference import DOCUMENT, written


def test_the_document_is_current():
    assert DOCUMENT.read_text(encoding="utf-8") == written(), "run: python -m scripts.write_metrics_reference"
