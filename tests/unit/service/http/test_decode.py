"""Bytes become a report in either form, or a refusal that names every fault."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rankfold.errors import Inconsistent, MalformedBody, TooLarge
from rankfold.partial import MAX_COUNT, MAX_INDEX, PartialColumns, Worst
from rankfold.rules import Rule, RuleSet
from rankfold.wire import Commit, Report, ScalarColumns
from rankfold_service.http.decode import MAX_FAULTS, decode_finish, decode_report
from unit.service.http.serving import CASES

RULES = RuleSet.parse('[scalars]\n"known/*" = "max"\n')

PARTIAL = {
    "series": "s",
    "iteration": 3,
    "microbatch": 1,
    "count": 1,
    "max": 0.5,
    "sum": 0.5,
    "valid": 8,
}
SCALAR = {"key": "k", "iteration": 3, "microbatch": 0, "value": 1.5, "rule": "sum"}
WORST = {"position": [1, 2], "a": "NaN", "b": -1, "ulp": 0}


def decode(document: Any) -> Report:
    """Decode a document that is given as a value, or as text where a value cannot say it."""
    text = document if isinstance(document, str) else json.dumps(document)
    return decode_report(text.encode("utf-8", "surrogatepass"), RULES)


def refused(document: Any) -> dict[str, str]:
    """Return the faults of a document by pointer."""
    with pytest.raises(Inconsistent) as caught:
        decode(document)
    return dict(caught.value.errors)


def with_partial(**members: Any) -> dict[str, Any]:
    """Return a report with one partial that differs so from a good one."""
    return {"run": "r", "rank": 0, "partials": [{**PARTIAL, **members}]}


def without(row: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a row that lacks a member."""
    return {key: value for key, value in row.items() if key != name}


def columnar(rows: list[dict[str, Any]], defaults: dict[str, Any]) -> dict[str, list[Any]]:
    """Return rows as columns; what a row leaves out is its default."""
    names = {name: None for row in rows for name in row}
    return {name: [row.get(name, defaults.get(name)) for row in rows] for name in names}


def test_decode_takes_every_member() -> None:
    """What may be sent arrives, as the core's own columns."""
    full = {**PARTIAL, "nonfinite": 0, "sum_sq": 0.25, "ulp_max": 7, "total": 9}
    worst = {**WORST, "token_id": 5, "sample": "a"}
    document = {
        "project": "p",
        "run": "r",
        "attempt": 2,
        "rank": 3,
        "world_size": 4,
        "meta": {"dtype": "bf16"},
        "dropped": 6,
        "partials": [{**full, "worst": worst}],
        "scalars": [{**SCALAR, "weight": 2, "global": True}],
        "commits": [{"iteration": 3, "microbatches": 2}],
    }
    got = decode(document)
    worst_value = got.partials.worst[0] if got.partials.worst else None
    assert worst_value is not None
    assert repr(worst_value) == repr(Worst((1, 2), float("nan"), -1.0, 0, 5, "a"))
    got.partials.worst = None
    assert got == Report(
        run="r",
        rank=3,
        project="p",
        attempt=2,
        world_size=4,
        partials=PartialColumns(
            ["s"], [3], [1], [1], [8], [0], [0.5], [0.5], [0.25], [7], [9], None
        ),
        scalars=ScalarColumns(["k"], [3], [0], [1.5], [2], [Rule.SUM], [True]),
        commits=[Commit(3, 2)],
        meta={"dtype": "bf16"},
        dropped=6,
    )


def test_decode_fills_in_what_is_left_out() -> None:
    """A report of a run and a rank alone is a report."""
    assert decode({"run": "r", "rank": 0}) == Report(run="r", rank=0)


def test_decode_takes_integers_for_floats() -> None:
    """A number that has no fraction may be written without one, and comes out as a double."""
    got = decode(with_partial(max=2, sum=2, sum_sq=4)).partials
    assert [type(x) for x in (got.max[0], got.sum[0], (got.sum_sq or [None])[0])] == [float] * 3


