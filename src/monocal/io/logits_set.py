"""A set of classifier outputs:  values (n, m), labels (n,) in 0..m-1, and whether values are logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from monocal.errors import FileError, wording
from monocal.inputs.layout import Flat
from monocal.inputs.names import Part, classes_of, listing, same_class
from monocal.io.columns import Kind
from monocal.notebook import html_table


@dataclass(frozen=True, eq=False)
class LogitsSet:
    """Outputs of a classifier, as read from a file or made by a generator.

    Attributes
    ----------
    values : ndarray of shape (n, m)
        One row per sample, one column per class.
    labels : ndarray of shape (n,) and dtype int64, or None
        Class of each sample, 0 to m-1, -1 where it is not known. Of many labels (n, m) of 0, 1 and -1.
    kind : {"logits", "probabilities"}
        What ``values`` are; pass it on as ``input=`` of a calibrator.
    name, path, part
        Short name for titles, where it came from, and which part of its file it is.
    notes : tuple of str
        What was done to bring the file into this form.
    class_names : tuple of str or None
        In the order of the columns, where the file names them.
    places : tuple of int or None
        Which column of the file each column of ``values`` was, after `in_order_of`.
    weights : ndarray of shape (n,), or None
        Pass them on as ``sample_weight=``.
    aside : tuple of str
        Other columns that go with the rows, such as ids: see `read_columns`.
    taken : str
        What was taken for what, in one line.
    places_of : Flat or None
        Of values that had more axes than two: how results get the shape of the array.
    ragged : bool
        Whether rows may lack classes at the end, as questions with different numbers of options do.
    columns : tuple of str
        Names of the columns of a table that hold the values.
    kept : ndarray or None
        Which rows of the file these are, where rows with missing values were left out.
    many_labels : bool
        Whether a row may have any number of the labels, each with a score of its own.

    Examples
    --------
    >>> from monocal.data import LogitsSet
    >>> import numpy as np
    >>> data = LogitsSet(np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([0, 1]), class_names=("cat", "dog"))
    >>> data.n_samples, data.n_classes, data.kind
    (2, 2, 'logits')
    """

    values: np.ndarray
    labels: np.ndarray | None
    kind: Kind = "logits"
    name: str = "data"
    path: Path | None = None
    part: Part | None = None
    notes: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None
    places: tuple[int, ...] | None = None
    weights: np.ndarray | None = None
    aside: tuple[str, ...] = ()
    taken: str = ""
    places_of: Flat | None = None
    ragged: bool = False
    columns: tuple[str, ...] = ()
    kept: np.ndarray | None = None
    many_labels: bool = False

    def _repr_html_(self) -> str:
        names = ("kind", "n_samples", "n_classes", "class_names", "notes")
        return html_table(self.name, [(name.replace("_", " "), getattr(self, name)) for name in names])

    @property
    def n_samples(self) -> int:
        """Number of rows, n."""
        return self.values.shape[0]

    @property
    def n_classes(self) -> int:
        """Number of classes, m."""
        return self.values.shape[1]

    def with_classes(self, m: int) -> LogitsSet:
        """The same with classes that no row has, up to ``m``, where rows may lack some at the end."""
        lacking = m - self.n_classes
        if not self.ragged or lacking <= 0:
            return self
        return replace(self, values=np.pad(self.values, ((0, 0), (0, lacking)), constant_values=-np.inf))

    def in_order_of(self, names: Sequence[str] | None) -> LogitsSet:
        """The same with the classes in the order of ``names``; as it is where one side has no names."""
        here = self.class_names
        if here is None and self.columns and all(n.isdecimal() for n in classes_of(tuple(names or ()))):
            here = tuple(map(str, range(self.n_classes)))
        if names is None or here is None:
            return self
        target, here = (tuple(map(same_class, classes_of(tuple(ns)))) for ns in (names, here))
        if target == here:
            return self
        if sorted(target) != sorted(here):
            raise FileError(
                f"{self.path or self.name} has the classes {listing(here)}, expected {listing(names)}: give "
                f"outputs of the same classifier, or name the columns with {wording('values=')} in the order "
                "of the classes."
            )
        places = tuple(here.index(name) for name in target)
        labels = self.labels
        if labels is not None and self.many_labels:
            labels = labels[:, places]
        elif labels is not None:
            labels = np.where(labels < 0, -1, np.argsort(places)[labels])
        return replace(
            self,
            values=self.values[:, places],
            labels=labels,
            notes=(*self.notes, f"the columns were put in the order {listing(names)}, by their names"),
            class_names=self.class_names and tuple(self.class_names[place] for place in places),
            places=places,
        )


@dataclass(frozen=True, eq=False)
class Splits:
    """A set to calibrate on and a set to judge on, with the same classes.

    Attributes
    ----------
    cal, test, name

    Examples
    --------
    >>> from monocal.data import Splits, synthetic
    >>> splits = Splits(synthetic(300, 4), synthetic(200, 4, seed=1), "two parts")
    >>> splits.cal.n_samples, splits.test.n_samples
    (300, 200)
    """

    cal: LogitsSet
    test: LogitsSet
    name: str = "data"
