"""Find public classes of the product that share a name, and fail when there are any.

    python -m scripts.check_class_names

One name has one meaning (docs/glossary.md): a reader who finds ``Event`` in a message should not have to ask
which. Names that begin with an underscore belong to their module and may repeat.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Mapping

from scripts.foreign_assignments import PRODUCT, ROOT
from scripts.syntax import definitions, parse


def shared_names(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names that several classes have, with the paths of their modules.

    Args:
        sources: path to the text of a module.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for path, source in sources.items():
        for node in definitions(parse(source).body):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}


def product() -> dict[str, str]:
    """Return path and text of every module of the product."""
    modules = [
        path
        for part in PRODUCT
        for path in ([ROOT / part] if part.endswith(".py") else sorted((ROOT / part).rglob("*.py")))
    ]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in modules}


def main() -> int:
    """Print the findings; return the exit status."""
    shared = shared_names(product())
    for name, paths in shared.items():
        print(f"{name}: {', '.join(paths)}")
    print(f"class names that are not unique: {len(shared)}")
    return int(bool(shared))


if __name__ == "__main__":
    sys.exit(main())