def test_decode_has_one_zero() -> None:
    """A negative zero is stored as zero: folds compare bits."""
    scalar = {"run": "r", "rank": 0, "scalars": [{**SCALAR, "value": -0.0}]}
    assert str(decode(scalar).scalars.value) == "[0.0]"


def test_decode_takes_the_rule_of_the_rules_file() -> None:
    """A scalar that is sent without a rule, or with null, has the one for its key."""
    rows = [without({**SCALAR, "key": "known/a"}, "rule"), {**SCALAR, "key": "known/b"}]
    assert decode({"run": "r", "rank": 0, "scalars": rows}).scalars.rule == [Rule.MAX, Rule.SUM]
    columns = columnar(rows, {})
    assert decode({"run": "r", "rank": 0, "scalars": columns}).scalars.rule[0] is Rule.MAX


def test_decode_takes_the_last_of_two_members_of_one_name() -> None:
    """Where a name stands twice in an object, the last value counts."""
    assert decode('{"run":"a","rank":1,"run":"b"}') == Report(run="b", rank=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_decode_refuses_the_cases(case: dict[str, Any]) -> None:
    """The contract's cases are told apart by kind, without HTTP."""
    body = case["body"].encode()
    match case["status"]:
        case 400:
            with pytest.raises(MalformedBody):
                decode_report(body, RuleSet())
        case 422:
            with pytest.raises(Inconsistent):
                decode_report(body, RuleSet())
        case _:
            assert len(decode_report(body, RuleSet())) == 1


MALFORMED = {
    "empty": "",
    "bare infinity": '{"run":"r","rank":0,"x":Infinity}',
    "bare negative infinity": '{"run":"r","rank":0,"x":-Infinity}',
    "bare nan in a column": '{"run":"r","rank":0,"partials":{"max":[NaN]}}',
    "trailing comma": '{"run":"r","rank":0,}',
    "two documents": "{} {}",
    "control character in a string": '{"run":"a\nb","rank":0}',
    "nested in a known member": '{"run":' + "[" * 300 + "]" * 300 + "}",
    "nested objects": '{"a":' * 5000 + "1" + "}" * 5000,
    "nested beside a surrogate": '{"run":"\\ud800","x":' + "[" * 300 + "]" * 300 + "}",
    "byte order mark": '\ufeff{"run":"r","rank":0}',
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_decode_refuses_what_is_not_json(text: str) -> None:
    """What is not JSON, or nested too deep, is malformed."""
    with pytest.raises(MalformedBody):
        decode(text)


@pytest.mark.parametrize("body", [b'{"run":"\xff"}', b'{"run":"\xed\xa0\x80","rank":0}', b"\x00"])
def test_decode_refuses_what_is_not_utf8(body: bytes) -> None:
    """A body is UTF-8; no other encoding is guessed."""
    with pytest.raises(MalformedBody):
        decode_report(body, RULES)


HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "no run": ({"rank": 0}, "/run"),
    "no rank": ({"run": "r"}, "/rank"),
    "rank is a bool": ({"run": "r", "rank": True}, "/rank"),
    "rank is a string": ({"run": "r", "rank": "0"}, "/rank"),
    "rank is a float": ({"run": "r", "rank": 0.0}, "/rank"),
    "rank is null": ({"run": "r", "rank": None}, "/rank"),
    "rank is negative": ({"run": "r", "rank": -1}, "/rank"),
    "rank is too large": ({"run": "r", "rank": MAX_INDEX + 1}, "/rank"),
    "attempt is too large": ({"run": "r", "rank": 0, "attempt": 2**31}, "/attempt"),
    "world size of none": ({"run": "r", "rank": 0, "world_size": 0}, "/world_size"),
    "dropped below 0": ({"run": "r", "rank": 0, "dropped": -1}, "/dropped"),
    "run is a number": ({"run": 1, "rank": 0}, "/run"),
    "run is empty": ({"run": "", "rank": 0}, "/run"),
    "run is too long": ({"run": "r" * 201, "rank": 0}, "/run"),
    "run has a slash": ({"run": "a/b", "rank": 0}, "/run"),
    "project is a dot": ({"project": ".", "run": "r", "rank": 0}, "/project"),
    "project has a surrogate": ({"project": "\udfff", "run": "r", "rank": 0}, "/project"),
    "unknown member with a slash": ({"run": "r", "rank": 0, "a/b~": 1}, "/a~1b~0"),
    "meta is a list": ({"run": "r", "rank": 0, "meta": []}, "/meta"),
    "meta has a number": ({"run": "r", "rank": 0, "meta": {"a": 1}}, "/meta/a"),
    "meta is too long": ({"run": "r", "rank": 0, "meta": {"a": "x" * 501}}, "/meta/a"),
    "meta has a line": ({"run": "r", "rank": 0, "meta": {"a": "x\ny"}}, "/meta/a"),
    "meta has a surrogate": ({"run": "r", "rank": 0, "meta": {"a": "\ud800"}}, "/meta/a"),
    "meta has a bad name": ({"run": "r", "rank": 0, "meta": {"\x7f": "x"}}, "/meta/\x7f"),
    "meta has no name": ({"run": "r", "rank": 0, "meta": {"": "x"}}, "/meta/"),
    "meta has too many": (
        {"run": "r", "rank": 0, "meta": {str(i): "" for i in range(65)}},
        "/meta",
    ),
    "partials is a string": ({"run": "r", "rank": 0, "partials": "x"}, "/partials"),
    "partials is null": ({"run": "r", "rank": 0, "partials": None}, "/partials"),
    "a partial is a list": ({"run": "r", "rank": 0, "partials": [[]]}, "/partials/0"),
    "commit without a number": (
        {"run": "r", "rank": 0, "commits": [{"iteration": 0}]},
        "/commits/0/microbatches",
    ),
}


@pytest.mark.parametrize(("document", "pointer"), HEADERS.values(), ids=HEADERS)
def test_decode_points_at_a_fault_of_the_report(document: dict[str, Any], pointer: str) -> None:
    """Whatever is wrong outside of the rows is named by its pointer, and nothing else is."""
    assert list(refused(document)) == [pointer]


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"run": "\ud800"}, "/run"),
        ({"\ud800": 0}, ""),
        ({"meta": {"\ud800": "a"}}, "/meta"),
        ({"partials": [{**PARTIAL, "series": "\ud800"}]}, "/partials/0/series"),
        (
            {"partials": [{**PARTIAL, "worst": {**WORST, "sample": "\ud800"}}]},
            "/partials/0/worst/sample",
        ),
        ({"scalars": [{**SCALAR, "key": "\ud800"}]}, "/scalars/0/key"),
        ({"scalars": [{**SCALAR, "rule": "\ud800"}]}, "/scalars/0/rule"),
    ],
)
def test_decode_takes_no_lone_surrogate(members: dict[str, Any], pointer: str) -> None:
    """They are JSON and no text: wherever one stands, the report is refused."""
    assert list(refused({"run": "r", "rank": 0, **members})) == [pointer]


