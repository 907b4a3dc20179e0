r"""The paper's tables and further ones, from the data frame of trials; and the paper's printed numbers next to ours.

Table 1  ECE, 15 bins          Table 4  NLL                 Table 6  change of accuracy
Table 2  ECE by kernels        Table 5  Brier score         Table 7  rows whose order changed
Table 3  EQ-BIN ECE

Ranks and the best value are of the values *as shown*: two methods that read 1.19 are tied, share the mean of their ranks and are
both best. That is also how the paper's average ranks come about.

The printed numbers are those of Tables 1 to 3 by network (published.csv), in the columns that `methods.METHODS` marks as the
paper's: Zhang, Batista and Kanhere, Instance-Wise Monotonic Calibration by Constrained Transformation, UAI 2025. A set of logits
is one of the paper's when its uncalibrated values are those of a network, to the digit, in all three tables, whatever its file is
called.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from .methods import METHODS
from .plan import Plan

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
    Measure("kde_ece", "Table 2: ECE-KDE", "Calibration error by kernel density, in %.", 100),
    Measure("eq_bin_ece", "Table 3: EQ-BIN ECE", "Gaps over bins of 1000 samples, times 10.", 10),
    Measure("nll", "Table 4: NLL", "Negative log-likelihood, in nats.", 1, 4),
    Measure("brier", "Table 5: Brier score", "Sum of squared errors, times 100.", 100),
    Measure("accuracy_change", "Table 6: change of accuracy", "In points.", 100, 2, True),
    Measure("rows_reordered", "Table 7: rows re-ordered", "Rows with swapped classes, in %.", 100),
)


@dataclass(frozen=True)
class Table:
    """Sets by methods: mean and standard deviation over seeds in the unit shown, and signs that the caption explains."""

    measure: Measure
    caption: str
    mean: pd.DataFrame
    spread: pd.DataFrame
    marks: pd.DataFrame

    def ranks(self, columns: Iterable[str] | None = None) -> pd.DataFrame:
        """Rank of each value, as it is printed, in its row, 1 the best; ties share their mean."""
        means = self.mean if columns is None else self.mean[list(columns)]
        shown = means.round(self.measure.decimals)
        return shown.rank(axis=1, ascending=not self.measure.higher_is_better)

    def summary(self) -> pd.DataFrame:
        """Rows below the table: mean (where every row has a value), and average ranks."""
        paper = [m.label for m in METHODS.values() if m.in_paper and m.label in self.mean]
        lines = {"Mean": self.mean.mean(skipna=False), "Average rank": self.ranks().mean()}
        if 0 < len(paper) < self.mean.shape[1]:
            lines["Average rank, paper's columns"] = self.ranks(paper).mean()
        return pd.DataFrame(lines).T

    def text(self, bold: str, escape: Callable[[str], str]) -> pd.DataFrame:
        """Every cell as text, the best of each row in bold: ``bold`` is a format such as ``**{}**``."""
        decimals = self.measure.decimals
        means, ranks = self.summary().iloc[:1], self.summary().iloc[1:]
        spread = self.spread.map(lambda x: f" ± {number(x, decimals)}" if math.isfinite(x) else "")
        own = self.mean.map(number, decimals=decimals) + spread + self.marks
        texts = pd.concat([own, means.map(number, decimals=decimals), ranks.map(number)])
        texts, sign = texts.map(escape), -1 if self.measure.higher_is_better else 1
        shown = pd.concat([sign * pd.concat([self.mean, means]).round(decimals), ranks.round(2)])
        texts = texts.mask(shown.eq(shown.min(axis=1), axis=0), texts.map(bold.format))
        return texts.rename(index=escape, columns=escape)

    def to_markdown(self) -> str:
        frame = self.text("**{}**", escape_markdown)
        return markdown_table(["set", *frame.columns], frame.itertuples(), escape=False)

    def to_html(self) -> str:
        return self.text("<b>{}</b>", html.escape).to_html(escape=False, border=0)


def make_tables(plan: Plan, trials: pd.DataFrame) -> list[Table]:
    """All tables of a run."""
    by_cell = trials[trials.file.isin([t.file_name for t in plan.tables])].groupby(["set", "label"])
    rows, columns = [d.name for d in plan.datasets], [METHODS[m].label for m in plan.methods]

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
        nothing = by_cell.size() * math.nan
        mean = frame(nothing if values is None else measure.unit * values.mean())
        spread = frame(nothing if values is None else measure.unit * values.std())
        tables.append(Table(measure, measure.caption + note, mean, spread, marks))
    return tables


# The paper's printed numbers.

PRINTED = {"ece": "ECE, %", "kde_ece": "ECE-KDE, %", "eq_bin_ece": "EQ-BIN ECE, times 10"}
DECIMALS = 2
NEAR = 0.02
SIGNS = {"same": "=", "near": "≈", "different": "≠"}
_NOT_EXPLAINED = "Not explained: ours is the optimum, where SLSQP from the published start ends too."
_WHY = {
    "vs": "Ours is the optimum of the likelihood, without a penalty; where a gradient method stops depends on its steps.",
    "hb": "Ties: many rows have one confidence, and bins of 1000 rows divide them. Which row falls into which bin moves EQ-BIN "
    "ECE (on DenseNet-40 between 2.6 and 3.0); ours shares them between the bins.",
    "ets": _NOT_EXPLAINED,
    "ets_mse": _NOT_EXPLAINED,
    "pts": "Seeds: 200 epochs at a learning rate of 5e-5 leave the network near its random start.",
    "diag": "A network: its start is random, and rows held out decide when training stops.",
}


@dataclass(frozen=True)
class Comparison:
    """One of the paper's sets: by method and measure the printed value, ours, its spread over seeds, and how they match."""

    set_name: str
    network: str  # and its data
    values: pd.DataFrame
    header = ("method", *PRINTED.values(), "why they differ")

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

    def rows(self) -> list[list[tuple[str, str]]]:
        """For each method its cells as (text, match); the reason where not all values are the same."""
        rows = []
        for method, group in self.values.groupby(level="method", sort=False):
            cells = dict.fromkeys(PRINTED, (NOT_RUN, ""))
            for (_, measure), v in group.iterrows():
                after = f" ± {v.spread:.{DECIMALS}f}" if math.isfinite(v.spread) else ""
                text = f"{v.printed:.{DECIMALS}f} {SIGNS[v.match]} {v.ours:.{DECIMALS}f}{after}"
                cells[measure] = text, v.match
            why = "" if (group.match == "same").all() else _WHY.get(str(method), "")
            rows.append([(METHODS[str(method)].label, ""), *cells.values(), (why, "")])
        return rows

    def texts(self) -> list[list[str]]:
        """The rows without the matches, whose signs are part of the texts."""
        return [[text for text, _ in row] for row in self.rows()]


