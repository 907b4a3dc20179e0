"""From the caller's rows to calibrated ones: in the same kind, shape, type and place.

    kind.array(X)  ->  rows of classes  ->  in memory, in parts of a file, or on workers: `_on_rows`  ->  as ``X`` was

Whatever the way to `_on_rows`, a row gets the same result there as alone, up to the rounding of compiled loops for large arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..arrays import Array, array_namespace, is_torch, keep_argmax, ordered_softmax, takes_triton, to_numpy
from ..errors import InputError, spoken
from ..inputs.context import check_context_rows
from ..inputs.files import check_out, context_blocks, is_empty, plain_blocks
from ..inputs.formats import kind_of
from ..inputs.inputs import elsewhere
from ..inputs.interface import RowMap
from ..inputs.layout import Flat, GatheredRows
from ..inputs.top_k import TopK
from ..sklearn_private import output_config
from .given_rows import TakesRows, gathered


class AppliesMap(TakesRows, ABC):
    """How a fitted map reaches the rows. A family writes `_calibrate`."""

    preserves_order: ClassVar[bool] = False
    preserves_top1: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False  # of the rows by P(class 1), with two classes

    # Arrays are those of the caller where `_any_array`, and numpy's else: hence Any.

    @abstractmethod
    def _calibrate(self, logits: Any) -> Any:
        """Calibrated logits (n, m) of checked logits, -inf where a class is not available."""

    def _probabilities(self, logits: Any) -> Any:
        """Calibrated probabilities; a family that works on probabilities overrides this and `_calibrate`."""
        return ordered_softmax(self._calibrate(logits))

    def _keeps_argmax(self, logits: Array, method: str) -> bool:
        """Whether what is computed of these logits has their argmax already, in the type it is computed in."""
        return False

    def _apply(self, X: Any, method: str, out: Any, context: Any = None) -> Any:
        self._check_fitted()
        kind = kind_of(X)
        compared = self._compared(X)
        found = compared._apply_to_arrays(kind.array(X), method, out, context)
        if context is not None:
            self.unseen_ = compared.unseen_
        if method == "transform" and output_config("transform", self)["dense"] != "default":
            return self._for_a_frame(found)
        return found if out is not None else kind.back(found, X, self.class_axis)

    def _for_a_frame(self, found: Any) -> Any:
        """Calibrated logits as scikit-learn takes them where `set_output` asks for frames: rows of classes, of numpy."""
        if isinstance(found, TopK) or not self._layout.is_plain(found):
            shape = "the largest logits only" if isinstance(found, TopK) else f"shape {tuple(found.shape)}"
            raise InputError(
                f"set_output: what comes out has {shape}, and a frame has one row for each sample and one column for each class. "
                "Say set_output(transform='default')."
            )
        return to_numpy(found)

    def _apply_to_arrays(self, X: Any, method: str, out: Any, context: Any) -> Any:
        flat = self._laid_out(X)
        codes = self._codes(context, flat)
        if flat is None:
            return self._apply_to_rows(X, method, out, codes)
        if flat.rows.shape[1] != self.n_features_in_:
            raise InputError(self._other_classes(flat))
        into = None
        if out is not None:
            check_out(out, flat.array.shape, flat.array.dtype)
            into = self._layout.flat(out, "out").rows
        found = self._apply_to_rows(flat.rows, method, into, codes)
        if out is not None:
            return out
        return found.array if isinstance(found, GatheredRows) else flat.back(found)

    def _other_classes(self, flat: Flat) -> str:
        """What to tell where the axis of the classes has another length than there were classes."""
        shape, known = tuple(flat.array.shape), self.n_features_in_
        axes = [axis for axis, side in enumerate(shape) if side == known]
        advice = (
            f"Axis {axes[0]} has: set {spoken('class_axis=', axes[0])}."
            if axes
            else "Give outputs of the same model."
        )
        return (
            f"X has shape {shape}: {spoken('class_axis=', self.class_axis)} has {flat.rows.shape[1]} classes, but "
            f"{type(self).__name__} is expecting {known} features as input. {advice}"
        )

    def _apply_to_rows(self, X: Any, method: str, out: Any, codes: np.ndarray | None) -> Any:
        place = elsewhere(X)
        if place is not None:
            n_rows = getattr(X, "shape", (None,))[0]
            if isinstance(n_rows, int):
                check_context_rows(codes, n_rows)
            if place.names is not None:
                self._check_columns(place.names)
            return place.apply(self._row_map(method, place.names is not None, codes), out)
        if out is None:
            return self._on_rows(method, X, context=codes)
        dtype = check_out(out, np.shape(X), getattr(X, "dtype", np.float64))
        out[:] = self._on_rows(method, X, 0, dtype, codes)
        return out

    def _row_map(self, method: str, named: bool, codes: np.ndarray | None) -> RowMap:
        # What is computed later is of the map as it is now. Blocks have no names, and those of the whole have been compared.
        now = self._without_names() if named else copy(self)
        # What comes after it looks at classes, not at ranks.
        rank_map = (
            None if getattr(self, "adjustment_", None) is not None else getattr(self, "rank_map_", None)
        )
        return RowMap(
            type(self).__name__,
            method,
            self.n_features_in_,
            self.input,
            partial(_on_part, now, method, codes),
            rank_map,
            codes is not None,
        )

    def _apply_to_blocks(self, blocks: Any) -> Iterator[Any]:
        self._check_fitted()
        known = getattr(self, "context_", None)
        if known is None:
            return self._predicted((block, None) for block in plain_blocks(blocks, self._layout))
        self.unseen_ = 0
        return self._predicted((X, self._counted(known, context)) for X, context in context_blocks(blocks))

    def _predicted(self, blocks: Iterator[tuple[Any, np.ndarray | None]]) -> Iterator[Any]:
        first_row = 0
        for block, codes in blocks:
            if is_empty(block):
                yield block
                continue
            kind = kind_of(block)
            given = kind.array(block)
            flat = self._laid_out(given)
            rows = given if flat is None else gathered(flat.rows)
            found = self._compared(block)._on_rows("predict_proba", rows, first_row, context=codes)
            yield kind.back(found if flat is None else flat.back(found), block, self.class_axis)
            first_row += len(rows)

    def _on_rows(
        self,
        method: str,
        X: Any,
        first_row: int = 0,
        dtype: Any = None,
        context: np.ndarray | None = None,
    ) -> Any:
        """The result for rows in memory, an array of the library and type of ``X``; or of type ``dtype``."""
        given, check = self._read_unchecked(X, first_row)
        values = given.values
        later = takes_triton(values) and self._any_array and method != "predict"
        if not later:
            check()
        check_context_rows(context, values.shape[0], first_row)
        if method == "predict" and self.preserves_top1:
            return array_namespace(values).argmax(values, axis=1)
        function = self._calibrate if method == "transform" else self._probabilities
        if dtype is not None and not str(dtype).startswith("torch"):
            values = to_numpy(values)
        logits = self._logits_of(given)
        try:
            found = function(logits, *as_arguments(context))
        finally:  # a device has got its work; where that failed for what values are, it is the check that says so
            if later:
                check()
        result = _back(found, values, dtype or given.dtype)
        kept = logits is values and result.dtype == found.dtype and self._keeps_argmax(logits, method)
        if self.preserves_top1 and not kept:
            result = keep_argmax(result, values)
        if method == "predict":
            # Of `predict_proba` in its own type, so that the two agree where rounding makes a tie.
            result = array_namespace(result).argmax(result, axis=1)
        return result


def _on_part(
    calibrator: AppliesMap, method: str, context: np.ndarray | None, X: Any, first_row: int, dtype: Any
) -> Any:
    """The result for rows that begin at ``first_row`` of those that ``context`` is of."""
    some = None if context is None else context[first_row : first_row + len(X)]
    return calibrator._on_rows(method, X, first_row, dtype, some)


def as_arguments(context: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """What a family is given beside logits: nothing, where there is no context."""
    return () if context is None else (context,)


# The largest number of half precision but one: `keep_argmax` may have to go one higher.
_HALF_RANGE = 65472.0


def _back(values: Array, like: Array, dtype: Any) -> Array:
    """Results in the library and on the device of ``like``, of some type."""
    xp = array_namespace(like)
    values = xp.asarray(values, device=like.device) if is_torch(like) else to_numpy(values)
    if values.dtype == dtype:
        return values
    if str(dtype).endswith("float16") and not str(dtype).endswith("bfloat16"):
        # Half precision ends at 65504: calibrated logits are cut there, but for the -inf of a masked class.
        values = xp.where(xp.isinf(values), values, xp.clip(values, -_HALF_RANGE, _HALF_RANGE))
    with np.errstate(under="ignore"):
        return xp.astype(values, dtype, copy=False)