PARTIALS: dict[str, tuple[dict[str, Any], str]] = {
    "count below 0": ({"count": -1}, "count"),
    "count over 2^53-1": ({"count": MAX_COUNT + 1, "valid": MAX_COUNT}, "count"),
    "count over valid": ({"count": 9}, "count"),
    "nonfinite over count": ({"nonfinite": 2}, "nonfinite"),
    "nonfinite null": ({"nonfinite": None}, "nonfinite"),
    "max null": ({"max": None}, "max"),
    "max without finite": ({"count": 8, "nonfinite": 8, "sum": 0}, "max"),
    "sum without finite": ({"count": 8, "nonfinite": 8, "max": None}, "sum"),
    "squares without finite": (
        {"count": 8, "nonfinite": 8, "max": None, "sum": 0, "sum_sq": 0.5},
        "sum_sq",
    ),
    "max below 0": ({"max": -0.5}, "max"),
    "max not finite": ({"max": "Infinity"}, "max"),
    "max where nothing differs": ({"count": 0, "sum": 0}, "max"),
    "sum where nothing differs": ({"count": 0, "max": 0}, "sum"),
    "sum below 0": ({"sum": -1e-300}, "sum"),
    "sum is a word": ({"sum": "NaN"}, "sum"),
    "sum as a huge integer": ({"sum": 10**400}, "sum"),
    "sum of squares below 0": ({"sum_sq": -1}, "sum_sq"),
    "squares where nothing differs": ({"count": 0, "max": 0, "sum": 0, "sum_sq": 1}, "sum_sq"),
    "ulp is a float": ({"ulp_max": 1.0}, "ulp_max"),
    "total below valid": ({"total": 7}, "total"),
    "series has a line": ({"series": "a\n"}, "series"),
    "series is a number": ({"series": 7}, "series"),
    "iteration is huge": ({"iteration": 10**20}, "iteration"),
    "microbatch too large": ({"microbatch": MAX_INDEX + 1}, "microbatch"),
    "unknown member": ({"extra": 1}, "extra"),
    "worst is a list": ({"worst": []}, "worst"),
}


