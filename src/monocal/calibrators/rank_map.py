"""A map that is piecewise constant in rank, and which of its four implementations a prediction takes.

    w_d = sum over starts up to d of  s_j,        s_j = sum_k psi_k(z) scale_steps_kj
    b_d = sum over starts up to d of  t_j,        t_j = sum_k psi_k(z) bias_steps_kj

Logits in rank order become ``w_d u + b_d``, with ``u`` measured from the lowest logit in use. Increments are non-negative and
so are the factors ``psi``, so weights and biases never fall as the rank rises, and the order stands. How that is computed from
the top of the row is in `core.map`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, compute_dtype, on_host, widened
from ..core.libraries import FEW, HOST, namespace_of
from ..core.map import PROBABILITIES, MapStep, apply, rank_map, rank_step, steps_as
from ..core.numpy_map import NumpyMap
from ..core.ranked import Rest
from ..core.statistics import STATISTICS, RampFactors, own_statistic
from ..engines import numba_engine, triton_map
from ..parallel import CPU_BLOCK, block_rows, map_rows
from .state import expect


@dataclass(frozen=True)
class RankMap:
    """A map that is piecewise constant in rank."""

    starts: np.ndarray  # (D,), first rank of each piece, counted from the lowest in use; the first is 0
    scale_steps: np.ndarray  # (K, D), non-negative increments of the weight at each start, for each factor
    bias_steps: np.ndarray  # (K, D), the same of the bias
    top_k: int | None = None
    factors: RampFactors | None = field(default=None, repr=False)  # None for the constant 1

    @classmethod
    def from_grid(cls, coefficients: np.ndarray, **rest: Any) -> RankMap:
        """From coefficients (2, K, r) by kind, factor and start."""
        used = np.flatnonzero(coefficients.any(axis=(0, 1)))
        starts = np.union1d(0, used)
        return cls(starts, coefficients[0][:, starts], coefficients[1][:, starts], **rest)

    def __getstate__(self) -> dict[str, Any]:
        # What is made from these on first use is neither pickled nor copied.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def step(self, n_classes: int, adjustment: Any = None) -> MapStep:
        """The map, and a second stage, as a step of `core.map`."""
        r = n_classes if self.top_k is None else min(int(self.top_k), n_classes)
        return rank_step(
            self.starts, self.scale_steps, self.bias_steps, self.factors, n_classes, r, adjustment
        )

    def apply(
        self, logits: Any, output: str, adjustment: Any = None, context: np.ndarray | None = None
    ) -> Array:
        """Calibrated probabilities or logits (n, m), with the argmax of the logits; masked classes stay masked."""
        ways = self._ways(logits.shape[1], adjustment)
        if type(logits) is not np.ndarray:
            statistics = () if self.factors is None else self.factors.statistics
            if triton_map.suits(logits, len(self.starts) - 1, statistics):
                return ways.on_device(logits, output, context)
            size = block_rows(logits) if on_host(logits) else max(1, block_rows(logits) // 4)
            return map_rows(partial(ways.portable, output), logits, size, context)
        z = logits if logits.itemsize >= 4 else logits.astype(np.float32)
        if z.size >= numba_engine.LARGE and ways.step.kind == "ranks" and numba_engine.suits(z):
            return ways.loops.predict(z, output, context, ways.numpy)
        if len(z) <= FEW or z.size <= CPU_BLOCK:
            return ways.numpy(z, output, context)
        return map_rows(lambda part, codes=None: ways.numpy(part, output, codes), z, None, context)

    def with_rest(
        self, z: np.ndarray, rest: Rest, adjustment: Any, context: np.ndarray | None, top_class: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Calibrated logits of named classes (n, k), and of each class of the rest of their row (n,), which lies below them."""
        ways = self._ways(z.shape[1], adjustment)
        _, arrays, static = steps_as([ways.step], np.asarray, z.dtype)[0]
        with np.errstate(all="ignore"):
            rows = rank_map(z, arrays, static, HOST, context, (rest.depth, rest.count, top_class))
        assert rows.restore is not None
        f = np.ascontiguousarray(rows.restore(rows.f[:-1]))
        return f, np.minimum(rows.f[-1], np.where(np.isinf(f), np.inf, f).min(axis=1))

    def _ways(self, n_classes: int, adjustment: Any) -> _Ways:
        """What makes predictions for rows of a length; made once."""
        kept = self.__dict__.setdefault("_kept", {})
        ways: _Ways | None = kept.get((n_classes, id(adjustment)))
        if ways is None:
            ways = kept[n_classes, id(adjustment)] = _Ways(self.step(n_classes, adjustment), adjustment)
        return ways


