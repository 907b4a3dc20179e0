"""Options that several commands share, and reading a file as they say."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import FileError, InputError, warn, wording
from .output import note, set_message_file

if TYPE_CHECKING:
    import numpy as np

    from ..calibrators import Calibrator
    from ..io import LogitsSet
    from ..io.named_arrays import NamedArrays

_FEW_ROWS = 50
_CHANCE = 1e-3  # how rarely luck alone may do what is called wrong


class Kind(StrEnum):
    """What the numbers are."""

    logits = "logits"
    probabilities = "probabilities"
    percent = "percent"


class Written(StrEnum):
    """What `apply` writes."""

    logits = "logits"
    probabilities = "probabilities"


class Part(StrEnum):
    """Which part of a file that has two."""

    cal = "cal"
    val = "val"
    test = "test"


class Decimal(StrEnum):
    """The part of a number before its fraction."""

    point = "."
    comma = ","


class Target(StrEnum):
    """What an exported calibrator runs on."""

    onnx = "onnx"
    torch = "torch"


def _above_zero(seconds: float) -> float:
    if not seconds > 0:
        raise typer.BadParameter(f"{seconds:g} is not above 0 (inf: no limit).")
    return seconds


def _file(name: str, help: str) -> Any:
    return typer.Argument(metavar=name, help=help, show_default=False)


def _flag(names: str, help: str, show_default: bool = False, **more: Any) -> Any:
    return typer.Option(*names.split(), help=help, show_default=show_default, **more)


# Every argument and option by the name of the parameter of a command; "report out" is that of one command only.
OPTIONS: dict[str, Any] = {
    "path": _file("CAL", "Logits (or probabilities) and labels to calibrate on."),
    "evaluate path": _file("TEST", "Logits or probabilities, and labels."),
    "check path": _file("TEST", "Logits or probabilities, and labels."),
    "review path": _file("TEST", "Logits or probabilities, and labels; not the rows of the fit."),
    "apply calibrator": _file("CALIBRATOR", "A file that `monocal fit` wrote."),
    "export calibrator": _file("CALIBRATOR", "A file that `monocal fit` wrote."),
    "apply path": _file("DATA", "Outputs of the same classifier; labels are not needed."),
    "before": _file("BEFORE", "Logits or probabilities before calibration."),
    "after": _file("[AFTER]", "The same rows and classes after it."),
    "paths": _file("FILES", "Logits or probabilities in the order of time, with labels where known."),
    "out": _flag("-o --out", "File to write."),
    "demo out": _flag("-o --out", "Folder to write to; made if it is not there.", show_default=True),
    "force": _flag("--force", "Replace an existing file."),
    "demo force": _flag("--force", "Write into a folder that holds other files."),
    "as_json": _flag("--json", "Print the result as JSON and nothing else."),
    # What to fit, compare and apply.
    "method": _flag(
        "--method -m",
        "Calibrator, as `monocal compare` names them; left out, the one recommended for these rows.",
    ),
    "top_k": _flag("--top-k", "Ranks with parameters of their own, from the top.", min=1),
    "shrinkage": _flag("--shrinkage", "Pull towards temperature scaling: a number, or cv to choose it."),
    "settings": _flag("--set", "Any other parameter of the method; may be repeated.", metavar="NAME=VALUE"),
    "write_as": _flag(
        "--as",
        "What to write; calibrated logits are those whose softmax is the probabilities.",
        show_default=True,
    ),
    "calibrator": _flag("--calibrator -c", "Apply this calibrator, a file that `monocal fit` wrote."),
    "report calibrator": _flag("--calibrator -c", "Report on this saved calibrator instead of fitting one."),
    "audit calibrator": _flag("--calibrator -c", "Instead of AFTER: apply this calibrator to BEFORE."),
    "monitor calibrator": _flag("--calibrator -c", "The calibrator in use, a file of `monocal fit`."),
    "context": _flag(
        "--context --context-columns",
        "What else is known of each row: columns or arrays of the file, commas between, or "
        "another file (FILE:NAME,NAME if it holds several). Floating-point columns are numbers, "
        "others are categories.",
        metavar="NAMES_OR_FILE",
    ),
    "test": _flag("--test", "Rows to judge on; left out, the test part of CAL or cross-validation."),
    "only": _flag("--methods", "Names with commas between; left out, all that train no network."),
    "compare": _flag("--compare/--no-compare", "Compare methods.", show_default=True),
    "everything": _flag("--all", "Compare the networks as well, which take minutes."),
    "time_limit": _flag(
        "--time-limit",
        "Seconds to compare in; a method that takes too long is stopped. inf: no limit.",
        callback=_above_zero,
        show_default=True,
    ),
    "wide": _flag("--wide", "Every column, also where the terminal is too narrow for all."),
    "title": _flag("--title", "Title of the page."),
    # What to measure.
    "evaluate everything": _flag("--all", "Every metric, not the six that matter most."),
    "explain": _flag("--explain", "Say what each metric is."),
    "metrics": _flag("--metrics", "Names with commas between, such as nll,ece."),
    "decompose": _flag("--decompose", "What of NLL and Brier score a map that keeps the order could remove."),
    "groups": _flag(
        "--groups",
        "By group as well: a column or array of the file, a file of one value per row "
        "(FILE:NAME if it holds several), or 'predicted' for the predicted classes.",
        metavar="NAME_OR_FILE",
    ),
    "n_boot": _flag(
        "--n-boot", "Draws behind the intervals; 0 for none.", min=0, max=100_000, show_default=True
    ),
    "seed": _flag("--seed", "Of everything random.", min=0, max=2**32 - 1, show_default=True),
    "max_ece_excess": _flag(
        "--max-ece-excess",
        "How far the ECE may lie above what perfect calibration shows on these rows.",
        min=0,
        max=1,
        show_default=True,
    ),
    "after_kind": _flag("--after-kind", "What AFTER holds, where its name does not say it."),
    "max_error": _flag(
        "--max-error", "Largest share of wrong answers allowed among those that go out [0.02]."
    ),
    "confidence": _flag("--confidence", "Probability with which the promise holds.", show_default=True),
    "cost_error": _flag("--cost-error", "Cost of a wrong answer: the cheapest threshold instead."),
    "cost_review": _flag("--cost-review", "Cost of one review, with --cost-error."),
    "picture": _flag("--picture", "Draw error against automated share here (.png, .svg, .pdf)."),
    # A stream.
    "reference": _flag("--reference", "The calibration rows: how often each class is predicted there."),
    "window": _flag("--window", "Rows of a window; 500 if not given.", min=1),
    "alpha": _flag("--alpha", "Probability of a false alarm over the whole stream; 0.05 if not given."),
    "tolerance": _flag("--tolerance", "How far confidence may be off without an alarm; 0.01 if not given."),
    "state": _flag("--state", "What was seen so far: read if the file is there, and written at the end."),
    "restart": _flag("--restart", "Keep --state, but begin the tests again: after a refit, with the new -c."),
    "plot": _flag("--plot", "A picture over time: .png, .svg or .pdf."),
    # An export.
    "to": _flag("--to", "onnx: a graph of standard operators; torch: an exported program (.pt2)."),
    "append_to": _flag(
        "--append-to", "An ONNX classifier: write it with the calibrator at its end (onnx only)."
    ),
    "ndim": _flag(
        "--ndim",
        "How many axes its input has: 4 for images (N, C, H, W), 1 for one score per row, any (onnx only). Two when left out.",
        metavar="NUMBER|any",
    ),
    # How a file is read: the fields of `Reading`.
    "kind": _flag("--kind --input", "What the numbers are, where their name does not say it. Never guessed."),
    "labels": _flag(
        "--labels-name", "Name of the array or column of labels, or its place: -1 is the last column."
    ),
    "values": _flag(
        "--logits-name",
        "Name of the array (or the columns, with commas between, or a pattern such as 'p_*') "
        "that holds the logits or probabilities.",
    ),
    "labels_file": _flag("--labels", "A second file that holds the labels."),
    "classes": _flag("--classes", "Names of the classes in the order of the columns, commas between."),
    "first_label": _flag("--first-label", "1 where labels count from 1.", min=0, max=1),
    "drop_missing": _flag("--drop-missing", "Leave rows with missing values out."),
    "separator": _flag("--sep", "The separator of the cells of a text table, where it is not recognised."),
    "decimal": _flag("--decimal", "The decimal point of a text table, where it is not recognised."),
    "weights": _flag("--weights-name", "Name of the array or column of weights of the rows."),
    "part": _flag("--part", "Which part of a file that holds two. val is another word for cal."),
    "group": _flag("--group", "Which set of an HDF5 file that holds several: dataset/model."),
    "class_axis": _flag(
        "--class-axis", "The axis of the classes of an array of more axes: 1 for images (n, m, h, w)."
    ),
    "ignore_index": _flag(
        "--ignore-index", "A label that does not count, such as -100 for padding or 255 for void."
    ),
}


@dataclass(frozen=True)
class Reading:
    """The options that say how a file is read, called as `monocal.data.read` calls them."""

    kind: Kind | None = None
    labels: str | None = None
    values: str | None = None
    labels_file: Path | None = None
    classes: str | None = None
    first_label: int | None = None
    drop_missing: bool = False
    separator: str | None = None
    decimal: Decimal | None = None
    weights: str | None = None
    part: Part | None = None
    group: str | None = None
    class_axis: int | None = None
    ignore_index: int | None = None

    def open(self, path: Path, *, mmap: bool = False) -> NamedArrays:
        """The arrays of a file, not read yet."""
        from ..io.named_arrays import open_arrays

        return open_arrays(path, mmap=mmap, separator=self.separator, decimal=self.decimal)

    def read(
        self,
        path: Path,
        *,
        prefer: str = "test",
        many_labels: bool = False,
        mmap: bool = False,
        unknown: bool = False,
        **how: Any,
    ) -> LogitsSet:
        """One set; of a file with two parts the preferred one unless ``--part`` says otherwise.

        With ``unknown``, rows with a label that does not count, or with -1, stay: their label is not known. ``many_labels``:
        whether the command takes files of many labels. The rest is as in `read_source`.
        """
        from ..io.read import read_source

        set_message_file(path)
        source = self.open(path, mmap=mmap)
        options = {one.name: getattr(self, one.name) for one in fields(self)} | how
        del options["separator"], options["decimal"]
        if self.part is None and len(_parts(source)) > 1:
            options["part"] = prefer
        if unknown:
            options["unknown"] = (-1, -1 if self.ignore_index is None else self.ignore_index)
            options["ignore_index"] = None
        for name in ("values", "labels", "classes"):
            options[name] = _listed(options[name], name)
        data = read_source(source, strict=True, **options)
        for text in data.notes:
            note(f"{path}: {text}")
        if data.many_labels and not many_labels:
            raise InputError(
                f"{path} holds many labels, a score and a label of 0 or 1 for each of {data.n_classes}: fit, apply, evaluate and "
                f"report take such files; name the columns of one label with --logits-name and --labels-name."
            )
        return data

    def read_to_learn(self, path: Path, *, weights: bool = False, many_labels: bool = False) -> LogitsSet:
        """A labelled set to fit on; what looks wrong in it is warned of."""
        if self.weights is not None and not weights:
            raise InputError(
                "--weights-name is for fit and evaluate; compare and report take every row alike."
            )
        data = self.read(path, prefer="cal", need_labels=True, many_labels=many_labels)
        odd = None if data.many_labels else suspicion(data)
        if odd is not None:
            warn(odd)
        return data

    def read_for(
        self,
        calibrator: Calibrator,
        path: Path,
        *,
        need_labels: bool = False,
        with_labels: bool = False,
        **how: Any,
    ) -> tuple[Calibrator, LogitsSet]:
        """A set that a fitted calibrator can take, and the calibrator as it takes it: rows, in columns without names.

        Labels are read only where they are needed or asked for.
        """
        from ..calibrators.multilabel import MultilabelMCCT
        from ..inputs.names import classes_of

        names = getattr(calibrator, "feature_names_in_", None)
        names = None if names is None else tuple(map(str, names))
        # Where nothing is said, classes and labels are as they were in the fit.
        asked = replace(
            self,
            class_axis=calibrator.class_axis if self.class_axis is None else self.class_axis,
            ignore_index=calibrator.ignore_index if self.ignore_index is None else self.ignore_index,
        )
        data = asked.read(
            path,
            expected=calibrator.input,
            known_classes=names,
            many=isinstance(calibrator, MultilabelMCCT),
            need_labels=need_labels,
            with_labels=need_labels or with_labels,
            **how,
        )
        if data.kind != calibrator.input:
            raise InputError(
                f"{path} holds {data.kind}, but the calibrator was fitted on {calibrator.input}: give it a file of "
                f"{calibrator.input}, or fit one on {data.kind}."
            )
        data = data.with_classes(calibrator.n_features_in_)
        if data.n_classes != calibrator.n_features_in_:
            raise InputError(
                f"{path} has {data.n_classes} classes, but the calibrator was fitted on {calibrator.n_features_in_}: "
                f"give it outputs of the same classifier."
            )
        # A copy: the next file is matched with the names, and read along the axis, of the fit again.
        of_rows = copy.copy(calibrator)
        if "class_axis" in of_rows.get_params():
            of_rows.set_params(class_axis=-1)
        of_rows.__dict__.pop("feature_names_in_", None)
        data = self.ordered(data, names)
        if data.class_names is None and names is not None:
            data = replace(data, class_names=classes_of(names))
        return of_rows, data

    def read_both(
        self, path: Path, test: Path | None, many_labels: bool = False
    ) -> tuple[LogitsSet, LogitsSet | None]:
        """A set to fit on and one to judge on: a second file, or the test part of the first, or none."""
        cal = self.read_to_learn(path, many_labels=many_labels)
        if test is not None:
            judge = self.read(
                test,
                expected=cal.kind,
                known_classes=cal.class_names,
                need_labels=True,
                many=cal.many_labels,
                many_labels=cal.many_labels,
            )
            judge = judge.with_classes(cal.n_classes)
            cal = cal.with_classes(judge.n_classes)
            return cal, self.ordered(judge, cal.class_names) if judge.n_classes == cal.n_classes else judge
        if self.part is None and len(_parts(self.open(path))) > 1:
            return cal, self.read(path, prefer="test", need_labels=True, many_labels=many_labels)
        return cal, None

    def typed(self) -> list[str]:
        """The options as they were given."""
        words: list[str] = []
        for one in fields(self):
            value = getattr(self, one.name)
            if value not in (None, False):
                flag = OPTIONS[one.name].default
                words += [flag] if value is True else [flag, str(value)]
        return words

    @staticmethod
    def ordered(data: LogitsSet, names: Sequence[str] | None) -> LogitsSet:
        """The classes in the order of ``names``, by name, where both have names."""
        ordered = data.in_order_of(names)
        for text in ordered.notes[len(data.notes) :]:
            note(f"{data.path}: {text}")
        return ordered


def refuse_for_many_labels(path: Path, options: Mapping[str, Any]) -> None:
    """Options of which one is given are refused: files of many labels have no use for them."""
    given = [flag for flag, value in options.items() if value]
    if given:
        raise InputError(f"{path} holds many labels: leave out {' '.join(given)}, which is for classes only.")


def _listed(names: str | None, what: str) -> str | list[str] | None:
    """Names with commas between; a single one stays a name, but of classes."""
    parts = [] if names is None else [name.strip() for name in names.split(",")]
    return parts if len(parts) > 1 or (parts and what == "classes") else names


def _parts(source: NamedArrays) -> set[str | None]:
    """The parts that the names in a file speak of."""
    from ..io.column_names import meaning

    return {one.part for one in map(meaning, source.names) if one.part and one.holds_values}


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its own options and those of `Reading`, which it gets as one object, ``reading``."""
    return takes(command, _parameters(Reading))