@pytest.mark.parametrize(("members", "name"), PARTIALS.values(), ids=PARTIALS)
def test_decode_points_at_a_fault_of_a_partial(members: dict[str, Any], name: str) -> None:
    """A fault of one partial among good ones is named in the form in which it was sent."""
    good = {**PARTIAL, **{key: None for key in members if key in ("sum_sq", "total", "ulp_max")}}
    rows = [good, {**PARTIAL, **members}]
    assert list(refused({"run": "r", "rank": 0, "partials": rows})) == [f"/partials/1/{name}"]
    columns = columnar(rows, {"nonfinite": 0})
    place = f"/partials/{name}" if name == "extra" else f"/partials/{name}/1"
    assert list(refused({"run": "r", "rank": 0, "partials": columns})) == [place]


@pytest.mark.parametrize("name", PARTIAL)
def test_decode_misses_what_a_partial_must_have(name: str) -> None:
    """Each required member is missed, in both forms."""
    row = without(PARTIAL, name)
    assert refused({"run": "r", "rank": 0, "partials": [row]}) == {
        f"/partials/0/{name}": "Field required"
    }
    columns = {key: [value] for key, value in row.items()}
    assert refused({"run": "r", "rank": 0, "partials": columns}) == {
        f"/partials/{name}": "Field required"
    }


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"position": [1]}, "/position"),
        ({"position": [1, -1]}, "/position/1"),
        ({"position": {"0": 1, "1": 2}}, "/position"),
        ({"a": "nan"}, "/a"),
        ({"b": None}, "/b"),
        ({"b": 10**400}, "/b"),
        ({"ulp": -1}, "/ulp"),
        ({"token_id": "7"}, "/token_id"),
        ({"sample": "a\tb"}, "/sample"),
        ({"sample": 5}, "/sample"),
        ({"why": 1}, "/why"),
    ],
)
def test_decode_points_into_the_worst_token(members: dict[str, Any], place: str) -> None:
    """A fault inside of `worst` is named there."""
    worst = {**WORST, **members}
    assert list(refused(with_partial(worst=worst))) == [f"/partials/0/worst{place}"]
    columns = columnar([{**PARTIAL, "worst": worst}], {})
    document = {"run": "r", "rank": 0, "partials": columns}
    assert list(refused(document)) == [f"/partials/worst/0{place}"]


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ({"value": "nan"}, "value"),
        ({"value": None}, "value"),
        ({"value": []}, "value"),
        ({"value": {}}, "value"),
        ({"value": True}, "value"),
        ({"value": -(10**309)}, "value"),
        ({"weight": -1}, "weight"),
        ({"weight": 0.5}, "weight"),
        ({"rule": "std"}, "rule"),
        ({"rule": "median"}, "rule"),
        ({"rule": None}, "rule"),
        ({"global": 1}, "global"),
        ({"key": ""}, "key"),
        ({"series": "s"}, "series"),
    ],
)
def test_decode_points_at_a_fault_of_a_scalar(members: dict[str, Any], name: str) -> None:
    """A fault of a scalar is named."""
    document = {"run": "r", "rank": 0, "scalars": [{**SCALAR, **members}]}
    assert list(refused(document)) == [f"/scalars/0/{name}"]


