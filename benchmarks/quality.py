"""How good are the calibrators on real classifier outputs: fitted on one part of each set, judged on the other.

    python benchmarks/quality.py [--data ../shared/logits] [--csv FOLDER] [--draws 5] [--sizes 100 300 1000] [--docs]

Prints Markdown tables and, with ``--csv``, writes their numbers. NLL, ECE (15 bins) and top-label ECE (within each predicted
class) of each method, "first stage" being ConditionalMCCT without its second; the ECE that a
perfectly calibrated predictor would show on as many samples (labels drawn from the calibrated confidences: median and
95 %), the order violations, and the optimality certificate. Then NLL when only few calibration samples are drawn, against
temperature scaling. Sets whose two parts differ in class frequencies are shown but left out of the means.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from scipy.special import softmax
from scipy.stats import chi2_contingency

import monocal as mc
import pages
from monocal import data, metrics

METHODS: dict[str, Callable[[], mc.Calibrator]] = {
    "temperature": lambda: mc.TemperatureScaling(),
    "MCCT, no shrinkage": lambda: mc.MCCT(shrinkage=0),
    "MCCT": lambda: mc.MCCT(),
    "structured": lambda: mc.StructuredMCCT(),
    "first stage": lambda: mc.ConditionalMCCT(by_class=False),
    "conditional": lambda: mc.ConditionalMCCT(),
}
SMALL = ("temperature", "MCCT", "structured", "conditional")
# What is never to be much worse than temperature scaling.
JUDGED = ("structured", "conditional")
LARGEST_EXCESS = 0.002


def has_label_shift(splits: data.Splits) -> bool:
    """Whether the two parts differ in class frequencies by more than chance."""
    m = splits.cal.n_classes
    counts = np.array([np.bincount(part.labels, minlength=m) for part in (splits.cal, splits.test)])
    return chi2_contingency(counts[:, counts.any(axis=0)]).pvalue < 1e-6


MEASURES = {"NLL": metrics.nll, "ECE": metrics.ece, "top-label": metrics.top_label_ece}


def judge(probs: np.ndarray, labels: np.ndarray, name: str) -> dict[str, float]:
    return {f"{what} {name}": float(measure(probs, labels)) for what, measure in MEASURES.items()}


def full_size(splits: data.Splits) -> dict[str, float | str | bool]:
    """One row of the first table."""
    cal, test = splits.cal, splits.test
    row: dict[str, float | str | bool] = {"set": cal.name, "label_shift": has_label_shift(splits)}
    row["rows"] = test.n_samples
    raw = test.values if test.kind == "probabilities" else softmax(test.values, axis=1)
    row |= judge(raw, test.labels, "uncalibrated")
    for name, make in METHODS.items():
        model = make().set_params(input=cal.kind).fit(cal.values, cal.labels)
        probs = model.predict_proba(test.values)
        row |= judge(probs, test.labels, name)
    floor = metrics.ece_floor(probs, n_draws=1000)
    row |= {"ECE floor": floor.median, "ECE floor low": floor.low, "ECE floor high": floor.high}
    after = model.transform(test.values) if test.kind == "logits" else probs
    audit = metrics.order_audit(test.values, after, input=test.kind).all
    row["order violations"] = audit.inverted_pairs + audit.ties_broken
    row["kkt"], row["certified"] = model.solution_.kkt, model.solution_.converged
    return row


def few_samples(splits: data.Splits, size: int, draws: int) -> dict[str, float | str | bool]:
    """Mean test NLL over several draws of ``size`` calibration rows."""
    cal, test = splits.cal, splits.test
    total = dict.fromkeys(SMALL, 0.0)
    for draw in range(draws):
        rows = np.random.default_rng([size, draw]).permutation(cal.n_samples)[:size]
        for name in SMALL:
            model = METHODS[name]().set_params(input=cal.kind).fit(cal.values[rows], cal.labels[rows])
            total[name] += float(metrics.nll(model.predict_proba(test.values), test.labels)) / draws
    row: dict[str, float | str | bool] = {"set": cal.name, "samples": size}
    return row | {f"NLL {name}": value for name, value in total.items()}


def quality_table(rows: list[dict]) -> str:
    names = ["uncalibrated", *METHODS]
    kept = [r for r in rows if not r["label_shift"]]
    keys = [f"{what} {name}" for what in MEASURES for name in names] + ["ECE floor", "ECE floor high"]
    mean = {"set": f"mean of {len(kept)}", "label_shift": False}
    mean |= {key: np.mean([r[key] for r in kept]) for key in keys} if kept else {}

    def line(r: dict) -> list[str]:
        nll = [f"{r[f'NLL {name}']:.4f}" for name in names]
        ece = [f"{100 * r[f'{what} {name}']:.2f}" for what in ("ECE", "top-label") for name in names]
        floor = f"{100 * r['ECE floor']:.2f} ({100 * r['ECE floor high']:.2f})"
        return [r["set"] + (" (label shift)" if r["label_shift"] else ""), *nll, *ece, floor]

    header = [
        "set",
        *(f"{what} {n}" for what in ("NLL", "ECE %", "top-label %") for n in names),
        "floor (95 %)",
    ]
    return pages.table(header, [line(r) for r in rows] + ([line(mean)] if kept else []))


def small_table(rows: list[dict]) -> str:
    def line(r: dict) -> list[str]:
        nll = [r[f"NLL {name}"] for name in SMALL]
        above = [f"{r[f'NLL {name}'] - r['NLL temperature']:+.4f}" for name in JUDGED]
        return [r["set"], str(r["samples"]), *(f"{x:.4f}" for x in nll), *above]

    header = ["set", "samples", *SMALL, *(f"{name} - temperature" for name in JUDGED)]
    return pages.table(header, map(line, rows))


def summary(rows: list[dict], small: list[dict]) -> str:
    kept = [r for r in rows if not r["label_shift"]]
    mean = {key: float(np.mean([r[key] for r in kept])) for key in kept[0] if key.startswith(tuple(MEASURES))}
    excess = np.array([r["NLL conditional"] - r["NLL first stage"] for r in kept])
    ratios = np.array([r["ECE conditional"] / r["ECE first stage"] for r in kept])
    worst = max(rows, key=lambda r: r["NLL conditional"] - r["NLL MCCT"])
    lines = [
        f"NLL of conditional: {mean['NLL conditional']:.4f}, MCCT {mean['NLL MCCT']:.4f}",
        f"ECE of conditional: {100 * mean['ECE conditional']:.2f} %, {mean['ECE conditional'] / mean['ECE MCCT']:.2f} of MCCT's",
        f"largest excess of NLL over MCCT's: {worst['NLL conditional'] - worst['NLL MCCT']:+.4f} ({worst['set']})",
        f"against the first stage: NLL lower on {(excess < 0).sum()} of {len(kept)} sets, at most {excess.max():+.4f} higher; "
        f"top-label ECE {mean['top-label conditional'] / mean['top-label first stage']:.2f} of its; ratios of ECE: median "
        f"{np.median(ratios):.2f}, mean {ratios.mean():.2f}",
        f"order violations in all test rows: {sum(r['order violations'] for r in rows)}",
        f"certified: {sum(r['certified'] for r in rows)} of {len(rows)}, largest violation {max(r['kkt'] for r in rows):.1e}",
    ]
    for name in JUDGED if small else ():
        excess = [r[f"NLL {name}"] - r["NLL temperature"] for r in small]
        lines.append(
            f"few samples: NLL of {name} above temperature scaling's by {max(excess):+.4f} at most; more than "
            f"{LARGEST_EXCESS} in {sum(e > LARGEST_EXCESS for e in excess)} of {len(excess)} cells"
        )
    return "\n".join(f"- {line}" for line in lines)


# How the names of sets of images begin, in the folder that the documentation is written from.
IMAGES = ("nncal", "toplabel", "netcal", "imagenet5k")
SHOWN = {
    "uncalibrated": "uncalibrated",
    "temperature": "`TemperatureScaling`",
    "MCCT, no shrinkage": "`MCCT(shrinkage=0)`, the paper's objective",
    "MCCT": "`MCCT`",
    "first stage": "`ConditionalMCCT(by_class=False)`",
    "conditional": "`ConditionalMCCT`, the best that keeps the order",
    "structured": "`StructuredMCCT`, the best where the order may change",
}
KEEP_ORDER = ("temperature", "MCCT, no shrinkage", "MCCT", "first stage", "conditional")


def means(rows: list[dict], names: Iterable[str], within: bool) -> str:
    """Means over images and over the rest; ``within``: the ECE within each predicted class as well."""
    kept = [r for r in rows if not r["label_shift"]]
    groups = [[r for r in kept if r["set"].startswith(IMAGES) == images] for images in (True, False)]
    errors = {"ECE": "ECE %"} | ({"top-label": "within predicted class %"} if within else {})

    def mean(group: list[dict], key: str) -> float:
        return float(np.mean([r[key] for r in group]))

    def line(name: str) -> list[str]:
        cells = []
        for group in groups:
            cells += [f"{mean(group, f'NLL {name}'):.4f}"]
            cells += [f"{100 * mean(group, f'{error} {name}'):.2f}" for error in errors]
        return [SHOWN[name], *(f"**{cell}**" if name == "conditional" else cell for cell in cells)]

    perfect = ["a perfectly calibrated model on as many samples"]
    for group in groups:
        perfect += ["", f"{100 * mean(group, 'ECE floor'):.2f}", *[""] * within]
    of = [f"{len(groups[0])} image sets", f"{len(groups[1])} of text, astronomy, language models"]
    header = ["mean over sets of real outputs"]
    header += [cell for name in of for cell in (f"NLL, {name}", *errors.values())]
    return pages.table(header, [*map(line, names), perfect])


def for_readme(rows: list[dict]) -> str:
    kept = [r for r in rows if not r["label_shift"]]
    lowest = sum(r["NLL conditional"] <= min(r[f"NLL {name}"] for name in KEEP_ORDER) for r in kept)
    pairs = sum(r["order violations"] for r in rows)
    sentences = (
        f"Among the methods that keep the order, `ConditionalMCCT` has the lowest NLL on {lowest} of the {len(kept)} sets. In "
        f"the {sum(r['rows'] for r in rows):,} test rows of all {len(rows)} sets, {pairs or 'no'} pairs of classes changed "
        f"places. The means leave out sets whose class frequencies differ between the parts ({len(rows) - len(kept)} here)."
    )
    names = ("uncalibrated", "temperature", "MCCT", "conditional", "structured")
    return f"{means(rows, names, within=False)}\n\n{sentences}"


def for_page(rows: list[dict], small: list[dict]) -> str:
    """All means, set by set, and what the command adds."""

    def line(r: dict) -> list[str]:
        nll = [f"{r[f'NLL {name}']:.4f}" for name in ("temperature", "first stage", "conditional")]
        ece = [f"{100 * r[f'ECE {name}']:.2f}" for name in ("temperature", "first stage", "conditional")]
        within = [f"{100 * r[f'top-label {name}']:.2f}" for name in ("first stage", "conditional")]
        floor = f"{100 * r['ECE floor']:.2f} ({100 * r['ECE floor high']:.2f})"
        return [r["set"] + (" (label shift)" if r["label_shift"] else ""), *nll, *ece, *within, floor]

    header = ["set", *(f"NLL{name}" for name in (" temperature", " first", ""))]
    header += [*(f"ECE %{name}" for name in (" temperature", " first", ""))]
    header += ["within class % first", "within class %", "floor (95 %)"]
    tables = f"{means(rows, SHOWN, within=True)}\n\n{pages.table(header, map(line, rows))}"
    return f"{tables}\n\nThe command adds:\n\n{summary(rows, small)}"


def write_csv(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = pages.parser_of(__doc__)
    pages.add_logits(parser)
    parser.add_argument("--csv", type=Path, help="folder for quality.csv and few_samples.csv")
    parser.add_argument("--draws", type=int, default=5, help="draws of a few rows")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[100, 300, 1000], help="how many are few rows"
    )
    parser.add_argument(
        "--docs", action="store_true", help="write the tables into README.md and docs/conditional.md"
    )
    options = parser.parse_args()
    places = data.find(options.data) if options.data.is_dir() else []
    if not places:
        sys.exit(f"No logits in {options.data}: give a folder of sets with --data.")
    rows, small = [], []
    for place in places:
        splits = place.read()
        rows.append(full_size(splits))
        small += [few_samples(splits, n, options.draws) for n in options.sizes if n < splits.cal.n_samples]
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{quality_table(rows)}\n")
    if small:
        print(f"{small_table(small)}\n")
    print(summary(rows, small))
    if options.docs:
        pages.write_into("README.md", "quality", for_readme(rows))
        pages.write_into("docs/conditional.md", "quality", for_page(rows, small))
    if options.csv:
        options.csv.mkdir(parents=True, exist_ok=True)
        write_csv(options.csv / "quality.csv", rows)
        if small:
            write_csv(options.csv / "few_samples.csv", small)


if __name__ == "__main__":
    main()
