"""The recommended calibrator where the order may change: structured scaling moves classes, the cone does the rest.

    z  ->  StructuredScaling(shrinkage="cv")  ->  ConditionalMCCT

The first mends what is wrong with single classes and pairs of them, as far as cross-validation is sure of it, and is
left out where it is not. The second, fitted on the first's out-of-fold output, mends how sure samples are. How
far the first may go is judged by what both achieve together on rows that neither has seen: what the second mends by itself
needs no class to move.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from ..errors import part_of_a_fit
from ..inputs.reader import Checked
from ..inputs.validation import check_choice, check_number
from .conditional import ConditionalMCCT
from .cone_calibrator import ConeCalibrator
from .folds import deal, keys_of_logits, splits_of
from .mcct import MCCT
from .scaling import ROUGH, StructuredScaling, Surest, log_likelihood
from .stacked import Stacked, out_of_fold

# Classes below which a weight for every pair pays: with a hundred, on halves of three real calibration sets, it never did.
_PAIRS_BELOW = 50
# Logits that strengths are judged by, at the most: with more, a part of the rows tells as well which one to take.
_JUDGED = 2**22


class StructuredMCCT(Stacked):
    """Structured scaling, then `ConditionalMCCT` on its out-of-fold output.

    Parameters
    ----------
    kind : {"auto", "matrix", "vector"}
        Of `StructuredScaling`; "auto": "matrix" for fewer than 50 classes.
    shrinkage : float or "cv"
        Of `StructuredScaling`. "cv" falls back to `ConditionalMCCT` where nothing better is certain.
    folds : int
        Parts to hold out in turn, as in `Stacked`.
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.
    tol : float
        Largest violation of the optimality conditions to accept, in both stages.
    max_iter : int

    Attributes
    ----------
    shrinkage_ : float
        The strength used. Infinity: nothing but the order-preserving stage is certain to help, and it is all there is.
    stages_ : list of Calibrator
        The two, or the second alone, fitted; each with its ``solution_``.
    solution_ : monocal.solver.Solution
        Of the last stage.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.data import synthetic
    >>> data = synthetic(2000, 5, seed=0)
    >>> cal = mc.StructuredMCCT().fit(data.values, data.labels)
    >>> cal.shrinkage_, cal.solution_.converged          # nothing to mend but how sure the samples are
    (inf, True)
    >>> biased = data.values + [3.0, 0.0, 0.0, 0.0, -3.0]
    >>> [type(stage).__name__ for stage in mc.StructuredMCCT().fit(biased, data.labels).stages_]
    ['StructuredScaling', 'ConditionalMCCT']
    """

    def __init__(
        self,
        *,
        kind: str = "auto",
        shrinkage: float | str = "cv",
        folds: int = 5,
        input: str = "logits",
        class_axis: int = -1,
        ignore_index: int | None = None,
        tol: float = 1e-6,
        max_iter: int = 100,
    ):
        self.kind = kind
        self.shrinkage = shrinkage
        self.folds = folds
        self.input = input
        self.class_axis = class_axis
        self.ignore_index = ignore_index
        self.tol = tol
        self.max_iter = max_iter

    @part_of_a_fit()
    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_choice(self.kind, "kind", ("auto", "matrix", "vector"))
        check_number(self.folds, "folds", least=2, whole=True)
        if isinstance(self.shrinkage, str):
            check_choice(self.shrinkage, "shrinkage", ("cv",))
            self._fit_surest(logits, labels, weight)
        else:
            super()._fit(logits, labels, weight)
            self.shrinkage_ = self.shrinkage
        self.solution_ = self.stages_[-1].solution_

    def _fit_surest(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        first, then = self._unfitted(logits.shape[1])
        step = -(-logits.size // _JUDGED)
        if step > 1:
            some = np.flatnonzero(deal(keys_of_logits(logits), step, number=2) == 0)
            chosen, _ = self._judged(logits[some], labels[some], None if weight is None else weight[some])
            middle = logits
            if chosen < np.inf:
                parts = splits_of(logits, weight, self.folds)
                middle = out_of_fold(first.set_params(shrinkage=chosen), logits, labels, weight, parts)
        else:
            chosen, middle = self._judged(logits, labels, weight)
        self.shrinkage_ = chosen
        self.stages_ = [then.fit(middle, labels, weight)]
        if chosen < np.inf:
            self.stages_.insert(0, first.set_params(shrinkage=chosen).fit(logits, labels, weight))

    def _judged(
        self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None
    ) -> tuple[float, np.ndarray]:
        """The surest strength, and the logits that the second stage is fitted on with it."""
        first, then = self._unfitted(logits.shape[1])
        share = np.ones(len(labels)) if weight is None else weight
        parts = splits_of(logits, weight, self.folds)
        halves = splits_of(logits, weight, 2, number=1)
        judged = clone(then).set_params(tol=max(self.tol, ROUGH))
        choice = Surest(share)
        for strength, middle in first.along_path(Checked(logits, labels, weight), parts):
            if strength == np.inf:  # a scale is part of the second stage as well, so the first is left out
                middle = logits
            # Two parts are enough for the second, which has little to learn: as many fits as there are strengths.
            choice.hear(strength, log_likelihood(out_of_fold(judged, middle, labels, weight, halves), labels))
            if choice.is_latest:
                best = middle
            if choice.is_past:
                break
        return choice.best, best

    def _unfitted(self, n_classes: int = 2) -> tuple[StructuredScaling, ConeCalibrator]:
        kind = self.kind
        if kind == "auto":
            kind = "matrix" if n_classes < _PAIRS_BELOW else "vector"
        rest: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter}
        first = StructuredScaling(kind=kind, shrinkage=self.shrinkage, **rest)
        # Of two classes each row is one number, and to scale rows by a statistic of it could reverse their ranking.
        return first, MCCT(**rest) if n_classes == 2 else ConditionalMCCT(by_class=False, **rest)
