"""Calibrators in sequence: each is fitted on what the one before gives on rows it has not seen.

    z_0 = z,     z_k = f_k(z_{k-1}),     p = softmax(z_K)

On the rows it was fitted on, a calibrator looks better than it is, and the next one would trust it too much. So stage k + 1
is fitted on *out-of-fold* outputs of stage k, each row mapped by a copy fitted without its fold. For predictions stage k
is fitted on all rows. A composition of maps that keep the order keeps it; after a map that re-orders, the new order is kept.

`StructuredMCCT` is the recommended calibrator where the order may change:

    z  ->  StructuredScaling(shrinkage="cv")  ->  ConditionalMCCT

The first stage corrects single classes and pairs of them, as far as cross-validation shows a gain, and is left out where it does
not. The second, fitted on the first's out-of-fold output, corrects the confidence of samples. The strength of the first is judged
by what both achieve together on rows that neither has seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray
from sklearn.base import clone

from ..arrays import to_numpy
from ..core.map import MapStep
from ..errors import InputError, part_of_a_fit
from ..inputs.reader import Checked
from ..inputs.validation import check_choice, check_number
from . import state
from .affine import ROUGH, StructuredScaling, log_likelihood, with_largest_bound
from .base import Calibrator
from .conditional import ConditionalMCCT
from .cone_calibrator import SMALLEST, ConeCalibrator
from .folds import deal, keys_of_logits, splits_of
from .mcct import MCCT


class Stacked(Calibrator):
    """Any calibrators in sequence, each fitted on the out-of-fold output of the one before.

    Parameters
    ----------
    stages : sequence of Calibrator, Calibrator or None
        Not fitted, the first to be applied first; each with ``input="logits"``. They are copied. One calibrator is a sequence of
        one. None: `StructuredScaling`, then `ConditionalMCCT`.
    folds : int
        Parts to hold out in turn. Rows are dealt by their content, equal rows together, so the folds do not depend on the order
        of the rows.
    input, class_axis, ignore_index
        See `Calibrator`.

    Attributes
    ----------
    preserves_order, preserves_top1 : bool
        Whether all stages do.
    stages_ : list of Calibrator
        Fitted; the first on all rows, each other one on out-of-fold outputs.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.Stacked([mc.StructuredScaling(kind="vector"), mc.MCCT()]).fit(data.values, data.labels)
    >>> cal.preserves_order, mc.Stacked([mc.TemperatureScaling(), mc.MCCT()]).preserves_order
    (False, True)
    """

    _state: ClassVar[state.Rules] = {
        "stages_": state.stages,
        "solution_": None,
        "n_iter_": None,
        "shrinkage_": None,
    }

    def __init__(
        self,
        stages: Sequence[Calibrator] | Calibrator | None = None,
        *,
        folds: int = 5,
        input: str = "logits",
        class_axis: int = -1,
        ignore_index: int | None = None,
    ):
        self.stages = stages
        self.folds = folds
        self.input = input
        self.class_axis = class_axis
        self.ignore_index = ignore_index

    @property
    def preserves_order(self) -> bool:  # type: ignore[override]  # it depends on the stages
        return all(stage.preserves_order for stage in self._unfitted())

    @property
    def preserves_top1(self) -> bool:  # type: ignore[override]  # it depends on the stages
        return all(stage.preserves_top1 for stage in self._unfitted())

    @property
    def n_iter_(self) -> int:
        """Iterations of all stages, as far as they count them."""
        return sum(getattr(stage, "n_iter_", 0) for stage in self.stages_)

    def _unfitted(self, n_classes: int = 2) -> Sequence[Calibrator]:
        """The stages to fit for so many classes."""
        if self.stages is None:
            return [StructuredScaling(), ConditionalMCCT(by_class=False)]
        return [self.stages] if isinstance(self.stages, Calibrator) else self.stages

    @part_of_a_fit()
    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        check_number(self.folds, "folds", least=2, whole=True)
        stages = check_stages(self._unfitted(logits.shape[1]))
        fitted = []
        parts = splits_of(logits, weight, self.folds)
        for place, stage in enumerate(stages):
            model = clone(stage).fit(logits, labels, weight)
            fitted.append(model)
            if place < len(stages) - 1:
                settled = _settled(stage, model)
                logits = _distinct(out_of_fold(settled, logits, labels, weight, parts))
        self.stages_ = fitted

    def _map_steps(self) -> list[MapStep]:
        return [step for stage in self.stages_ for step in stage._map_steps()]

    def _calibrate(self, logits: ndarray) -> ndarray:
        for stage in self.stages_:
            logits = to_numpy(stage.transform(logits))
        return logits

    def _probabilities(self, logits: ndarray) -> ndarray:
        for stage in self.stages_[:-1]:
            logits = to_numpy(stage.transform(logits))
        return to_numpy(self.stages_[-1].predict_proba(logits))


def out_of_fold(
    stage: Calibrator,
    logits: ndarray,
    labels: ndarray,
    weight: ndarray | None,
    parts: list[tuple[ndarray, ndarray]],
) -> ndarray:
    """Calibrated logits (n, m) of each row, from a copy of the stage that has not seen its fold."""
    out = np.empty(logits.shape, dtype=np.result_type(logits.dtype, np.float32))
    for train, test in parts:
        share = None if weight is None else weight[train]
        model = clone(stage).fit(logits[train], labels[train], share)
        out[test] = to_numpy(model.transform(logits[test]))
    return out


def _settled(stage: Calibrator, model: Calibrator) -> Calibrator:
    """The stage with the shrinkage chosen on all rows: to choose it again in every fold changes little."""
    if isinstance(stage.get_params(deep=False).get("shrinkage"), str):
        return clone(stage).set_params(shrinkage=model.shrinkage_)
    return stage


def _distinct(logits: ndarray) -> ndarray:
    """Logits that a stage has flattened, where its best temperature is infinite, as the ties that they are meant to be: the next
    stage would refuse differences of 1e-7 for their unit."""
    available = ~np.isinf(logits)
    top = logits.max(axis=1, where=available, initial=-np.inf)
    if (top - logits.min(axis=1, where=available, initial=np.inf)).max() >= SMALLEST:
        return logits
    return np.where(available, 0.0, logits).astype(logits.dtype)


def check_stages(stages: Any) -> list[Calibrator]:
    """Calibrators that take rows of logits."""
    stages = list(stages) if isinstance(stages, Iterable) else [stages]
    if not stages:
        raise InputError("stages is empty: give at least one calibrator.")
    for stage in stages:
        if not isinstance(stage, Calibrator):
            raise InputError(f"stages must be a sequence of calibrators, but has {stage!r}.")
        for name, usual in (("input", "logits"), ("class_axis", -1), ("ignore_index", None)):
            if (value := getattr(stage, name)) != usual:
                raise InputError(
                    f"stages: {type(stage).__name__} has {name}={value!r}, but stages are given logits, a row for each "
                    f"sample. Say {name}={value!r} for all of them together."
                )
    return stages


# Classes below which a weight for every pair pays: with a hundred, on halves of three real calibration sets, it never did.
_PAIRS_BELOW = 50
# Logits that strengths are judged by, at the most: with more, a part of the rows is enough.
_JUDGED = 2**22


@dataclass(kw_only=True, eq=False, repr=False)
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
    tol : float
        Largest violation of the optimality conditions to accept, in both stages.
    max_iter : int
    input, class_axis, ignore_index
        See `Calibrator`.

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
    >>> data = mc.data.synthetic(2000, 5)
    >>> cal = mc.StructuredMCCT().fit(data.values, data.labels)
    >>> cal.shrinkage_, cal.solution_.converged          # nothing to correct but the confidence
    (inf, True)
    >>> biased = data.values + [3.0, 0.0, 0.0, 0.0, -3.0]
    >>> [type(stage).__name__ for stage in mc.StructuredMCCT().fit(biased, data.labels).stages_]
    ['StructuredScaling', 'ConditionalMCCT']
    """

    kind: str = "auto"
    shrinkage: float | str = "cv"
    folds: int = 5
    tol: float = 1e-6
    max_iter: int = 100

    @part_of_a_fit()
    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        check_choice(self.kind, "kind", ("auto", "matrix", "vector"))
        check_number(self.folds, "folds", least=2, whole=True)
        if isinstance(self.shrinkage, str):
            check_choice(self.shrinkage, "shrinkage", ("cv",))
            self._fit_cross_validated(logits, labels, weight)
        else:
            super()._fit(logits, labels, weight)
            self.shrinkage_ = self.shrinkage
        self.solution_ = self.stages_[-1].solution_

    def _fit_cross_validated(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        first, then = self._unfitted(logits.shape[1])
        step = -(-logits.size // _JUDGED)
        if step == 1:
            self.shrinkage_, middle = self._choose_strength(logits, labels, weight)
        else:
            rows = np.flatnonzero(deal(keys_of_logits(logits), step, number=2) == 0)
            share = None if weight is None else weight[rows]
            self.shrinkage_, _ = self._choose_strength(logits[rows], labels[rows], share)
            middle = logits
        first.set_params(shrinkage=self.shrinkage_)
        if step > 1 and self.shrinkage_ < np.inf:
            parts = splits_of(logits, weight, self.folds)
            middle = out_of_fold(first, logits, labels, weight, parts)
        self.stages_ = [then.fit(middle, labels, weight)]
        if self.shrinkage_ < np.inf:
            self.stages_.insert(0, first.fit(logits, labels, weight))

    def _choose_strength(
        self, logits: ndarray, labels: ndarray, weight: ndarray | None
    ) -> tuple[float, ndarray]:
        """The strength with the largest lower bound of its gain, and the logits that the second stage is fitted on with it."""
        first, then = self._unfitted(logits.shape[1])
        share = np.ones(len(labels)) if weight is None else weight
        parts = splits_of(logits, weight, self.folds)
        halves = splits_of(logits, weight, 2, number=1)
        judged = clone(then).set_params(tol=max(self.tol, ROUGH))

        def trials() -> Iterator[tuple[float, ndarray, ndarray]]:
            for strength, middle in first.along_path(Checked(logits, labels, weight), parts):
                if (
                    strength == np.inf
                ):  # a scale is part of the second stage as well, so the first is left out
                    middle = logits
                # Two parts are enough for the second, which has little to learn: as many fits as there are strengths.
                after = out_of_fold(judged, middle, labels, weight, halves)
                yield strength, log_likelihood(after, labels), middle

        return with_largest_bound(trials(), share)

    def _unfitted(self, n_classes: int = 2) -> tuple[StructuredScaling, ConeCalibrator]:
        kind = self.kind
        if kind == "auto":
            kind = "matrix" if n_classes < _PAIRS_BELOW else "vector"
        rest: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter}
        first = StructuredScaling(kind=kind, shrinkage=self.shrinkage, **rest)
        # Of two classes each row is one number, and to scale rows by a statistic of it could reverse their ranking.
        return first, MCCT(**rest) if n_classes == 2 else ConditionalMCCT(by_class=False, **rest)
