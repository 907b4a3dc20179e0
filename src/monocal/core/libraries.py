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
    """A library under the names of the standard, with direct ways to the functions that are called often."""

    def __init__(self, library: Any, **direct: Any):
        self._library = library
        self.__dict__.update(direct)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


def namespace_of(x: Any) -> Any:
    """The functions that `core.map.apply` runs on an array."""
    if type(x) is np.ndarray:
        return HOST
    if array_api_compat.is_torch_array(x):
        return torch_functions()
    return array_api_compat.array_namespace(x)


def is_graph(x: Any) -> bool:
    """Whether an array stands for a tensor of an ONNX graph."""
    return type(x).__module__.startswith("ndonnx")


def double(x: Any, xp: Any) -> Any:
    """In double precision, where the device has it."""
    return x if str(getattr(x, "device", "")).startswith("mps") else xp.astype(x, xp.float64)


def filled(x: Any, value: float, xp: Any) -> Any:
    """A value to choose instead of those of ``x``; a scalar where the library takes one."""
    return xp.scalar_like(x, value) if hasattr(xp, "scalar_like") else xp.full_like(x, value)


def total(x: Any, xp: Any) -> Any:
    """Sums over the classes (n,); in a graph in double precision, since a runtime's sums are not compensated."""
    if not is_graph(x):
        return xp.sum(x, axis=0)
    return xp.astype(xp.sum(xp.astype(x, xp.float64), axis=0), x.dtype)


def running_sum(x: Any, xp: Any, axis: int = 0) -> Any:
    """Sums of non-negative numbers up to each place, never falling: a device adds in an order of its own."""
    sums = xp.cumulative_sum(x, axis=axis)
    return sums.cummax(dim=axis).values if getattr(x, "is_cuda", False) else sums


def running_maximum(x: Any, xp: Any) -> Any:
    """The largest up to each place of the first axis."""
    return xp.running_maximum(x) if hasattr(xp, "running_maximum") else _by_doubling(x, xp)


def _by_doubling(x: Any, xp: Any) -> Any:
    step = 1
    while step < x.shape[0]:
        x = xp.maximum(x, shifted(x, step, xp))
        step *= 2
    return x


def shifted(x: Any, k: int, xp: Any) -> Any:
    """``x`` moved by ``k`` places along the first axis; in the first places it stays as it is."""
    return xp.shifted(x, k) if hasattr(xp, "shifted") else xp.concat([x[:k, ...], x[:-k, ...]], axis=0)


def leading(x: Any, n: int) -> Any:
    """The first ``n`` of an array along the first axis."""
    return x if x.shape[0] == n else x[:n, ...]


def row(x: Any, i: int, xp: Any) -> Any:
    """``x[i]``."""
    return xp.row(x, i) if hasattr(xp, "row") else x[i, ...]


def ramps_of(values: Any, statistic: Any, zero: Any, width: Any, xp: Any) -> Any:
    """Ramps (K - 1, n) of statistics (S, n): which each is of, where it is still 0, and how far from there it is 1."""
    q = values if values.shape[0] == 1 else xp.take(values, statistic, axis=0)
    return xp.clip((q - zero[:, None]) / width[:, None], min=0.0, max=1.0)


def mixed(steps: Any, psi: Any, xp: Any) -> Any:
    """``steps_0 + sum_k psi_k steps_k`` (..., n) of steps (K, ...) and factors (K - 1, n).

    Not a matrix product, whose rounding depends on how many rows it is given.
    """
    if hasattr(xp, "mixed"):
        return xp.mixed(steps, psi)
    for _ in range(steps.ndim - 1):
        psi = psi[:, None, ...]
    terms = steps[1:, ..., None] * psi
    return xp.sum(terms, axis=0) + steps[0, ..., None]


def means_of_runs(g: Any, v: Any, xp: Any) -> Any:
    """Mean of ``g`` (r, n), which never falls, over runs of equal ``v``; exactly ``g`` where it is the same throughout a run.

    Sums are in double precision, in which those of single-precision numbers are exact.
    """
    new = xp.astype(v != shifted(v, 1, xp), xp.int64)
    group = xp.cumulative_sum(new, axis=0)
    wide = double(g, xp)
    one = 0.0 * wide + 1.0
    mean = group_sums(wide, group, xp) / xp.clip(group_sums(one, group, xp), min=1.0)
    mean = xp.take_along_axis(mean, group, axis=0)
    if not str(g.dtype).endswith("float32"):  # sums are rounded: no mean may leave the range of its run
        first = xp.where(new > 0, wide, 0.0 * wide)
        last = xp.where(xp.concat([new[1:, ...], new[-1:, ...]], axis=0) > 0, wide, 0.0 * wide)
        low, high = (xp.take_along_axis(group_sums(x, group, xp), group, axis=0) for x in (first, last))
        highest = wide[-1:, ...]
        high = xp.where(group == group[-1:, ...], highest, high)
        mean = xp.minimum(xp.maximum(mean, low), high)
    return xp.astype(mean, g.dtype)


