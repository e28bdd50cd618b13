"""What is read from a dump, what is paired with what, and what is refused, with what to do."""

from __future__ import annotations

import io
import json
import pickle
import resource
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from safetensors.torch import save_file
from torch import Tensor

import rankfold_client as rf
from rankfold.names import name_fault
from rankfold.partial import Partial
from rankfold_client.dumps import npz_file
from rankfold_client.dumps.__main__ import main
from rankfold_client.dumps.comparing import run_name
from rankfold_client.dumps.entries import Dump, DumpError, Index, Kind
from rankfold_client.dumps.npz_file import MOST_IN_MEMORY
from rankfold_client.dumps.opening import load, open_dump
from unit.client import comparing

A = torch.tensor([[-0.1, -2.5, -0.7], [-1.0, -2.0, -3.0]])
B = torch.tensor([[-0.1, -2.5, -0.8], [-1.0, -2.0, -3.5]])
MASK = torch.tensor([[1, 1, 0], [1, 1, 1]])


class Thing:
    """What no dump may hold: an object."""


def write_npz(path: Path, tensors: dict[str, Tensor]) -> Path:
    """Write arrays, unaligned as NumPy does."""
    np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})
    return path


def write_safetensors(path: Path, tensors: dict[str, Tensor]) -> Path:
    """Write tensors as trainers do."""
    save_file(tensors, path)
    return path


def write_pt(path: Path, value: Any) -> Path:
    """Write anything that torch.save takes."""
    torch.save(value, path)
    return path


def write_compressed(path: Path, tensors: dict[str, Tensor]) -> Path:
    """Write arrays as NumPy compresses them."""
    np.savez_compressed(path, **{name: tensor.numpy() for name, tensor in tensors.items()})
    return path


WRITERS: dict[str, Callable[[Path, dict[str, Tensor]], Path]] = {
    ".npz": write_npz,
    ".safetensors": write_safetensors,
    ".pt": write_pt,
}


class Run:
    """What the program did: its exit code, report and series, and what it said."""

    def __init__(self, capfd: pytest.CaptureFixture[str], *arguments: object) -> None:
        self.code = main([*map(str, arguments)])
        out, self.said = capfd.readouterr()
        report, series = (json.loads(line) for line in out.splitlines()) if out else (None, None)
        self.report, self.series = report, series

    def column(self, name: str) -> list[Any]:
        """Return one of the columns of the partials."""
        found: list[Any] = self.report["partials"][name]
        return found


def figures(partial: Partial) -> dict[str, Any]:
    """Return what a report says of a partial."""
    names = ("valid", "count", "max", "sum", "nonfinite", "sum_sq", "ulp_max", "total")
    return {name: getattr(partial, name) for name in names}


def reported(run: Run, place: int = 0) -> dict[str, Any]:
    """Return the same of what was reported."""
    return {name: run.column(name)[place] for name in figures(rf.compare(A, B))}


@pytest.mark.parametrize("left", WRITERS)
@pytest.mark.parametrize("right", WRITERS)
def test_dumps_of_any_two_formats_give_a_trainers_partial(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], left: str, right: str
) -> None:
    """Whatever holds the tensors, the report is the one of the tensors."""
    a = WRITERS[left](tmp_path / f"a{left}", {"lp": A, "mask": MASK})
    b = WRITERS[right](tmp_path / f"b{right}", {"lp": B})
    run = Run(capfd, a, b)
    want = rf.compare(A, B, mask=MASK)
    assert (run.code, run.series, reported(run)) == (0, ["lp"], figures(want))
    assert run.column("worst")[0]["position"] == [1, 2]
    assert run.report["commits"] == {"iteration": [0], "microbatches": [1]}
    assert run.report["run"] == f"a{left} against b{right}"
    assert run.said == (
        f"rankfold compare: only positions under 'mask' of {a} count; --no-mask counts all\n"
    )


