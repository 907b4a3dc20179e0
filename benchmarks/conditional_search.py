"""How the defaults of ConditionalMCCT were chosen: variants compared by cross-validation on calibration data alone.

    python benchmarks/conditional_search.py [--data ../shared/logits] [--only NAME ...] [--sizes 100 300 1000]

Only the calibration part of each set is read. For each variant: NLL, ECE and top-label ECE (within each predicted class) of
five-fold held-out predictions, mean over the sets; on how many sets its NLL is below that of the first stage alone, and by how
much it is above at most; then, with ``--sizes``, fitted on a few of the calibration rows and judged on the others, the
largest excess over temperature scaling's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

import monocal as mc
from command_line import add_logits, parser_of
from monocal import data, metrics
from monocal.calibrators import adjustment, conditional
from monocal.calibrators import cone_calibrator as cone
from monocal.core import ramps
from monocal.core.point import BIAS, SCALE

MODULES = (conditional, cone, ramps, adjustment)

FOLDS, DRAWS = 5, 5


def hinges(values: np.ndarray, weight: np.ndarray, n_knots: int) -> tuple[ramps.Ramp, ...]:
    """From each knot to the largest and to the smallest value seen."""
    levels = np.linspace(0, 1, n_knots + 2)
    found = []
    for s, q in enumerate(values.T):
        knots = np.unique(np.quantile(q, levels, weights=weight, method="inverted_cdf")).tolist()
        for knot in knots[1:-1]:
            found += [ramps.Ramp(s, knot, knots[-1]), ramps.Ramp(s, knot, knots[0])]
    return tuple(found)


def atoms(*, scales: str = "whole", biases: str = "all") -> Callable[[int, int], np.ndarray]:
    """A dictionary with conditional scales of all ranks, or none, and conditional biases at all starts, at the top, or none."""

    def dictionary(n_factors: int, n_ranks: int) -> np.ndarray:
        allowed = np.ones((2, n_factors, n_ranks), dtype=bool)
        allowed[BIAS, :, 0] = False
        allowed[SCALE, 1:, {"whole": slice(1, None), "none": slice(None)}[scales]] = False
        allowed[BIAS, 1:, {"all": slice(0, 0), "top": slice(0, -1), "none": slice(None)}[biases]] = False
        return allowed

    return dictionary


class PlainUnit:
    """Penalties in units of the atoms' standard deviation over rows and classes, as in MCCT."""

    def unit(self, n_rows: float, pseudo_errors: float) -> None:
        return None


# Name -> (parameters of the class, replacements in its module).
VARIANTS: dict[str, tuple[dict, dict]] = {
    "default": ({}, {}),
    "first stage alone": ({"by_class": False}, {}),
    "scales by class in any case": ({"by_class": True}, {}),
    "second stage without scales by class": ({}, {"spread_of_groups": lambda *_: (0.0, 0.0)}),
    "second stage half as strong": ({}, {"_SHARE": 0.375}),
    "second stage as strong as the first": ({}, {"_SHARE": 1.0}),
    "margin": ({"statistics": ("margin",)}, {}),
    "mean_gap": ({"statistics": ("mean_gap",)}, {}),
    "spread": ({"statistics": ("spread",)}, {}),
    "entropy": ({"statistics": ("entropy",)}, {}),
    "log_odds": ({"statistics": ("log_odds",)}, {}),
    "margin, mean_gap": ({"statistics": ("margin", "mean_gap")}, {}),
    "margin, spread": ({"statistics": ("margin", "spread")}, {}),
    "all five statistics": ({"statistics": ("margin", "mean_gap", "spread", "entropy", "log_odds")}, {}),
    "3 knots": ({"n_knots": 3}, {}),
    "15 knots": ({"n_knots": 15}, {}),
    "hinges": ({}, {"choose_ramps": hinges}),
    "ramps of one knot": ({}, {"_REACH": 1}),
    "ramps of three knots": ({}, {"_REACH": 3}),
    "no conditional biases": ({}, {"dictionary": atoms(biases="none")}),
    "biases of the top class only": ({}, {"dictionary": atoms(biases="top")}),
    "no conditional scales": ({}, {"dictionary": atoms(scales="none")}),
    "no pseudo-errors": ({}, {"PSEUDO_ERRORS": 0.0}),
    "100 pseudo-errors": ({}, {"PSEUDO_ERRORS": 100.0}),
    "one emphasis": ({}, {"SCALE_EMPHASIS": 1.0, "BIAS_EMPHASIS": 1.0}),
    "shrinkage 5": ({"shrinkage": 5.0}, {}),
    "shrinkage 10": ({"shrinkage": 10.0}, {}),
    "shrinkage 40": ({"shrinkage": 40.0}, {}),
    "penalty by standard deviation": (
        {"shrinkage": 1.0},
        {"information": lambda *_: PlainUnit(), "SCALE_EMPHASIS": 3.0, "BIAS_EMPHASIS": 3.0},
    ),
}


