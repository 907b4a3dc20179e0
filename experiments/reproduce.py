"""Run the experiments of the MCCT paper on every set in a folder, and write tables, figures and a page.

    python -m experiments.reproduce --data my_logits/ --out results/          everything; --quick is shorter
    python -m experiments.reproduce --out results/                            on example data

OUT/trials/*.json          one result for each fit: configuration, numbers, versions, times
OUT/results.csv           all of them as a table
OUT/figures/*.svg, *.png
OUT/index.html            everything, in one file; results.md the same as Markdown

A run that was stopped continues when it is started again with the same folder.
"""

from __future__ import annotations

import argparse
import base64
import sys
import warnings
from pathlib import Path

import jinja2
import joblib
import pandas as pd

from monocal.data import Splits, atomic_path, digits_example, find, synthetic, write
from monocal.errors import FileError, InputError

from .figures import draw_pictures
from .findings import make_findings
from .methods import METHODS
from .plan import FULL, QUICK, Plan, Settings, make_plan
from .tables import Comparison, escape_markdown, make_comparisons, make_tables, markdown_table
from .trials import Dataset, run_trials, versions

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=lambda name: name.endswith(".html"),
    trim_blocks=True,
)
TEMPLATES.filters["md"] = escape_markdown
TEMPLATES.globals["table"] = markdown_table


def reproduce(
    data: Path | None,
    out: Path,
    *,
    settings: Settings = FULL,
    methods: tuple[str, ...] = tuple(METHODS),
    seed: int = 0,
    jobs: int | None = None,
    markdown: Path | None = None,
) -> tuple[pd.DataFrame, list[Comparison]]:
    """Run what is missing and write everything; the data frame of trials, and the comparisons with the paper's numbers."""
    if out.exists() and any(out.iterdir()) and not (out / "trials").is_dir():
        raise FileError(f"{out} holds other files: give an empty folder, or one of an earlier run.")
    if markdown is not None and markdown.suffix != ".md":
        raise FileError(f"{markdown} should end in .md.")
    for name in ("trials", "figures"):
        (out / name).mkdir(parents=True, exist_ok=True)
    datasets, left_out = find_datasets(data or example(out / "example-data", seed))
    plan = make_plan(datasets, settings, seed, methods)
    trials, reused = run_trials(plan.trials, out / "trials", jobs or joblib.cpu_count())
    print(f"{len(trials):,} fits, {reused:,} of them done before.", file=sys.stderr)
    tables = make_tables(plan, trials)
    comparisons = make_comparisons(plan, tables)
    pictures = draw_pictures(plan, trials, out / "figures")
    svg = {p.name: (out / "figures" / f"{p.name}.svg").read_bytes() for p in pictures}
    trials.drop(columns="fitted").to_csv(out / "results.csv", index=False)
    page = {
        "tables": tables,
        "findings": make_findings(plan, trials),
        "comparisons": comparisons,
        "summary": make_summary(plan, trials, left_out),
        "sets": [[d.name, str(d.n_classes), f"{d.n_cal:,}", f"{d.n_test:,}"] for d in datasets],
        "pictures": pictures,
        "svg": {name: base64.b64encode(picture).decode() for name, picture in svg.items()},
    }
    write_text(out / "index.html", TEMPLATES.get_template("page.html").render(page))
    as_markdown = TEMPLATES.get_template("page.md")
    write_text(out / "results.md", as_markdown.render(page, figures="figures"))
    if markdown is not None:
        folder = markdown.with_suffix("")
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in svg.items():
            (folder / f"{name}.svg").write_bytes(picture)
        write_text(markdown, as_markdown.render(page, figures=folder.name))
    return trials, comparisons


def example(folder: Path, seed: int) -> Path:
    """Example data: a network on images of digits, and distorted logits with a hundred classes."""
    folder.mkdir(exist_ok=True)
    cal = synthetic(2000, 100, seed=2 * seed, overconfidence=1.8)
    test = synthetic(4000, 100, seed=2 * seed + 1, overconfidence=1.8)
    write(folder / "digits.npz", digits_example(seed), force=True)
    write(folder / "synthetic.npz", Splits(cal, test, "synthetic"), force=True)
    return folder


def find_datasets(data: Path) -> tuple[tuple[Dataset, ...], list[str]]:
    """Sets that can be used, and why others cannot."""
    datasets, left_out = [], []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        for location in find(data):
            try:
                datasets.append(Dataset.of(location))
            except InputError as error:
                left_out.append(str(error))
    left_out += [str(w.message) for w in caught]
    if not datasets:
        raise FileError(f"{data} holds no set that can be used: {' '.join(left_out)}")
    return tuple(datasets), left_out


def make_summary(plan: Plan, trials: pd.DataFrame, left_out: list[str]) -> list[str]:
    s, seeds = plan.settings, "with one seed"
    if s.seeds > 1:
        seeds = f"with {s.seeds} seeds; the values are means, with ± the standard deviation"
    return [
        f"Written by make reproduce (seed {plan.seed}) from {len(trials):,} fits on {len(plan.datasets)} sets, which took "
        f"{trials.total_cpu_seconds.sum() / 60:.1f} processor minutes. Methods that are random ran {seeds}. Each part of a "
        f"calibration set in the figures is a random one; the number of draws is {s.draws}.",
        "Best of a row in bold. Ranks and the best are of the values as shown; ties share the mean rank.",
        "Made with " + ", ".join(f"{name} {v}" for name, v in versions().items()) + ".",
        *(f"Not used: {why}" for why in left_out),
    ]


def write_text(path: Path, text: str) -> None:
    with atomic_path(path, force=True) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m experiments.reproduce", description=__doc__, formatter_class=raw
    )
    parser.add_argument(
        "--data", type=Path, help="folder (or file) with logits and labels; default: example data"
    )
    parser.add_argument("-o", "--out", type=Path, default=Path("monocal-results"), help="folder for results")
    parser.add_argument("--quick", action="store_true", help="fewer seeds, sizes and sets in the figures")
    parser.add_argument("--methods", help=f"names with commas between, out of {', '.join(METHODS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, help="worker processes; default: one per core")
    parser.add_argument(
        "--markdown", type=Path, help="also write the page as Markdown here, its figures next to it"
    )
    options = parser.parse_args()
    names = tuple(options.methods.replace("-", "_").split(",")) if options.methods else tuple(METHODS)
    if unknown := [name for name in names if name not in METHODS]:
        parser.error(f"unknown methods {', '.join(unknown)}: choose from {', '.join(METHODS)}")
    settings = QUICK if options.quick else FULL
    rest = {"seed": options.seed, "jobs": options.jobs, "markdown": options.markdown}
    try:
        trials, comparisons = reproduce(options.data, options.out, settings=settings, methods=names, **rest)
    except (InputError, OSError) as error:
        parser.exit(2, f"{error}\n")
    for comparison in comparisons:
        print(comparison.text)
        print(*("  ".join(text for text, _ in row[:-1]) for row in comparison.rows()), sep="\n")
    print(f"Open the page in a browser: {(options.out / 'index.html').resolve().as_uri()}")
    sys.exit(int((trials.message != "").any()))


if __name__ == "__main__":
    main()
