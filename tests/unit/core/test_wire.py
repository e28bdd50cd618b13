"""Names, pointers and the sizes of what travels."""

from __future__ import annotations

import importlib
import importlib.metadata

import pytest

import rankfold
from rankfold import answers
from rankfold.errors import FieldError
from rankfold.names import MAX_NAME, name_fault
from rankfold.wire import REPORT_PATH, Receipt, escape_pointer, field_error, pointer
from unit.core.builders import partial, report, scalar


@pytest.mark.parametrize(
    "name", ["a", "a/b", "é", "日本", "a b", "a\u00a0b", "a\u200bb", "..", "x" * 200]
)
def test_name_of_unicode_is_allowed(name: str) -> None:
    """Any character that is neither a control nor half of one is."""
    assert name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", f"must have 1 to {MAX_NAME} characters, not 0"),
        ("x" * 201, f"must have 1 to {MAX_NAME} characters, not 201"),
        ("a\n", "must not contain control characters"),
        ("\x00", "must not contain control characters"),
        ("\x7f", "must not contain control characters"),
        ("\x85", "must not contain control characters"),
        ("a\ud800", "must not contain lone surrogates"),
    ],
)
def test_name_that_would_do_harm_is_not_allowed(name: str, reason: str) -> None:
    """Controls and lone surrogates would break labels and logs."""
    assert name_fault(name) == name_fault(name, in_path=True) == reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a/b", "must not contain '/'"),
        (".", "must not be '.' or '..'"),
        ("..", "must not be '.' or '..'"),
        ("...", None),
        (".a", None),
    ],
)
def test_name_in_a_path_is_one_segment(name: str, reason: str | None) -> None:
    """Projects and runs stand in URLs between slashes."""
    assert name_fault(name, in_path=True) == reason


def test_pointer_escapes_its_tokens() -> None:
    """RFC 6901: `~` and `/` within a member's name are escaped."""
    assert pointer("partials", 0, "a/b~c") == "/partials/0/a~1b~0c"
    assert pointer() == ""
    assert escape_pointer("~1") == "~01"
    assert field_error("why", "rank") == FieldError("/rank", "why")


def test_report_is_as_long_as_its_partials_and_scalars() -> None:
    """Commits are not counted in a receipt, so neither are they here."""
    assert len(report(partials=[partial()] * 2, scalars=[scalar()], commits=[(0, 1)])) == 3
    assert Receipt() == Receipt(0, 0, 0)


def test_reports_go_where_the_contract_says() -> None:
    """The path carries the version."""
    assert REPORT_PATH == "/api/v1/partials"


def test_answers_have_the_contract_members() -> None:
    """Totals, iterations and the gate show at least what section 8 lists."""
    listed = {
        answers.TotalsAnswer: {"project", "run", "attempts", "keys"},
        answers.KeyAnswer: {"value", "rule", "series", "count", "valid", "nonfinite", "sum", "max"},
        answers.IterationAnswer: {"iteration", "complete", "keys"},
        answers.IterationsAnswer: {"items", "next"},
        answers.GateAnswer: {
            *("gate", "reasons", "series", "iterations", "ranks", "conflicts", "worst")
        },
        answers.SeriesGate: {
            *("mismatch_count", "nonfinite_count", "valid_count", "diff_max", "diff_mean")
        },
        answers.IterationsGate: {"first", "last", "complete", "incomplete", "absent"},
        answers.RanksGate: {"expected", "reporting", "missing"},
        answers.ReceiptAnswer: {"accepted", "duplicates", "conflicts"},
        answers.ProblemAnswer: {"type", "title", "status", "detail", "code", "retryable"},
    }
    lacking = {shape: names - shape.__required_keys__ for shape, names in listed.items()}
    assert not any(lacking.values())


def test_version_is_that_of_the_installed_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package says its version, and from a bare source tree that it has none."""
    assert rankfold.__version__ == importlib.metadata.version("rankfold")

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    with monkeypatch.context() as patched:
        patched.setattr(importlib.metadata, "version", missing)
        assert importlib.reload(rankfold).__version__ == "0+unknown"
    importlib.reload(rankfold)
