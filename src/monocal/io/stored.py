"""Rows of an ``.npy`` file, read when they are asked for.

A mapped file that is cut short under a running program ends the program (SIGBUS); a read that comes back short is an error that
can be told.
"""

from __future__ import annotations

import numpy as np

from monocal.errors import FileError


class StoredRows:
    """The rows of a mapped array of shape (n, m), ``rows[start:stop]``, read from its file instead of the mapping."""

    def __init__(self, mapped: np.memmap):
        self.path, self._offset = mapped.filename, mapped.offset
        self.shape, self.dtype = mapped.shape, mapped.dtype
        self._by_column = not mapped.flags.c_contiguous

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(len(self))
        n, m = self.shape
        if not self._by_column:
            return self._read(start * m, (stop - start) * m).reshape(-1, m)
        columns = [self._read(j * n + start, stop - start) for j in range(m)]
        return np.stack(columns, axis=1)

    def _read(self, first: int, count: int) -> np.ndarray:
        offset = self._offset + first * self.dtype.itemsize
        values = np.fromfile(str(self.path), self.dtype, count, offset=offset)
        if len(values) < count:
            raise FileError(
                f"{self.path} became shorter while it was read: write it again, and keep it until the run is over."
            )
        return values
