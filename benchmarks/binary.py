"""Two classes, one score: every method on the sets of a folder, fitted on their calibration rows and judged on the others.

    python benchmarks/binary.py [--data ../shared/binary] [--rows 20 50 100 300] [--all-methods]
                                [--by-set] [--coverage] [--review] [--multilabel] [--defaults] [--hostile N] [--docs]

Sets are .npz files with ``s_cal``, ``y_cal``, ``s_test``, ``y_test`` and ``kind`` ("decision", "probability"), and perhaps
``group_*`` (a category) and ``token_*`` (a second score). Prints Markdown tables: mean NLL, Brier score and ECE of P(class 1)
(15 bins of equal mass), the largest change of AUC, the largest NLL above the best method of a set, and the share of sets on which
a method is worse than doing nothing; at full size, and with few rows (means over draws). "Nothing" takes scores as log-odds.
Files with ``p_cal``, ``p_test`` (n, L) and ``y_*`` of the same shape hold many labels: ``--multilabel`` is about these alone.
``--defaults`` compares a map that keeps the order of two classes with one that keeps the order of the rows, where the zero of a
score is wrong; ``--review`` simulates the promise of the review rule; ``--hostile N`` counts reversed rows among N extreme scores
in every number type.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import monocal as mc
import pages

DATA = Path(__file__).parents[2] / "shared" / "binary"
PAGE, LABELS_PAGE = "docs/two-classes.md", "docs/many-labels.md"
# A probability of zero costs this much and no more, or isotonic regression would be infinitely bad.
_LEAST = 1e-6
_BINS = 15


@dataclass(frozen=True)
class Set:
    """One set: scores and labels of calibration and test rows, and what else there is."""

    name: str
    input: str
    cal: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    groups: tuple[np.ndarray, np.ndarray] | None
    second: tuple[np.ndarray, np.ndarray] | None

    @classmethod
    def read(cls, path: Path) -> Set | None:
        with np.load(path, allow_pickle=True) as file:
            if "s_cal" not in file:
                return None
            input = "scores" if str(file["kind"]) == "decision" else "probabilities"
            cal, test = (
                (file[f"s_{part}"].astype(np.float64), file[f"y_{part}"].astype(int))
                for part in ("cal", "test")
            )
            more = {
                name: (file[f"{name}_cal"], file[f"{name}_test"]) if f"{name}_cal" in file else None
                for name in ("group", "token")
            }
        return cls(path.stem, input, cal, test, more["group"], more["token"])

    @property
    def family(self) -> str:
        return "_".join(self.name.split("_")[:2]) if self.name.startswith("llm") else self.name.split("_")[-1]

    def part(self, rows: np.ndarray) -> Set:
        """The same with some of the calibration rows."""
        return Set(self.name, self.input, (self.cal[0][rows], self.cal[1][rows]), self.test, None, None)


def _of_classes(make: Callable[[], Any]) -> Callable[[Set], np.ndarray]:
    """A method for rows of classes, on logits (0, log-odds)."""

    def fit(one: Set) -> np.ndarray:
        def logits(s: np.ndarray) -> np.ndarray:
            z = s if one.input == "scores" else logit(np.clip(s, _LEAST, 1 - _LEAST))
            return np.stack([np.zeros(len(z)), z], axis=1)

        return np.asarray(make().fit(logits(one.cal[0]), one.cal[1]).predict_proba(logits(one.test[0])))[:, 1]

    return fit


def _of_score(make: Callable[[str], Any]) -> Callable[[Set], np.ndarray]:
    def fit(one: Set) -> np.ndarray:
        return np.asarray(make(one.input).fit(*one.cal).predict_proba(one.test[0]))

    return fit


def nothing(one: Set) -> np.ndarray:
    """The score as it is: a probability, or log-odds."""
    return one.test[0] if one.input == "probabilities" else expit(one.test[0])


def beta(one: Set) -> np.ndarray:
    input = "logits" if one.input == "scores" else one.input
    return np.asarray(mc.BetaCalibration(input=input).fit(*one.cal).predict_proba(one.test[0]))


METHODS: dict[str, Callable[[Set], np.ndarray]] = {
    "nothing": nothing,
    "Platt": _of_score(lambda input: mc.PlattScaling(input=input)),
    "beta": beta,
    "isotonic": _of_score(lambda input: mc.IsotonicCalibration(input=input)),
    "Venn-Abers": _of_score(lambda input: mc.VennAbers(input=input)),
    "BinaryMCCT": _of_score(lambda input: mc.BinaryMCCT(input=input)),
    "MCCT": _of_classes(mc.MCCT),
    "ConditionalMCCT": _of_classes(mc.ConditionalMCCT),
}
ON_REQUEST = {"StructuredMCCT": _of_classes(mc.StructuredMCCT)}


def losses(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """NLL, Brier score and ECE in %."""
    q = np.clip(p, _LEAST, 1 - _LEAST)
    nll = -np.mean(np.where(y == 1, np.log(q), np.log1p(-q)))
    bins = np.array_split(np.argsort(p, kind="stable"), _BINS)
    ece = sum(abs(p[b].sum() - y[b].sum()) for b in bins if len(b)) / len(y)
    return np.array([nll, np.mean((p - y) ** 2), 100 * ece])


def measures(p: np.ndarray, one: Set) -> np.ndarray:
    """NLL, Brier score, ECE in %, and change of AUC."""
    s, y = one.test
    return np.append(losses(p, y), abs(roc_auc_score(y, p) - roc_auc_score(y, s)))


def results(sets: list[Set], methods: dict[str, Callable[[Set], np.ndarray]]) -> np.ndarray:
    """(methods, sets, measures)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array(
            [[measures(np.asarray(fit(one), float), one) for one in sets] for fit in methods.values()]
        )