def test_decode_points_at_no_column_that_was_not_sent() -> None:
    """A rule that is missing is missed where it was left out: once for a whole column."""
    rows = [{**SCALAR, "key": key} for key in ("known/a", "b", "c")]
    columns = columnar(rows, {})
    missing = "is missing, and the rules file has none for 'b'"
    document: dict[str, Any] = {"run": "r", "rank": 0, "scalars": without(columns, "rule")}
    assert refused(document) == {"/scalars/rule": missing}
    document["scalars"] = {**columns, "rule": [None, None, "sum"]}
    assert refused(document) == {"/scalars/rule/1": missing}
    document["scalars"] = [without(row, "rule") for row in rows[:2]]
    assert refused(document) == {"/scalars/1/rule": missing}


def test_decode_names_columns_of_other_lengths() -> None:
    """Columns are of one length; the short one is named."""
    columns = {name: [value] * (1 if name == "max" else 2) for name, value in PARTIAL.items()}
    assert refused({"run": "r", "rank": 0, "partials": columns}) == {
        "/partials/max": "has 1 items where the longest column has 2"
    }
    assert refused({"run": "r", "rank": 0, "partials": {**columns, "max": 1}}) == {
        "/partials/max": "Input should be a valid list"
    }


def test_decode_names_every_fault_up_to_a_limit() -> None:
    """A person sees all that is wrong at once, and a bad client gets no endless answer."""
    document = {
        "run": "",
        "rank": 4,
        "world_size": 4,
        "partials": [{**PARTIAL, "count": 9}, {**PARTIAL, "max": None}],
        "scalars": [without(SCALAR, "rule")],
    }
    assert set(refused(document)) == {
        "/run",
        "/rank",
        "/partials/0/count",
        "/partials/1/max",
        "/scalars/0/rule",
    }
    many = {"run": "r", "rank": 0, "partials": [{**PARTIAL, "count": 9}] * 1000}
    with pytest.raises(Inconsistent) as caught:
        decode(many)
    assert len(caught.value.errors) == MAX_FAULTS


def test_decode_of_wrong_shapes_names_the_first_of_a_list() -> None:
    """All that is wrong with the first wrong row is named; a million rows cost no million."""
    wrong = [PARTIAL, {**PARTIAL, "count": "1", "valid": True}, {}]
    document = {"run": "r", "rank": 0, "partials": wrong, "commits": [{}], "x": 1}
    assert set(refused(document)) == {
        "/partials/1/count",
        "/partials/1/valid",
        "/commits/0/iteration",
        "/commits/0/microbatches",
        "/x",
    }


@pytest.mark.parametrize("text", ["1" * 401, "1" * 5000, "-" + "9" * 9999, "1e400", "-1e999"])
def test_decode_refuses_numbers_beyond_a_double(text: str) -> None:
    """However a number is written, one that a double cannot hold is named, not rounded."""
    for name in ("sum", "max", "count"):
        body = json.dumps(with_partial(**{name: 12345})).replace("12345", text)
        assert f"/partials/0/{name}" in refused(body)


def test_decode_refuses_long_lists() -> None:
    """Lists are bounded in both forms."""
    for partials in ([PARTIAL] * 3, {name: [value] * 3 for name, value in PARTIAL.items()}):
        body = json.dumps({"run": "r", "rank": 0, "partials": partials}).encode()
        with pytest.raises(TooLarge):
            decode_report(body, RULES, max_items=2)


@pytest.mark.parametrize("text", ["[]", "null", "1", '"run"'])
def test_decode_refuses_other_values(text: str) -> None:
    """A report is an object."""
    assert refused(text) == {"": "Input should be a valid dictionary"}


def test_decode_finish_takes_an_attempt() -> None:
    """The body of `finish` is an object with an attempt, and nothing else."""
    assert decode_finish(b'{"attempt": 3}') == 3
    for body, pointer in ((b"{}", "/attempt"), (b"[]", ""), (b'{"attempt":0,"x":1}', "/x")):
        with pytest.raises(Inconsistent) as caught:
            decode_finish(body)
        assert [fault.pointer for fault in caught.value.errors] == [pointer]
