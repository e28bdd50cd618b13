"""The pure core of Rankfold: values and functions, standard library only, no I/O."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rankfold")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
