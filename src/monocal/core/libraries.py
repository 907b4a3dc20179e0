"""The functions of an array library under the names of the array API standard, with what the standard lacks.

`namespace_of` gives those that `core.map.apply` runs on an array. numpy and torch get direct ways to functions that are called
often; numpy's leave out what would change nothing. Sums over classes add in an order that does not depend on the number of rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import array_api_compat
import numpy as np

from ..arrays import FEW_CLASSES, by_class, row_sums

# Up to so many rows, calls take more time than arithmetic.
FEW = 16


class Functions:
    """A library under the names of the standard. ``direct`` functions replace its own, and those below."""

    # Whether arrays stand for tensors of an ONNX graph, whose runtime's sums are not compensated.
    graph = False

    def __init__(self, library: Any, **direct: Any):
        self._library = library
        self.__dict__.update(direct)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def double(self, x: Any) -> Any:
        """In double precision, where the device has it."""
        return x if str(getattr(x, "device", "")).startswith("mps") else self.astype(x, self.float64)

    def filled(self, x: Any, value: float) -> Any:
        """A value to choose instead of those of ``x``; a scalar where the library takes one."""
        return self.full_like(x, value)

    def total(self, x: Any) -> Any:
        """Sums over the classes (n,)."""
        if not self.graph:
            return self.sum(x, axis=0)
        return self.astype(self.sum(self.astype(x, self.float64), axis=0), x.dtype)

    def running_sum(self, x: Any) -> Any:
        """Sums of non-negative numbers up to each place of the first axis; they never fall, in whatever order a device adds."""
        sums = self.cumulative_sum(x, axis=0)
        return sums.cummax(dim=0).values if getattr(x, "is_cuda", False) else sums

    def running_maximum(self, x: Any) -> Any:
        """The largest up to each place of the first axis."""
        step = 1
        while step < x.shape[0]:
            x = self.maximum(x, self.shifted(x, step))
            step *= 2
        return x

    def shifted(self, x: Any, k: int) -> Any:
        """``x`` moved by ``k`` places along the first axis; in the first places it stays as it is."""
        return self.concat([x[:k, ...], x[:-k, ...]], axis=0)

    def row(self, x: Any, i: int) -> Any:
        """``x[i]``."""
        return x[i, ...]

    def mixed(self, steps: Any, psi: Any) -> Any:
        """``steps_0 + sum_k psi_k steps_k`` (..., n) of steps (K, ...) and factors (K - 1, n).

        Not a matrix product, whose rounding depends on how many rows it is given.
        """
        for _ in range(steps.ndim - 1):
            psi = psi[:, None, ...]
        return self.sum(steps[1:, ..., None] * psi, axis=0) + steps[0, ..., None]

    def scatter_add(self, base: Any, group: Any, values: Any) -> Any:
        """``base[group[i, n], n] += values[i, n]``, for a base of zeros."""
        same = group[None, ...] == self.arange(base.shape[0])[:, None, None]
        return self.sum(self.where(same, values[None, ...], 0.0 * values[None, ...]), axis=1)

    def largest_of_rows(self, z: Any, k: int) -> tuple[Any, Any]:
        """The k largest (or more) of each row from the top down, and their classes."""
        index = self.argsort(z, axis=1, descending=True)
        return self.take_along_axis(z, index, axis=1), index

    def scatter_in_rows(self, base: Any, index: Any, values: Any) -> Any:
        """``base[n, index[n, j]] = values[n, j]``; here the index is always a permutation."""
        return self.take_along_axis(values, self.argsort(index, axis=1), axis=1)


def namespace_of(x: Any) -> Functions:
    """The functions that `core.map.apply` runs on an array."""
    if type(x) is np.ndarray:
        return HOST
    if array_api_compat.is_torch_array(x):
        return torch_functions()
    return Functions(array_api_compat.array_namespace(x))


def leading(x: Any, n: int) -> Any:
    """The first ``n`` of an array along the first axis."""
    return x if x.shape[0] == n else x[:n, ...]


def ramps_of(values: Any, statistic: Any, zero: Any, width: Any, xp: Any) -> Any:
    """Ramps (K - 1, n) of statistics (S, n): which each is of, where it is still 0, and how far from there it is 1."""
    q = values if values.shape[0] == 1 else xp.take(values, statistic, axis=0)
    return xp.clip((q - zero[:, None]) / width[:, None], min=0.0, max=1.0)


def means_of_runs(g: Any, v: Any, xp: Any) -> Any:
    """Mean of ``g`` (r, n), which never falls, over runs of equal ``v``; exactly ``g`` where it is the same throughout a run.

    Sums are in double precision, in which those of single-precision numbers are exact.
    """
    new = xp.astype(v != xp.shifted(v, 1), xp.int64)
    group = xp.cumulative_sum(new, axis=0)
    wide = xp.double(g)
    none = 0.0 * wide

    def of_group(x: Any) -> Any:
        return xp.scatter_add(none, group, x)

    mean = of_group(wide) / xp.clip(of_group(none + 1.0), min=1.0)
    mean = xp.take_along_axis(mean, group, axis=0)
    if not str(g.dtype).endswith("float32"):  # sums are rounded: no mean may leave the range of its run
        last = xp.concat([new[1:, ...], new[-1:, ...]], axis=0)
        ends = (of_group(xp.where(end > 0, wide, none)) for end in (new, last))
        low, high = (xp.take_along_axis(x, group, axis=0) for x in ends)
        high = xp.where(group == group[-1:, ...], wide[-1:, ...], high)
        mean = xp.minimum(xp.maximum(mean, low), high)
    return xp.astype(mean, g.dtype)


def classes_first(z: Any, xp: Any) -> Any:
    """Rows (n, m) as (m, n): what belongs to a row (n,) then broadcasts."""
    return by_class(z).T if xp is HOST else xp.permute_dims(z, (1, 0))


def sorted_rows(z: Any, k: int, xp: Any) -> tuple[Any, Any]:
    """Rows (n, m) from the top down (L, n), and the classes (n, k) that were put in order.

    Behind the k largest come all classes in their places, -inf where they are among the k; or the others in order.
    """
    values, index = xp.largest_of_rows(z, k)
    if index.shape[1] < z.shape[1]:
        nothing = xp.astype(0 * index, z.dtype) - np.inf
        values = xp.concat([values, xp.scatter_in_rows(z, index, nothing)], axis=1)
    return classes_first(values, xp), index


def restored(y: Any, index: Any, m: int, xp: Any) -> Any:
    """Values (L, n) by rank as values (n, m) by class."""
    k, y = index.shape[1], xp.permute_dims(y, (1, 0))
    return xp.scatter_in_rows(y[:, k:], index, y[:, :k]) if k < m else xp.scatter_in_rows(y, index, y)


# numpy


def _host_largest(z: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    if k == z.shape[1]:
        index = np.argsort(-z, axis=1)
    else:
        part = np.argpartition(-z, k - 1, axis=1)[:, :k]
        index = np.take_along_axis(part, np.argsort(-np.take_along_axis(z, part, axis=1), axis=1), axis=1)
    return np.take_along_axis(z, index, axis=1), index


def _host_scatter(base: np.ndarray, index: np.ndarray, values: np.ndarray) -> np.ndarray:
    out = np.array(base, order="C")
    np.put_along_axis(out, index, values, axis=1)
    return out


def _host_add(base: np.ndarray, group: np.ndarray, values: np.ndarray) -> np.ndarray:
    out = np.array(base, order="C")
    np.add.at(out, (group, np.arange(out.shape[1])), values)
    return out


def _host_sum(x: np.ndarray, axis: int) -> Any:
    if x.ndim == 2 and axis == 0 and len(x):
        few = x.shape[1] <= FEW and len(x) <= FEW_CLASSES
        return np.add.accumulate(x)[-1] if few else row_sums(x.T)[:, 0]  # the same sums
    return np.add.reduce(x, axis=axis)


def _host_mixed(steps: np.ndarray, psi: np.ndarray) -> np.ndarray:
    n = psi.shape[1]
    if n <= FEW:  # the same sums, in fewer calls
        factors = np.empty((len(steps), *(1,) * (steps.ndim - 1), n), psi.dtype)
        factors[0] = 1.0
        factors[1:].reshape(psi.shape)[...] = psi
        return np.add.accumulate(steps[..., None] * factors, axis=0)[-1]
    flat = steps.reshape(len(steps), -1)
    out = np.repeat(flat[0][:, None], n, axis=1)
    for place, k in np.argwhere(flat[1:].T).tolist():  # few have increments at any one start
        out[place] += psi[k] * flat[k + 1, place]
    return out.reshape(*steps.shape[1:], n)


def _clip(x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


HOST = Functions(
    array_api_compat.array_namespace(np.zeros(0)),
    where=np.where,
    minimum=np.minimum,
    maximum=np.maximum,
    exp=np.exp,
    log=np.log,
    isinf=np.isinf,
    clip=_clip,
    sum=_host_sum,
    max=np.maximum.reduce,
    min=np.minimum.reduce,
    concat=np.concatenate,
    permute_dims=np.ndarray.transpose,
    take=lambda x, index, axis: x.take(index, axis=axis),
    astype=lambda x, dtype, copy=True: x.astype(dtype, copy=copy),
    cumulative_sum=np.add.accumulate,
    running_maximum=np.maximum.accumulate,
    filled=lambda x, value: x.dtype.type(value),
    mixed=_host_mixed,
    scatter_add=_host_add,
    largest_of_rows=_host_largest,
    scatter_in_rows=_host_scatter,
)


@cache
def torch_functions() -> Functions:
    """torch's own functions: compilers and exporters take all of these."""
    import torch
    from array_api_compat import torch as standard

    def largest(z: Any, k: int) -> tuple[Any, Any]:
        values, index = z.topk(k, dim=1) if k < z.shape[1] else z.sort(dim=1, descending=True)
        return values, index

    def traced() -> bool:
        return bool(torch.compiler.is_compiling() or torch.jit.is_tracing())

    def mix(steps: Any, psi: Any) -> Any:
        shape = (psi.shape[0],) + (1,) * (steps.ndim - 1) + (psi.shape[1],)
        mixture = steps[0, ..., None]
        for term in steps[1:, ..., None] * psi.reshape(shape):  # in one order, whatever the number of rows
            mixture = mixture + term
        return mixture

    def add(x: Any, axis: int) -> Any:
        if x.is_cuda and x.is_floating_point():  # which adds in an order that depends on the number of rows
            return torch.sum(x, axis, dtype=torch.float64).to(x.dtype)
        if x.ndim != 2 or axis != 0 or traced():
            return torch.sum(x, axis)
        return x.T.contiguous().sum(-1)

    def maximum_so_far(x: Any) -> Any:  # ONNX has none
        return Functions.running_maximum(functions, x) if traced() else x.cummax(0).values

    functions = Functions(
        standard,
        where=torch.where,
        minimum=torch.minimum,
        maximum=torch.maximum,
        exp=torch.exp,
        isinf=torch.isinf,
        clip=torch.clamp,
        sum=add,
        max=torch.amax,
        min=torch.amin,
        concat=torch.cat,
        permute_dims=torch.permute,
        full_like=torch.full_like,
        take=lambda x, index, axis: torch.index_select(x, axis, index),
        take_along_axis=lambda x, index, axis: torch.gather(x, axis, index),
        astype=lambda x, dtype, copy=True: x.to(dtype),
        sort=lambda x, axis: torch.sort(x, dim=axis).values,
        cumulative_sum=lambda x, axis: torch.cumsum(x, axis),
        running_maximum=maximum_so_far,
        mixed=mix,
        scatter_add=lambda base, group, values: base.scatter_add(0, group, values),
        largest_of_rows=largest,
        scatter_in_rows=lambda base, index, values: base.scatter(1, index, values),
    )
    return functions