@pytest.mark.parametrize(
    ("dtype", "suffix"),
    [
        (dtype, suffix)
        for dtype in comparing.FORMATS
        for suffix in WRITERS
        if (dtype, suffix) != (torch.bfloat16, ".npz")  # which NumPy does not have
    ],
)
def test_dumps_keep_every_dtype(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], dtype: torch.dtype, suffix: str
) -> None:
    """Both are cast as the client casts them; NaN, infinities and subnormals come through."""
    odd = torch.tensor([float("nan"), float("inf"), -0.0, 1e-7, -1.5, -2.0]).to(dtype)
    a = WRITERS[suffix](tmp_path / f"a{suffix}", {"x": odd})
    b = write_pt(tmp_path / "b.pt", {"x": odd.double() * 1.5})
    run = Run(capfd, a, b)
    assert run.code == 0
    assert reported(run) == figures(rf.compare(odd, odd.double() * 1.5))


@pytest.mark.parametrize(
    "array",
    [
        A.numpy(),
        np.asfortranarray(A.numpy().astype("f2")),
        A.numpy().astype(">f8"),
        np.float32(-1.5),
        np.empty((0, 3), "f4"),
    ],
    ids=["plain", "columns first", "foreign bytes", "scalar", "empty"],
)
def test_an_npy_is_one_tensor(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], array: np.ndarray[Any, Any]
) -> None:
    """It is called as its file is, and compared where it lies."""
    np.save(tmp_path / "rollout.log_probs.npy", array)
    tensor = torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))
    b = write_pt(tmp_path / "b.pt", {"x": tensor.reshape(array.shape)})
    run = Run(capfd, tmp_path / "rollout.log_probs.npy", b)
    assert (run.code, run.series) == (0, ["rollout.log_probs"])
    assert (run.column("valid"), run.column("count")) == ([array.size], [0])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is no .npy or is damaged: "),
        (b"\x93NUMPY\x09\x00" + bytes(100), "has the unusual version (9, 0)"),
        (lambda whole: whole[:-1], "is no .npy or is damaged: it does not hold what its header"),
        (lambda whole: whole + b"x", "is no .npy or is damaged: it does not hold what its header"),
        (np.array([object()]), "pickled Python objects, which are not read"),
        (np.zeros(2, "c8"), "complex numbers"),
    ],
)
def test_a_damaged_npy_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: Any, reason: str
) -> None:
    """What is cut off, longer than it says, or no array of numbers."""
    good, bad = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(good, A.numpy())
    if isinstance(content, np.ndarray):
        np.save(bad, content, allow_pickle=True)
    else:
        bad.write_bytes(content if isinstance(content, bytes) else content(good.read_bytes()))
    run = Run(capfd, good, bad)
    assert (run.code, run.report) == (2, None)
    assert reason in run.said


def test_other_dtypes_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Once for each series: what was only rounded looks like another number."""
    half = A.bfloat16()
    a = write_pt(tmp_path / "a.pt", {"x": [A, A], "y": [A, half]})
    b = write_pt(tmp_path / "b.pt", {"x": [half, half], "y": [A, half]})
    run = Run(capfd, a, b)
    assert run.column("count") == [2, 2, 0, 0]
    assert run.said == (
        "rankfold compare: 'x' is float32 in A and bfloat16 in B: values that one of them was "
        "rounded to differ from those that were not\n"
    )


@given(comparing.inputs())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_dumps_agree_with_the_oracle(
    tmp_path: Path, drawn: tuple[torch.dtype, torch.dtype, list[int], list[int], list[int]]
) -> None:
    """From file to partial nothing is lost: the figures are those of whole numbers."""
    first, second, a, b, mask = drawn
    left = write_pt(tmp_path / "a.pt", comparing.tensor(a, first))
    right = write_safetensors(
        tmp_path / "b.safetensors",
        {"x": comparing.tensor(b, second), "mask": torch.tensor(mask, dtype=torch.bool)},
    )
    dumps = [open_dump(path) for path in (left, right)]
    x, y, m = (
        load(dumps[place], dumps[place].series[name][Index()])
        for place, name in ((0, "tensor"), (1, "x"), (1, "mask"))
    )
    comparing.check(first, second, a, b, mask, rf.compare(x, y, mask=m))


def test_lists_are_microbatches_and_lists_of_lists_iterations(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A list of dicts and a dict of lists are the same."""
    a = write_pt(tmp_path / "a.pt", [{"x": A, "mask": MASK}, {"x": A, "mask": MASK}])
    b = write_pt(tmp_path / "b.pt", {"x": [A, B]})
    run = Run(capfd, a, b)
    assert run.column("microbatch") == [0, 1]
    assert run.column("count") == [0, 1]
    a = write_pt(tmp_path / "a.pt", {"deep": {"x": [[A, A], [A]]}})
    b = write_pt(tmp_path / "b.pt", ([A, B], [A]))
    run = Run(capfd, a, b)
    assert run.series == ["deep/x"]
    places = list(zip(run.column("iteration"), run.column("microbatch"), strict=True))
    assert places == [(0, 0), (0, 1), (1, 0)]
    assert run.report["commits"] == {"iteration": [0, 1], "microbatches": [2, 1]}
    assert "'deep/x' of" in run.said


