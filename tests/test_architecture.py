"""What the layout promises and no other tool checks."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "rankfold": ROOT / "service/rankfold",
    "rankfold_service": ROOT / "service/rankfold_service",
    "rankfold_client": ROOT / "client/rankfold_client",
}
MODULES = sorted(path for folder in PACKAGES.values() for path in folder.rglob("*.py"))
CORE = sorted(PACKAGES["rankfold"].rglob("*.py"))
MOST_LINES = 350
IMPURE = {
    *("asyncio", "concurrent", "http", "logging", "multiprocessing", "os", "pathlib", "queue"),
    *("random", "secrets", "select", "socket", "sqlite3", "subprocess", "threading", "time"),
    *("datetime", "tempfile", "urllib", "uuid"),
}


def name_of(path: Path) -> str:
    """Return a path as the test's id."""
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    """Return a module's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the top-level name of everything that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else (node.module or "").partition(".")[0]


def undocumented(node: ast.AST, inside: str = "") -> Iterator[str]:
    """Yield the public classes and functions without a docstring, methods included."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name = f"{inside}{child.name}"
        if child.name.startswith("_"):
            continue
        overload = any("overload" in ast.dump(d) for d in child.decorator_list)
        if not ast.get_docstring(child) and not overload:
            yield name
        if isinstance(child, ast.ClassDef):
            yield from undocumented(child, f"{name}.")


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_core_imports_only_the_standard_library(path: Path) -> None:
    """The core runs wherever Python does."""
    foreign = set(imported(tree_of(path))) - sys.stdlib_module_names - {"rankfold"}
    assert foreign == set()


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_core_imports_nothing_that_acts(path: Path) -> None:
    """No I/O, clock, thread, chance or logging: the core is values and functions."""
    assert set(imported(tree_of(path))) & IMPURE == set()


def test_only_the_store_on_postgresql_knows_its_driver() -> None:
    """Who keeps runs elsewhere need not install it."""
    store = PACKAGES["rankfold_service"] / "store/postgres"
    knowing = [path for path in MODULES if "psycopg" in set(imported(tree_of(path)))]
    assert [path for path in knowing if store not in path.parents] == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_public_names_have_docstrings(path: Path) -> None:
    """Every module, public class and public function says what it is."""
    tree = tree_of(path)
    assert ast.get_docstring(tree), "the module has no docstring"
    assert list(undocumented(tree)) == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_is_short_enough_to_read(path: Path) -> None:
    """No module is longer than a person reads in one go."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("package", PACKAGES)
def test_package_tells_type_checkers_that_it_is_typed(package: str) -> None:
    """Each package carries its marker (PEP 561)."""
    assert (PACKAGES[package] / "py.typed").is_file()


def test_changelog_begins_with_the_version_that_is_built() -> None:
    """The newest released heading of the changelog is the version in pyproject.toml."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[?(\d+\.\d+\.\d+[^\]\s]*)", text, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert released[:1] == [project["version"]]
