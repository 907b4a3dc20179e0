"""The calibration problem as a cone problem: negative log-likelihood over order-preserving atoms.

    F(c) = 1/N sum_n weight_n [ log sum_i exp f_(i)(c) - sum_i target_i f_(i)(c) ]  +  penalty . c,    c >= 0,  N = sum weight,

    target = (1 - s) label + s q,       s = prior_rows / (N + prior_rows),

with prior targets ``q``, the probabilities of the classifier itself,

    q = (1 - 1/16) softmax(z / unit)  +  1/16 softmax(z / (10 unit)).

The second part is ten times softer, because an over-confident network is wrong more often than its probabilities say. The unit
is 1, or smaller where logits differ by much less than one. ``f`` is linear in ``c``, so the targets enter through one vector
computed once, ``sum_n weight_n atom(target)``; the rest is the log-partition that an engine sums. The penalty is shrinkage
towards temperature scaling,

    penalty_a = shrinkage / N * unit_a,       unit: the root of the atom's Fisher information (`Information`),

zero for the plain scale, plus a floor of at most half the tolerance on every atom. With neither, the floor alone keeps the
optimum finite where no label ever falls on the lowest ranks (the likelihood then improves without end as their bias
falls), and the answer is still optimal for the unpenalised objective to within the tolerance.

From sums by rank and factor to sums of every atom, measured from the top class:

    1[i >= s] u_i - U    =  -v_i  from the start on,  -U  before it            (a scale)
    1[i >= s] - 1        =  -1    before the start                             (a bias)

A ramp and the ramp the other way add up to 1, the first factor. So the sums of one give those of the other, its *mirror*.
Candidates are the most negative local minima of the gradient along the ranks, and atoms around them: a minimum tells only roughly
where a jump belongs, and with its neighbours at hand the next step can move it.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from .certificate import excess_by_rank, excess_everywhere
from .engine import BIAS, DEPTH, HEIGHT, MASS, SCALE, Point, Sums, Totals
from .problem import Expansion
from .rows import Rows

# The smallest weight: strictly positive, so that the map stays injective and 1/weight finite.
MIN_SCALE = 1e-6
# The plain scale, (scale, factor 0, start 0), is in every dictionary and comes first.
_PLAIN = 0
# The solver starts this far from temperature scaling. At that optimum, rounding alone would decide about the first step.
_START_FACTOR = 1.01
# An atom that moves the largest logit by more than this at a unit step does so where classes are hidden by finite numbers (-1e5),
# which have no probability to move. It is then taken to move the model by so many of its units.
_HIGH, _UNITS = 1e3, 30.0
_NOTHING = np.zeros(0, dtype=np.intp)
# Prior targets: the share of the milder part, its scale in parts of the other's, and a scale at which all classes have one
# probability.
MILD_SHARE, MILD, _ALIKE = 1 / 16, 0.1, 1e-12
# A Hessian of so few atoms on so few rows costs less than the rounds that a coarse copy takes.
_FEW_ATOMS, _FEW_ROWS = 64, 8192
# How many ranks around a local minimum are tried with it.
_AROUND = np.array([-8, -3, -1, 1, 3, 8])


class RankCone:
    """The cone problem for given rows: implements `monocal.solver.ConeProblem`.

    ``allowed`` (2, K, r) says which (kind, factor, start) are in the dictionary. ``begins`` (G,) are the ranks where atoms may
    begin, 0 and the top rank among them; by default all ranks. Sums are then taken over *columns* of ranks, from each of these to
    the next, and arrays with an entry for each of the r ranks have one for each of these.

    The penalty has the strength ``shrinkage`` and is proportional to ``unit`` (2, K, r), by default the standard deviation of the
    atom's values over rows and classes, times ``emphasis`` (2, K, 1). ``tol``, the tolerance the solver will be given, sets its
    floor. ``mirrors`` (K,): for each factor, an earlier one with which it adds up to 1, or itself. Every label gives a share
    ``prior_rows / (N + prior_rows)`` to the prior targets. The solver begins at temperature scaling with ``scale``.
    """

    cheap_hessian = True

    def __init__(
        self,
        rows: Rows,
        allowed: np.ndarray,
        *,
        emphasis: np.ndarray | float = 1.0,
        unit: np.ndarray | None = None,
        mirrors: np.ndarray | None = None,
        prior_rows: float = 0.0,
        shrinkage: float = 0.0,
        tol: float = 1e-6,
        scale: float | None = None,
        begins: np.ndarray | None = None,
    ):
        self.rows, self.begins, self.allowed = rows, begins, allowed
        each = np.arange(allowed.shape[1])
        self.mirrors = each if mirrors is None else mirrors
        # The factors whose sums are taken, and those that follow from another, with its place among the former.
        self._own, self._mirrored = (np.flatnonzero(x) for x in (self.mirrors == each, self.mirrors != each))
        self._partners = np.searchsorted(self._own, self.mirrors[self._mirrored])
        self.emphasis, self.scale = emphasis, scale
        self.n_rows, self.slow_calls = rows.n_rows, rows.slow_calls
        self.rounding = self.least_curvature = 1e-8 if rows.single_precision else 1e-14
        self.atoms = np.flatnonzero(allowed.ravel())
        self._places = np.stack(np.unravel_index(self.atoms, allowed.shape))  # kind, factor and start, (3, a)
        self._at_ranks = self._places.copy()  # the same by rank, where there are columns
        if begins is not None:
            self._at_ranks[2] = begins[self._places[2]]
        if allowed[SCALE, 1:, 1:].any():
            raise ValueError("Scales of factors but the first begin at the lowest rank.")
        self._only_scale = np.array_equal(self.atoms, [0]) and not rows.has_tail
        only_scale = self._only_scale and allowed.shape[1] == 1 and begins is None
        self.totals: Totals = rows.sum("scale_totals" if only_scale else "totals")
        count = self.totals.weight * rows.n_classes
        mean, square = (from_start(self._columns(x)) / count for x in (self.totals.mean, self.totals.square))
        self.spread = self._take(np.sqrt(np.maximum(square - mean**2, 0.0)))
        self.unit = self.spread if unit is None else self._take(unit)
        self._of_fewer: list[np.ndarray] = []
        self.prior_rows, self.prior_share = prior_rows, 0.0
        self.prior_targets: np.ndarray | None = None
        # Parts of the prior targets: the share and the scale of each.
        self.prior_scales: tuple[tuple[float, float], ...] = ()
        if prior_rows > 0:
            self.prior_targets = self._prior_targets()
            self.prior_share = prior_rows / (self.totals.weight + prior_rows)
        self._aim_at(self._columns(np.cumsum(self.totals.label, axis=2)))  # the label's shares at each rank
        # Root mean square of each atom at the top class: what a step in it does to the largest logit.
        top = self.totals.square[:, :, -1:] / self.totals.weight
        self.reach = self._take(np.sqrt(np.broadcast_to(top, allowed.shape)))
        self.lower = np.zeros(len(self.atoms))
        self.lower[_PLAIN] = MIN_SCALE
        self.penalty, self.floor = self._penalty(shrinkage, tol)

    def plain(self) -> RankCone:
        """Temperature scaling by the sums of this problem. The rows may have no tail."""
        names = ("atoms", "_places", "_at_ranks", "spread", "unit", "reach", "lower", "drop")
        first = {name: getattr(self, name)[..., :1] for name in names}
        return self._with(**first, _only_scale=True, scale=None).with_strength(0.0, 1e-6)

    def in_units(self, unit: np.ndarray, scale: float) -> RankCone:
        """The same problem with a penalty in other units (2, K, ranks), which is to begin at another scale."""
        unit = self._take(unit if self.begins is None else unit[:, :, self.begins])
        reach = np.where(self.reach > _HIGH, np.clip(_UNITS * unit, 1.0, self.reach), self.reach)
        return self._with(unit=unit, scale=scale, reach=reach)

    def with_strength(self, shrinkage: float, tol: float) -> RankCone:
        """The same problem, sums over rows included, with another shrinkage and another tolerance."""
        penalty, floor = self._penalty(shrinkage, tol)
        return self._with(penalty=penalty, floor=floor)

    def _with(self, **changed: Any) -> RankCone:
        other = copy(self)
        other.__dict__.update(changed)
        return other

    def on_rows(self, rows: Rows, prior_rows: float = 0.0) -> RankCone:
        """The same dictionary on other rows, with penalties in the same units."""
        return RankCone(
            rows,
            self.allowed,
            emphasis=self.emphasis,
            unit=self.grid(self.unit),
            mirrors=self.mirrors,
            prior_rows=prior_rows,
            scale=self.scale,
            begins=self.begins,
        )

    def leaning_on(self, prior: np.ndarray, share: float) -> RankCone:
        """The problem in which every label gives a share to targets (3, K, r), which are sums like those of `_prior_targets`."""
        other = self._with(prior_targets=prior, prior_share=share)
        other._aim_at(self.target)
        return other

    def _aim_at(self, target: np.ndarray) -> None:
        """Set the targets, sums (3, K, r): those of the labels, of which each gives its share to the prior targets."""
        if self.prior_targets is not None:
            share = self.prior_share
            target = (1.0 - share) * target + share * self.totals.weight * self.prior_targets
        self.target = target
        self._target_depths = target[DEPTH].sum(axis=1)
        # What a unit of each atom takes from the logits of all targets, measured from the top, (a,).
        self._losses = -self._take(atom_sums(target))
        # How far the targets lie below the top class on average, as each atom sees it: never negative.
        self.drop = self._losses / self.totals.weight
        if self.totals.top.any():
            top = self._columns(np.cumsum(self.totals.top, axis=2))
            self.drop = np.maximum(self._take(atom_sums(top - target)) / self.totals.weight, 0.0)

    def _prior_targets(self) -> np.ndarray:
        """Sums of ``psi q v``, ``psi q U`` and ``psi q`` at each rank (3, K, r), a row. Of many rows a sample is enough."""
        sample = self.rows.some()
        weight = self.totals.weight if sample is self.rows else float(sample.sum("label_sums")[-1])

        def at_scale(scale: float) -> np.ndarray:
            plain = np.zeros(len(self.atoms))
            plain[_PLAIN] = scale
            return self._of_all_factors(self._sums(sample, plain, _NOTHING)) / weight

        def mean_depth(scale: float) -> float:
            if sample.has_tail:
                return float(at_scale(scale)[DEPTH, 0].sum())
            return float(sample.sum("scale_sums", scale)[1]) / weight

        # The softmax of logits that differ by much less than one (cosines, say) is uniform: they are first brought to a deviation
        # of about one. The largest of m normal numbers lies roughly sqrt(2 log m) / 1.5 deviations above their mean.
        many = np.sqrt(2.0 * np.log(max(self.rows.n_classes, 2)))
        unit = min(1.0, 1.5 * mean_depth(_ALIKE) / many) or 1.0
        self.prior_scales = (1.0 - MILD_SHARE, 1.0 / unit), (MILD_SHARE, MILD / unit)
        if self._only_scale:  # the total is all that counts
            targets = np.zeros((3, *self.allowed.shape[1:]))
            targets[DEPTH, 0, 0] = sum(share * mean_depth(scale) for share, scale in self.prior_scales)
            return targets
        (share, scale), (mild_share, mild_scale) = self.prior_scales
        return share * at_scale(scale) + mild_share * at_scale(mild_scale)

    def _penalty(self, shrinkage: float, tol: float) -> tuple[np.ndarray, np.ndarray]:
        """The penalty of each atom, and how much of it is the floor."""
        emphasis = self._take(
            np.broadcast_to(np.asarray(self.emphasis, dtype=np.float64), self.allowed.shape)
        )
        penalty = shrinkage * emphasis * self.unit / self.totals.weight
        penalty[_PLAIN] = 0.0
        floor = 0.5 * tol * np.minimum(1.0, self.spread)
        if self.prior_share > 0:
            floor = np.minimum(floor, 1e-4 * (self.drop + penalty))
        return penalty + floor, floor

    @property
    def worth(self) -> np.ndarray:
        """The limit of each atom's gradient far out, where all probability is on the top class."""
        return self.drop + self.penalty - self.floor

    def _take(self, grid: np.ndarray) -> np.ndarray:
        return grid.reshape(-1)[self.atoms]

    def grid(self, coefficients: np.ndarray) -> np.ndarray:
        """Coefficients as an array of shape (2, K, r)."""
        full = np.zeros(self.allowed.size)
        full[self.atoms] = coefficients
        return full.reshape(self.allowed.shape)

    def start(self) -> np.ndarray:
        """Temperature scaling, where its scale is known.

        Else the identity map, or a milder one where the logits are so large that every probability would be 0 or 1.
        """
        scale = min(1.0, 20.0 / max(self.spread[_PLAIN], 1e-300))
        if self.scale is not None:
            scale = self.scale * _START_FACTOR
        c = self.lower.copy()
        c[_PLAIN] = max(scale, MIN_SCALE)
        return c

    def evaluate(self, coefficients: np.ndarray, working: np.ndarray) -> Expansion:
        if self._only_scale:
            scale, n = float(coefficients[0]), self.totals.weight
            value, mean, curvature = self.rows.sum("scale_sums", scale) / n
            target = self._target_depths[0] / n
            hessian = np.array([[curvature]])[: len(working), : len(working)]
            return Expansion(float(value + scale * target), np.array([target - mean]), hessian)
        sums, n = self._sums(self.rows, coefficients, working), self.totals.weight
        # Every term is positive: depths of a million do not cancel, and the value keeps its last digits.
        lost = float(self._losses @ coefficients)
        return Expansion((sums.value + lost) / n, self._gradient(sums) / n, sums.hessian / n, sums)

    def hessian(self, coefficients: np.ndarray, working: np.ndarray) -> np.ndarray:
        if self._only_scale:
            return self.evaluate(coefficients, working).hessian
        return self._sums(self.rows, coefficients, working, False).hessian / self.totals.weight

    def _sums(self, rows: Rows, coefficients: np.ndarray, working: np.ndarray, gradient: bool = True) -> Sums:
        sums: Sums = rows.sum("sums", self.point(coefficients, working), gradient)
        return replace(sums, by_rank=self._columns(sums.by_rank)) if gradient else sums

    def _columns(self, by_rank: np.ndarray) -> np.ndarray:
        """Sums at each rank (..., r), added up over each column."""
        return by_rank if self.begins is None else np.add.reduceat(by_rank, self.begins, axis=-1)

    def point(self, coefficients: np.ndarray, working: np.ndarray) -> Point:
        """Coefficients (a,) as an engine takes them, with the atoms of a working set."""
        used = np.flatnonzero(coefficients)
        return Point.of_steps(
            (self.allowed.shape[1], self.rows.n_ranks),
            self._at_ranks[:, used],
            coefficients[used],
            self._at_ranks[:, working],
            self._own if len(self._mirrored) else None,
        )

    def _gradient(self, sums: Sums) -> np.ndarray:
        """Sums of ``p`` less the targets times every atom, less its value at the top class, (a,).

        Differences are taken before anything is added up: sums of depths of a million would take the last digits with them.
        """
        # Rank by rank there are scales of the first factor alone, and a factor and its mirror add up to that one.
        first, own, mirrored = sums.by_rank[:3], self._own, self._mirrored
        depth = np.append(first[DEPTH].sum(), sums.whole)
        out = np.zeros(self.allowed.shape)
        apart = first - self.target[:, 0]
        out[SCALE, 0] = apart[HEIGHT] - np.cumsum(apart[HEIGHT]) - from_start(apart[DEPTH])
        depths = np.zeros(len(self._target_depths))
        depths[own] = depth
        depths[mirrored] = depth[0] - depth[self._partners]
        out[SCALE, 1:, 0] = (self._target_depths - depths)[1:]
        mass = sums.by_rank[2:] - self.target[MASS, own]
        before = np.subtract(mass, np.cumsum(mass, axis=1), out=mass)
        out[BIAS, own] = before
        if len(mirrored):
            out[BIAS, mirrored] = before[0] - before[self._partners]
        return self._take(out)

    def excess(self, coefficients: np.ndarray, here: Expansion) -> float:
        """An upper bound of the objective (without the floor) at ``coefficients``, evaluated ``here``, less its infimum."""
        linear, size = self.penalty - self.floor, coefficients - self.lower
        gradient, objective = here.gradient + linear, here.value + float(linear @ coefficients)
        bound = excess_everywhere(objective, gradient, self.worth, self.lower, size)
        if here.predicted is not None:
            predicted = self._of_all_factors(here.predicted) / self.totals.weight
            lengths = 1 if self.begins is None else np.diff(np.append(self.begins, self.rows.n_ranks))
            tied = self.totals.tied if self.begins is None else self.totals.tied[self.begins]
            ties, m = self.totals.ties, self.rows.n_classes
            by_rank = excess_by_rank(gradient, size, self._places, predicted, tied, ties, m, lengths)
            bound = min(bound, by_rank)
        return max(bound, 0.0)

    def _of_all_factors(self, sums: Sums) -> np.ndarray:
        """Sums of ``psi p v``, ``psi p U`` and ``psi p`` at each rank, (3, K, r); where only totals are summed, at the lowest."""
        out, own = np.zeros((3, *self.allowed.shape[1:])), self._own
        out[DEPTH, 0], out[HEIGHT, 0], out[MASS, own] = sums.by_rank[0], sums.by_rank[1], sums.by_rank[2:]
        out[DEPTH, own[1:], 0] = sums.whole
        if len(self._mirrored):
            whole = out[:, 0].copy()
            whole[DEPTH, 0], whole[DEPTH, 1:], whole[HEIGHT] = whole[DEPTH].sum(), 0.0, 0.0
            out[:, self._mirrored] = whole[:, None] - out[:, self.mirrors[self._mirrored]]
        return out

    def candidates(self, gradient: np.ndarray, size: int) -> np.ndarray:
        """At most ``size`` of the atoms, sorted, from the gradient of all; all of them where they are no more."""
        n = len(gradient)
        if n <= size:
            return np.arange(n)
        family = self.atoms // self.allowed.shape[2]  # kind and factor of each atom as one number
        apart = (np.diff(self.atoms) > 1) | (np.diff(family) > 0)
        first, last = (
            np.append(True, apart),
            np.append(apart, True),
        )  # those without a neighbour before, and behind
        scaled, falling = gradient / np.maximum(self.unit, 1e-12), np.flatnonzero(gradient < 0)
        here = scaled[falling]
        lowest = first[falling] | (here <= scaled[falling - 1])
        lowest &= last[falling] | (here <= scaled[(falling + 1) % n])
        lowest_at, depth = falling[lowest], here[lowest]
        lowest_at = lowest_at[np.argsort(depth, kind="stable")[:size]]
        around = np.clip(lowest_at[:, None] + _AROUND, 0, n - 1)
        around = around[(family[around] == family[lowest_at][:, None]) & (gradient[around] < 0)]
        chosen = list(dict.fromkeys([*lowest_at.tolist(), *around.tolist()]))  # each once, the lowest first
        return np.array(sorted(chosen[:size]), dtype=np.intp)

    def coarse(self) -> RankCone | None:
        few = len(self.atoms) <= _FEW_ATOMS and self.n_rows < _FEW_ROWS
        rows = None if few else self.rows.coarse()
        if rows is None:
            return None
        if not self._of_fewer:  # kept for all copies of this problem
            self._of_fewer.append(rows.sum("label_sums"))
        label, weight = self._of_fewer[0][:-1], float(self._of_fewer[0][-1])
        totals = replace(self.totals, weight=weight, label=np.reshape(label, self.totals.label.shape))
        # The copy is solved for the penalty of the whole, and needs no floor of its own.
        floor = np.zeros_like(self.floor)
        small = self._with(rows=rows, n_rows=rows.n_rows, _of_fewer=[], totals=totals, floor=floor)
        small._aim_at(self._columns(np.cumsum(totals.label, axis=2)))
        return small


def from_start(by_rank: np.ndarray) -> np.ndarray:
    """Sums over the ranks from each start upwards."""
    return np.cumsum(by_rank[..., ::-1], axis=-1)[..., ::-1]


def atom_sums(by_rank: np.ndarray) -> np.ndarray:
    """From sums of ``v``, ``U``, 1 at each rank (3, ..., r) to sums of every atom less its value at the top, (2, ..., r)."""
    before = np.cumsum(by_rank[1:], axis=-1) - by_rank[1:]
    return -np.stack([from_start(by_rank[DEPTH]) + before[0], before[1]])
