"""Writes what is built, each file where it belongs: `python -m rankfold_deploy`."""

from __future__ import annotations

from rankfold_deploy.built import built

if __name__ == "__main__":
    for path, content in built().items():
        path.write_text(content, encoding="utf-8")
