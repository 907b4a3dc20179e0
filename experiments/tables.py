r"""The paper's tables and further ones, from the data frame of trials; and the paper's printed numbers next to ours.

Table 1  ECE, 15 bins          Table 4  NLL                 Table 6  change of accuracy
Table 2  ECE by kernels        Table 5  Brier score         Table 7  rows whose order changed
Table 3  EQ-BIN ECE

Ranks and the best value are of the values *as shown*: two methods that read 1.19 are tied, share the mean of their ranks and are
both best. That is also how the paper's average ranks come about.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from .methods import METHODS
from .plan import Plan
from .published import COLUMNS, DECIMALS, MEASURES, recognised

CAPPED, FAILED, NOT_RUN = "†", "‡", "–"


@dataclass(frozen=True)
class Measure:
    """A metric as a table shows it: ``unit`` times its value."""

    metric: str
    title: str
    caption: str
    unit: float
    decimals: int = 2
    higher_is_better: bool = False


TABLES = (
    Measure("ece", "Table 1: ECE", "Expected calibration error, 15 bins, in %.", 100),
    Measure("kde_ece", "Table 2: ECE-KDE", "Calibration error by kernel density estimation, in %.", 100),
    Measure("eq_bin_ece", "Table 3: EQ-BIN ECE", "Sum of gaps over bins of 1000 samples, times 10.", 10),
    Measure("nll", "Table 4: NLL", "Negative log-likelihood, in nats.", 1, 4),
    Measure("brier", "Table 5: Brier score", "Sum of squared errors, times 100.", 100),
    Measure("accuracy_change", "Table 6: change of accuracy", "After minus before, in points.", 100, 2, True),
    Measure("rows_reordered", "Table 7: rows re-ordered", "Rows with two classes swapped, in %.", 100),
)


@dataclass(frozen=True)
class Table:
    """Sets by methods: mean and standard deviation over seeds in the unit shown, and signs that the caption explains."""

    measure: Measure
    caption: str
    mean: pd.DataFrame
    spread: pd.DataFrame
    marks: pd.DataFrame

    @property
    def shown(self) -> pd.DataFrame:
        """Means as they are printed."""
        return self.mean.round(self.measure.decimals) + 0.0  # no negative zero

    def ranks(self, columns: Iterable[str] | None = None) -> pd.DataFrame:
        """Rank of each value in its row, 1 the best; ties share their mean."""
        shown = self.shown if columns is None else self.shown[list(columns)]
        return shown.rank(axis=1, ascending=not self.measure.higher_is_better)

    def summary(self) -> pd.DataFrame:
        """Rows below the table: mean (where every row has a value), and average ranks."""
        paper = [m.label for m in METHODS.values() if m.in_paper and m.label in self.mean]
        lines = {"Mean": self.mean.mean(skipna=False), "Average rank": self.ranks().mean()}
        if 0 < len(paper) < self.mean.shape[1]:
            lines["Average rank, paper's columns"] = self.ranks(paper).mean().reindex(self.mean.columns)
        return pd.DataFrame(lines).T

    def text(self, bold: str, escape: Callable[[str], str]) -> pd.DataFrame:
        """Every cell as text, the best of each row in bold: ``bold`` is a format such as ``**{}**``."""
        summary = self.summary()
        decimals = [self.measure.decimals] * (len(self.mean) + 1) + [2] * (len(summary) - 1)
        values = pd.concat([self.mean, summary])
        higher = [self.measure.higher_is_better] * (len(self.mean) + 1) + [False] * (len(summary) - 1)
        rows = {}
        for (name, row), places, upward in zip(values.iterrows(), decimals, higher, strict=True):
            shown = row.round(places)
            best = shown == (shown.max() if upward else shown.min())
            texts = [self._cell(name, label, value, places) for label, value in row.items()]
            rows[escape(str(name))] = [
                bold.format(escape(t)) if b else escape(t) for t, b in zip(texts, best, strict=True)
            ]
        return pd.DataFrame.from_dict(rows, orient="index", columns=[escape(c) for c in values.columns])

    def _cell(self, name: object, label: object, value: float, decimals: int) -> str:
        text = number(value, decimals)
        if name in self.mean.index:
            if math.isfinite(self.spread.at[name, label]):
                text += f" ± {number(self.spread.at[name, label], decimals)}"
            text += self.marks.at[name, label]
        return text

    def to_markdown(self) -> str:
        frame = self.text("**{}**", escape_markdown)
        rows = ([name, *row] for name, *row in frame.itertuples())
        return markdown_table(["set", *frame.columns], rows, escape=False)

    def to_html(self) -> str:
        return self.text("<b>{}</b>", html.escape).to_html(escape=False, border=0)


def make_tables(plan: Plan, trials: pd.DataFrame) -> list[Table]:
    """All tables of a run."""
    trials = trials[trials.file.isin([t.file_name for t in plan.tables])]
    rows, columns = [d.name for d in plan.datasets], [METHODS[m].label for m in plan.methods]
    by_cell = trials.groupby(["set", "label"])

    def frame(series: pd.Series) -> pd.DataFrame:
        return series.unstack().reindex(index=rows, columns=columns)

    capped = frame(by_cell["capped"].any()).eq(True)
    failed = frame(by_cell["message"].apply(lambda messages: (messages != "").any())).eq(True)
    marks = capped.replace({True: CAPPED, False: ""}) + failed.replace({True: FAILED, False: ""})
    note = ""
    if capped.any(axis=None):
        note += f" {CAPPED} The published optimiser was given the top {plan.settings.table_ranks} ranks only."
    if failed.any(axis=None):
        note += f" {FAILED} Failed in at least one run; see the list of what was not run."
    tables = []
    for measure in TABLES:
        values = by_cell[measure.metric] if measure.metric in trials else None
        mean, spread = (
            frame(
                measure.unit * (getattr(values, kind)() if values is not None else by_cell.size() * math.nan)
            )
            for kind in ("mean", "std")
        )
        tables.append(Table(measure, measure.caption + note, mean, spread, marks))
    return tables


# The paper's printed numbers.

NEAR = 0.02
SIGNS = {"same": "=", "near": "≈", "different": "≠"}
_WHY = {
    "vs": "Ours is the optimum of the likelihood, without a penalty; where a gradient method stops depends on its steps.",
    "hb": "Ties: many rows have one confidence, and bins of 1000 rows divide them. Which row falls into which bin moves EQ-BIN "
    "ECE (on DenseNet-40 between 2.6 and 3.0); ours shares them between the bins.",
    "ets": "Not explained: ours is the optimum, and SLSQP from the published start ends at it too.",
    "ets_mse": "Not explained: ours is the optimum, and SLSQP from the published start ends at it too.",
    "pts": "Seeds: 200 epochs at a learning rate of 5e-5 leave the network near its random start.",
    "diag": "A network: its start is random, and rows held out decide when training stops.",
}


@dataclass(frozen=True)
class Comparison:
    """One of the paper's sets: the printed values and ours, one row for each method and measure."""

    set_name: str
    network: str  # and its data
    values: pd.DataFrame  # method, measure, printed, ours, spread, match

    @property
    def title(self) -> str:
        return f"{self.network}: published and ours"

    @property
    def text(self) -> str:
        """How much agrees."""
        count = self.values.match.value_counts()
        return (
            f"{self.set_name} is the paper's {self.network}: its uncalibrated values are the "
            f"printed ones in all three tables. Of {len(self.values)} values {count.get('same', 0)} come out to the digit (=), "
            f"{count.get('near', 0)} within {NEAR} or two standard deviations over seeds (≈), {count.get('different', 0)} "
            "differ (≠). Each cell: published, sign, ours."
        )

    @property
    def header(self) -> list[str]:
        return ["method", *MEASURES.values(), "why they differ"]

    def rows(self) -> list[list[tuple[str, str]]]:
        """For each method its cells as (text, match); the reason where not all values are the same."""
        rows = []
        for method, group in self.values.groupby("method", sort=False):
            cells = {
                v.measure: (pair_text(v.printed, v.ours, v.spread, v.match), v.match)
                for v in group.itertuples()
            }
            why = "" if (group.match == "same").all() else _WHY.get(str(method), "")
            rows.append(
                [
                    (METHODS[str(method)].label, ""),
                    *(cells.get(m, (NOT_RUN, "")) for m in MEASURES),
                    (why, ""),
                ]
            )
        return rows

    def texts(self) -> list[list[str]]:
        """The rows without the matches, whose signs are part of the texts."""
        return [[text for text, _ in row] for row in self.rows()]


