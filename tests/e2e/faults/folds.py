"""The oracle's folds: exact fractions, rounded once, from the contract and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from .plan import PartialStep, ScalarStep

KEPT_WORST = 16


def keys(partials: list[PartialStep], scalars: list[ScalarStep]) -> dict[str, dict[str, Any]]:
    """Return every key that these fold into, as `totals` answers it."""
    found: dict[str, dict[str, Any]] = {}
    for series in sorted({p.series for p in partials}):
        found |= _series_keys(series, [p for p in partials if p.series == series])
    for key in sorted({s.key for s in scalars}):
        found[key] = _scalar_key([s for s in scalars if s.key == key])
    return found


def series_figures(partials: list[PartialStep]) -> dict[str, Any]:
    """Return what the partials of one series add up to, as `gate` answers it."""
    valid = sum(p.valid for p in partials)
    nonfinite = sum(p.nonfinite for p in partials)
    return {
        "mismatch_count": sum(p.count for p in partials),
        "nonfinite_count": nonfinite,
        "valid_count": valid,
        "diff_max": max((p.max for p in partials if p.max is not None), default=None),
        "diff_mean": _quotient(_exact(p.sum for p in partials), valid - nonfinite),
    }


def _series_keys(series: str, partials: list[PartialStep]) -> dict[str, dict[str, Any]]:
    figures = series_figures(partials)
    largest = figures["diff_max"]
    folded = {
        "series": series,
        "count": figures["mismatch_count"],
        "valid": figures["valid_count"],
        "nonfinite": figures["nonfinite_count"],
        "sum": None if largest is None else float(_exact(p.sum for p in partials)),
        "max": largest,
    }
    values: list[tuple[str, str, Any]] = [
        ("mismatch_count", "sum", folded["count"]),
        ("diff_max", "max", largest),
        ("diff_mean", "mean", figures["diff_mean"]),
        ("valid_count", "sum", folded["valid"]),
        ("nonfinite_count", "sum", folded["nonfinite"]),
    ]
    squared = [p for p in partials if p.sum_sq is not None]
    if squared:
        values.append(("diff_std", "std", _deviation(squared)))
    distances = [p.ulp_max for p in partials if p.ulp_max is not None]
    if distances:
        values.append(("ulp_max", "max", max(distances)))
    return {f"{series}_{name}": {"value": v, "rule": r, **folded} for name, r, v in values}


def _scalar_key(scalars: list[ScalarStep]) -> dict[str, Any]:
    rule = scalars[0].rule
    finite = [(s, float(s.value)) for s in scalars if isinstance(s.value, float)]
    weight = sum(s.weight for s, _ in finite)
    weighted = sum((Fraction(v) * s.weight for s, v in finite), Fraction())
    plain = _exact(v for _, v in finite)
    value: float | None = None
    match rule:
        case "mean":
            value = _quotient(weighted, weight)
        case "sum" if finite:
            value = float(plain)
        case "max":
            value = max((v for _, v in finite), default=None)
        case "last" if finite:
            value = max((_place(s), v) for s, v in finite)[1]
        case _:
            pass
    return {
        "value": value,
        "rule": rule,
        "series": None,
        "count": len(finite),
        "valid": None,
        "nonfinite": len(scalars) - len(finite),
        "sum": float(weighted if rule == "mean" else plain) if finite else None,
        "max": max((v for _, v in finite), default=None),
        "weight": weight,
    }


def _place(scalar: ScalarStep) -> tuple[int, int, int, int]:
    rank = -1 if scalar.is_global else scalar.rank
    return (scalar.iteration, scalar.microbatch, rank, scalar.attempt)


def _exact(values: Iterable[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction())


def _quotient(total: Fraction, number: int) -> float | None:
    return float(total / number) if number else None


def _deviation(partials: list[PartialStep]) -> float | None:
    number = sum(p.valid - p.nonfinite for p in partials)
    if not number:
        return None
    mean = _exact(p.sum for p in partials) / number
    variance = _exact(p.sum_sq or 0.0 for p in partials) / number - mean**2
    if variance <= 0:
        return 0.0
    # A root of more than 200 bits, whatever the size of the variance.
    scale = 1 << (400 + max(0, variance.denominator.bit_length()))
    return float(Fraction(math.isqrt(int(variance * scale * scale)), scale))


def worst(partials: Iterable[PartialStep], kept: int = KEPT_WORST) -> list[dict[str, Any]]:
    """Return the worst tokens, largest first, as they are answered."""
    by_series: dict[str, list[tuple[tuple[Any, ...], PartialStep]]] = {}
    for partial in partials:
        if partial.worst is not None:
            _, _, a, b, ulp = partial.worst
            distance = abs(float(a) - b)
            finite = math.isfinite(distance)
            place = (partial.iteration, partial.microbatch, partial.rank, partial.attempt)
            order = (finite, -distance if finite else 0.0, -ulp, partial.series, place)
            by_series.setdefault(partial.series, []).append((order, partial))
    ordered = [pair for pairs in by_series.values() for pair in sorted(pairs)[:kept]]
    return list(_worst_answers(partial for _, partial in sorted(ordered)))


def _worst_answers(partials: Iterable[PartialStep]) -> Iterator[dict[str, Any]]:
    for partial in partials:
        assert partial.worst is not None
        row, column, a, b, ulp = partial.worst
        yield {
            "series": partial.series,
            "attempt": partial.attempt,
            "rank": partial.rank,
            "iteration": partial.iteration,
            "microbatch": partial.microbatch,
            "position": [row, column],
            "a": a,
            "b": b,
            "ulp": ulp,
        }
