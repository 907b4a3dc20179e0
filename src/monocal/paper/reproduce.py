"""From a folder of logits to a folder of results.

OUT/cells/*.json          one result per cell: configuration, numbers, versions, times
OUT/results.csv           all of them as a table
OUT/tables.md, tables.tex the paper's tables and the further ones
OUT/figures/*.svg, *.png
OUT/index.html            everything, in one file; results.md the same as Markdown
OUT/run.json              what was asked, what it ran on, how long it took
"""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import joblib

import monocal as mc
from monocal.data import atomic_path, digits_example, find, synthetic, write
from monocal.data.sets import Splits
from monocal.errors import FileError, InputError, spoken

from .beside import Beside, make_beside
from .cells import Dataset
from .columns import METHODS
from .curves import make_pictures
from .figures import draw
from .findings import Finding, make_findings
from .formats import to_latex, to_markdown
from .page import Page, write_html, write_markdown
from .plan import FULL, QUICK, Plan, Settings, make_plan
from .results import make_tables, write_csv
from .running import Progress, Results, run_cells
from .tables import Table
from .worker import versions

_TITLE = "Results of monocal reproduce"  # of the page


@dataclass(frozen=True)
class Outcome:
    """What a run did.

    Attributes
    ----------
    page : Path
        The page to open.
    n_sets, n_cells, n_reused, n_failed : int
        Sets used; cells in all, of these already there, and failed.
    seconds : float
    left_out : tuple of str
        Files that were not used, and why.
    published : tuple of Beside
        The paper's printed numbers beside ours, for every set that is one of the paper's.

    Examples
    --------
    >>> from pathlib import Path
    >>> from monocal.paper import Outcome
    >>> outcome = Outcome(Path("index.html"), n_sets=1, n_cells=17, n_reused=0, n_failed=0, seconds=60.0, left_out=())
    >>> outcome.n_cells - outcome.n_reused
    17
    """

    page: Path
    n_sets: int
    n_cells: int
    n_reused: int
    n_failed: int
    seconds: float
    left_out: tuple[str, ...]
    published: tuple[Beside, ...] = ()


