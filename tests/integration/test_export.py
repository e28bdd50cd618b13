"""`rankfold export` writes what a real aggregator has, in each format, and every digit of it."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rankfold_service.cli import export_formats
from rankfold_service.cli.api import Api
from rankfold_service.cli.main import main
from support.reports import SERIES, partial
from support.server import Server

COUNT, LARGEST = f"{SERIES}_mismatch_count", f"{SERIES}_diff_max"
LOSS = 'actor/"loss", mean'
ITERATIONS = 450  # three pages
MOST = 2**53 - 1


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """An aggregator with a long run whose last iterations bring a key, and one of huge counts."""
    with Server("memory://") as server:
        rows = [
            partial(iteration=i, count=i % 2, max=0.1 * (i % 2), sum=0.1 * (i % 2))
            for i in range(ITERATIONS)
        ]
        scalars = [
            {"key": LOSS, "iteration": 440, "microbatch": 0, "value": 0.1 + 0.2, "rule": "mean"},
            {"key": LOSS, "iteration": 441, "microbatch": 0, "value": 1e308, "rule": "mean"},
        ]
        commits = [{"iteration": i, "microbatches": 1} for i in range(ITERATIONS - 1)]
        who = {"run": "run", "rank": 0, "world_size": 1}
        said = server.report(**who, partials=rows, scalars=scalars, commits=commits)
        assert said.status_code == 200, said.text
        huge = [
            partial(microbatch=m, count=MOST, valid=MOST, max=1.0, sum=1.0) for m in range(2000)
        ]
        said = server.report(run="huge", rank=0, partials=huge)
        assert said.status_code == 200, said.text
        yield server


def asked(server: Server, *arguments: str) -> list[str]:
    """Return the arguments of an export."""
    return ["export", *arguments, "--url", server.url]


def items(server: Server) -> list[dict[str, Any]]:
    """Return the run as the API has it."""
    return [
        item
        for after in (None, "199", "399")
        for item in server.get(
            "run", "iterations", limit=200, **({"after": after} if after else {})
        )["items"]
    ]


def test_csv_has_every_digit_and_no_zero_for_what_is_not_there(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The header is known before the first row, so a key that comes late has its column."""
    assert main(asked(server, "run")) == 0
    text = capfdbinary.readouterr().out.decode()
    rows = list(csv.DictReader(text.splitlines()))
    known = items(server)
    assert [int(row["iteration"]) for row in rows] == list(range(ITERATIONS))
    assert [row["complete"] for row in rows] == ["true"] * (ITERATIONS - 1) + ["false"]
    assert [row[LOSS] for row in rows[439:442]] == ["", repr(0.1 + 0.2), "1e+308"]
    for row, item in zip(rows, known, strict=True):
        for key, value in item["keys"].items():
            assert row[key] == "" if value is None else float(row[key]) == value


