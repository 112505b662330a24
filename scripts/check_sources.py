"""Run all checks of the source in one process, which reads and parses each file once.

    python -m scripts.check_sources

Each is a command of its own as well: ``foreign_assignments``, ``check_prose``, ``check_class_names``,
``check_terms`` and ``check_foreign_members``. Run by ``make lint``.

Exit status: 0 all pass, 1 one does not.
"""

import gc
import sys

from scripts import check_class_names, check_foreign_members, check_prose, check_terms, foreign_assignments


def main() -> int:
    """Print the findings of all checks; return the exit status."""
    # The trees are kept to the end: a collection would go through all of them each time.
    gc.disable()
    failed = [
        foreign_assignments.main(),
        check_class_names.main(),
        check_terms.main(),
        check_foreign_members.main(),
        check_prose.main([]),
    ]
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