def match(printed: float, ours: float, spread: float) -> str:
    """How two values agree, as shown."""
    apart = abs(round(ours, DECIMALS) - printed)
    if apart < 10.0**-DECIMALS / 2:
        return "same"
    near = max(NEAR, 2 * spread) if math.isfinite(spread) else NEAR
    return "near" if apart <= near + 1e-9 else "different"


def make_comparisons(plan: Plan, tables: list[Table]) -> list[Comparison]:
    """For every set of the run whose uncalibrated values are those of one of the paper's networks."""
    if "uncalibrated" not in plan.methods:
        return []
    methods = [m for m, method in METHODS.items() if method.in_paper and m in plan.methods]
    labels = [METHODS[m].label for m in methods]
    published = pd.read_csv(Path(__file__).with_name("published.csv"))
    comparisons = []
    for d in plan.datasets:
        own = dict(zip(PRINTED, tables, strict=False))  # the paper's three tables come first
        ours = pd.DataFrame({m: t.mean.loc[d.name, labels].array for m, t in own.items()}, methods)
        spread = pd.DataFrame({m: t.spread.loc[d.name, labels].array for m, t in own.items()}, methods)
        networks = published[published.n_classes == d.n_classes].groupby(["data", "model"])
        for (data, model), rows in networks:
            printed = rows.set_index("measure")[methods].T
            same = ours.loc["uncalibrated"].round(DECIMALS) == printed.loc["uncalibrated"]
            if same.all():
                parts = {"printed": printed.stack(), "ours": ours.stack(), "spread": spread.stack()}
                values = pd.concat(parts, axis=1).dropna(subset="ours")
                values.index.names = ["method", "measure"]
                values["match"] = [match(*row) for row in values.itertuples(index=False)]
                comparisons.append(Comparison(d.name, f"{model} on {data}", values))
                break
    return comparisons


# Text.


def number(value: float, decimals: int = 2) -> str:
    """A value as shown."""
    if math.isnan(value):
        return NOT_RUN
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{round(value, decimals) + 0.0:.{decimals}f}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], escape: bool = True) -> str:
    """A Markdown table; the first column is text, the others are aligned to the right."""
    shown = escape_markdown if escape else str
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(shown, line)) + " |" for line in lines)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
