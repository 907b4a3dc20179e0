"""A report on one page: what was wrong with a model's probabilities, what calibration did, and how to use it.

`collect` makes the figures (`Report`), `comparison` judges methods on the rows of a `trial`, `sentences` has the verdict, and
`page` fills one template: a file that needs no network.
"""

from __future__ import annotations

import os
from typing import Any

from ..io import atomic_path
from .collect import LabelReport, Report, Side, collect, collect_labels
from .comparison import MethodComparison, MethodResult, compare_methods, default_methods
from .trial import Trial, as_set

__all__ = [
    "LabelReport",
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
    path: str | os.PathLike[str], cal: Any, test: Any = None, *, force: bool = False, **options: Any
) -> Report | LabelReport:
    """Calibrate, judge, and write a self-contained HTML page about it.

    Parameters
    ----------
    path : path
        The page to write.
    cal, test
        Calibration set, and the set to judge on, as in `collect`; sets of many labels (``many_labels``) are judged by label.
    force : bool
        Replace an existing file instead of refusing.
    **options
        Of `collect`: the calibrator, methods, groups and others; of many labels calibrator, title, seed and on_step.

    Returns
    -------
    Report or LabelReport
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
        make = collect_labels if getattr(cal, "many_labels", False) else collect
        report: Report | LabelReport = make(cal, test, **options)
        temporary.write_text(report.to_html(), encoding="utf-8", errors="backslashreplace")
    return report
