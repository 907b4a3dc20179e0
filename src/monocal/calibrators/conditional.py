"""The conditional family: rank weights and biases that depend on the sample, still convex, still order-preserving.

    f_(i) = w_i(z) u_(i) + b_i(z),      w_i(z) = sum_k psi_k(z) sum_{s <= i} c[scale, k, s],    b_i likewise,   c >= 0.

``psi_0 = 1`` is MCCT. The other ``psi_k >= 0`` are ramps of statistics of the sorted logits (see `core.statistics`): a
sample with a small margin may be scaled, and its ranks shifted, otherwise than one with a large margin. Within one sample
the ``psi_k`` are constants, so weights and biases still grow with the rank, and the order stands whatever the factors
are. In ``c`` the likelihood is convex as ever, so the optimum is certified.

Shrinkage towards temperature scaling is measured in what the data can tell (see `core.engine.Information`),

    penalty_a = shrinkage / N * emphasis_a * sqrt(mean_n Var_p[atom_a] (1 + 30 / errors_a)),

the negative logarithm of a prior under which an atom's effect has a mean size of ``1 / (shrinkage * emphasis)`` logits, or less
where few errors are to be expected among the rows it concerns: their absence proves little.

A second stage (`adjustment`) then sees to it that probabilities are right by predicted class, and by other properties of
a row (its *context*).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..arrays import Array
from ..core.cone import RankCone
from ..core.engine import BIAS, SCALE
from ..core.rows import Rows
from ..core.statistics import STATISTICS, Ramp, RampFactors, choose_ramps
from ..errors import InputError, part_of_a_fit, warn
from ..inputs.batch import Batch
from ..inputs.context import ContextReader
from ..inputs.reader import ArraySource, Source
from ..inputs.validation import check_number
from ..llm.top_k_rows import TopKSource, same_on_all
from . import state
from .adjustment import Adjustment, check_adjustment, fit_second_stage
from .calibrated_rows import CalibratedRows
from .cone_calibrator import BIAS_EMPHASIS, PRIOR_ROWS, SCALE_EMPHASIS, ConeCalibrator, warn_if_unfinished
from .explanation import Explanation, explain
from .fit_checks import off_class, warn_if_off
from .rank_map import RankMap, check_factors
from .updating import independent_rows

# With more ranks than this, atoms begin at the upper ones, and below them at ranks that lie apart by a ratio.
_MANY, _EVERY, _RATIO = 4096, 128, 1.04
# Rows by whose statistics knots are chosen, at the most: quantiles of more would be the same.
_MOST_MEASURED = 2**22


@dataclass(kw_only=True, eq=False, repr=False)
class ConditionalMCCT(ConeCalibrator):
    """MCCT whose weights and biases depend on the sample through statistics of its sorted logits.

    Parameters
    ----------
    statistics : sequence of str or callable
        What a sample's weights and biases may depend on: ``"margin"`` (between the two largest logits), ``"mean_gap"`` (from
        the largest to the mean), ``"spread"`` (standard deviation), ``"entropy"``, ``"log_odds"`` (of the largest), or a
        function that takes the sorted, anchored logits ``u`` of shape (n, m), lowest first and 0 at the lowest (of the ``top_k``
        largest, where that is set), in the caller's array library, and returns one number per row. Empty: `MCCT`.
    n_knots : int
        Quantiles of each statistic around which the map may change.
    by_class : {"auto"}, bool
        Whether the probability of the top class may depend on which class it is. "auto": where the calibration rows show that
        classes differ by more than chance; `by_class_` says what was decided. False, without context: the second stage is left
        out.
    shrinkage : float or "cv"
        Pull towards temperature scaling. The default is safe with 100 samples and weak with 10,000; "cv" chooses by
        cross-validation; 0 leaves the likelihood alone with many atoms, which takes very many samples.
    prior_rows, top_k
        As in `MCCT`.
    input, class_axis, ignore_index
        As in `Calibrator`.
    tol : float
        Largest violation of the optimality conditions to accept.
    max_iter : int

    Attributes
    ----------
    coefficients_ : ndarray of shape (2, K, r)
        By kind (scale, bias), factor and first rank concerned; mostly zero. `explain` puts them in words. With more than 4096
        ranks, atoms begin at each of the upper 128, and below at ranks that lie apart by a ratio of 1.04.
    factors_ : RampFactors
        The K factors: the constant 1, and ramps.
    adjustment_ : Adjustment or None
        The second stage, with its own ``solution``.
    by_class_ : str
        Whether classes have scales of their own, and why; and which class is wrong all the same, if one is (the fit then warns).
    context_ : ContextReader
        The columns of the context.
    unseen_ : int
        Rows of the last prediction whose context lacked a number or had a category that no calibration row had. Such a category
        has the scale 1, and a missing number counts as the median of the calibration rows.
    solution_, shrinkage_, passes_
        As in `MCCT`.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.data import synthetic
    >>> data = synthetic(2000, 10, seed=0)
    >>> cal = mc.ConditionalMCCT().fit(data.values, data.labels)
    >>> cal.solution_.converged
    True
    >>> bool((cal.predict(data.values) == data.values.argmax(axis=1)).all())
    True
    """

    takes_context: ClassVar[bool] = True
    _judges_classes: ClassVar[bool] = True
    # Below these the many atoms fit noise, slowly.
    _cv_path: ClassVar[tuple[float, ...]] = (200.0, 100.0, 50.0, 30.0, 20.0, 10.0, 5.0, 2.0)

    _state: ClassVar[state.Rules] = {
        "factors_": check_factors,
        "coefficients_": state.not_negative,
        "adjustment_": check_adjustment,
        "factor_means_": None,
        "by_class_": None,
        "n_atoms_": None,
    }

    statistics: Sequence[str | Callable[[Array], Any]] = ("margin", "mean_gap", "spread")
    n_knots: int = 7
    by_class: str | bool = "auto"
    shrinkage: float | str = 20.0
    prior_rows: float = PRIOR_ROWS
    top_k: int | None = None
    tol: float = 1e-6
    max_iter: int = 100

    def _fit_source(self, source: Source) -> None:
        named = isinstance(source, TopKSource)
        if named and isinstance(self.by_class, bool | np.bool_) and self.by_class:
            raise InputError(
                "by_class=True needs all logits, but X names the largest only (TopK). Leave it at 'auto', or set it to False."
            )
        super()._fit_source(source)
        if named:
            self.by_class_ = "left out: rows name their largest logits alone"
            if not same_on_all(self.factors_):
                self.n_features_in_ = source.shape[1]

    def _checked_fit(
        self, X: Any, y: Any, sample_weight: Any, context: Any, start: Any, start_rows: float
    ) -> None:
        second = getattr(start, "adjustment_", None) if isinstance(start, ConditionalMCCT) else None
        # An old second stage of the same groups stays where it counts for more than the new rows.
        if (
            second is None
            or bool(self.by_class) != (second.class_scales is not None)
            or (getattr(start, "context_", None) is None) != (context is None)
            or independent_rows(y, sample_weight, self.ignore_index) > start_rows
        ):
            super()._checked_fit(X, y, sample_weight, context, start, start_rows)
            return
        # The old first stage counts for the new one alone: its probabilities after the scales of few rows' groups would be
        # fitted as if they belonged to all rows.
        if context is not None:  # other columns are refused
            start.context_.codes(Batch(X, self._layout).columns(None, None, context)[2])
        old, first = copy(start), copy(self)
        old.adjustment_ = old.context_ = None
        first.by_class = False
        with part_of_a_fit():
            super(ConditionalMCCT, first)._checked_fit(X, y, sample_weight, None, old, start_rows)
        self.__dict__ |= first.__dict__ | {"by_class": self.by_class, "adjustment_": second}
        if second.class_scales is not None:
            self.by_class_ = f"of the old calibrator: {second.class_scales}"
        self.__dict__.pop("context_", None)
        if context is not None:
            self.context_, self.unseen_ = start.context_, 0

    def _preparation(self) -> dict[str, Any]:
        statistics = _check_statistics(self.statistics)
        return {"statistics": statistics, "top_class": bool(self.by_class) or hasattr(self, "context_")}

    def _fit_rows(self, rows: Rows, all_classes: bool) -> None:
        check_number(self.n_knots, "n_knots", least=1, most=1000, whole=True)
        by_class = self.by_class if all_classes else False
        if not isinstance(by_class, bool | np.bool_) and by_class != "auto":
            raise InputError(f"by_class must be 'auto', True or False, but is {by_class!r}.")
        statistics = _check_statistics(self.statistics)
        scale = self._plain_scale(rows)
        ramps: tuple[Ramp, ...] = ()
        if statistics:
            ramps = choose_ramps(*rows.measured(-(-rows.n_rows // _MOST_MEASURED)), self.n_knots)
        factors = RampFactors(statistics, ramps)
        if ramps:
            rows = rows.with_factors(factors.of_statistics)
        conditional = (np.arange(factors.n_factors) > 0)[:, None]
        emphasis = np.where(conditional, np.reshape([SCALE_EMPHASIS, BIAS_EMPHASIS], (2, 1, 1)), 1.0)
        begins = starts_of_many(rows.n_ranks)
        # All rank atoms, conditional biases, and conditional scales of all ranks. Conditional scales of the upper ranks only are
        # left out: with biases there they fit no better and generalise worse.
        allowed = np.ones((2, factors.n_factors, rows.n_ranks if begins is None else len(begins)), dtype=bool)
        allowed[BIAS, :, 0] = False  # a bias on every rank is a shift, which softmax does not see
        allowed[SCALE, 1:, 1:] = False
        problem = self._problem(rows, allowed, scale, begins, emphasis=emphasis, mirrors=factors.mirrors)
        grid = problem.grid(self._solve(problem, self.shrinkage).coefficients)
        if begins is not None:
            solved, grid = grid, np.zeros((2, factors.n_factors, rows.n_ranks))
            grid[:, :, begins] = solved
        self.factors_, self.coefficients_, self.n_atoms_ = factors, grid, len(problem.atoms)
        self.factor_means_ = problem.totals.mean[BIAS, :, -1] / problem.totals.weight
        self.rank_map_ = RankMap.from_grid(grid, top_k=self.top_k, factors=factors if ramps else None)
        self.adjustment_: Adjustment | None = None
        self.by_class_ = "not asked for"
        reader = getattr(self, "context_", None)
        if by_class or reader is not None:
            self._fit_second_stage(rows, problem, reader, by_class)

    def _fit_second_stage(
        self, rows: Rows, problem: RankCone, reader: ContextReader | None, by_class: str | bool
    ) -> None:
        """Set `adjustment_` and `by_class_`; warn of what both stages leave wrong."""
        calibrated, why = None, "there is one rank alone"
        if rows.n_ranks > 1:
            point = problem.point(self.solution_.coefficients, np.zeros(0, dtype=np.intp))
            every = CalibratedRows.of(rows, point, problem.prior_scales)
            calibrated, why = every[every.n_top == 1], "no row has one class on top"
        if calibrated is None or not len(calibrated.weight):
            if reader is not None:
                raise InputError(
                    f"context: {why}, so nothing can be learnt by it. Give rows of two classes or more, without ties and with a "
                    "top_k of 2 or more, or leave it out."
                )
            self.by_class_ = f"left out: {why}"
            return
        fitted, odds = fit_second_stage(
            calibrated,
            reader,
            rows.n_classes,
            by_class=by_class,
            n_knots=self.n_knots,
            shrinkage=self.shrinkage_,
            prior_rows=self.prior_rows,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        if fitted.class_scales is not None:
            off = off_class(calibrated, odds, rows.n_classes)
            self.by_class_ = f"{fitted.class_scales}" + (f"; yet {off}" if off else "")
            warn_if_off(self, off)
        warn_if_unfinished(self, fitted.solution)
        if fitted.residual > self.tol:
            warn(
                f"{type(self).__name__}: the scales of groups did not converge (violation {fitted.residual:.1e}). "
                "Raise tol (--set tol=...).",
                ConvergenceWarning,
            )
        self.adjustment_ = fitted

    def _judge_rates(self, source: ArraySource) -> str | None:
        if "; yet " in self.by_class_:  # the fit has warned
            return None
        off = super()._judge_rates(source)
        if off is not None and self.adjustment_ is not None:
            self.by_class_ += f"; yet {off}"
        return off

    def explain(self) -> Explanation:
        """The active atoms and what they do: a sequence of `Effect`, and with ``str`` or ``print`` the same in words."""
        check_is_fitted(self)
        return explain(self)


def starts_of_many(n_ranks: int) -> np.ndarray | None:
    """Where atoms may begin in long rows: at the upper ranks, and below them on a geometric grid. None: everywhere."""
    if n_ranks <= _MANY:
        return None
    steps = int(np.log(n_ranks / _EVERY) / np.log(_RATIO))
    below_top = _EVERY * _RATIO ** np.arange(1, steps + 1)
    counted = np.unique(np.concatenate([np.arange(1, _EVERY + 1), below_top.astype(np.intp), [n_ranks]]))
    return n_ranks - counted[::-1]


def _check_statistics(requested: Any) -> tuple[str | Callable[[Array], Any], ...]:
    if isinstance(requested, str) or callable(requested):
        requested = (requested,)
    if not isinstance(requested, Iterable):
        raise InputError(f"statistics must be a sequence of names or functions, but is {requested!r}.")
    statistics = tuple(requested)
    for s in statistics:
        if not callable(s) and s not in STATISTICS:
            raise InputError(
                f"statistics: {s!r} is not known. Use {', '.join(map(repr, STATISTICS))} or a function of the sorted, "
                "anchored logits (n, m) that returns one number per row."
            )
    return statistics