@contextmanager
def replaced(names: dict) -> Iterator[None]:
    """Names replaced for a while, in every module that has them."""
    before = []
    for name, value in names.items():
        places = [module for module in MODULES if hasattr(module, name)]
        if not places:
            raise AttributeError(f"no module of the conditional family has {name}")
        for module in places:
            before.append((module, name, getattr(module, name)))
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def cross_validated(make: Callable[[], mc.Calibrator], rows: data.LogitsSet) -> tuple[float, ...]:
    fold = np.random.default_rng(0).permutation(rows.n_samples) % FOLDS
    probs = np.empty(rows.values.shape)
    for k in range(FOLDS):
        model = make().set_params(input=rows.kind).fit(rows.values[fold != k], rows.labels[fold != k])
        probs[fold == k] = model.predict_proba(rows.values[fold == k])
    return tuple(
        float(metric(probs, rows.labels)) for metric in (metrics.nll, metrics.ece, metrics.top_label_ece)
    )


def from_few(make: Callable[[], mc.Calibrator], rows: data.LogitsSet, size: int) -> float:
    total = 0.0
    for draw in range(DRAWS):
        order = np.random.default_rng([draw, size]).permutation(rows.n_samples)
        model = make().set_params(input=rows.kind).fit(rows.values[order[:size]], rows.labels[order[:size]])
        rest = order[size:]
        total += float(metrics.nll(model.predict_proba(rows.values[rest]), rows.labels[rest])) / DRAWS
    return total


def main() -> None:
    parser = parser_of(__doc__)
    add_logits(parser)
    parser.add_argument("--only", nargs="*", choices=[*VARIANTS], metavar="NAME", help="some of the variants")
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="few rows to fit on, as well")
    options = parser.parse_args()
    sets = [place.read().cal for place in data.find(options.data)] if options.data.is_dir() else []
    if not sets:
        sys.exit(f"No logits in {options.data}: give a folder of sets with --data.")

    def measured(make: Callable[[], mc.Calibrator]) -> tuple[np.ndarray, np.ndarray]:
        full = np.array([cross_validated(make, s) for s in sets])
        few = np.array([[from_few(make, s, n) for s in sets] for n in options.sizes])
        return full, few

    head = ["variant", "NLL", "ECE %", "top-label ECE %", "NLL below the first stage", "above at most"]
    head += [f"... over temperature scaling, {n} rows" for n in options.sizes]
    print("| " + " | ".join(head) + " |\n| --- |" + " ---: |" * (len(head) - 1))
    base, _ = measured(lambda: mc.ConditionalMCCT(by_class=False))
    plain, few_plain = measured(mc.TemperatureScaling)

    def show(name: str, full: np.ndarray, few: np.ndarray) -> None:
        nll, ece, top_label = full.mean(axis=0)
        excess = (full - base)[:, 0]
        cells = [name, f"{nll:.4f}", f"{100 * ece:.2f}", f"{100 * top_label:.2f}"]
        cells += [f"{(excess < 0).sum()} of {len(sets)}", f"{excess.max():+.4f}"]
        cells += [f"{above.max():+.4f}" for above in few - few_plain]
        print("| " + " | ".join(cells) + " |", flush=True)

    show("temperature scaling", plain, few_plain)
    show("MCCT", *measured(mc.MCCT))
    for name in options.only or VARIANTS:
        parameters, names = VARIANTS[name]
        with replaced(names):
            show(name, *measured(lambda p=parameters: mc.ConditionalMCCT(**p)))


if __name__ == "__main__":
    main()