def match(printed: float, ours: float, spread: float) -> str:
    """How two values agree, as shown."""
    apart = abs(round(ours, DECIMALS) - printed)
    if apart < 10.0**-DECIMALS / 2:
        return "same"
    return "near" if apart <= max(NEAR, 2 * spread if math.isfinite(spread) else 0.0) + 1e-9 else "different"


def pair_text(printed: float, ours: float, spread: float, agreement: str) -> str:
    after = f" ± {spread:.{DECIMALS}f}" if math.isfinite(spread) else ""
    return f"{printed:.{DECIMALS}f} {SIGNS[agreement]} {ours:.{DECIMALS}f}{after}"


def make_comparisons(plan: Plan, tables: list[Table]) -> list[Comparison]:
    """For every set of the run that is one of the paper's."""
    if "uncalibrated" not in plan.methods:
        return []
    by_measure = dict(zip(MEASURES, tables, strict=False))  # the paper's three come first
    comparisons = []
    for dataset in plan.datasets:
        ours = {m: t.mean.loc[dataset.name] for m, t in by_measure.items()}
        spread = {m: t.spread.loc[dataset.name] for m, t in by_measure.items()}
        uncalibrated = {m: row[METHODS["uncalibrated"].label] for m, row in ours.items()}
        network = recognised(dataset.n_classes, uncalibrated)
        if network is None:
            continue
        name, printed = network
        values = []
        for method in (m for m in COLUMNS if m in plan.methods):
            label = METHODS[method].label
            for m in MEASURES:
                if math.isfinite(ours[m][label]):
                    three = printed.at[m, method], ours[m][label], spread[m][label]
                    values.append((method, m, *three, match(*three)))
        columns = ["method", "measure", "printed", "ours", "spread", "match"]
        comparisons.append(Comparison(dataset.name, name, pd.DataFrame(values, columns=columns)))
    return comparisons


# Text.


def number(value: float, decimals: int = 2) -> str:
    """A value as shown."""
    if math.isnan(value):
        return NOT_RUN
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{round(value, decimals) + 0.0:.{decimals}f}"


def markdown_table(header: Iterable[str], rows: Iterable[Iterable[str]], escape: bool = True) -> str:
    """A Markdown table; the first column is text, the others are aligned to the right."""
    header = list(header)
    shown = escape_markdown if escape else str
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(shown, line)) + " |" for line in lines)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