def summary(measured: np.ndarray, names: list[str]) -> list[list[str]]:
    nll = measured[..., 0]
    excess = (nll - nll.min(axis=0)).max(axis=1)
    worse = 100 * (nll > nll[names.index("nothing")] + 1e-9).mean(axis=1)
    rows = []
    for i, name in enumerate(names):
        mean = measured[i].mean(axis=0)
        rows.append(
            [
                name,
                *(f"{mean[0]:.4f}", f"{mean[1]:.4f}", f"{mean[2]:.1f}"),
                *(f"{excess[i]:.3f}", f"{worse[i]:.0f} %", f"{measured[i, :, 3].max():.3f}"),
            ]
        )
    return rows


HEAD = ["method", "NLL", "Brier", "ECE %", "worst excess", "worse than nothing", "largest change of AUC"]


def few_rows(
    sets: list[Set], methods: dict[str, Callable[[Set], np.ndarray]], sizes: list[int], draws: int
) -> str:
    """Mean NLL of fits on a few of the calibration rows, both classes among them."""
    rows: list[list[str]] = [[name] for name in methods]
    for size in sizes:
        parts = []
        for number, one in enumerate(sets):
            for draw in range(draws):
                rng = np.random.default_rng([size, number, draw])
                chosen = rng.choice(len(one.cal[1]), min(size, len(one.cal[1])), replace=False)
                if 0 < one.cal[1][chosen].sum() < len(chosen):
                    parts.append(one.part(chosen))
        for row, mean in zip(rows, results(parts, methods)[..., 0].mean(axis=1), strict=True):
            row.append(f"{mean:.4f}")
    return pages.table(["NLL with so many rows", *map(str, sizes)], rows)


def groups_and_second_scores(sets: list[Set]) -> str:
    rows = []
    for one in sets:
        if one.groups is not None:
            plain = METHODS["BinaryMCCT"](one)
            cal = mc.BinaryMCCT(input=one.input).fit(*one.cal, context=one.groups[0])
            p = cal.predict_proba(one.test[0], context=one.groups[1])
            rows.append(
                [one.name, "by group", f"{measures(plain, one)[0]:.4f}", f"{measures(p, one)[0]:.4f}"]
            )
        if one.second is not None:
            first, second = (
                np.stack(pair, axis=1) for pair in zip((one.cal[0], one.test[0]), one.second, strict=True)
            )
            both = (
                mc.BinaryMCCT(input=one.input, columns="scores")
                .fit(first, one.cal[1])
                .predict_proba(second)[:, 1]
            )
            alone = Set(
                one.name, one.input, (one.second[0], one.cal[1]), (one.second[1], one.test[1]), None, None
            )
            best = min(measures(METHODS["BinaryMCCT"](s), s)[0] for s in (one, alone))
            rows.append([one.name, "two scores", f"{best:.4f}", f"{measures(both, one)[0]:.4f}"])
    return pages.table(["set", "with", "NLL without", "NLL with"], rows)


