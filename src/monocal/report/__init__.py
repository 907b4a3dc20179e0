"""A report on one page: what was wrong with a model's probabilities, what calibration did, and how to use it.

`collect` makes the figures (`Report`), `comparison` judges methods, `sentences` has every sentence, and `page` fills one
template: a file that needs no network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..io import atomic_path
from .collect import Report, Side, collect
from .comparison import MethodComparison, MethodResult, compare_methods, default_methods
from .trial import Trial, as_set

__all__ = [
    "MethodComparison",
    "MethodResult",
    "Report",
    "Side",
    "Trial",
    "as_set",
    "collect",
    "compare_methods",
    "default_methods",
    "write_report",
]


def write_report(
    path: str | os.PathLike[str],
    cal: Any,
    test: Any = None,
    *,
    calibrator: Any = None,
    methods: Mapping[str, Any] | bool | None = None,
    title: str | None = None,
    kind: str = "logits",
    groups: Any = None,
    n_bins: int = 15,
    n_boot: int | None = None,
    level: float = 0.95,
    time_limit: float = 60.0,
    seed: int = 0,
    on_step: Callable[[str], None] | None = None,
    force: bool = False,
) -> Report:
    """Calibrate, judge, and write a self-contained HTML page about it.

    Parameters
    ----------
    path : path
        The page to write.
    cal : LogitsSet or (values, labels)
        Calibration set: values of shape (n, m), labels of shape (n,).
    test : LogitsSet or (values, labels), optional
        Set to judge on. Without one the figures come from 5-fold cross-validation, and the page says so.
    calibrator : Calibrator, optional
        Unfitted: it is fitted on ``cal``. Fitted: it is judged as it is. Either is shown on the page, which says how it
        compares. Default: the one recommended for the calibration rows
        (`monocal.selection.recommend`).
    methods : mapping of names to unfitted calibrators, or bool, optional
        What to compare. Default: every calibrator that trains no network; True: those as well; False: no comparison.
    title : str, optional
    kind : {"logits", "probabilities"}
        What ``values`` are where arrays are given; a `LogitsSet` knows.
    groups : array-like of shape (n,), frame or mapping of columns, optional
        Groups of the judged rows (those of ``test``, or of ``cal`` without one): the page says which of them are off. Where they
        differ and there is no ``test``, the method is fitted with them as its context.
    n_bins : int
        Of the reliability diagram and ECE.
    n_boot : int, optional
        Bootstrap draws behind the intervals. Default: 500, fewer for large sets.
    level : float
        Of the intervals and of the band of perfect calibration.
    time_limit : float
        Seconds for the comparison of methods. One that takes more than a third of those left is stopped, and the
        verdict names it. The method recommended does not depend on it.
    seed : int
        Of the folds and of the draws.
    on_step : callable, optional
        Called with the name of each step, for a progress display.
    force : bool
        Replace an existing file instead of refusing.

    Returns
    -------
    Report
        The figures of the page.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(400, 4)
    >>> report = mc.write_report("report.html", data, calibrator=mc.MCCT(), methods=False, n_boot=20)
    >>> report.shown, report.audit.preserved
    ('MCCT', True)
    """
    with atomic_path(path, force=force) as temporary:  # refuses before the work, not after it
        report = collect(
            cal,
            test,
            calibrator=calibrator,
            methods=methods,
            title=title,
            kind=kind,
            groups=groups,
            n_bins=n_bins,
            n_boot=n_boot,
            level=level,
            time_limit=time_limit,
            seed=seed,
            on_step=on_step,
        )
        temporary.write_text(report.to_html(), encoding="utf-8", errors="backslashreplace")
    return report