def test_jagged_tensors_and_those_of_any_dimensions(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the client compares can be dumped."""
    nested = [
        torch.nested.nested_tensor([torch.zeros(2), row], layout=torch.jagged)
        for row in (torch.zeros(3), torch.tensor([0.0, 0.0, 1.0]))
    ]
    a, b = (write_pt(tmp_path / f"{i}.pt", tensor) for i, tensor in enumerate(nested))
    run = Run(capfd, a, b)
    assert (run.column("valid"), run.column("worst")[0]["position"]) == ([5], [1, 2])
    for shape in ((), (0,), (3,), (2, 3, 4)):
        a = write_safetensors(tmp_path / "a.safetensors", {"x": torch.zeros(shape)})
        b = write_npz(tmp_path / "b.npz", {"x": torch.zeros(shape)})
        assert reported(Run(capfd, a, b)) == figures(rf.compare(*[torch.zeros(shape)] * 2))


def test_a_mask_in_both_files_must_agree(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody guesses whose counts; of any two dtypes the same positions may be meant."""
    a = write_pt(tmp_path / "a.pt", {"x": A, "mask": MASK})
    b = write_pt(tmp_path / "b.pt", {"x": B, "mask": MASK.bool()})
    assert Run(capfd, a, b).column("valid") == [5]
    write_pt(b, {"x": B, "mask": torch.ones(2, 3)})
    run = Run(capfd, a, b)
    assert run.code == 2
    assert "its masks differ at 1 positions: say with --mask-file which file's counts" in run.said
    assert Run(capfd, a, b, "--mask-file", b).column("valid") == [6]
    assert Run(capfd, a, b, "--no-mask").column("valid") == [6]
    write_pt(b, {"x": B, "mask": torch.ones(6)})
    assert "its masks differ in shape" in Run(capfd, a, b).said
    jagged = [
        torch.nested.nested_tensor([torch.ones(n), torch.ones(5 - n)], layout=torch.jagged)
        for n in (2, 3)
    ]
    write_pt(a, {"x": jagged[0], "mask": jagged[0]})
    write_pt(b, {"x": jagged[0], "mask": jagged[1]})
    assert "its masks differ in the rows' lengths" in Run(capfd, a, b).said


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint16, torch.uint8])
def test_the_worst_token_has_its_id(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], dtype: torch.dtype
) -> None:
    """Of either file, whatever integers; where both have ids, they are of the same tokens."""
    ids = torch.tensor([[7, 8, 9], [10, 11, 12]])
    a = write_pt(tmp_path / "a.pt", {"x": A, "ids": ids.to(dtype), "more": MASK})
    b = write_pt(tmp_path / "b.pt", {"x": B})
    run = Run(capfd, a, b, "--token-ids", "ids")
    assert run.column("worst")[0]["token_id"] == 12
    assert run.said == f"rankfold compare: left out of {a}: 'more' (int64)\n"
    write_pt(b, {"x": B, "ids": ids})
    assert Run(capfd, b, a, "--token-ids", "ids").column("worst")[0]["token_id"] == 12
    write_pt(b, {"x": B, "ids": ids + MASK})
    run = Run(capfd, a, b, "--token-ids", "ids")
    assert (run.code, run.report) == (2, None)
    assert (
        "'x': its token ids differ at 5 positions: these are not the same tokens; with" in run.said
    )
    write_pt(a, {"x": [A, A], "ids": [ids]})
    write_pt(b, {"x": [A, A], "ids": [ids]})
    assert "'ids' has none for 'x' of iteration 0, microbatch 1" in (
        Run(capfd, a, b, "--token-ids", "ids").said
    )


