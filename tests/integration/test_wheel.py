"""The built wheel: each extra brings what it needs and nothing of the other's."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built as a release would be."""
    folder = tmp_path_factory.mktemp("dist")
    command = [
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def resolved(wheel: Path, extra: str) -> set[str]:
    """Return the distributions that pip would install for an extra."""
    command = [
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
        *("--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt")),
        *("--report", "-", f"rankfold[{extra}] @ {wheel.as_uri()}"),
    ]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = (item["metadata"]["name"] for item in json.loads(report)["install"])
    return {name.lower().replace("_", "-") for name in names}


def environment(wheel: Path, names: set[str], folder: Path) -> Path:
    """Return a folder that holds the wheel's files and those distributions, nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for name in names - {"rankfold"}:
        found = distribution(name)
        for top in {Path(file).parts[0] for file in found.files or () if ".." not in str(file)}:
            target = folder / top
            if not target.exists():
                target.symlink_to(Path(str(found.locate_file(top))))
    return folder


def imported(folder: Path, code: str) -> str:
    """Run code where only that folder and the standard library can be imported."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_client_extra_brings_no_web_framework(wheel: Path, tmp_path: Path) -> None:
    """A trainer's image gets torch and no HTTP library, and the client works with it alone."""
    names = resolved(wheel, "client")
    assert "torch" in names
    assert "httpx" not in names
    assert not names & {"fastapi", "pydantic", "starlette", "uvicorn", "prometheus-client"}
    code = (
        "import warnings; warnings.filterwarnings('ignore', message='Failed to initialize NumPy')\n"
        "import torch, rankfold_client as rf\n"
        "print(rf.compare(torch.tensor([0.5, 1.0]), torch.tensor([0.5, 2.0])).count)"
    )
    folder = environment(wheel, names, tmp_path)
    assert imported(folder, code) == "1\n"
    # What comparisons are built of where there is a compiler.
    assert (folder / "rankfold_client" / "kernel.c").is_file()


def test_compare_extra_brings_what_dumps_are_read_with(wheel: Path, tmp_path: Path) -> None:
    """The program that the command runs reads each format with that extra alone."""
    names = resolved(wheel, "compare")
    assert {"torch", "numpy", "safetensors"} <= names
    code = (
        "import numpy, torch\n"
        "from safetensors.torch import save_file\n"
        "from rankfold_client.dumps.__main__ import main\n"
        f"a, b, c = ({str(tmp_path)!r} + name for name in ('/a.npz', '/b.safetensors', '/c.pt'))\n"
        "numpy.savez(a, x=numpy.zeros(3, 'f4'))\n"
        "save_file({'x': torch.zeros(3)}, b)\n"
        "torch.save({'x': torch.ones(3)}, c)\n"
        "assert main([a, b]) == main([b, c]) == 0"
    )
    said = imported(environment(wheel, names, tmp_path), code)
    assert [line["partials"]["count"] for line in map(json.loads, said.splitlines()[::2])] == [
        [0],
        [3],
    ]


def test_service_extra_brings_no_torch(wheel: Path, tmp_path: Path) -> None:
    """A service image gets the web stack, and the command starts without torch."""
    names = resolved(wheel, "service")
    assert {"fastapi", "uvicorn", "pydantic", "prometheus-client", "httpx"} <= names
    assert "torch" not in names
    code = "from rankfold_service.cli.main import main\nsys.exit(main(['rules']))"
    assert "mismatch_count" in imported(environment(wheel, names, tmp_path), code)
    code = (
        "import rankfold_service.cli.serve, rankfold_service.http.app\n"
        "from rankfold_service.store.migrate import migrations\n"
        "print([m.name for m in migrations()])"
    )
    assert "0001_initial" in imported(environment(wheel, names, tmp_path), code)


def test_core_needs_the_standard_library_alone(wheel: Path, tmp_path: Path) -> None:
    """Without an extra nothing else is installed, and the core imports."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        (metadata,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        required = archive.read(metadata).decode()
    lines = [line for line in required.splitlines() if line.startswith("Requires-Dist")]
    assert all("extra ==" in line for line in lines)
    code = "import rankfold.ledger, rankfold.gate, rankfold.reading, rankfold.answers"
    assert imported(tmp_path, code) == ""