def test_json_lines_of_a_range_and_keys(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The format is what the file's name ends in; the columns are in the order asked for."""
    output = tmp_path / "run.jsonl"
    chosen = ["--key", LOSS, "--key", COUNT, "--from", "440", "--to", "442"]
    assert main(asked(server, "run", "--output", str(output), *chosen)) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert rows == [
        {"iteration": 440, "complete": True, LOSS: 0.1 + 0.2, COUNT: 0},
        {"iteration": 441, "complete": True, LOSS: 1e308, COUNT: 1},
        {"iteration": 442, "complete": True, LOSS: None, COUNT: 0},
    ]
    assert [*rows[0]] == ["iteration", "complete", LOSS, COUNT]
    assert [*tmp_path.iterdir()] == [output]
    assert capsys.readouterr() == ("", "")


def test_parquet_has_types_and_row_groups(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts are int64, all else double, and nothing is nothing."""
    monkeypatch.setattr(export_formats, "MOST_CELLS", 1000)
    output = tmp_path / "run.parquet"
    assert main(asked(server, "run", "--output", str(output))) == 0
    file = pyarrow.parquet.ParquetFile(output)
    assert file.num_row_groups > 1
    table = file.read()
    assert table.schema.field(COUNT).type == pyarrow.int64()
    assert table.schema.field(LARGEST).type == pyarrow.float64()
    known = items(server)
    assert table["iteration"].to_pylist() == [item["iteration"] for item in known]
    assert table["complete"].to_pylist() == [item["complete"] for item in known]
    for name in table.column_names[2:]:
        assert table[name].to_pylist() == [item["keys"].get(name) for item in known]


def test_integers_beyond_64_bits_are_exact_in_every_format(server: Server, tmp_path: Path) -> None:
    """A decimal in Parquet, all digits elsewhere."""
    total = 2000 * MOST
    assert total > 2**63
    found = []
    for form in ("csv", "jsonl", "parquet"):
        output = tmp_path / f"huge.{form}"
        assert main(asked(server, "huge", "--output", str(output), "--key", COUNT)) == 0
        found.append(output)
    assert found[0].read_text() == f"iteration,complete,{COUNT}\n0,false,{total}\n"
    assert json.loads(found[1].read_text())[COUNT] == total
    assert pyarrow.parquet.read_table(found[2])[COUNT].to_pylist() == [Decimal(total)]


def test_what_is_not_finite_has_its_words_and_in_parquet_its_values(tmp_path: Path) -> None:
    """The contract's words; readers of CSV take them for floats."""
    keys = {"x": {"value": 1.0}}
    rows = [
        {"iteration": i, "complete": True, "keys": {"x": word}}
        for i, word in enumerate(("NaN", "Infinity", "-Infinity", -0.0))
    ]
    found = {}
    for form, write in export_formats.FORMATS.items():
        found[form] = tmp_path / form
        with found[form].open("wb") as sink:
            write(sink, export_formats.columns_of(keys), iter([rows]))
    cells = [row["x"] for row in csv.DictReader(found["csv"].read_text().splitlines())]
    assert cells == ["NaN", "Infinity", "-Infinity", "-0.0"]
    assert json.loads(found["jsonl"].read_text().splitlines()[1])["x"] == "Infinity"
    values = pyarrow.parquet.read_table(found["parquet"])["x"].to_pylist()
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, 0.0]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_failure_half_way_leaves_nothing_and_what_was_there(
    server: Server, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aggregator is gone before the second page; the older file stays as it was."""
    output = tmp_path / f"run.{form}"
    output.write_text("older")
    left = iter(range(2))

    real = Api.get

    def get(self: Api, path: str, query: Any = None) -> Any:
        if next(left, None) is None:
            self.url = "http://127.0.0.1:1"
        return real(self, path, query)

    monkeypatch.setattr(Api, "get", get)
    assert main(asked(server, "run", "--output", str(output))) == 4
    assert [*tmp_path.iterdir()] == [output]
    assert output.read_text() == "older"


def test_wrong_usage_says_what_to_do(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written."""
    for arguments, code, told in (
        (["run", "--format", "parquet"], 2, "parquet needs a file: give --output FILE"),
        (["run", "--output", str(tmp_path / "a.xls")], 2, "give --format, one of csv"),
        (["run", "--key", "nope"], 2, "no key 'nope': 'rankfold totals' lists them"),
        (["run", "--from", "2", "--to", "1"], 2, "--from 2 is after --to 1"),
        (["run", "--rank", "7"], 1, "rank 7 has reported nothing"),
        (["run", "--output", str(tmp_path / "none" / "a.csv")], 2, "cannot be written"),
        (["run", "--output", str(tmp_path), "--format", "csv"], 2, "cannot be written"),
        (["other"], 1, "'rankfold runs' lists runs"),
    ):
        assert main(asked(server, *arguments)) == code, arguments
        output, error = capsys.readouterr()
        assert told in error
        assert output == ""
    assert [*tmp_path.iterdir()] == []


def test_without_pyarrow_it_says_what_to_install(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other formats need nothing of it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    output = tmp_path / "run.parquet"
    assert main(asked(server, "run", "--output", str(output))) == 2
    assert "needs pyarrow: install the extra 'parquet'" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
    assert main(asked(server, "run", "--output", str(tmp_path / "run.csv"))) == 0