def test_a_tensor_is_never_compared_with_itself(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """That would pass and say nothing."""
    both = write_pt(tmp_path / "both.pt", {"a": A, "b": B})
    for options in ([], ["--a-key", "a"], ["--series", "b"]):
        run = Run(capfd, both, both, *options)
        assert (run.code, run.report) == (2, None)
        assert "would be compared with itself: name another file, or two of its" in run.said


def test_a_tensor_without_a_name_is_not_one_whose_name_is_empty(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They stand apart in one file, and are called by what they are."""
    a = write_pt(tmp_path / "a.pt", [{"": A, "tensor": A}])
    assert list(open_dump(a).series) == ["", "tensor"]
    assert f"'tensor' of {a} is compared with '' of {a}" in (
        Run(capfd, a, a, "--a-key", "tensor", "--b-key", "").said
    )


def test_one_file_may_hold_both_and_a_third_the_mask(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As dumps of the demo do; a file that holds one thing holds the mask."""
    both = write_pt(tmp_path / "both.pt", {"a": A, "b": B, "ids": MASK})
    mask = write_npz(tmp_path / "third.npz", {"which": MASK})
    run = Run(capfd, both, both, "--a-key", "a", "--b-key", "b", "--mask-file", mask)
    assert (run.series, run.column("count"), run.column("valid")) == (["a"], [1], [5])
    assert "'a' of" in run.said
    assert "left out" not in run.said  # it was said what is meant


def test_what_only_one_file_has_is_judged_and_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is a series without a partial, or a microbatch less than was committed."""
    a = write_pt(tmp_path / "a.pt", {"x": A, "y": A, "ids": MASK, "name": "n"})
    b = write_pt(tmp_path / "b.pt", {"x": A, "z": A})
    run = Run(capfd, a, b)
    assert (run.series, run.column("series")) == (["x", "y", "z"], ["x"])
    assert f"only in {a}: 'y'" in run.said
    assert f"only in {b}: 'z'" in run.said
    assert f"left out of {a}: 'ids' (int64), 'name' (str)" in run.said
    only = Run(capfd, a, b, "--series", "x")
    assert (only.series, only.said) == (["x"], "")
    a = write_pt(tmp_path / "a.pt", {"x": [A, A]})
    b = write_pt(tmp_path / "b.pt", {"x": [A]})
    run = Run(capfd, a, b)
    assert run.report["commits"] == {"iteration": [0], "microbatches": [2]}
    assert f"only in {a}: 'x' of iteration 0, microbatch 1" in run.said


@pytest.mark.parametrize(
    ("a", "b", "options", "complaint"),
    [
        ({"x": A}, {"x": A[0]}, [], "'x': b (3,) and a (2, 3) differ in shape (a is in "),
        ({"x": A}, {"x": MASK}, [], "no float tensor to compare: "),
        ({"x": A}, {"x": MASK}, ["--series", "x"], "'x' cannot be compared: it is int64"),
        ({"x": A, "y": A}, {"v": A, "w": A}, [], "no name is in both, so name what belongs"),
        ({"x": A, "y": A}, {"v": A}, ["--b-key", "v"], "Name it with --a-key: "),
        ({"x": A}, {"x": A}, ["--a-key", "z"], "no tensor 'z': "),
        ({"x": A}, {"x": A}, ["--series", "z"], "no tensor 'z': "),
        ({"x": A}, {"x": A}, ["--mask", "z"], "no mask 'z': "),
        (
            dict.fromkeys(map(str, range(2001)), A),
            {"0": A},
            [],
            "2001 names are more than the 2000",
        ),
        ({"x": A, "mask": MASK}, {"x": A, "loss_mask": MASK}, [], "which mask is meant? Name it"),
        ({"x": A, "mask": MASK[0]}, {"x": A}, [], "mask (3,) and a (2, 3) differ in shape"),
        ({"x": A, "mask": MASK * 2}, {"x": A}, [], "mask must hold only 0 and 1, not 2"),
        ({"x": A.to(torch.float8_e5m2)}, {"x": A}, [], "float8_e5m2, which is no float of 16"),
        ({"x": A.to(torch.complex64)}, {"x": A}, [], "complex64, which is no float of 16"),
        ({"x": A.to_sparse()}, {"x": A}, [], "a must be a dense tensor"),
        ({"x": [-0.1, -0.2]}, {"x": A}, [], "a list of Python numbers; save a tensor of them"),
        ({"x": [[[A]]]}, {"x": A}, [], "lists in lists of lists; use one level, or two"),
        ({"x": [[[A], [A]]]}, {"x": A}, [], "lists in lists of lists; use one level, or two"),
        ({"x": [A, A], "y": A}, {"x": [A, A], "y": A}, [], "are in lists of different lengths"),
        ({"x": [A, A], "m_mask": [MASK]}, {"x": [A, A]}, [], "has none for 'x' of iteration 0, mi"),
        ({"x/y": A, "x": {"y": A}}, {"x": A}, [], "two things in it are called 'x/y'"),
        ({"a\nb": A}, {"": A}, [], "the tensor's name 'a\\nb' must not contain control"),
        ({"a\x1b[2J\nb": A}, {"v": MASK}, [], "no float tensor to compare: "),
        ({"": A}, {"x": A}, [], "the tensor's name '' must have 1 to 200 characters, not 0"),
        ({"x": A, "ids": MASK}, {"x": A}, ["--token-ids", "z"], "no token ids 'z': "),
        ({"x": A, "ids": MASK[0]}, {"x": A}, ["--token-ids", "ids"], "token_ids (3,) and a (2, 3)"),
        ({"x": A, "y": A}, {"x": A}, ["--token-ids", "y"], "token_ids must be integers, not torch"),
        ({"x": A, "ids": "s"}, {"x": A}, ["--token-ids", "ids"], "str cannot be compared"),
        (
            {"x": Thing()},
            {"x": A},
            [],
            "unit.client.test_dumps.Thing) other than",
        ),
        ({"x": np.zeros(3)}, {"x": A}, [], "reading objects would run code that the file names"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_what_to_do(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    a: object,
    b: object,
    options: list[str],
    complaint: str,
) -> None:
    """Exit 2 and one line; nothing is compared by guessing, and nothing harms a terminal."""
    left, right = write_pt(tmp_path / "a.pt", a), write_pt(tmp_path / "b.pt", b)
    run = Run(capfd, left, right, *options)
    assert (run.code, run.report) == (2, None)
    assert complaint in run.said.splitlines()[-1]
    assert "\x1b" not in run.said


def npz_of(path: Path, members: dict[str, bytes]) -> Path:
    """Write a zip of these members."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def npy(array: Any, **how: Any) -> bytes:
    """Return an array in NumPy's own format."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), **how)
    return file.getvalue()


HUGE = (
    b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999,), }".ljust(117)
    + b"\n"
)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (npy([Thing()], allow_pickle=True), "pickled Python objects, which are not read; save arr"),
        (npy(np.zeros(2, "V2")), "bytes without a type, as NumPy writes bfloat16; save float32"),
        (npy(np.zeros(2, "c8")), "complex numbers"),
        (npy(np.zeros(2, np.longdouble)), "floats of more than 64 bits; save float64"),
        (npy(np.zeros(2, "f4"), version=(3, 0)), "has the unusual version (3, 0) of the format"),
        (npy(np.zeros(2, "f4")) + b"x", "holds more than its header says"),
        (npy(np.zeros(2, "f4"))[:-1], "is no .npz or is damaged: "),
        (HUGE, "it takes more memory than there is"),
        (b"\x93NUMP", "is no .npz or is damaged: "),
    ],
)
def test_hostile_arrays_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes, complaint: str
) -> None:
    """No array is unpickled, and none takes what is not there."""
    a = npz_of(tmp_path / "a.npz", {"x.npy": content, "read.me": b"no array"})
    b = npz_of(tmp_path / "b.npz", {"x.npy": npy(np.zeros(2, "f4"))})
    run = Run(capfd, a, b)
    assert (run.code, run.report) == (2, None)
    assert complaint in run.said


@pytest.mark.parametrize("content", [npy(np.zeros(2)) + b"x", npy(np.zeros(2))[:-1], HUGE])
def test_a_large_array_has_the_size_that_its_header_says(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
) -> None:
    """What is unpacked into a file is neither cut nor filled up with zeros."""
    monkeypatch.setattr(npz_file, "MOST_IN_MEMORY", 0)
    a = npz_of(tmp_path / "a.npz", {"x.npy": content})
    run = Run(capfd, a, write_pt(tmp_path / "b.pt", torch.zeros(2)))
    assert (run.code, run.report) == (2, None)
    assert "'x.npy' does not hold what its header says" in run.said


@pytest.mark.parametrize("most", [0, MOST_IN_MEMORY])
def test_arrays_of_another_machine_and_order(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Big-endian numbers and columns before rows are the same values, in memory and in a file."""
    monkeypatch.setattr(npz_file, "MOST_IN_MEMORY", most)
    big = npz_of(tmp_path / "a.npz", {"x.npy": npy(np.asfortranarray(A.numpy().astype(">f4")))})
    assert reported(Run(capfd, big, write_pt(tmp_path / "b.pt", B))) == figures(rf.compare(A, B))


@pytest.mark.parametrize("suffix", WRITERS)
def test_damaged_files_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], suffix: str
) -> None:
    """Cut anywhere, foreign, empty, a folder or not there: one line, and never a verdict."""
    whole = WRITERS[suffix](tmp_path / f"a{suffix}", {"x": torch.randn(50, 7)})
    content = whole.read_bytes()
    cuts = [content[: len(content) * part // 10] for part in range(10)]
    for damaged in (*cuts, b"\x00" * 100, b"PK\x03\x04" + b"\xff" * 60, pickle.dumps(Thing())):
        path = tmp_path / f"b{suffix}"
        path.write_bytes(damaged)
        run = Run(capfd, whole, path)
        assert (run.code, run.report, run.said.count("\n")) == (2, None, 1), run.said
        assert str(path) in run.said
    (tmp_path / f"folder{suffix}").mkdir()
    for name, complaint in (("folder", "it is no file"), ("none", "No such file or directory")):
        assert complaint in Run(capfd, whole, tmp_path / f"{name}{suffix}").said
    assert "give a file whose name ends in .npz, .saf" in Run(capfd, whole, tmp_path / "b.txt").said


@pytest.mark.parametrize("by", [-50, 50])
def test_an_npz_whose_directory_lies_is_damaged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], by: int
) -> None:
    """Where it sends a reader to before the file's beginning the system's error is not all."""
    whole = WRITERS[".npz"](tmp_path / "a.npz", {"x": torch.randn(50, 7)})
    content = bytearray(whole.read_bytes())
    place = content.rindex(b"PK\x05\x06") + 16
    start = int.from_bytes(content[place : place + 4], "little")
    content[place : place + 4] = (start + by).to_bytes(4, "little")
    path = tmp_path / "b.npz"
    path.write_bytes(content)
    run = Run(capfd, whole, path)
    assert run.code == 2
    assert f"{path} is no .npz or is damaged: " in run.said


