"""From a calibration set to what a family learns from: checked rows with a label and a weight each, wherever they live.

    X, y, sample_weight, context  ->  rows  (and those of an old calibrator)  ->  `Source`  ->  `_fit_source`

A fit that fails leaves the calibrator as it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

from sklearn.utils.validation import has_fit_parameter, validate_data

from ..arrays import to_numpy, widened
from ..errors import InputError
from ..inputs.context import ContextReader
from ..inputs.formats import ClassDim, with_text_names
from ..inputs.inputs import elsewhere, laid_out
from ..inputs.interface import Source
from ..inputs.memory import ArraySource
from ..inputs.reader import Reader
from ..inputs.validation import check_choice, effective_rows
from .given_rows import TakesRows, context_rows, gathered
from .updating import OldCalibrator

# Rows that an old calibrator counts for where a fit goes on from it.
START_ROWS = 1000.0


class LearnsMap(TakesRows):
    """How a calibration set reaches a family, which writes `_fit`, or `_fit_source`."""

    # Whether `_fit_source` takes rows that are no arrays in memory.
    _streams: ClassVar[bool] = False

    def _fit(self, logits: Any, labels: Any, weight: Any) -> None:
        """Learn from checked logits (n, m), labels (n,) and weights (n,) or None; set attributes ending in ``_``."""
        raise NotImplementedError(f"{type(self).__name__} must write _fit, or _fit_source")

    def _fit_source(self, source: Source) -> None:
        """Learn from checked rows. A family that takes rows wherever they live replaces this."""
        assert isinstance(source, ArraySource)
        rows = source.checked if self._any_array else source.checked.on_host()
        self._fit(widened(rows.logits), rows.labels, rows.weight)

    def _kept_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        context: Any = None,
        start: Any = None,
        start_rows: float = START_ROWS,
    ) -> Self:
        before = dict(self.__dict__)
        try:
            self._checked_fit(X, y, sample_weight, context, start, start_rows)
        except BaseException:
            # What had been learnt stays; a first fit that fails leaves nothing that looks fitted.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _checked_fit(
        self, X: Any, y: Any, sample_weight: Any, context: Any, start: Any, start_rows: float
    ) -> None:
        check_choice(self.input, "input", ("logits", "probabilities"))
        layout = self._layout
        dim = ClassDim.of(X, layout.class_axis)
        if isinstance(start, TakesRows):
            start = start._compared(X, layout.class_axis)
        X, y, sample_weight = self._arrays(X, y, sample_weight)
        flat = laid_out(X, y, layout)
        if flat is not None:
            X, y, sample_weight = flat.rows, flat.column(y, "y"), flat.column(sample_weight, "sample_weight")
        context = context_rows(context, flat)
        if start is not None:
            old = OldCalibrator(start, start_rows)
            X, y, sample_weight, context = old.beside(
                gathered(X), y, sample_weight, context, layout.ignore_index
            )
        reader, codes = Reader(self.input, layout=layout), None
        if context is not None:
            known = ContextReader.of(context).having_seen(context)
            reader, codes = replace(reader, context=known), known.codes(context)
        place = elsewhere(X, y, sample_weight, codes, layout, streams=self._streams)
        source: Source
        if place is None:
            X = gathered(X)
            reader, checked = reader.checked(X, y, sample_weight, context=codes)
            source = ArraySource(reader, checked.that_count)
            named = with_text_names(X) if hasattr(X, "columns") else checked.logits
            validate_data(self, named, reset=True, skip_check_array=True)
        elif not self._streams:
            raise InputError(place.refusal)
        else:
            self.__dict__.pop("feature_names_in_", None)
            if place.names is not None:
                validate_data(self, with_text_names(place.names), reset=True, skip_check_array=True)
            source = place.open(reader)
            self.n_features_in_ = source.shape[1]
        self._remember(source, dim)
        self._fit_source(source)
        weight = source.checked.weight if isinstance(source, ArraySource) else None
        self.n_rows_ = float(source.shape[0] if weight is None else effective_rows(to_numpy(weight)))
        self._judge(source)

    def _judge(self, source: Source) -> None:
        """Warn of what the fitted map leaves wrong on these rows."""

    def _remember(self, source: Source, dim: ClassDim | None) -> None:
        """What of the rows later ones are compared with, or read by."""
        for name in ("smallest_probability_", "context_", "unseen_", "class_dim_", "n_rows_"):
            self.__dict__.pop(name, None)
        if dim is not None and dim.classes is not None:
            validate_data(self, dim.classes, reset=True, skip_check_array=True)
        if dim is not None and dim.name is not None:
            self.class_dim_ = dim.name
        if self.input == "probabilities":
            self.smallest_probability_ = source.reader.smallest
        if source.reader.context is not None:
            if not has_fit_parameter(self, "context"):
                raise InputError(
                    f"X: its blocks hold a context, and {type(self).__name__} takes none. Leave it out, or use ConditionalMCCT."
                )
            self.context_, self.unseen_ = source.reader.context, 0