def reproduce(
    data: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "monocal-results",
    *,
    quick: bool = False,
    seed: int = 0,
    jobs: int | None = None,
    methods: Sequence[str] | None = None,
    settings: Settings | None = None,
    markdown: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Run the experiments of the MCCT paper on every set in a folder and write tables, figures and a page.

    Parameters
    ----------
    data : path, optional
        A folder (or file) of logits, see `monocal.data.find`. None: example data, made on the spot.
    out : path
        The folder for results. A run that was stopped goes on from what is there.
    quick : bool
        Fewer seeds, sizes and sets in the figures, and a small top-k for the published optimiser on many classes.
    seed : int
        First of the seeds; everything random follows from it.
    jobs : int, optional
        Worker processes; None: one per core.
    methods : sequence of str, optional
        Keys of `monocal.paper.columns.METHODS`; None: all.
    settings : Settings, optional
        How much to run, in place of ``quick``.
    markdown : path, optional
        Write the page as Markdown here too, with its figures in the folder beside it that has its name. A page of
        an earlier run is replaced.
    force : bool
        Replace an existing ``markdown`` whatever it is.
    progress : callable, optional
        ``progress(done, total, cell)``, see `monocal.paper.running.run_cells`.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> from monocal.data import Splits, synthetic, write
    >>> from monocal.paper import Settings, reproduce
    >>> _ = write("both.npz", Splits(synthetic(300, 4), synthetic(200, 4, seed=1), "both"))
    >>> few = Settings(seeds=1, draws=1, fractions=(), counts=(), curve_sets=0, rank_sets=0)
    >>> outcome = reproduce("both.npz", "results", methods=["uncalibrated", "ts"], settings=few, jobs=1)
    >>> outcome.n_sets, outcome.n_cells, outcome.page.name
    (1, 2, 'index.html')
    """
    began = time.perf_counter()
    names, jobs = _check_methods(methods), _n_jobs(jobs)
    folder = _check_folder(Path(out).expanduser())
    page_too = None if markdown is None else _check_markdown(Path(markdown).expanduser(), force)
    if data is None:
        data = _example(_make_folder(folder) / "example-data", seed)
    datasets, left_out = _find_datasets(Path(data))
    _make_folder(folder)
    plan = make_plan(datasets, settings or (QUICK if quick else FULL), seed, names)
    results, reused = run_cells(plan.cells, folder / "cells", jobs, progress)
    failed = sum(result["status"] != "done" for result in results.values())
    page = folder / "index.html"
    tables = make_tables(plan, results)
    outcome = Outcome(
        page,
        len(datasets),
        len(plan.cells),
        reused,
        failed,
        time.perf_counter() - began,
        left_out,
        tuple(make_beside(plan, tables)),
    )
    _write_all(folder, plan, results, tables, outcome, page_too)
    return outcome


def _check_methods(methods: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(METHODS) if methods is None else tuple(methods)
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        raise InputError(f"methods: expected names out of {', '.join(METHODS)}; got {unknown or names}.")
    return tuple(m for m in METHODS if m in names)


def _n_jobs(jobs: int | None) -> int:
    if jobs is None:
        return int(joblib.cpu_count())
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}.")
    return jobs


def _check_folder(folder: Path) -> Path:
    """A folder for results: new, empty or one of an earlier run. Nothing is made yet: the data may be missing."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise FileError(f"{folder} cannot be used for results ({there} is a file): give another folder.")
    if there == folder and any(folder.iterdir()) and not (folder / "cells").is_dir():
        raise FileError(f"{folder} holds other files: give an empty folder, or one of an earlier run.")
    return folder


def _make_folder(folder: Path) -> Path:
    try:
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        (folder / "figures").mkdir(exist_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FileError(f"{folder} cannot be used for results ({reason}): give another folder.") from error
    return folder


def _check_markdown(path: Path, force: bool) -> Path:
    """A Markdown file; its figures go into a folder that has its name without the extension."""
    if path.suffix.lower() not in (".md", ".markdown"):
        raise FileError(f"{path} should end in .md, for the page as Markdown.")
    if path.is_file() and not force:
        with open(path, "rb") as file:
            ours = file.readline(200).strip() == f"# {_TITLE}".encode()
        if not ours:
            raise FileError(
                f"{path} exists already and is no page of an earlier run: choose another name or use {spoken('force')}."
            )
    return path


def _example(folder: Path, seed: int) -> Path:
    """Example data that monocal makes: a network on images of digits, and distorted logits with a hundred classes."""
    folder.mkdir(exist_ok=True)
    cal = synthetic(2000, 100, seed=2 * seed, overconfidence=1.8)
    test = synthetic(4000, 100, seed=2 * seed + 1, overconfidence=1.8)
    write(folder / "digits.npz", digits_example(seed), force=True)
    write(folder / "synthetic.npz", Splits(cal, test, "synthetic"), force=True)
    return folder


def _find_datasets(data: Path) -> tuple[tuple[Dataset, ...], tuple[str, ...]]:
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
    return tuple(datasets), tuple(left_out)


def _write_all(
    folder: Path, plan: Plan, results: Results, tables: list[Table], outcome: Outcome, markdown: Path | None
) -> None:
    pictures = make_pictures(plan, results)
    write_csv(folder / "results.csv", plan, results)
    _write_text(
        folder / "tables.md", "\n\n".join(f"## {t.title}\n\n{t.caption}\n\n{to_markdown(t)}" for t in tables)
    )
    _write_text(
        folder / "tables.tex", "\n\n".join(to_latex(t, f"tab:monocal-{i}") for i, t in enumerate(tables, 1))
    )
    for picture in pictures:
        draw(picture, folder / "figures")
    page = Page(
        _TITLE,
        _summary(plan, results, outcome),
        _sets(plan),
        tables,
        pictures,
        make_findings(plan, results),
        outcome.published,
    )
    write_markdown(page, folder / "results.md", "figures")
    write_html(page, outcome.page, folder / "figures")
    _write_text(folder / "run.json", json.dumps(_run(plan, outcome), indent=1))
    if markdown is not None:
        beside = markdown.with_suffix("")
        beside.mkdir(parents=True, exist_ok=True)
        for picture in pictures:
            shutil.copyfile(folder / "figures" / f"{picture.name}.svg", beside / f"{picture.name}.svg")
        write_markdown(page, markdown, beside.name)


def _write_text(path: Path, text: str) -> None:
    with atomic_path(path, force=True) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def _sets(plan: Plan) -> Finding:
    rows = tuple((d.name, str(d.n_classes), f"{d.n_cal:,}", f"{d.n_test:,}") for d in plan.datasets)
    text = "Every method is fitted on the calibration samples of a set and judged on its test samples."
    return Finding("Sets", text, ("set", "classes", "calibration samples", "test samples"), rows)


def _summary(plan: Plan, results: Results, outcome: Outcome) -> list[str]:
    work = sum(result["times"]["total_cpu_seconds"] for result in results.values())
    s = plan.settings
    kind = "quick" if s == QUICK else "full" if s == FULL else "custom"
    return [
        f"Written by the command monocal reproduce ({kind} run, seed {plan.seed}) from {len(plan.cells):,} fits on "
        f"{len(plan.datasets)} sets, which took {work / 60:.1f} processor minutes. "
        + (
            f"Methods that are random ran with {s.seeds} seeds; the values are means, with ± the standard deviation. "
            if s.seeds > 1
            else "Methods that are random ran with one seed. "
        )
        + f"Each part of a calibration set in the figures is a random one; the number of draws is {s.draws}.",
        "Best of a row in bold. Ranks and the best are of the values as shown; ties share the mean rank.",
        "Made with " + ", ".join(f"{name} {v}" for name, v in versions().items()) + ".",
        *(f"Not used: {why}" for why in outcome.left_out),
    ]


def _run(plan: Plan, outcome: Outcome) -> dict:
    return {
        "monocal": mc.__version__,
        "versions": versions(),
        "seed": plan.seed,
        "settings": asdict(plan.settings),
        "methods": plan.methods,
        "sets": {d.name: {"data": d.digest, "classes": d.n_classes} for d in plan.datasets},
        "cells": {"all": outcome.n_cells, "reused": outcome.n_reused, "failed": outcome.n_failed},
        "left_out": outcome.left_out,
        "seconds": outcome.seconds,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