@pytest.mark.parametrize("most", [0, MOST_IN_MEMORY])
def test_a_flipped_bit_of_an_npz_is_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Its checksums are looked at; the other formats have none."""
    monkeypatch.setattr(npz_file, "MOST_IN_MEMORY", most)
    path = write_npz(tmp_path / "a.npz", {"x": A})
    content = bytearray(path.read_bytes())
    content[content.index(struct.pack("<f", -2.5))] ^= 1
    path.write_bytes(content)
    assert "Bad CRC-32" in Run(capfd, path, write_pt(tmp_path / "b.pt", A)).said


def test_old_and_unaligned_files_are_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What other writers leave between two numbers' places is copied to where it may be."""
    old = tmp_path / "a.pt"
    torch.save({"x": A}, old, _use_new_zipfile_serialization=False)
    header = json.dumps({"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    header += b" " * (3 - len(header) % 4)
    odd = tmp_path / "b.safetensors"
    odd.write_bytes(struct.pack("<Q", len(header)) + header + B.numpy().tobytes())
    dump = open_dump(odd)
    assert load(dump, dump.series["x"][Index()]).data_ptr() % 4 == 0
    assert reported(Run(capfd, old, odd)) == figures(rf.compare(A, B))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ".npz", "-compressed.npz"])
def test_mapped_dumps_take_no_memory(tmp_path: Path, suffix: str) -> None:
    """What is read stays the file's, so that it may be larger than memory."""

    def anonymous() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

    write = WRITERS.get(suffix, write_compressed)
    path = write(tmp_path / f"a{suffix}", {"x": torch.zeros(64, 1 << 17)})
    before = anonymous()
    dump = open_dump(path)
    tensor = load(dump, dump.series["x"][Index()])
    assert rf.compare(tensor, tensor).total == 64 << 17
    assert anonymous() - before < tensor.nbytes / 4


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_a_file_that_torch_may_not_map_is_refused_with_what_to_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A limit on address space stands for a machine whose memory is smaller than the file."""
    path = write_pt(tmp_path / "a.pt", torch.zeros(1 << 26))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 27), before[1]))
    try:
        run = Run(capfd, path, path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert (run.code, run.report) == (2, None)
    assert run.said == (
        f"rankfold compare: {path}: its {path.stat().st_size} bytes are more than the system lets "
        "torch map (Cannot allocate memory): save .safetensors, or set vm.overcommit_memory to 1\n"
    )


def test_a_mask_of_another_file_takes_no_name_from_these(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A lone tensor has one name in every file."""
    a, b = (write_pt(tmp_path / f"{name}.pt", value) for name, value in (("a", A), ("b", B)))
    mask = write_pt(tmp_path / "mask.pt", MASK)
    run = Run(capfd, a, b, "--mask-file", mask)
    assert (run.series, run.column("valid"), run.said) == (["tensor"], [5], "")


