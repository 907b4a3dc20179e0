"""What a report holds, as data: put into words by `verdict` and the sections, and into a page by `page`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..io import atomic_path
from ..metrics import Evaluation, Floor, LabelShiftTest, OrderAudit
from ..metrics.paired import Difference
from ..plots import CalibrationCurve, EffectCurve, RankParameters
from ..solver import Solution
from .confidence import ConfidenceChange
from .for_whom import ForWhom
from .selection import MethodComparison
from .verdict import Verdict, verdict

METRICS = ("nll", "brier", "ece", "adaptive_ece", "classwise_ece", "accuracy")


@dataclass(frozen=True)
class Side:
    """One predictor on the rows it is judged on: before calibration, or after.

    Attributes
    ----------
    evaluation : Evaluation
    curve, margin : CalibrationCurve
        By confidence, and by margin.
    floor : Floor
        What chance alone would show.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(400, 4)
    >>> report = mc.report.collect(data, calibrator=mc.MCCT(), methods=False, n_boot=20)
    >>> report.before.curve.ece > report.after.curve.ece
    True
    """

    evaluation: Evaluation
    curve: CalibrationCurve
    margin: CalibrationCurve
    floor: Floor


@dataclass(frozen=True)
class Report:
    """All figures of a report.

    Attributes
    ----------
    title, data_name, kind : str
    n_cal, n_judged, n_classes : int
    judged_how : str
        In words: on which rows the figures were computed.
    before, after : Side
    changes : dict of str to Difference
        After minus before, paired by row, of the metrics that are means over rows.
    audit : OrderAudit
    methods : MethodComparison or None
    shift : LabelShiftTest or None
        Of calibration against test labels, where there is a test set.
    class_names : tuple of str or None
    shown : str
        The method of this page: the one asked for, or the one recommended.
    calibrator : Calibrator
        It, fitted on all calibration rows.
    for_whom : tuple of ForWhom
        Predicted classes, then the groups given, before and after.
    confidence : ConfidenceChange
        What it does to the confidence of the top class.
    parameters : RankParameters or None
    effects : tuple of EffectCurve
    explanation : str or None
        What the calibrator says of itself (its ``explain``), where it does.
    solution : Solution or None
        With the certificate.
    fingerprint : dict
        Of the calibration data.
    versions : dict of str to str
    created : str
    notes : tuple of str

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(400, 4)
    >>> report = mc.report.collect(data, calibrator=mc.MCCT(), methods=False, n_boot=20)
    >>> report.audit.preserved, report.solution.converged
    (True, True)
    >>> "<html" in report.to_html()
    True
    """

    title: str
    data_name: str
    kind: str
    n_cal: int
    n_judged: int
    n_classes: int
    judged_how: str
    before: Side
    after: Side
    changes: dict[str, Difference]
    audit: OrderAudit
    methods: MethodComparison | None
    shift: LabelShiftTest | None
    class_names: tuple[str, ...] | None
    shown: str
    calibrator: Any
    saved: str | None
    for_whom: tuple[ForWhom, ...]
    confidence: ConfidenceChange
    parameters: RankParameters | None
    effects: tuple[EffectCurve, ...]
    explanation: str | None
    solution: Solution | None
    fingerprint: dict[str, Any]
    versions: dict[str, str]
    created: str
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """What the page says first."""
        return verdict(self)

    def to_html(self) -> str:
        """The page: one text, no network."""
        from .page import page

        return page(self)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the page, whole or not at all."""
        with atomic_path(path, force=force) as temporary:
            temporary.write_text(self.to_html(), encoding="utf-8", errors="backslashreplace")
        return Path(path)
