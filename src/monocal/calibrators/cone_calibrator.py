"""What all calibrators made of rank atoms share: prepare the rows, solve the cone problem, keep the certificate.

    f(z) = sum_a c_a atom_a(z),   c >= 0,       minimise NLL + shrinkage towards temperature scaling.

A family chooses its atoms; the solver, the guarantees and the way to predict are the same for all.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..arrays import Array, array_namespace, to_numpy
from ..core.cone import RankCone
from ..core.engine import SCALE
from ..core.map import LOGITS, PROBABILITIES, MapStep
from ..core.rows import DOUBLE_BELOW, Rows
from ..errors import InputError, in_part_of_a_fit, warn
from ..inputs.reader import ArraySource, Source
from ..inputs.validation import check_number, check_top_k
from ..llm.top_k_rows import TopKSource
from ..parallel import one_blas_thread
from ..solver import Solution, minimize
from . import state
from .base import Calibrator
from .fit_checks import JUDGED_ROWS, off_rate, warn_if_off, warn_if_worse_than_nothing
from .folds import DEPTHS, deal, fold_keys
from .rank_map import RankMap, check_rank_map

# How far above the infimum a fit may be, in tolerances.
_GAP = 100.0
# Rows' worth of the classifier's own probabilities in every fit, chosen on small draws (benchmarks/small_samples.py).
PRIOR_ROWS = 8.0
# Errors that are assumed in addition to those expected, where shrinkage is measured: the absence of a few proves little.
PSEUDO_ERRORS = 30.0
# Strength of the shrinkage of atoms that depend on the row, relative to that of rank atoms, chosen by cross-validation
# (docs/conditional.md): scales are few and move all classes, biases are many.
SCALE_EMPHASIS, BIAS_EMPHASIS = 0.6, 2.0
# Differences of logits below which a fit means nothing.
SMALLEST = 1e-6
FOLDS = 5
# Rows are dealt into folds again until so many have been held out, but at most so often.
_HELD_OUT, _DEALS = 1000, 4


class ConeCalibrator(Calibrator):
    """Base of the calibrators that are cones of rank atoms."""

    preserves_order = True
    preserves_top1 = True
    _any_array = True
    _judges_classes: ClassVar[bool] = False  # whether to warn of the rates of more than two classes
    _streams = True
    # Strengths that cross-validation tries. Below the last the likelihood is all but alone, which few rows cannot judge.
    _cv_path: ClassVar[tuple[float, ...]] = (100.0, 50.0, 20.0, 10.0, 5.0, 2.0, 1.0, 0.5)

    top_k: int | None = None
    prior_rows: float = 0.0
    tol: float = 1e-6
    max_iter: int = 100

    _state: ClassVar[state.Rules] = {
        "rank_map_": check_rank_map,
        "passes_": None,
        "solution_": None,
        "n_iter_": None,
        "shrinkage_": None,
    }

    @abstractmethod
    def _fit_rows(self, rows: Rows, all_classes: bool) -> None:
        """Learn from prepared rows, which may name their largest classes alone; set `rank_map_` and the other attributes."""

    def _preparation(self) -> dict[str, Any]:
        """What rows must be prepared with: keywords of `Engine.prepare`."""
        return {}

    def _check_solver_parameters(self) -> None:
        check_number(self.prior_rows, "prior_rows", least=0)
        check_number(self.tol, "tol", above=0)
        check_number(self.max_iter, "max_iter", least=1, whole=True)

    def _fit_source(self, source: Source) -> None:
        self._check_solver_parameters()
        check_top_k(self.top_k, source.shape[1])
        first, named = source.first, isinstance(source, TopKSource)
        if isinstance(source, TopKSource):
            self.n_features_in_ = source.n_classes_with(self.top_k)
        else:  # the largest logits of a row say nothing about the others
            _check_unit(first)
        double = source.shape[0] * source.shape[1] <= DOUBLE_BELOW
        dtype = array_namespace(first).float64 if double else None
        with one_blas_thread:  # small matrix products between passes would wake all cores
            rows = source.prepare(top_k=self.top_k, dtype=dtype, **self._preparation())
            self._fit_rows(rows, all_classes=not named)
        self.passes_ = source.passes

    def _judge(self, source: Source) -> None:
        """Warn of what the fitted map leaves wrong on these rows; rows elsewhere would have to be read again."""
        if isinstance(source, ArraySource) and not in_part_of_a_fit():
            warn_if_worse_than_nothing(self, source)
            if source.shape[1] == 2 or self._judges_classes:
                self._judge_rates(source)

    def _judge_rates(self, source: ArraySource) -> str | None:
        """Warn of a class whose mean probability differs from its frequency by more than chance; the sentence."""
        n, m = source.shape
        rows = source.checked[:: 1 if m == 2 else -(-n // JUDGED_ROWS)]
        context = () if rows.context is None else (rows.context,)
        p = to_numpy(self._probabilities(rows.logits, *context)).astype(np.float64)
        weight = np.ones(len(p)) if rows.weight is None else to_numpy(rows.weight).astype(np.float64)
        off = off_rate(p, to_numpy(rows.labels), weight)
        warn_if_off(self, off)
        return off

    def _plain_scale(self, rows: Rows) -> float | None:
        """Temperature scaling of a sample of the rows, where they are many or have a tail; None: `_problem` has a shorter way."""
        sample = rows.some()
        if sample is rows and not rows.has_tail:
            return None
        allowed = np.zeros((2, 1, sample.n_ranks), dtype=bool)
        allowed[SCALE, 0, 0] = True
        return _scale_of(RankCone(sample, allowed, prior_rows=self.prior_rows))

    def _problem(
        self,
        rows: Rows,
        allowed: np.ndarray,
        scale: float | None,
        begins: np.ndarray | None = None,
        **rest: Any,
    ) -> RankCone:
        """The cone of these atoms, with shrinkage in units of what the rows say of each (`core.engine.Information`)."""
        problem = RankCone(rows, allowed, prior_rows=self.prior_rows, begins=begins, **rest)
        scale = _scale_of(problem.plain()) if scale is None else scale
        information = rows.some().sum("information", scale)
        return problem.in_units(information.unit(problem.totals.weight, PSEUDO_ERRORS), scale)

    def _solve(self, problem: RankCone, shrinkage: Any) -> Solution:
        """Certified solution, with a fixed shrinkage or one chosen by cross-validation."""
        if isinstance(shrinkage, str):
            if shrinkage != "cv":
                raise InputError(f"shrinkage must be a number of at least 0 or 'cv', but is {shrinkage!r}.")
            default = inspect.signature(type(self)).parameters["shrinkage"].default
            shrinkage = choose_shrinkage(
                problem, self._cv_path, default, tol=self.tol, max_iter=self.max_iter
            )
        else:
            check_number(shrinkage, "shrinkage", least=0)
        # Logits smaller than one have gradients smaller than one: the tolerance goes with them.
        size = float(problem.reach[0])
        tol = self.tol * min(1.0, max(size, SMALLEST)) if size > 0 else self.tol
        solution = minimize(
            problem.with_strength(shrinkage, tol),
            start=problem.start(),  # near enough: a coarse copy need not be asked
            tol=tol,
            gap_tol=_GAP * self.tol,
            max_iter=self.max_iter,
        )
        self.shrinkage_, self.solution_ = float(shrinkage), solution
        self.n_iter_ = max(solution.n_iter, 1)
        warn_if_unfinished(self, solution)
        return solution

    # A family sets `rank_map_`.

    rank_map_: RankMap

    def _calibrate(self, logits: Array, context: np.ndarray | None = None) -> Array:
        return self.rank_map_.apply(logits, LOGITS, getattr(self, "adjustment_", None), context)

    def _probabilities(self, logits: Array, context: np.ndarray | None = None) -> Array:
        return self.rank_map_.apply(logits, PROBABILITIES, getattr(self, "adjustment_", None), context)

    def _keeps_argmax(self) -> bool:
        return type(self)._probabilities is ConeCalibrator._probabilities  # a family may add to the map

    def _map_steps(self) -> list[MapStep]:
        return [self.rank_map_.step(int(self.n_features_in_), getattr(self, "adjustment_", None))]


def choose_shrinkage(
    problem: RankCone, path: Sequence[float], default: float, *, tol: float, max_iter: int
) -> float:
    """A strength of the path by cross-validation; it goes from strong to weak, and each fit is the start of the next."""
    rows = problem.rows
    # Depths from the top down, without that of the top.
    keys = np.concatenate(
        rows.sum(lambda block: (fold_keys(to_numpy(block.rows.depth[:, -1 - DEPTHS : -1])[:, ::-1]),))
    )
    different = len(np.unique(keys))
    folds = min(FOLDS, different)
    if folds < 2:
        return default
    deals = int(np.clip(_HELD_OUT // different, 1, _DEALS))
    nothing = np.zeros(0, dtype=np.intp)
    loss = np.zeros((deals * folds, len(path)))
    share = np.zeros(deals * folds)
    for i in range(deals * folds):
        held_out = deal(keys, folds, i // folds) == i % folds
        train = problem.on_rows(rows.part(~held_out), prior_rows=problem.prior_rows)
        test = problem.on_rows(rows.part(held_out))
        start = None
        for j, strength in enumerate(path):
            shrunk = train.with_strength(strength, tol)
            start = minimize(shrunk, tol=max(tol, 1e-5), max_iter=max_iter, start=start).coefficients
            loss[i, j] = test.evaluate(start, nothing).value
        share[i] = test.totals.weight
    return float(path[one_standard_error_rule(loss, share / share.sum(), folds)])


def one_standard_error_rule(loss: np.ndarray, share: np.ndarray, n_folds: int) -> int:
    """The first of several models, the simplest first, that is worse than the best by no more than one standard error.

    ``loss`` (parts, models) is the held-out loss of each, and ``share`` (parts,) the share of the weight that is held out. The
    difference is taken part by part, so what all models share cancels. Rows that are dealt into folds again are held out again:
    ``n_folds`` is the number of folds of one deal.
    """
    excess = loss - loss[:, [int(np.argmin(share @ loss))]]
    mean = share @ excess
    error = np.sqrt(share @ (excess - mean) ** 2 / n_folds)
    return int(np.argmax(mean <= error))


def _scale_of(problem: RankCone) -> float:
    """The solution where the plain scale is the only atom."""
    return float(minimize(problem, tol=1e-6 * min(1.0, problem.reach[0] or 1.0)).coefficients[0])


def _check_unit(logits: Array) -> None:
    """Depths are cut at a million, and gradients go with the logits: refuse units in which neither can mean anything."""
    sample = to_numpy(logits[:: max(1, logits.shape[0] // 50)]).astype(np.float64)
    with np.errstate(over="ignore"):
        top = sample.max(axis=1, keepdims=True)
        depth = np.where(np.isinf(sample), 0.0, top - sample)  # of classes that are available
        middle = np.median(np.median(depth[:, :: max(1, depth.shape[1] // 1000)], axis=1))
    median = min(float(middle), 1e307)
    if median > 1e5:
        raise InputError(
            f"X: the largest and the median logit of a row differ by {median:.1e}, more than any classifier's. Divide all by a "
            f"constant such as {median / 10:.0e}, in fitting and in predicting."
        )
    if depth.max() >= SMALLEST:
        return
    xp = array_namespace(logits)  # so far a sample of the rows: now look at all
    highest = xp.max(logits, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        span = float(xp.max(xp.where(xp.isinf(logits), 0 * highest, highest - logits)))
    if 0 < span < SMALLEST:
        raise InputError(
            f"X: the logits of a row differ by {span:.1e} at most, less than any classifier's. Multiply all by a constant "
            f"such as {10 / span:.0e}, in fitting and in predicting."
        )


def warn_if_unfinished(calibrator: Calibrator, solution: Solution) -> None:
    """Not converging warns, whatever the solver."""
    if not solution.converged:
        warn(
            f"{type(calibrator).__name__} did not converge ({solution.status}; violation {solution.kkt:.1e}). "
            "Raise max_iter (--set max_iter=...) or tol.",
            ConvergenceWarning,
        )