def takes(
    command: Callable[..., None], more: Mapping[str, inspect.Parameter] | None = None
) -> Callable[..., None]:
    """A function for typer: each parameter becomes the argument or option of this name in `OPTIONS`."""
    own = {name: p for name, p in _parameters(command).items() if name != "reading"}
    parameters = [
        p.replace(
            kind=inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[p.annotation, OPTIONS.get(f"{command.__name__} {name}", OPTIONS.get(name))],
        )
        for name, p in {**own, **(more or {})}.items()
    ]

    @functools.wraps(command)
    def with_options(**arguments: Any) -> None:
        if more:
            arguments["reading"] = Reading(**{name: arguments.pop(name) for name in more})
        command(**arguments)

    # Where inspect, and so typer, looks first; to mypy a function has no such attribute.
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function, eval_str=True).parameters


def suspicion(data: LogitsSet) -> str | None:
    """The first thing that looks wrong in a labelled set, or None.

    A classifier is right more often than one that guesses, wrong now and then, and has seen more than one class. Where it is not
    so, labels and columns are mostly of different rows or counted differently.
    """
    import numpy as np
    from scipy.stats import binom

    labels, n, m = data.labels, data.n_samples, data.n_classes
    if labels is None:
        return None
    where, largest = str(data.path or data.name), np.asarray(data.values).argmax(axis=1)
    right, shifted = int(np.sum(largest == labels)), int(np.sum(largest == labels - 1))
    if shifted > 2 * right and labels.min() >= 1 and binom.cdf(n - shifted, n, 1 - 1 / m) < _CHANCE:
        return (
            f"The largest value of {where} names the label in {right / n:.0%} of the rows, and in {shifted / n:.0%} if labels "
            f"count from 1: if they do, say {wording('first_label=', 1)}."
        )
    if labels.min() == labels.max():
        called = data.class_names[labels[0]] if data.class_names else int(labels[0])
        return f"All {n:,} labels of {where} are {called!r}: with one class there is little to learn; check the labels."
    if binom.cdf(right, n, 1 / m) < _CHANCE and m > 2:
        return (
            f"The largest value of {where} names the label in {right / n:.1%} of the rows, less than guessing would "
            f"({1 / m:.1%}): check that rows and columns are in the order of the labels."
        )
    if right == n:
        return (
            f"The largest value of {where} names the label in all {n:,} rows: were these rows seen in training? Calibrate on "
            "others."
        )
    if n < _FEW_ROWS:
        return f"{where} has {n} rows, few to learn from: a few hundred give more reliable probabilities."
    return None