TRUTHS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "line": lambda v: v - 1,
    "flat": lambda v: 0.3 * v,
    "steep": lambda v: 4 * v,
    "cubic": lambda v: 0.6 * v + v**3 / 30,
    "tanh": lambda v: 3 * np.tanh(v),
    "bend": lambda v: v - 2 + 1.5 * np.maximum(v - 1, 0),
    "rare": lambda v: v - 4,
    "wave": lambda v: v + 0.5 * np.sin(2 * v),
    "staircase": lambda v: 1.5 * np.round(v),
}


def coverage(level: float = 0.9, draws: int = 20) -> str:
    """How often intervals hold the truth at new scores."""
    sizes = (100, 300, 1000, 5000, 20_000)
    rows = []
    for name, truth in TRUTHS.items():
        row = [name]
        for n in sizes:
            hit = []
            for draw in range(draws):
                rng = np.random.default_rng([n, draw])
                s, at = rng.normal(size=n) * 1.5, rng.normal(size=500) * 1.5
                y = rng.random(n) < expit(truth(s))
                if 0 < y.sum() < n:
                    with warnings.catch_warnings():
                        warnings.simplefilter(
                            "ignore"
                        )  # a flat truth may rank a hundred rows the wrong way round
                        cal = mc.BinaryMCCT(input="scores").fit(s, y)
                    low, high = cal.predict_interval(at, level=level)
                    p = expit(truth(at))
                    hit.append(np.mean((low <= p) & (p <= high)))
            row.append(f"{100 * np.mean(hit):.0f}")
        rows.append(row)
    return pages.table([f"% covered of {100 * level:.0f} %", *(f"{n:,} rows" for n in sizes)], rows)


# Digits of the confidences, and how often an answer of confidence p is right.
ANSWERS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "calibrated": (15, lambda p: p),
    "over-confident": (15, lambda p: 0.5 + 0.49 * np.maximum(2 * p - 1, 0)),
    "5.1 % wrong everywhere": (15, lambda p: np.full_like(p, 0.949)),
    "11 levels": (1, lambda p: 0.6 + 0.39 * p),
    "worst in the middle": (15, lambda p: 0.92 + 0.06 * np.abs(2 * p - 1)),
}


def review(max_error: float = 0.05, draws: int = 400) -> str:
    """How often more than ``max_error`` of all answers above the threshold of `mc.review_rule` are wrong; the share of these."""
    sizes = (200, 2000)
    rows = []
    for name, (digits, right) in ANSWERS.items():
        p = np.random.default_rng(0).beta(6, 1, 20_000).round(digits)
        row = [name]
        for n in sizes:
            broken, automated = [], []
            for draw in range(draws):
                rng = np.random.default_rng([n, draw])
                own = rng.choice(p, n)
                rule = mc.review_rule(own, rng.random(n) < right(own), max_error=max_error, confidence=0.95)
                above = p[p > rule.threshold]
                broken.append(len(above) > 0 and 1 - right(above).mean() > max_error)
                automated.append(len(above) / len(p))
            row += [f"{100 * np.mean(broken):.1f} %", f"{100 * np.mean(automated):.0f} %"]
        rows.append(row)
    head = [part for n in sizes for part in (f"promise broken, {n:,} rows", "automated")]
    return pages.table(["answers", *head], rows)


