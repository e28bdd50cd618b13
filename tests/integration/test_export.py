"""`rankfold export` writes what a real aggregator has, in each format, and every digit of it."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rankfold.errors import ConfigurationError
from rankfold_service.cli import export_formats
from rankfold_service.cli.api import Api
from rankfold_service.cli.main import main
from support.reports import SERIES, partial
from support.server import Server

COUNT, LARGEST = f"{SERIES}_mismatch_count", f"{SERIES}_diff_max"
LOSS = 'actor/"loss", mean'
ITERATIONS = 450  # three pages
MOST = 2**53 - 1
SEPARATED = "a\u2028b\u2029c"
# Scalars with names and values that an export has to look at twice.
ODD = (
    ("iteration", 1.0),
    ("iteration_", 2.0),
    ("complete", 3.0),
    ("complete_ly", 4.0),
    (SEPARATED, 2**53 + 1),
    ("zero", -0.0),
    ("loss", "NaN"),
    ("loss", "-Infinity"),
    ("partly", "Infinity"),
    ("partly", 5.0),
)


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
        odd = [
            {"key": key, "iteration": 0, "microbatch": m, "value": value, "rule": "sum"}
            for m, (key, value) in enumerate(ODD)
        ]
        masked = partial(valid=0, max=None)
        said = server.report(run="odd", rank=0, scalars=odd, partials=[masked])
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


def test_mismatches_of_superseded_attempts_are_told_of(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are of the effective attempts, so that what differed before a restart is in none."""
    for attempt, count in enumerate((1, 0)):
        rows = [partial(count=count, max=0.5 * count, sum=0.5 * count)]
        said = server.report(run="again", rank=0, world_size=1, attempt=attempt, partials=rows)
        assert said.status_code == 200, said.text
    told = "rankfold export: superseded attempts hold 1 more mismatch: --attempts all shows them\n"
    for options, note in (((), told), (("--attempts", "all"), "")):
        assert main(asked(server, "again", *options)) == 0
        assert capsys.readouterr().err == note


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


def test_parquet_says_where_a_count_is_none_any_more() -> None:
    """A value that its column's type does not hold is named, whatever it is."""
    columns = export_formats.columns_of({COUNT: {"value": 1}})
    page = [{"iteration": 0, "complete": True, "keys": {COUNT: "Infinity"}}]
    with pytest.raises(ConfigurationError, match=r"outgrew its type, export again: .*Infinity"):
        export_formats.write_parquet(io.BytesIO(), columns, iter([page]))


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


def test_no_key_is_without_a_column_and_no_value_is_lost_silently(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names that are taken get an underscore, in each format; what no cell has is told of."""
    written = {}
    for form in ("csv", "jsonl", "parquet"):
        written[form] = tmp_path / f"odd.{form}"
        assert main(asked(server, "odd", "--output", str(written[form]))) == 0
        assert capsys.readouterr().err.splitlines() == [
            "rankfold export: the key 'complete' has the column 'complete_'",
            "rankfold export: the key 'iteration' has the column 'iteration_'",
            "rankfold export: the key 'iteration_' has the column 'iteration__'",
            (
                "rankfold export: reported as NaN or infinite in the whole run, and in no cell: "
                "2 of loss, 1 of partly"
            ),
        ]
    row = {"iteration": 0, "complete": False, "iteration_": 1.0, "iteration__": 2.0}
    row |= {"complete_": 3.0, "complete_ly": 4.0, SEPARATED: 2.0**53, "zero": 0.0}
    row |= {"loss": None, "partly": 5.0, COUNT: 0, LARGEST: None}
    (line,) = written["jsonl"].read_text().splitlines()
    assert json.loads(line).items() >= row.items()
    table = pyarrow.parquet.read_table(written["parquet"])
    assert table.to_pylist() == [json.loads(line)]
    assert table.schema.field(COUNT).type == pyarrow.int64()
    with written["csv"].open(newline="") as file:
        (cells,) = csv.DictReader(file)
    assert (cells["iteration__"], cells["zero"], cells["loss"]) == ("2.0", "0.0", "")


def test_a_key_is_chosen_by_its_own_name(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Whatever its column is called."""
    assert main(asked(server, "odd", "--key", "iteration")) == 0
    assert capfdbinary.readouterr().out == b"iteration,complete,iteration_\n0,false,1.0\n"


def test_a_closed_standard_output_matters_to_who_writes_there(
    server: Server, tmp_path: Path
) -> None:
    """One line, and the exit code of the help; a file needs no standard output."""
    output = tmp_path / "run.csv"
    for more, code in (("", 1), (f"--output {output}", 0)):
        command = " ".join(asked(server, "run", more))
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m rankfold_service.cli.main {command} >&-"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        told = "rankfold export: its output cannot be written: standard output is closed\n"
        assert (done.returncode, done.stderr) == (code, told if code else "")
    assert output.read_bytes().count(b"\n") == 1 + ITERATIONS


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_half_way_leaves_nothing_and_what_was_there(
    server: Server, tmp_path: Path, ending: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends with the signal's code, and its handlers are as before."""
    output = tmp_path / "run.csv"
    output.write_text("older")
    at_page(2, lambda _: os.kill(os.getpid(), ending), monkeypatch)
    with handled(ending, signal.SIG_DFL), pytest.raises(SystemExit) as ended:
        main(asked(server, "run", "--output", str(output)))
    assert ended.value.code == 128 + ending
    assert [*tmp_path.iterdir()] == [output]
    assert output.read_text() == "older"


def test_a_hangup_that_is_ignored_stays_so(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `nohup`, which was asked for."""
    output = tmp_path / "run.csv"
    at_page(2, lambda _: os.kill(os.getpid(), signal.SIGHUP), monkeypatch)
    with handled(signal.SIGHUP, signal.SIG_IGN):
        assert main(asked(server, "run", "--output", str(output))) == 0
    assert output.read_bytes().count(b"\n") == 1 + ITERATIONS


@contextmanager
def handled(number: signal.Signals, how: signal.Handlers) -> Iterator[None]:
    """Treat a signal in a way, whatever the tests were started with, and see that it stays so."""
    before = signal.signal(number, how)
    try:
        yield
        assert signal.getsignal(number) is how
    finally:
        signal.signal(number, before)


def test_a_file_that_cannot_take_its_name_is_gone(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder of that name was made meanwhile."""
    output = tmp_path / "run.csv"
    at_page(2, lambda _: output.mkdir(), monkeypatch)
    assert main(asked(server, "run", "--output", str(output))) == 2
    assert "run.csv cannot be written: Is a directory" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [output]


def at_page(number: int, happens: Callable[[Api], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let something happen before a page of the iterations is read."""
    real, calls = Api.get, itertools.count()

    def get(self: Api, path: str, shape: type, query: Any = None) -> Any:
        if next(calls) == number:  # the first call is for the totals
            happens(self)
        return real(self, path, shape, query)

    monkeypatch.setattr(Api, "get", get)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_failure_half_way_leaves_nothing_and_what_was_there(
    server: Server, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aggregator is gone before the second page; the older file stays as it was."""
    output = tmp_path / f"run.{form}"
    output.write_text("older")

    def vanish(api: Api) -> None:
        api.url = "http://127.0.0.1:1"

    at_page(2, vanish, monkeypatch)
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