def group_sums(x: Any, group: Any, xp: Any) -> Any:
    """Sums of ``x`` (r, n) over the ranks of each group; row j is group j."""
    if hasattr(xp, "scatter_add"):
        return xp.scatter_add(0.0 * x, group, x)
    same = group[None, ...] == xp.arange(x.shape[0])[:, None, None]
    return xp.sum(xp.where(same, x[None, ...], 0.0 * x[None, ...]), axis=1)


def classes_first(z: Any, xp: Any) -> Any:
    """Rows (n, m) as (m, n): what belongs to a row (n,) then broadcasts."""
    return by_class(z).T if xp is HOST else xp.permute_dims(z, (1, 0))


def sorted_rows(z: Any, k: int, xp: Any) -> tuple[Any, Any]:
    """Rows (n, m) from the top down (L, n), and the classes (n, k) that were put in order.

    Behind the k largest come all classes in their places, -inf where they are among the k; or the others in order.
    """
    m = z.shape[1]
    if hasattr(xp, "largest_of_rows"):
        values, index = xp.largest_of_rows(z, k)
        if k < m:
            nothing = xp.astype(0 * index, z.dtype) - np.inf
            values = xp.concat([values, xp.scatter_in_rows(z, index, nothing)], axis=1)
    else:
        index = xp.argsort(z, axis=1, descending=True)
        values = xp.take_along_axis(z, index, axis=1)
    return classes_first(values, xp), index


def restored(y: Any, index: Any, m: int, xp: Any) -> Any:
    """Values (L, n) by rank as values (n, m) by class."""
    k = index.shape[1]
    y = xp.permute_dims(y, (1, 0))
    if k < m:
        return xp.scatter_in_rows(y[:, k:], index, y[:, :k])
    if hasattr(xp, "scatter_in_rows"):
        return xp.scatter_in_rows(y, index, y)
    return xp.take_along_axis(y, xp.argsort(index, axis=1), axis=1)


# numpy


def _host_largest(z: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    m = z.shape[1]
    if k == m:
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
        terms = steps[..., None] * factors
        return np.add.accumulate(terms, axis=0)[-1]
    out = np.empty((*steps.shape[1:], n), dtype=psi.dtype)
    for place in np.ndindex(steps.shape[1:]):
        of_place = steps[:, *place]
        out[place] = of_place[0]
        for k in np.flatnonzero(of_place[1:]):  # few have increments at any one start
            out[place] += psi[k] * of_place[k + 1]
    return out


def _clip(x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


HOST = Functions(
    array_api_compat.array_namespace(np.zeros(0)),
    where=np.where,
    minimum=np.minimum,
    exp=np.exp,
    log=np.log,
    concat=np.concatenate,
    permute_dims=np.ndarray.transpose,
    take=lambda x, index, axis: x.take(index, axis=axis),
    scalar_like=lambda x, value: x.dtype.type(value),
    isinf=np.isinf,
    sum=_host_sum,
    max=np.maximum.reduce,
    min=np.minimum.reduce,
    mixed=_host_mixed,
    running_maximum=np.maximum.accumulate,
    cumulative_sum=np.add.accumulate,
    clip=_clip,
    scatter_add=_host_add,
    maximum=np.maximum,
    largest_of_rows=_host_largest,
    scatter_in_rows=_host_scatter,
    astype=lambda x, dtype, copy=True: x.astype(dtype, copy=copy),
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
        terms = steps[1:, ..., None] * psi.reshape(shape)
        mixture = steps[0, ..., None]
        for term in terms:  # in one order, whatever the number of rows
            mixture = mixture + term
        return mixture

    def add(x: Any, axis: int) -> Any:
        if x.is_cuda and x.is_floating_point():  # which adds in an order that depends on the number of rows
            return torch.sum(x, axis, dtype=torch.float64).to(x.dtype)
        if x.ndim != 2 or axis != 0 or traced():
            return torch.sum(x, axis)
        return x.T.contiguous().sum(-1)

    return Functions(
        standard,
        where=torch.where,
        clip=torch.clamp,
        sum=add,
        mixed=mix,
        max=torch.amax,
        min=torch.amin,
        concat=torch.cat,
        permute_dims=torch.permute,
        take=lambda x, index, axis: torch.index_select(x, axis, index),
        take_along_axis=lambda x, index, axis: torch.gather(x, axis, index),
        cumulative_sum=lambda x, axis: torch.cumsum(x, axis),
        # ONNX has none.
        running_maximum=lambda x: _by_doubling(x, standard) if traced() else x.cummax(0).values,
        sort=lambda x, axis: torch.sort(x, dim=axis).values,
        astype=lambda x, dtype, copy=True: x.to(dtype),
        exp=torch.exp,
        minimum=torch.minimum,
        maximum=torch.maximum,
        isinf=torch.isinf,
        full_like=torch.full_like,
        largest_of_rows=largest,
        scatter_add=lambda base, group, values: base.scatter_add(0, group, values),
        scatter_in_rows=lambda base, index, values: base.scatter(1, index, values),
    )