def by_label(make: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """A method for one score, fitted to each label alone; one of a single class gets Laplace's rule of succession."""

    def fit(p: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
        result = np.tile((y.sum(axis=0) + 1) / (len(y) + 2), (len(new), 1))
        for i in np.flatnonzero(y.any(axis=0) & ~y.all(axis=0)):
            result[:, i] = make(input="probabilities").fit(p[:, i], y[:, i]).predict_proba(new[:, i])
        return result

    return fit


MANY_LABELS: dict[str, Callable[..., np.ndarray]] = {
    "nothing": lambda p, y, new: new,
    "Platt by label": by_label(mc.PlattScaling),
    "BinaryMCCT by label": by_label(mc.BinaryMCCT),
    "MultilabelMCCT": lambda p, y, new: mc.MultilabelMCCT(input="probabilities").fit(p, y).predict_proba(new),
}


def many_labels(folder: Path, size: int = 300, draws: int = 5) -> str:
    """NLL, and the mean over labels of ECE, of all rows and of a few."""
    rows: list[list[str]] = []
    for path in sorted(folder.glob("multilabel_*.npz")):
        with np.load(path) as file:
            p, y, new, truth = (file[k].astype(np.float64) for k in ("p_cal", "y_cal", "p_test", "y_test"))
        few = [np.random.default_rng([size, i]).choice(len(p), size, replace=False) for i in range(draws)]
        for name, fit in MANY_LABELS.items():
            cells = []
            for parts in ([np.arange(len(p))], few):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    results = [fit(p[part], y[part], new) for part in parts]
                measured = [losses(q[:, i], truth[:, i]) for q in results for i in range(q.shape[1])]
                nll, _, ece = np.mean(measured, axis=0)
                cells += [f"{nll:.4f}", f"{ece:.2f}"]
            rows.append([path.stem, name, *cells])
    head = ["set", "method", "NLL", "ECE %", f"NLL, {size} rows", f"ECE %, {size} rows"]
    return pages.table(head, rows, words=2)


def defaults(sets: list[Set]) -> str:
    """Where the zero of a score is wrong: mean P(class 1), NLL and ECE of maps that keep the order of classes, or of rows."""
    cases = [_balanced(), *(one for one in sets if one.name in _WRONG_ZERO)]
    names = ["nothing", "MCCT", "ConditionalMCCT", "Platt", "BinaryMCCT"]
    rows = []
    for one in cases:
        cells = []
        for name in names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                p = np.asarray(METHODS[name](one), dtype=np.float64)
            nll, _, ece = losses(p, one.test[1])
            cells.append(f"{p.mean():.3f} / {nll:.3f} / {ece:.1f}")
        rows.append([_WRONG_ZERO.get(one.name, one.name), f"{one.test[1].mean():.3f}", *cells])
    return pages.table(["mean P(class 1) / NLL / ECE %", "share of class 1", *names], rows)


_WRONG_ZERO = {
    "detector_kitti_pedestrian": "3D detector, pedestrians",
    "sst2_gpt2": "sentiment from a language model (SST-2)",
    "llm_stated_Llama-3_2-3B-Instruct": "stated confidence of a language model",
}


def _balanced() -> Set:
    """`LogisticRegression(class_weight="balanced")` where 1 % of the rows are positive."""
    X, y = make_classification(30_000, weights=[0.99], flip_y=0.001, random_state=0)
    model = LogisticRegression(class_weight="balanced").fit(X[:10_000], y[:10_000])
    s = model.decision_function(X)
    cal, test = slice(10_000, 20_000), slice(20_000, None)
    name = 'LogisticRegression(class_weight="balanced")'
    return Set(name, "scores", (s[cal], y[cal]), (s[test], y[test]), None, None)


def extreme(n: int, input: str) -> np.ndarray:
    """Subnormal and huge numbers, neighbours one unit in the last place apart, ties, and ordinary scores."""
    rng, k = np.random.default_rng(0), n // 8
    exponents, chosen = rng.uniform(-320, 300, k), np.array([0.0, 1e300, 1.7e308, 5e-324, 1.0, 2.0])
    if input == "probabilities":
        base = rng.random(k)
        parts = [10.0 ** -np.abs(exponents), 1 - 10.0 ** rng.uniform(-17, 0, k), rng.choice([0, 1, 0.5], k)]
        ordinary = expit(20 * rng.normal(size=n - 7 * k))
    else:
        base = 3 * rng.normal(size=k)
        parts = [rng.normal(size=k) * 10.0**exponents, np.repeat(rng.normal(size=k // 100 + 1), 100)[:k]]
        parts.append(rng.choice(np.append(chosen, -chosen), k))
        ordinary = 20 * rng.normal(size=n - 7 * k)
    up = np.nextafter(base, np.inf)
    parts += [base, up, np.nextafter(up, np.inf), rng.integers(1, 2000, k) * 5e-324, ordinary]
    scores: np.ndarray = np.concatenate(parts)
    return np.clip(scores, 0, 1) if input == "probabilities" else scores


def reversed_rows(scores: np.ndarray, result: np.ndarray) -> int:
    """Neighbours in the order of the scores whose results are in another order, or equal scores with other results."""
    order = np.lexsort((result, scores))
    rise, change = np.diff(scores[order]), np.diff(result[order])
    return int(((change < 0) | ((rise == 0) & (change != 0))).sum())


def hostile(n: int) -> str:
    """Reversed rows among extreme scores, by what scores are, library and number type."""
    import onnxruntime
    import torch

    rng = np.random.default_rng(1)
    s = 2 * rng.normal(size=3000)
    y = (rng.random(3000) < expit(s + 0.5 * np.sin(2 * s) - 1)).astype(int)
    rows = []
    for input in ("scores", "logits", "probabilities"):
        train, scores = expit(s) if input == "probabilities" else s, extreme(n, input)
        cal = mc.BinaryMCCT(input=input).fit(train, y)
        session = onnxruntime.InferenceSession(cal.to_onnx(dtype="float64", ndim=1).SerializeToString())
        exported = {
            "torch module": cal.to_torch(dtype=torch.float64)(torch.tensor(scores)).numpy(),
            "ONNX": session.run(None, {input: scores})[0],
        }
        for library, p in exported.items():
            rows.append([f"{input}, {library}, float64", f"{n:,}", str(reversed_rows(scores, p))])
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            x = torch.tensor(scores).to(dtype)
            x = x[torch.isfinite(x)]
            kinds = [("torch", x)] if dtype == torch.bfloat16 else [("numpy", x.numpy()), ("torch", x)]
            for library, x_given in kinds:
                wrong = [
                    reversed_rows(x.double().numpy(), torch.as_tensor(method(x_given)).double().numpy())
                    for method in (cal.transform, cal.predict_proba)
                ]
                rows.append([f"{input}, {library}, {str(dtype)[6:]}", f"{len(x):,}", str(sum(wrong))])
    return pages.table(["scores", "rows", "reversed"], rows)


def main() -> None:
    parser = pages.parser_of(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of sets")
    parser.add_argument("--rows", type=int, nargs="*", default=[20, 50, 100, 300], help="numbers of few rows")
    parser.add_argument("--draws", type=int, default=2, help="draws of few rows for each set")
    parser.add_argument("--all-methods", action="store_true", help="StructuredMCCT as well, which is slow")
    parser.add_argument("--by-set", action="store_true", help="NLL of every set")
    parser.add_argument("--coverage", action="store_true", help="coverage of intervals, a few minutes")
    parser.add_argument("--review", action="store_true", help="promises of the review rule, and nothing else")
    parser.add_argument("--multilabel", action="store_true", help="the sets of many labels, and nothing else")
    parser.add_argument("--defaults", action="store_true", help="where the zero is wrong, and nothing else")
    parser.add_argument(
        "--hostile", type=int, metavar="N", help="reversed rows of N extreme scores, and nothing else"
    )
    parser.add_argument(
        "--docs", action="store_true", help="write the table into its page of the documentation"
    )
    options = parser.parse_args()
    if options.multilabel:
        labels = many_labels(options.data)
        print(labels)
        if options.docs:
            pages.write_into("docs/many-labels.md", "labels", labels)
        return
    if options.review:
        kept = review()
        print(kept)
        if options.docs:
            pages.write_into("docs/thresholds.md", "review", kept)
        return
    if options.hostile:
        print(hostile(options.hostile))
        return
    sets = [one for one in map(Set.read, sorted(options.data.glob("*.npz"))) if one is not None]
    if options.defaults:
        wrong = defaults(sets)
        print(wrong)
        if options.docs:
            pages.write_into(PAGE, "defaults", wrong)
        return
    methods = METHODS | (ON_REQUEST if options.all_methods else {})
    measured = results(sets, methods)
    first = pages.table(HEAD, summary(measured, list(methods)))
    print(f"{len(sets)} sets\n\n{first}\n")
    if options.docs:
        pages.write_into(PAGE, "table", first)
    if options.by_set:
        rows = [[one.name, *(f"{x:.4f}" for x in measured[:, i, 0])] for i, one in enumerate(sets)]
        families = sorted({one.family for one in sets})
        for family in families:
            mean = measured[:, [one.family == family for one in sets], 0].mean(axis=1)
            rows.append([f"*{family}*", *(f"{x:.4f}" for x in mean)])
        print(pages.table(["NLL", *methods], rows) + "\n")
    if options.rows:
        quick = {name: fit for name, fit in methods.items() if "MCCT" not in name or name == "BinaryMCCT"}
        few = few_rows(sets, quick, options.rows, options.draws)
        print(few + "\n")
        if options.docs:
            pages.write_into(PAGE, "rows", few)
    print(groups_and_second_scores(sets) + "\n")
    if options.coverage:
        print(coverage())


if __name__ == "__main__":
    main()
