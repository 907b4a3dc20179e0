"""What of a loss better calibration could remove, and what it could not.

For a proper loss ``l``, predictions ``p`` and all maps ``g`` of predictions to predictions

    E l(p, y)  =  min_g E l(g(p), y)   +   [E l(p, y) - min_g E l(g(p), y)]
    loss       =  refinement           +   calibration

The best map is ``g(p) = P(y | p)``. Here ``g`` is what a calibrator learns, and each row is judged by a map that was fitted
without it (folds). No family holds every map and none is learnt without error, so that the refinement is a little too large
and the calibration too small: it is what this calibrator can really remove, and below zero where it does harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from ..calibrators import Calibrator
from ..calibrators.conditional import ConditionalMCCT
from ..calibrators.folds import deal, keys_of_logits
from ..errors import InputError, part_of_a_fit
from ..inputs.layout import Layout
from ..inputs.validation import check_count
from ..llm.top_k import TopK, TopKProbabilities
from .functions import Statistics
from .outcomes import Floats, Outcomes
from .table import Options


@dataclass(frozen=True)
class LossParts:
    """``total = calibration + refinement``.

    Attributes
    ----------
    total, calibration, refinement : float

    Examples
    --------
    >>> from monocal.metrics import LossParts
    >>> print(LossParts(0.5, 0.1, 0.4))
    0.5000 = 0.1000 calibration + 0.4000 refinement
    """

    total: float
    calibration: float
    refinement: float

    def __str__(self) -> str:
        return f"{self.total:.4f} = {self.calibration:.4f} calibration + {self.refinement:.4f} refinement"


@dataclass(frozen=True)
class Decomposition:
    """Parts of the two proper losses.

    Attributes
    ----------
    nll, brier : LossParts

    Examples
    --------
    >>> from monocal.metrics import Decomposition, LossParts
    >>> Decomposition(LossParts(0.5, 0.1, 0.4), LossParts(0.3, 0.1, 0.2)).nll.calibration
    0.1
    """

    nll: LossParts
    brier: LossParts

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Plain numbers, ready for JSON."""
        return {"nll": dict(self.nll.__dict__), "brier": dict(self.brier.__dict__)}

    def __str__(self) -> str:
        return f"NLL    {self.nll}\nBrier  {self.brier}"


def decompose(
    probs: Any,
    labels: Any,
    *,
    calibrator: Calibrator | None = None,
    cv: int = 5,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> Decomposition:
    """Split NLL and Brier score into a calibration and a refinement part.

    Parameters
    ----------
    probs, labels, sample_weight, class_axis, ignore_index
        As in `evaluate`.
    calibrator : Calibrator, optional
        Whose maps are tried; ``ConditionalMCCT()`` when None, so that the calibration part is what a map that keeps the order
        of the classes can remove. `StructuredMCCT` may change it.
    cv : int
        Folds. They are dealt by the probabilities of a row, whatever its label, so that neither the order of rows nor
        repeated ones matter; at least two rows must differ in their probabilities.

    References
    ----------
    Bröcker, Reliability, sufficiency, and the decomposition of proper scores, QJRMS 135 (2009).
    Berta, Holzmüller, Jordan & Bach, Rethinking early stopping: refine, then calibrate, 2025.

    Examples
    --------
    >>> import monocal as mc
    >>> from scipy.special import softmax
    >>> test = mc.data.digits_example().test
    >>> parts = mc.metrics.decompose(softmax(test.values, axis=1), test.labels)
    >>> parts.nll.calibration > parts.nll.refinement  # far too sure, and otherwise a good classifier
    True
    """
    if isinstance(probs, TopK | TopKProbabilities):
        raise InputError(
            "decompose: it needs the probabilities of all classes, but these rows name their largest alone (TopK)."
        )
    rows = Outcomes.of(probs, labels, sample_weight, Layout(class_axis, ignore_index))
    p = np.asarray(rows.probs.rows[:])[rows.kept]
    model = ConditionalMCCT() if calibrator is None else clone(calibrator)
    model.set_params(input="probabilities")
    with np.errstate(divide="ignore"):
        keys = keys_of_logits(np.log(p))
    different = len(np.unique(keys))
    cv = check_count(cv, "cv", least=2)
    if different < 2:
        raise InputError(
            "decompose: all rows are alike in their probabilities, so that no row is left to judge by."
        )
    # Rows of equal probabilities share a fold whatever their labels: a map that has seen them with the other labels only would
    # have learnt the contrary of the truth.
    fold = deal(keys, min(cv, different))
    mapped = np.empty(p.shape, dtype=np.float64)
    for k in np.unique(fold):
        held_out = fold == k
        train = ~held_out
        with part_of_a_fit():
            own = clone(model).fit(p[train], rows.labels[train], rows.weight[train])
        mapped[held_out] = own.predict_proba(p[held_out])
    before, after = _losses(p, rows), _losses(mapped, rows)
    return Decomposition(
        *(LossParts(b, b - a if np.isfinite(a) else -np.inf, a) for b, a in zip(before, after, strict=True))
    )


def _losses(p: Floats, rows: Outcomes) -> tuple[float, float]:
    statistics = Statistics(Outcomes.of(p, rows.labels, rows.weight), Options())
    return statistics.mean("nll"), statistics.mean("brier")
