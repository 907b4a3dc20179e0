"""`BinaryMCCT`: the calibrator of two classes with one score, which keeps the order of the rows.

    log-odds(s) = a + b x(s) + sum_k c_k ramp_k(x(s)),     a free,  b >= .01 / sd(x),  c_k >= 0

`binary_cone` has the fit, `binary_map` the map as one function of the score, and `curve_posterior` says how far a fitted curve
may be off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.special import expit, ndtri

from ..core.map import MapStep
from ..errors import InputError, warn
from ..inputs.batch import in_type
from ..inputs.context import CATEGORY
from ..inputs.formats import format_of
from ..inputs.validation import check_choice, check_fraction, check_number
from ..parallel import one_blas_thread
from .base import START_ROWS
from .binary_cone import PRIOR_ROWS, SHRINKAGE, RampFit, RampProblem, knot_weights
from .binary_context import ContextEffect, with_context
from .binary_map import ScoreMap, evaluate, export_step, position
from .cone_calibrator import warn_if_unfinished
from .score_rows import ScoreCalibrator
from .state import expect

# Scores whose size is below this everywhere are refused.
_SMALLEST = 1e-303
# Roughness of the splines of an interval, in log-odds for scores of standard deviation 1.
_TAU = np.exp(np.linspace(-4.0, 3.0, 43))
# Information on every knot, as a part of the mean, that keeps the precision positive definite; and at least.
_LEAST, _LEAST_INFORMATION = 1e-8, 1e-10


@dataclass(kw_only=True, eq=False, repr=False)
class BinaryMCCT(ScoreCalibrator):
    """Two classes and one score per row: probabilities that keep the order of the rows.

    The calibrated log-odds are a line plus ramps of the score with non-negative coefficients: strictly increasing, so the ranking
    of the rows and AUC are kept, while the threshold is free. A convex problem, solved to a certified optimum.

    Parameters
    ----------
    input : {"logits", "probabilities", "scores"}
        What a score is: log-odds, P(class 1), or any scale (margins, distances, 0 to 100).
    columns : {"classes", "scores"}
        What the columns of a two-dimensional ``X`` are: one for each class (or one alone), or several scores of the same event,
        in each of which the result increases.
    shrinkage : float
        How many standard errors the gradient of a ramp must pass to be used.
    prior_rows : float
        At most so many rows' worth of what the classifier says itself, fewer the more its zero is off.
    tol : float
        Largest violation of the optimality conditions to accept.
    max_iter : int

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two labels, sorted; probabilities are those of the second.
    maps_ : tuple of ScoreMap
        The broken line of each score; log-odds are their sum.
    solution_ : monocal.solver.Solution
        The certificate of a global optimum.

    Notes
    -----
    Shapes: (n,) gives P(class 1) as (n,); (n, 1) and (n, 2) give probabilities (n, 2). Above 8,192 rows of a class, means of
    2,048 cells of equal weight stand for them, so that any number of rows is one pass.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> rng = np.random.default_rng(0)
    >>> margin = rng.normal(size=1000)
    >>> y = rng.random(1000) < 1 / (1 + np.exp(3 - 2 * margin))
    >>> cal = mc.BinaryMCCT(input="scores").fit(margin, y)
    >>> cal.predict_proba(np.array([0.0, 1.0, 2.0])).round(2)
    array([0.07, 0.27, 0.65])
    >>> cal.solution_.converged
    True
    """

    input: str = "logits"
    columns: str = "classes"
    shrinkage: float = SHRINKAGE
    prior_rows: float = PRIOR_ROWS
    tol: float = 1e-6
    max_iter: int = 100

    takes_context = True
    _takes_cells = True
    smallest_probability_ = 0.0  # exported maps take probabilities as they are

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        context: Any = None,
        *,
        start: Any = None,
        start_rows: float = START_ROWS,
    ) -> BinaryMCCT:
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n,), (n, 1) or (n, 2)
            One score per row, or a column for each class. Also memory-mapped, zarr, h5py and Dask arrays, or a function that
            returns an iterator of blocks ``(X, y)`` or ``(X, y, sample_weight)``: one pass over the rows.
        y : array-like of shape (n,)
            Labels of two values: 0 and 1, -1 and 1, truth values, texts. The larger is the class whose probability is given.
        sample_weight : array-like of shape (n,), optional
            A row of weight 2 counts as two rows, one of weight 0 as none.
        context : array-like of shape (n,) or (n, C), optional
            Other properties of each row. A category (integers, texts) gets an intercept of its own, shrunk as far as the
            categories agree, and a slope of its own where slopes differ by more than chance; a number (floating point) adds a
            broken line.
        start : calibrator of two classes, optional
            An old calibrator to go on from: its probabilities of these rows count as ``start_rows`` rows more.
        start_rows : float

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight, context, start=start, start_rows=start_rows)

    def predict_interval(self, X: Any, *, level: float = 0.95, context: Any = None) -> Any:
        """An interval of each calibrated probability P(class 1).

        From a smoothing spline through the calibration rows that may bend as much as these ask for. It says
        how far the curve may be off because the rows are few; it does not cover a truth with steps, nor rows of another
        distribution.

        Parameters
        ----------
        X : array-like of shape (n,), (n, 1) or (n, 2)
        level : float
            Between 0 and 1.
        context : array-like, optional
            As in `fit`.

        Returns
        -------
        low, high : arrays of shape (n,)
        """
        check_fraction(level, "level")
        self._check_fitted()
        self._check_frame(X)
        codes = self._codes(context)
        values, scores = self._read_scores(X)
        f = self._on_rows("log_odds", X, context=codes)
        pairs = list(zip(scores.T, self.maps_, strict=True))
        places = [position(score, one.input, one.softness, np) for score, one in pairs]
        parts = [knot_weights(x, one.knots) for x, one in zip(places, self.maps_, strict=True)]
        weights = np.concatenate(parts, axis=1)
        mean = weights @ self.mean_
        variance = np.einsum("ij,jk,ik->i", weights, self.covariance_, weights)
        if codes is not None:
            factor, added = self._effects(codes)
            variance = factor**2 * variance
            for i, effect in enumerate(self.effects_):
                variance = variance + effect.variance(codes[:, i], mean)
            mean = factor * mean + added
        half = ndtri(0.5 + level / 2) * np.sqrt(np.maximum(variance, 0.0))
        # Around the mean of the spline, and so far that the calibrated probability is inside.
        ends = np.minimum(mean - half, f), np.maximum(mean + half, f)
        back = format_of(X).back
        return tuple(back(in_type(expit(end), values, values.dtype), X, -1) for end in ends)

    def get_feature_names_out(self, input_features: Any = None) -> ndarray:
        """Names of the columns of `transform`: those of X, but of several scores of one event a single one."""
        names: ndarray = super().get_feature_names_out(input_features)
        several = self.columns == "scores" and len(names) > 1
        return np.array([type(self).__name__.lower() + "0"], dtype=object) if several else names

    def explain(self) -> str:
        """What was learnt, in a few lines."""
        self._check_fitted()
        lines = []
        for i, one in enumerate(self.maps_):
            name = "score" if len(self.maps_) == 1 else f"score {i}"
            steep, flat = float(one.slopes.max()), float(one.slopes.min())
            shape = "a line" if steep <= 1.001 * flat else f"{len(one.slopes)} pieces"
            soft = f", log-odds softened by {one.softness:g}" if one.softness > 1e-6 else ""
            lines.append(f"{name}: {shape}, slope {flat:.3g} to {steep:.3g}{soft}")
        for column, effect in zip(self._context_columns, self.effects_, strict=True):
            low, high = float(effect.values.min()), float(effect.values.max())
            spread = f" (sd {effect.spread**0.5:.3g})"
            lines.append(f"{column.name}: {low:+.3g} to {high:+.3g} in log-odds{spread}")
            if len(effect.slopes):
                factors = 1.0 + effect.slopes
                lines.append(f"{column.name}: slope times {factors.min():.3g} to {factors.max():.3g}")
        return "\n".join([*lines, str(self.solution_.status)])

    def _fit_scores(self, scores: ndarray, labels: ndarray, weight: ndarray, codes: Any) -> None:
        check_choice(self.columns, "columns", ("classes", "scores"))
        check_number(self.shrinkage, "shrinkage", least=0)
        check_number(self.prior_rows, "prior_rows", least=0)
        check_number(self.tol, "tol", above=0)
        check_number(self.max_iter, "max_iter", least=1, whole=True)
        if 0 < np.abs(scores).max() < _SMALLEST:
            raise InputError(f"X: all scores are below {_SMALLEST} in size. Multiply them by 1e300.")
        with one_blas_thread:
            how = (self.shrinkage, self.tol, self.max_iter)
            problem = RampProblem.of(scores.T, labels, weight, self.input, self.prior_rows, how)
            fit = problem.fit()
            self.effects_: tuple[ContextEffect, ...] = ()
            if codes is not None:
                fit, self.effects_ = with_context(problem, fit, self.context_.columns, codes)
            knots = [score.knots for score in problem.scores]
            self.mean_, self.covariance_ = curve_posterior(knots, fit)
        self.maps_, self.solution_ = fit.maps, fit.solution
        self.n_iter_ = max(fit.solution.n_iter, 1)
        warn_if_unfinished(self, fit.solution)
        if fit.at_bound:
            warn(
                "BinaryMCCT: the score ranks the rows the wrong way round, or not at all: the likeliest slope is "
                "held at its lower bound. If a large score means the first class, change the sign of the scores."
            )

    def _log_odds(self, scores: ndarray) -> ndarray:
        terms = [evaluate(score, one) for score, one in zip(scores.T, self.maps_, strict=True)]
        return sum(terms[1:], terms[0])

    def _effects(self, codes: ndarray) -> tuple[ndarray, ndarray]:
        slopes, added = zip(*(e.on(codes[:, i]) for i, e in enumerate(self.effects_)), strict=True)
        return 1.0 + np.sum(slopes, axis=0), np.sum(added, axis=0)

    @property
    def _context_columns(self) -> tuple[Any, ...]:
        return getattr(getattr(self, "context_", None), "columns", ())

    def _map_steps(self) -> list[MapStep]:
        wide = self.columns == "classes" and self.n_features_in_ == 2
        kinds = (column.kind == CATEGORY for column in self._context_columns)
        effects = list(zip(kinds, self.effects_, strict=True))
        return [export_step(self.maps_, "classes" if wide else "scores", effects=effects)]

    def check_state(self) -> None:
        super().check_state()
        maps, effects, columns = self.maps_, self.effects_, self._context_columns
        check_maps(maps, self.n_features_in_ if self.columns == "scores" else 1, self.input)
        n = sum(len(one.knots) for one in maps)
        for name, array, shape in (("mean_", self.mean_, (n,)), ("covariance_", self.covariance_, (n, n))):
            right = np.shape(array) == shape and np.isfinite(array).all()
            expect(right, name, array, f"finite numbers of shape {shape}")
        right = isinstance(effects, tuple) and len(effects) == len(columns)
        expect(right, "effects_", effects, "one for each column of context")
        for column, effect in zip(columns, effects, strict=True):
            effect.check(column)


def check_maps(maps: Any, n: int, input: str) -> None:
    """Raise ValueError unless these are ``n`` maps of scores of this kind."""
    right = isinstance(maps, tuple) and len(maps) == n and all(isinstance(one, ScoreMap) for one in maps)
    expect(right, "maps_", maps, f"{n} maps of scores, a map for each label or score")
    for one in maps:
        one.check()
        expect(one.input == input, "maps_", maps, "the calibrator's own input, or maps of log-odds")


def curve_posterior(knots: list[ndarray], fit: RampFit) -> tuple[ndarray, ndarray]:
    """Mean and covariance of the log-odds at the ``knots`` (standardised) of all scores: smoothing splines through the same rows.

        f(x) = sum_j v_j hat_j(x),     (second differences of v) / tau  ~  N(0, 1),     v = log-odds at the knots
        posterior of v given tau:      precision  B' W B + R / tau^2  around the fit   (Laplace),    W = w p (1 - p)

    The curvature of the fit, a line with few ramps, says little of its error: it does not show what the penalty has left out. The
    spline may bend everywhere, by as much as the rows ask for: ``tau`` has a posterior of its own. Its prior density is
    proportional to ``tau^2`` in ``log tau``, for a curve of which few rows are seen may be rougher than it looks. Mean and
    covariance are those of the mixture over ``tau``. One generalised eigenvalue problem of the size of the knots gives all
    ``tau`` at once. Coefficients of other columns are integrated out.

    References: Wahba (1983), Bayesian confidence intervals for the cross-validated smoothing spline; Nychka (1988).
    """
    weighted = fit.hats.T * fit.information
    information, push = weighted @ fit.hats, fit.hats.T @ fit.residual
    if fit.extra.shape[1]:
        cross = weighted @ fit.extra
        own = (fit.extra.T * fit.information) @ fit.extra + np.diag(fit.ridge + _LEAST_INFORMATION)
        information = information - cross @ np.linalg.solve(own, cross.T)
    n = len(information)
    information[np.diag_indices(n)] += _LEAST * np.trace(information) / n + _LEAST_INFORMATION
    ends = np.cumsum([len(k) for k in knots])
    parts = [slice(end - len(k), end) for k, end in zip(knots, ends, strict=True)]
    for part in parts[1:]:  # the level of a further score is that of the first
        information[part, part] += 1.0
    back = np.linalg.inv(np.linalg.cholesky(information)).T
    half = np.concatenate([_bends(k) @ back[part] for k, part in zip(knots, parts, strict=True)])
    eigenvalues, vectors = np.linalg.eigh(half.T @ half)
    straight = n - len(half)
    eigenvalues[:straight] = 0.0
    shrunk = 1.0 / (1.0 + np.maximum(eigenvalues, 0.0) / _TAU[:, None] ** 2)
    back = back @ vectors
    score = back.T @ (information @ fit.values + push)
    bent = np.maximum(1.0 - shrunk[:, straight:], 1e-300)
    evidence = 0.5 * (np.log(bent).sum(axis=1) + shrunk @ score**2) + 2.0 * np.log(_TAU)
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    means = (shrunk * score) @ back.T
    mean = share @ means
    covariance = (back * (share @ shrunk)) @ back.T + ((means - mean).T * share) @ (means - mean)
    return mean, covariance


def _bends(knots: ndarray) -> ndarray:
    """The second derivative at each inner knot from the values at the knots; squares sum to its integral squared."""
    left, right = np.diff(knots)[:-1], np.diff(knots)[1:]
    rows, width = np.arange(len(left)), np.sqrt((left + right) / 2)
    bends = np.zeros((len(left), len(knots)))
    bends[rows, rows] = 1 / left / width
    bends[rows, rows + 1] = -(1 / left + 1 / right) / width
    bends[rows, rows + 2] = 1 / right / width
    return bends
