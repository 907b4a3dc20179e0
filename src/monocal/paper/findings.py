"""What the run found, written by the run from its own numbers.

Each finding is a function of the plan and the results; one that has nothing to say (its cells were not run) is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cells import Cell
from .columns import METHODS, SIZE_CURVES
from .curves import constant_from
from .formats import number
from .plan import Plan
from .running import Results
from .tables import mean_and_spread

_PUBLISHED = ("mcct_published", "mcct_i_published")
_OURS = ("mcct", "conditional")


@dataclass(frozen=True)
class Finding:
    """A heading, sentences, and the figures they rest on."""

    title: str
    text: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class _Whole:
    """The finished cells on whole calibration sets, as in the tables."""

    plan: Plan
    results: Results

    def of(self, method: str) -> dict[str, list[tuple[Cell, dict[str, Any]]]]:
        """By set: cells of a method with their results."""
        found: dict[str, list[tuple[Cell, dict[str, Any]]]] = {}
        for cell in self.plan.tables:
            if cell.method == method and self.results[cell]["status"] == "done":
                found.setdefault(cell.dataset.name, []).append((cell, self.results[cell]))
        return found

    def first(self, method: str) -> dict[str, dict[str, Any]]:
        """By set: result of the first run of a method."""
        return {name: runs[0][1] for name, runs in self.of(method).items()}


def make_findings(plan: Plan, results: Results) -> list[Finding]:
    """All findings of a run."""
    whole = _Whole(plan, results)
    makers: tuple[Callable[[_Whole], Finding | None], ...] = (
        _order,
        _distance,
        _one_optimum,
        _band,
        _seeds,
        _small_sets,
        _ranks,
        _not_run,
    )
    return [finding for finding in (make(whole) for make in makers) if finding is not None]


def _percent(value: float, decimals: int = 2) -> str:
    return f"{number(100 * value, decimals)} %"


def _order(whole: _Whole) -> Finding | None:
    published = {m: whole.first(m) for m in _PUBLISHED}
    ours = {m: whole.first(m) for m in _OURS}
    names = [
        n for n in (d.name for d in whole.plan.datasets) if any(n in found for found in published.values())
    ]
    if not names:
        return None

    def share(found: dict[str, dict[str, Any]], name: str, metric: str) -> float:
        return found[name]["metrics"][metric] if name in found else float("nan")

    rows = []
    for name in names:
        row = [name]
        for found in published.values():
            row += [
                _percent(share(found, name, "rows_reordered")),
                _percent(share(found, name, "top_changed")),
            ]
        rows.append(
            (*row, *(_percent(share(found, name, "rows_reordered")) for found in ours.values() if found))
        )
    worst, at = max(
        (found[n]["metrics"]["rows_reordered"], n)
        for found in published.values()
        for n in names
        if n in found
    )
    top, top_at = max(
        (found[n]["metrics"]["top_changed"], n) for found in published.values() for n in names if n in found
    )
    touched = sum(any(share(found, n, "rows_reordered") > 0 for found in published.values()) for n in names)
    text = (
        f"The published procedure re-orders classes on {touched} of {len(names)} sets, in up to {_percent(worst)} of the "
        f"test rows ({at}). "
    )
    if top > 0:
        text += f"It changes the predicted class of up to {_percent(top)} of them ({top_at})."
    else:
        text += "The predicted class stayed."
    for method, found in ours.items():
        if found:
            rows_seen = sum(r["rows"]["test"] for r in found.values())
            swapped = sum(round(r["metrics"]["rows_reordered"] * r["rows"]["test"]) for r in found.values())
            text += f" {METHODS[method].label}: {swapped} of {rows_seen:,} rows re-ordered."
    header = ["set"]
    for m in published:
        header += [f"{METHODS[m].label}: re-ordered", "top class changed"]
    header += [f"{METHODS[m].label}: re-ordered" for m, found in ours.items() if found]
    return Finding("The published procedure does not keep the order", text, tuple(header), tuple(rows))


def _distance(whole: _Whole) -> Finding | None:
    rows, gaps = [], []
    for method in _PUBLISHED:
        for name, result in whole.first(method).items():
            fitted = result["fitted"]
            gap = fitted["stopped_nll"] - fitted["lowest_nll"]
            gaps.append((gap, name, method, fitted))
            rows.append(
                (
                    name,
                    METHODS[method].label,
                    str(fitted["iterations"]),
                    "stopped by itself" if fitted["converged"] else "iteration limit",
                    number(fitted["stopped_nll"], 6),
                    number(fitted["lowest_nll"], 6),
                    f"{gap:.1e}",
                )
            )
    if not gaps:
        return None
    gap, name, method, _ = max(gaps, key=lambda g: g[0])
    limited = sum(not fitted["converged"] for *_, fitted in gaps)
    far = sum(g > 1e-6 for g, *_ in gaps)
    text = (
        f"Of {len(gaps)} published fits, {limited} ended at the iteration limit, and {far} stopped more than 1e-6 nats "
        f"above a value that their own convex objective reaches when one goes on from there; the farthest "
        f"{gap:.1e} nats ({METHODS[method].label}, {name}). These are lower bounds of the distance to the optimum."
    )
    certified = [r for m in _OURS for r in whole.first(m).values()]
    if certified:
        violation = max(float(r["fitted"]["kkt"]) for r in certified)
        proven = sum(r["fitted"]["converged"] for r in certified)
        text += (
            f" monocal's own fits carry a certificate: {proven} of {len(certified)} converged, largest violation of "
            f"the optimality conditions {violation:.1e}."
        )
    header = ("set", "method", "iterations", "ended by", "NLL where it stopped", "NLL going on", "difference")
    return Finding("How far from the optimum the published procedure stopped", text, header, tuple(rows))


def _one_optimum(whole: _Whole) -> Finding | None:
    one, other = (whole.first(m) for m in _PUBLISHED)
    names = [n for n in one if n in other]
    if not names:
        return None
    rows, stopped, lowest, ece = [], [], [], []
    for name in names:
        a, b = one[name]["fitted"], other[name]["fitted"]
        stopped.append(abs(a["stopped_nll"] - b["stopped_nll"]))
        lowest.append(abs(a["lowest_nll"] - b["lowest_nll"]))
        ece.append(100 * abs(one[name]["metrics"]["ece"] - other[name]["metrics"]["ece"]))
        rows.append((name, f"{stopped[-1]:.1e}", f"{lowest[-1]:.1e}", number(ece[-1], 3)))
    widest = int(np.argmax(ece))
    text = (
        f"MCCT and MCCT-I are one family (v = 1/w) with one optimum. As published their NLL differs by up to "
        f"{max(stopped):.1e} nats and their ECE by up to {ece[widest]:.3f} points ({names[widest]}): they differ in where the "
        f"optimiser stopped. Going on from either, the two values agree within {max(lowest):.1e} nats on every set."
    )
    header = ("set", "NLL difference as published", "NLL difference going on", "ECE difference, points")
    return Finding("MCCT and MCCT-I share one optimum", text, header, tuple(rows))


def _band(whole: _Whole) -> Finding | None:
    rows, counted = [], []
    for method in whole.plan.methods:
        runs = [r for group in whole.of(method).values() for _, r in group]
        if not runs:
            continue
        inside = sum(r["metrics"]["ece"] <= r["metrics"]["ece_band"] for r in runs)
        ece = 100 * float(np.mean([r["metrics"]["ece"] for r in runs]))
        floor = 100 * float(np.mean([r["metrics"]["ece_floor"] for r in runs]))
        counted.append((inside / len(runs), method))
        rows.append((METHODS[method].label, f"{inside} of {len(runs)}", number(ece), number(floor)))
    if not rows:
        return None
    best = max(share for share, _ in counted)
    leaders = ", ".join(METHODS[m].label for share, m in counted if share == best)
    text = (
        "On a finite test set even perfectly calibrated probabilities have an ECE above zero. A run is within the band of "
        "perfect calibration when its ECE is no larger than what 97.5 % of outcomes drawn from its own confidences show. "
        + (f"Most often there: {leaders} ({_percent(best, 0)} of runs)." if best > 0 else "No run is there.")
    )
    header = ("method", "runs within the band", "mean ECE, %", "mean ECE if calibrated, %")
    return Finding("How often a method is within the band of perfect calibration", text, header, tuple(rows))


def _seeds(whole: _Whole) -> Finding | None:
    rows = []
    for method in whole.plan.methods:
        if not METHODS[method].random:
            continue
        for name, group in whole.of(method).items():
            values = [100 * r["metrics"]["ece"] for _, r in group]
            if len(values) > 1:
                mean, spread = mean_and_spread(values)
                shown = map(number, (mean, spread, min(values), max(values)))
                rows.append((spread, (METHODS[method].label, name, *shown)))
    if not rows:
        return None
    spread, worst = max(rows)
    fixed = ", ".join(
        METHODS[m].label for m in whole.plan.methods if not METHODS[m].random and m != "uncalibrated"
    )
    text = (
        f"The seed moves the ECE of {worst[0]} on {worst[1]} by {spread:.2f} points (standard deviation), the most seen. "
        f"{fixed} do not use one."
    )
    header = ("method", "set", "mean ECE, %", "standard deviation", "lowest", "highest")
    return Finding("What depends on the seed", text, header, tuple(row for _, row in rows))


def _small_sets(whole: _Whole) -> Finding | None:
    cells = [c for c in whole.plan.sizes if c.n_cal is not None and c.method in SIZE_CURVES]
    if not cells:
        return None
    least = {d: min(c.n_cal or 0 for c in cells if c.dataset == d) for d in {c.dataset for c in cells}}
    methods = [m for m in whole.plan.methods if m in SIZE_CURVES]
    rows, wins, against = [], 0, 0
    for dataset in dict.fromkeys(c.dataset for c in cells):
        found: dict[str, float] = {}
        for method in methods:
            values = [
                whole.results[c]["metrics"]["nll"]
                for c in cells
                if c.dataset == dataset and c.method == method and c.n_cal == least[dataset]
                and whole.results[c]["status"] == "done"
            ]  # fmt: skip
            found[method] = mean_and_spread(values)[0]
        if {"mcct", "mcct_published"} <= set(found):
            against += 1
            wins += found["mcct"] < found["mcct_published"]
        rows.append((dataset.name, str(least[dataset]), *(number(found[m], 4) for m in methods)))
    text = "Test NLL with the smallest calibration sets tried."
    if against:
        text += (
            f" Shrinkage makes MCCT better than the published procedure there on {wins} of {against} sets."
        )
    header = ("set", "samples", *(METHODS[m].label for m in methods))
    return Finding("Very small calibration sets", text, header, tuple(rows))


def _ranks(whole: _Whole) -> Finding | None:
    rows = []
    for method in ("mcct_published", "mcct_i_published", "mcct"):
        for name, result in whole.first(method).items():
            fitted = result["fitted"]
            w, b = np.array(fitted["weights"]), np.array(fitted["biases"])
            rows.append(
                (
                    name,
                    METHODS[method].label,
                    str(len(w)),
                    str(constant_from(w, b)),
                    number(w[-1], 3),
                    number(w[0], 3),
                )
            )
    if not rows:
        return None
    text = "Weights and biases stop changing at some rank, below which the logits carry nothing more for calibration."
    most = max((r for r in rows if r[1] == METHODS["mcct"].label), key=lambda r: int(r[2]), default=None)
    if most is not None:
        text += f" With the most classes ({most[0]}) that is rank {most[3]} of {most[2]} for {most[1]}."
    header = ("set", "method", "ranks", "constant from rank", "w at the top", "w at the bottom")
    return Finding("Where the parameters become constant", text, header, tuple(rows))


def _not_run(whole: _Whole) -> Finding | None:
    plan, rows = whole.plan, []
    for method in plan.methods:
        capped = {
            (c.dataset.name, c.top_k) for c in plan.tables if c.method == method and c.top_k is not None
        }
        for name, k in sorted(capped):
            rows.append((METHODS[method].label, name, f"in the tables: the top {k} ranks only, for time"))
        over_sizes = {
            (c.dataset.name, c.top_k) for c in plan.sizes if c.method == method and c.top_k is not None
        }
        for name, k in sorted(over_sizes):
            rows.append(
                (METHODS[method].label, name, f"in the curves over sizes: the top {k} ranks only, for time")
            )
        run = {c.dataset for c in plan.tables if c.method == method}
        for d in plan.datasets:
            if d not in run:
                rows.append((METHODS[method].label, d.name, "not run: a parameter for every pair of classes"))
    for cell in plan.cells:
        result = whole.results[cell]
        if result["status"] != "done":
            size = "" if cell.n_cal is None else f" with {cell.n_cal} samples"
            rows.append(
                (METHODS[cell.method].label, cell.dataset.name, f"failed{size}: {result['message'][:300]}")
            )
    if not rows:
        return None
    text = "Everything else in the tables ran as described, to its own end."
    return Finding(
        "What was capped, left out or failed", text, ("method", "set", "what"), tuple(dict.fromkeys(rows))
    )