def test_safetensors_of_other_dtypes_are_told_apart(tmp_path: Path) -> None:
    """Integers are no log-probs; short floats are refused if they are meant."""
    path = write_safetensors(
        tmp_path / "a.safetensors",
        {"i": MASK, "b": MASK.bool(), "f8": A.to(torch.float8_e4m3fn), "h": A.half()},
    )
    kinds = {name: entries[Index()].kind for name, entries in open_dump(path).series.items()}
    assert kinds == {"i": Kind.OTHER, "b": Kind.OTHER, "f8": Kind.REFUSED, "h": Kind.FLOAT}


def test_endless_structures_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that holds itself, and more tensors than anybody dumps."""
    endless: list[object] = [A]
    endless.append(endless)
    path = write_pt(tmp_path / "a.pt", endless)
    assert "nested too deep" in Run(capfd, path, path).said
    monkeypatch.setattr("rankfold_client.dumps.entries.MOST", 3)
    path = write_pt(tmp_path / "a.pt", [A] * 5)
    assert "it holds more than 3 tensors" in Run(capfd, path, path).said


def test_names_of_runs_can_be_reported() -> None:
    """Whatever files are called."""
    long, odd = Path("x" * 250 + ".pt"), Path("a\x1b\udc80.pt")
    name = run_name(Dump(long), Dump(odd))
    assert name_fault(name, in_path=True) is None
    assert name.endswith("x.pt against a\ufffd\ufffd.pt")


def test_progress_is_for_terminals(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pair is shown while it is compared, and nothing stays of it."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    paths = [write_pt(tmp_path / f"{name}.pt", {"x": A, "y": B}) for name in "ab"]
    clear = "\r\x1b[K"
    assert Run(capfd, *paths).said == (
        f"{clear}comparing 1 of 2: x{clear}comparing 2 of 2: y{clear}"
    )


def test_an_interrupt_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the code that shells give it."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    paths = [str(write_pt(tmp_path / f"{name}.pt", {"x": A})) for name in "ab"]
    monkeypatch.setattr("rankfold_client.dumps.__main__.report", interrupted)
    assert main(paths) == 130


def test_an_entry_that_is_no_tensor_is_never_loaded(tmp_path: Path) -> None:
    """Whoever asks for it is told."""
    dump = open_dump(write_pt(tmp_path / "a.pt", {"x": "words"}))
    with pytest.raises(DumpError, match=r"a\.pt: str cannot be compared"):
        load(dump, dump.series["x"][Index()])