class _Ways:
    """A step in the forms of its four implementations, each made when first asked for."""

    def __init__(self, step: MapStep, adjustment: Any):
        self.step = step
        self.adjustment = adjustment  # held, so that its id stays its own
        statistics = [
            q if isinstance(q, str) else partial(own_statistic, q) for q in step.static["statistics"]
        ]
        self.checked = MapStep(step.kind, step.arrays, {**step.static, "statistics": statistics})
        self.numpy = NumpyMap([self.checked])
        self._tables: dict[str, Any] = {}

    @cached_property
    def loops(self) -> numba_engine.LoopMap:
        return numba_engine.LoopMap(self.step)

    def portable(self, output: str, z: Any, context: np.ndarray | None = None) -> Any:
        """Rows of any other library."""
        z = widened(z)
        standard = array_namespace(z)
        z = standard.astype(z, compute_dtype(z), copy=False)
        xp = namespace_of(z)
        dtype = str(z.dtype).rpartition(".")[2]
        codes = None if context is None else standard.asarray(context, device=z.device)
        steps = steps_as([self.checked], lambda x: standard.asarray(x, device=z.device), dtype)
        with np.errstate(all="ignore"):
            return apply(z, steps, xp, output, context=codes)

    def on_device(self, logits: Any, output: str, context: np.ndarray | None) -> Any:
        """Rows on a CUDA device."""
        device = str(logits.device)
        if device not in self._tables:
            self._tables[device] = triton_map.Tables.on(logits.device, self.step)
        mode = triton_map.PROBABILITIES if output == PROBABILITIES else triton_map.LOGITS
        codes = None if context is None else array_namespace(logits).asarray(context, device=logits.device)
        return triton_map.apply(logits, self._tables[device], mode, codes)


def check_rank_map(calibrator: Any, value: Any, name: str) -> None:
    """Starts 0 = s_0 < s_1 < ... < m; increments >= 0, one column for each start, one row for each factor."""
    expect(isinstance(value, RankMap), name, value, "a rank map")
    starts, top_k = np.asarray(value.starts), value.top_k
    whole = starts.ndim == 1 and starts.dtype.kind in "iu" and len(starts) > 0
    ranks = (
        whole and starts[0] == 0 and starts[-1] < calibrator.n_features_in_ and (np.diff(starts) > 0).all()
    )
    expect(ranks, f"{name}.starts", starts, "ranks that rise from 0")
    expect(top_k == getattr(calibrator, "top_k", None), f"{name}.top_k", top_k, "the calibrator's own")
    expect(top_k is None or (isinstance(top_k, int | np.integer) and top_k >= 1), f"{name}.top_k", top_k)
    if value.factors is not None:
        check_factors(calibrator, value.factors, f"{name}.factors")
    shape = (1 if value.factors is None else value.factors.n_factors, len(starts))
    for kind in ("scale_steps", "bias_steps"):
        steps = np.asarray(getattr(value, kind))
        right = steps.shape == shape and (steps >= 0).all()
        expect(right, f"{name}.{kind}", steps, f"increments of shape {shape} that are not negative")


def check_factors(calibrator: Any, value: Any, name: str) -> None:
    """Ramps of statistics that there are."""
    expect(isinstance(value, RampFactors), name, value, "ramps")
    known = [callable(s) or s in STATISTICS for s in value.statistics]
    expect(known, f"{name}.statistics", value.statistics, "known statistics")
    check_ramps(value, len(value.statistics), name)


def check_ramps(factors: RampFactors, n_statistics: int, name: str) -> None:
    """Each with two ends, of one of so many statistics."""
    for ramp in factors.ramps:
        there = isinstance(ramp.statistic, int | np.integer) and 0 <= ramp.statistic < n_statistics
        expect(there, f"{name}.ramps", ramp.statistic, "the number of a statistic")
        expect(ramp.zero != ramp.one, f"{name}.ramps", ramp.zero, "a ramp with two ends")