def find_columns(
    names: str | None, data: LogitsSet, path: Path, group: str | None, argument: str
) -> dict[str, np.ndarray] | None:
    """Columns by name, one value per row of the set; None where none is asked for."""
    from .. import io

    if names is None:
        return None
    return _of_rows(io.find_columns(names, path, part=data.part, group=group, argument=argument), data)


def _of_rows(columns: Mapping[str, np.ndarray], data: LogitsSet) -> dict[str, np.ndarray]:
    """Without the rows that were left out for missing values."""
    return {name: column if data.kept is None else column[data.kept] for name, column in columns.items()}


def find_groups(names: str | None, data: LogitsSet, path: Path, group: str | None) -> Any:
    """One value per row, or that the predicted classes are meant; None where no groups are asked for."""
    from ..metrics.groups import PREDICTED

    return PREDICTED if names == PREDICTED else find_columns(names, data, path, group, "groups=")


def context_for(calibrator: Any, names: str | None, data: LogitsSet, path: Path, group: str | None) -> Any:
    """The context that a fitted calibrator takes: what is asked for, or else columns of the file with the names of the fit."""
    from .. import io

    fitted = getattr(calibrator, "context_", None)
    if names is not None or fitted is None or not fitted.named:
        return find_columns(names, data, path, group, "context=")
    exact = [column.name for column in fitted.columns]
    try:
        columns = io.read_columns(path, exact, part=data.part, group=group)
    except FileError:  # columns of a table are called by its name and a number
        plain = dict.fromkeys(re.sub(r" \d+$", "", name) for name in exact)
        columns = io.read_columns(path, list(plain), part=data.part, group=group)
    return _of_rows(columns, data)
