from __future__ import annotations

import time
from pathlib import Path

import pytest

from rankfold.errors import FieldError, Inconsistent, RankfoldError, Unauthenticated, Unreachable
from rankfold.partial import Partial
from rankfold_client.items import FINISH, Item, partial_item
from rankfold_client.origin import Origin
from rankfold_client.spool.__main__ import main
from rankfold_client.spool.flush import flush
from rankfold_client.spool.names import rank_key
from rankfold_client.spool.records import to_record
from rankfold_client.spool.segment import Segment
from unit.client.fakes import FakeTransport, microbatches


def leave(folder: Path, rank: int, *items: Item) -> Segment:
    """Leave what a process of a rank would have left, still locked."""
    header = {"project": "p", "run": "r", "attempt": 0, "rank": rank}
    segment = Segment.create(folder, rank_key(header), Origin(header))
    for item in items:
        segment.append(to_record(item))
    return segment


def partial(microbatch: int) -> partial_item:
    """Return a partial that can be told from others."""
    return partial_item("s", 0, microbatch, Partial(1, 0, 0.0, 0.0))


def run(folder: Path, transport: FakeTransport, patience: float = 60.0) -> tuple[int, list[str]]:
    """Flush; return the exit code and what was said."""
    said: list[str] = []
    return flush(folder, transport, patience, said.append, time.monotonic), said


def test_flush_delivers_what_every_dead_rank_left(tmp_path: Path) -> None:
    """All runs and ranks are delivered, finishes after their reports, and the files go."""
    leave(tmp_path, 0, partial(0), FINISH).close()
    leave(tmp_path, 1, partial(1), partial(2)).close()
    living = leave(tmp_path, 2, partial(3))
    transport = FakeTransport()
    code, said = run(tmp_path, transport)
    assert (code, said[-1]) == (0, "delivered 4, refused 0, left 0")
    assert "1 of its files belong to processes that live, which deliver them" in said
    assert sorted(microbatches(transport.accepted)) == [(0, 0), (0, 1), (0, 2)]
    assert transport.finished == [("p", "r", 0)]
    assert list(tmp_path.iterdir()) == [living.path]
    living.close()


def test_flush_keeps_what_it_cannot_deliver(tmp_path: Path) -> None:
    """With nobody to deliver to it ends with 4 and everything stays."""
    leave(tmp_path, 0, partial(0), partial(1)).close()
    code, said = run(tmp_path, FakeTransport(judge=lambda _: Unreachable("nobody")), 0.0)
    assert (code, said[-2]) == (4, "delivered 0, refused 0, left 2")
    assert said[-1] == f"what is left stays in {tmp_path}: nobody"
    assert run(tmp_path, FakeTransport())[1] == ["delivered 2, refused 0, left 0"]


def test_flush_says_what_changes_and_no_line_twice(tmp_path: Path) -> None:
    """While nothing gets through there is nothing new to say, and no progress before the end."""
    leave(tmp_path, 0, partial(0), partial(1)).close()
    code, said = run(tmp_path, FakeTransport(judge=lambda _: Unreachable("nobody")), 2.5)
    assert (code, said) == (
        4,
        [
            "delivered 0, refused 0, at least 2 wait",
            "delivered 0, refused 0, left 2",
            f"what is left stays in {tmp_path}: nobody",
        ],
    )
    code, said = run(tmp_path, FakeTransport(judge=lambda _: Unauthenticated("no token")))
    assert said[0] == "delivered 0, refused 0, left 2"


def test_flush_stops_at_a_wrong_token(tmp_path: Path) -> None:
    """A token that can be mended costs nothing of what was kept."""
    leave(tmp_path, 0, partial(0)).close()
    code, said = run(tmp_path, FakeTransport(judge=lambda _: Unauthenticated("no token")))
    assert (code, said[-2]) == (2, "delivered 0, refused 0, left 1")
    assert run(tmp_path, FakeTransport())[0] == 0


def test_flush_gives_up_what_is_wrong_and_tells(tmp_path: Path) -> None:
    """Of several items the one that can never be taken is refused, counted and told."""

    def judge(body: dict[str, dict[str, list[int]]]) -> RankfoldError | None:
        bad = 1 in body.get("partials", {}).get("microbatch", [])
        return Inconsistent([FieldError("/partials", "x")]) if bad else None

    leave(tmp_path, 0, partial(0), partial(1), partial(2)).close()
    transport = FakeTransport(judge=judge)
    code, said = run(tmp_path, transport)
    assert (code, said[-1]) == (1, "delivered 2, refused 1, left 0")
    assert transport.accepted[-1]["dropped"] == 1
    assert list(tmp_path.iterdir()) == []


def test_flush_names_what_it_cannot_read(tmp_path: Path) -> None:
    """A file that is no segment is left, named, and the exit code is not 0."""
    foreign = tmp_path / "x.spool"
    foreign.write_text("?")
    code, said = run(tmp_path, FakeTransport())
    assert code == 1
    assert f"{foreign} cannot be read and is left as it is" in said


def test_flush_command_needs_a_directory_and_an_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage is one line and exit 2; an empty spool is no error."""
    assert main(["flush", str(tmp_path / "none")]) == 2
    assert main(["flush", str(tmp_path), "--url", "nonsense"]) == 2
    for timeout in ("nan", "-1"):
        assert main(["flush", str(tmp_path), f"--timeout={timeout}"]) == 2
    assert capsys.readouterr().err.count("rankfold spool: ") == 4
    assert main(["flush", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        f"there is no spool in {tmp_path}, or nothing is left in it\n"
        "delivered 0, refused 0, left 0\n"
    )


def test_flush_finishes_no_run_of_which_it_lost_a_report(tmp_path: Path) -> None:
    """A finish that waits behind what is refused is refused too."""

    def judge(body: dict[str, dict[str, list[int]]]) -> RankfoldError | None:
        return Inconsistent([FieldError("/partials", "x")]) if "partials" in body else None

    leave(tmp_path, 0, partial(0), FINISH).close()
    transport = FakeTransport(judge=judge)
    code, said = run(tmp_path, transport)
    assert (code, said[-1]) == (1, "delivered 0, refused 2, left 0")
    assert transport.finished == []
