"""Opens dumps by what their names end in; whatever is wrong with a file becomes one error."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

from rankfold_client.dumps.entries import Dump, DumpError, Entry

_HERE = "rankfold_client.dumps"
READERS = {
    ".npz": f"{_HERE}.npz_file",
    ".safetensors": f"{_HERE}.safetensors_file",
    ".pt": f"{_HERE}.torch_file",
    ".pth": f"{_HERE}.torch_file",
    ".npy": f"{_HERE}.npy_file",
}


def open_dump(path: Path) -> Dump:
    """Return what a file holds; tensors are read later.

    Raises:
        DumpError: it cannot be read.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DumpError(f"{path}: give a file whose name ends in {', '.join(READERS)}")
    with _reading(path):
        path.stat()
        if not path.is_file():
            raise DumpError("it is no file")
        return import_module(reader).read(path)  # type: ignore[no-any-return]


def load(dump: Dump, entry: Entry) -> Tensor:
    """Return an entry's tensor, whose memory is as its dtype needs it.

    Raises:
        DumpError: it cannot be read.
    """
    with _reading(dump.path):
        tensor = entry.load()
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        # Where a file holds it is where it is mapped, which may be between two numbers' places.
        return tensor.clone() if plain and tensor.data_ptr() % tensor.element_size() else tensor


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with a file into one error that names it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries, about how a file was written
            yield
    except DumpError as error:
        raise DumpError(f"{path}: {error}") from error
    except (ModuleNotFoundError, MemoryError):
        raise
    except Exception as error:  # what a damaged file makes of a reader has no bounds
        raise _fault(path, error) from error


def _fault(path: Path, error: Exception) -> DumpError:
    """Return what is wrong with a file: the system cannot read it, or it is not what it should be.

    An archive whose directory lies sends its reader to before the file's beginning, which the
    system calls an invalid argument.
    """
    if isinstance(error, OSError) and error.errno != errno.EINVAL:
        return DumpError(f"{path}: {error.strerror or error}")
    kind = path.suffix.lower()
    why = next(iter(str(error).splitlines()), "") or type(error).__name__
    return DumpError(f"{path} is no {kind} or is damaged: {why}; write it anew")
