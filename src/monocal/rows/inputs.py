"""Which kind of input is this? The only place that decides.

memory-mapped, zarr or h5py array   read in slices of its rows                          (`files`)
a function that makes blocks        called once a pass; its blocks are ``(X, y)`` or ``(X, y, sample_weight)``   (`files`)
Dask array                          read by its own workers                             (`dask`)
the largest logits of a server      with the log-sum-exp of all                         (`top_k`)
anything else                       an array in memory, or what numpy makes one of      (`memory`)
"""

from __future__ import annotations

from typing import Any

from ..arrays import is_dask
from .files import BlockLogits, FileLogits, is_blocks, is_large_file
from .interface import Elsewhere
from .top_k import TopK, TopKLogits


def elsewhere(
    X: Any, y: Any = None, sample_weight: Any = None, *, reads_files: bool = True
) -> Elsewhere | None:
    """A way to work on ``X`` where it is, or None where it is an array in memory or may as well become one.

    Without ``reads_files`` an array in a file is to be read as a whole.
    """
    if is_dask(X):
        from .dask import DaskLogits

        return DaskLogits(X, y, sample_weight)
    if isinstance(X, TopK):
        return TopKLogits(X, y, sample_weight)
    if is_blocks(X, y):
        return BlockLogits(X, y, sample_weight)
    if reads_files and is_large_file(X):
        return FileLogits(X, y, sample_weight)
    return None
