"""What the run shows, in sentences written from its own numbers. A finding whose trials were not run is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .figures import constant_from
from .methods import BY_RANK, METHODS
from .plan import Plan
from .tables import number

PUBLISHED, OURS = ("mcct_published", "mcct_i_published"), ("mcct", "conditional")


@dataclass(frozen=True)
class Finding:
    """A heading, sentences, and the figures they rest on."""

    title: str
    text: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def make_findings(plan: Plan, trials: pd.DataFrame) -> list[Finding]:
    """All findings of a run."""
    done = trials[trials.message == ""]
    whole = done[done.file.isin([t.file_name for t in plan.tables])]
    findings = [_band(whole), _ranks(whole), _not_run(plan, trials)]
    if len(_of(whole, PUBLISHED)):
        findings = [_order(whole), _distance(whole), _one_optimum(whole), *findings]
    return [finding for finding in findings if finding.rows]


def _percent(value: float) -> str:
    return f"{number(100 * value)} %"


def _of(trials: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    return trials[trials.method.isin(methods)]


def _order(whole: pd.DataFrame) -> Finding:
    published, ours = _of(whole, PUBLISHED), _of(whole, OURS)
    worst, top = (published.loc[published[m].idxmax()] for m in ("rows_reordered", "top_changed"))
    sets = published.groupby("set").rows_reordered.max()
    text = (
        f"The published procedure re-orders classes on {(sets > 0).sum()} of {len(sets)} sets, in up to "
        f"{_percent(worst.rows_reordered)} of the test rows ({worst.set}). "
    )
    changed = f"It changes the top class of up to {_percent(top.top_changed)} of them ({top.set})."
    text += changed if top.top_changed > 0 else "The top class stayed."
    for label, group in ours.groupby("label", sort=False):
        swapped = int((group.rows_reordered * group.n_test).round().sum())
        text += f" {label}: {swapped} of {group.n_test.sum():,} rows re-ordered."
    rows = [
        (t.set, t.label, _percent(t.rows_reordered), _percent(t.top_changed))
        for t in _of(whole, PUBLISHED + OURS).itertuples()
    ]
    header = ("set", "method", "rows re-ordered", "top class changed")
    return Finding("The published procedure does not keep the order", text, header, rows)


def _distance(whole: pd.DataFrame) -> Finding:
    published, ours = _of(whole, PUBLISHED), _of(whole, OURS)
    gap = published.fitted.map(lambda f: f["stopped_nll"] - f["lowest_nll"])
    limited = published.fitted.map(lambda f: not f["converged"])
    farthest = published.loc[gap.idxmax()]
    text = (
        f"Of {len(gap)} published fits, {limited.sum()} ended at the iteration limit, and {(gap > 1e-6).sum()} stopped more "
        "than 1e-6 nats above a value that their own convex objective reaches when the optimisation continues from there; the "
        f"farthest {gap.max():.1e} nats ({farthest.label}, {farthest.set}). These are lower bounds of the distance to the "
        "optimum."
    )
    if len(ours):
        text += (
            f" monocal's own fits carry a certificate: {sum(f['converged'] for f in ours.fitted)} of {len(ours)} converged, "
            f"largest violation of the optimality conditions {max(f['kkt'] for f in ours.fitted):.1e}."
        )
    rows = []
    for t in published.itertuples():
        ended = "iteration limit" if limited[t.Index] else "its own criterion"
        values = (number(t.fitted[name], 6) for name in ("stopped_nll", "lowest_nll"))
        steps, apart = str(t.fitted["iterations"]), f"{gap[t.Index]:.1e}"
        rows.append((t.set, t.label, steps, ended, *values, apart))
    header = ("set", "method", "iterations", "ended by", "NLL", "NLL continued", "difference")
    return Finding("How far from the optimum the published procedure stopped", text, header, rows)


def _one_optimum(whole: pd.DataFrame) -> Finding:
    title = "MCCT and MCCT-I share one optimum"
    header = ("set", "NLL apart as published", "NLL apart continued", "ECE apart, points")
    one, other = (_of(whole, [m]).drop_duplicates("set").set_index("set") for m in PUBLISHED)
    names = [name for name in one.index if name in other.index]
    if not names:
        return Finding(title, "", header, [])

    def apart(what: str) -> np.ndarray:
        return np.array([abs(one.fitted[n][what] - other.fitted[n][what]) for n in names])

    stopped, lowest = apart("stopped_nll"), apart("lowest_nll")
    ece = 100 * np.abs(one.ece[names].to_numpy() - other.ece[names].to_numpy())
    text = (
        f"MCCT and MCCT-I are one family (v = 1/w) with one optimum. As published their NLL differs by up to {stopped.max():.1e} "
        f"nats and their ECE by up to {ece.max():.3f} points ({names[int(ece.argmax())]}): they differ in where the optimiser "
        f"stopped. Continued from either, the two values agree within {lowest.max():.1e} nats on every set."
    )
    numbers = zip(names, stopped, lowest, ece, strict=True)
    rows = [(name, f"{a:.1e}", f"{b:.1e}", number(c, 3)) for name, a, b, c in numbers]
    return Finding(title, text, header, rows)


def _band(whole: pd.DataFrame) -> Finding:
    by_label = whole.assign(inside=whole.ece <= whole.ece_band).groupby("label", sort=False)
    inside, runs = by_label.inside.sum(), by_label.size()
    mean = 100 * by_label[["ece", "ece_floor"]].mean()
    share = inside / runs
    text = (
        "On a finite test set even perfectly calibrated probabilities have an ECE above zero. A run is within the band of "
        "perfect calibration when its ECE is no larger than what 97.5 % of outcomes drawn from its own confidences show. "
    )
    if share.max() > 0:
        leaders = ", ".join(share.index[share == share.max()])
        text += f"Most often there: {leaders} ({100 * share.max():.0f} % of runs)."
    else:
        text += "No run is there."
    rows = [
        (str(label), f"{inside[label]} of {runs[label]}", number(ece), number(floor))
        for label, ece, floor in mean.itertuples()
    ]
    header = ("method", "runs within the band", "mean ECE, %", "mean ECE if calibrated, %")
    return Finding("How often a method is as if perfectly calibrated", text, header, rows)


def _ranks(whole: pd.DataFrame) -> Finding:
    rows = []
    for t in _of(whole, BY_RANK).itertuples():
        w, constant = t.fitted["weights"], constant_from(t.fitted["weights"], t.fitted["biases"])
        rows.append((t.set, t.label, str(len(w)), str(constant), number(w[-1], 3), number(w[0], 3)))
    text = "Weights and biases stop changing at some rank, below which the logits carry nothing more for calibration."
    ours = [row for row in rows if row[1] == METHODS["mcct"].label]
    if ours:
        most = max(ours, key=lambda row: int(row[2]))
        text += f" With the most classes ({most[0]}): rank {most[3]} of {most[2]} for {most[1]}."
    header = ("set", "method", "ranks", "constant from rank", "w at the top", "w at the bottom")
    return Finding("Where the parameters become constant", text, header, rows)


def _not_run(plan: Plan, trials: pd.DataFrame) -> Finding:
    rows = []
    for part, where in ((plan.tables, "in the tables"), (plan.sizes, "in the curves over sizes")):
        capped = [t for t in part if t.top_k is not None]
        for m, name, k in dict.fromkeys((t.method, t.dataset.name, t.top_k) for t in capped):
            rows.append((METHODS[m].label, name, f"{where}: the top {k} ranks only, for time"))
    run = {(t.method, t.dataset) for t in plan.tables}
    for m in plan.methods:
        left_out = [d.name for d in plan.datasets if (m, d) not in run]
        why = "not run: a parameter for every pair of classes"
        rows += [(METHODS[m].label, name, why) for name in left_out]
    for t in trials[trials.message != ""].itertuples():
        rows.append((t.label, t.set, f"failed with {t.n_cal} samples: {t.message[:300]}"))
    text = "Everything else in the tables ran as described, to its own end."
    return Finding("What was capped, left out or failed", text, ("method", "set", "what"), rows)
