"""A scrape of metrics, as Prometheus reads it."""

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """Values of one scrape.

    Attributes:
        samples: value by name and labels.
    """

    def __init__(self, text: str) -> None:
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """Return a value; 0 for a series that there is not yet."""
        return self.samples.get((name, tuple(sorted(labels.items()))), 0.0)
