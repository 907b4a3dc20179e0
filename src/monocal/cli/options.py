"""Options that several commands share, and reading files as they say.

A command is a function whose parameters are names in `OPTIONS`; `takes` makes it one for typer.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import FileError, InputError, warn, wording
from .output import message_file, note

if TYPE_CHECKING:
    from ..calibrators import Calibrator
    from ..io import LogitsSet
    from ..io.named_arrays import NamedArrays

_FEW_ROWS = 50
_CHANCE = 1e-3  # how rarely luck alone may do what is called wrong


def _file(name: str, help: str) -> Any:
    return typer.Argument(metavar=name, help=help, show_default=False)


def _flag(names: str, help: str, **how: Any) -> Any:
    return typer.Option(*names.split(), help=help, **how)


_more = functools.partial(_flag, hidden=True)  # left to --more


def _above_zero(seconds: float) -> float:
    if not seconds > 0:
        raise typer.BadParameter(f"{seconds:g} is not above 0 (inf: no limit).")
    return seconds


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
    "after": _file("AFTER", "The same rows and classes after it."),
    "paths": _file("FILES", "Logits or probabilities in the order of time, with labels where known."),
    "out": _flag("-o --out", "File to write."),
    "demo out": _flag("-o --out", "Folder to write to; made if it is not there."),
    "force": _flag("--force", "Replace an existing file."),
    "demo force": _flag("--force", "Write into a folder that holds other files."),
    "as_json": _flag("--json", "Print the result as JSON and nothing else."),
    # What to fit, compare and apply.
    "method": _flag("--method -m", "A name that `monocal compare` shows; by default the recommended one."),
    "top_k": _more("--top-k", "Ranks with parameters of their own, from the top.", min=1),
    "shrinkage": _more("--shrinkage", "Pull towards temperature scaling: a number, or cv to choose it."),
    "settings": _more("--set", "Any other parameter of the method; may be repeated.", metavar="NAME=VALUE"),
    "write_as": _flag("--as", "What to write; the softmax of logits is the probabilities."),
    "calibrator": _flag("--calibrator -c", "Apply this calibrator, a file that `monocal fit` wrote."),
    "report calibrator": _flag("--calibrator -c", "Report on this saved calibrator instead of fitting one."),
    "audit calibrator": _flag("--calibrator -c", "Instead of AFTER: apply this calibrator to BEFORE."),
    "monitor calibrator": _flag("--calibrator -c", "The calibrator in use, a file of `monocal fit`."),
    "context": _flag(
        "--context --context-columns",
        "What else is known of each row: columns or arrays of the file, commas between, or another file (FILE:NAME,NAME if "
        "it holds several). Floating-point columns are numbers, others are categories.",
        metavar="NAMES_OR_FILE",
    ),
    "test": _flag("--test", "Rows to judge on; left out, the test part of CAL or cross-validation."),
    "only": _flag("--methods", "Names with commas between; left out, all that train no network."),
    "compare": _flag("--compare/--no-compare", "Compare methods."),
    "everything": _flag("--all", "Compare the networks as well, which take minutes."),
    "time_limit": _flag("--time-limit", "Seconds, above 0. inf: no limit.", callback=_above_zero),
    "wide": _more("--wide", "Every column, also where the terminal is too narrow for all."),
    "title": _more("--title", "Title of the page."),
    # What to measure.
    "evaluate everything": _flag("--all", "Every metric, not the six that matter most."),
    "explain": _flag("--explain", "Say what each metric is."),
    "metrics": _more("--metrics", "Names with commas between, such as nll,ece."),
    "decompose": _more("--decompose", "What of NLL and Brier score a map could remove that keeps the order."),
    "groups": _flag(
        "--groups",
        "By group as well: a column or array of the file, a file of one value per row (FILE:NAME if it holds several), or "
        "'predicted' for the predicted classes.",
        metavar="NAME_OR_FILE",
    ),
    "n_boot": _more("--n-boot", "Draws behind the intervals; 0: none.", min=0, max=100_000),
    "seed": _more("--seed", "Of everything random.", min=0, max=2**32 - 1),
    "max_ece_excess": _flag(
        "--max-ece-excess", "How far the ECE may lie above that of perfect calibration.", min=0, max=1
    ),
    "after_kind": _flag("--after-kind", "What AFTER holds, where its name does not say it."),
    "max_error": _flag("--max-error", "Largest share of wrong answers among those that go out [0.02]."),
    "confidence": _more("--confidence", "Probability with which the promise holds."),
    "cost_error": _more("--cost-error", "Cost of a wrong answer: the cheapest threshold instead."),
    "cost_review": _more("--cost-review", "Cost of one review, with --cost-error."),
    "picture": _flag("--picture", "Draw error against automated share here (.png, .svg, .pdf)."),
    # A stream.
    "reference": _flag("--reference", "The calibration rows: how often each class is predicted there."),
    "window": _flag("--window", "Rows of a window; 500 if not given.", min=1),
    "alpha": _more("--alpha", "Probability of a false alarm over the whole stream; 0.05 if not given."),
    "tolerance": _more("--tolerance", "How far confidence may be off without an alarm; 0.01 if not given."),
    "state": _flag("--state", "What was seen so far: read if the file is there, and written at the end."),
    "restart": _flag("--restart", "Keep --state, but begin the tests again: after a refit, with the new -c."),
    "plot": _flag("--plot", "A picture over time: .png, .svg or .pdf."),
    # An export.
    "to": _flag("--to", "onnx: a graph of standard operators; torch: an exported program (.pt2)."),
    "append_to": _flag("--append-to", "An ONNX classifier to write with the calibrator at its end."),
    "ndim": _flag("--ndim", "Axes of its input: 4 for images, 1 for one score per row. Left out: 2.", min=1),
    # How a file is read: the fields of `Reading`.
    "kind": _flag("--kind --input", "What the numbers are, where their name does not say it. Never guessed."),
    "labels": _flag(
        "--labels-name", "The array or column of labels; several, or a pattern, where they are one-hot."
    ),
    "values": _flag(
        "--logits-name",
        "The array of logits or probabilities, or their columns: with commas between, or a pattern such as 'p_*'.",
    ),
    "labels_file": _flag("--labels", "A second file that holds the labels."),
    "classes": _more("--classes", "Names of the classes in the order of the columns, commas between."),
    "first_label": _more("--first-label", "1 where labels count from 1.", min=0, max=1),
    "drop_missing": _more("--drop-missing", "Leave rows with missing values out."),
    "separator": _more("--sep", "The separator of a text table, where it is not recognised."),
    "decimal": _more("--decimal", "The decimal point of a text table, where it is not recognised."),
    "weights": _more("--weights-name", "Name of the array or column of weights of the rows."),
    "part": _more("--part", "Which part of a file that holds two. val is another word for cal."),
    "group": _more("--group", "Which set of an HDF5 file that holds several: dataset/model."),
    "class_axis": _more("--class-axis", "The axis of the classes: 1 for images (n, m, h, w)."),
    "ignore_index": _more("--ignore-index", "A label that does not count, such as -100 for padding."),
}


Kind = Literal["logits", "probabilities", "percent"]


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
    decimal: Literal[".", ","] | None = None
    weights: str | None = None
    part: Literal["cal", "val", "test"] | None = None
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

        message_file.set(path)
        source = self.open(path, mmap=mmap)
        options = {one.name: getattr(self, one.name) for one in fields(self)} | how
        del options["separator"], options["decimal"]
        if self.part is None and _has_parts(source):
            options["part"] = prefer
        if unknown:
            options["unknown"] = (-1, -1 if self.ignore_index is None else self.ignore_index)
            options["ignore_index"] = None
        for name in ("values", "labels", "classes"):
            options[name] = _listed(options[name], always=name == "classes")
        data = read_source(source, strict=True, **options)
        for text in data.notes:
            note(f"{path}: {text}")
        if data.many_labels and not many_labels:
            raise InputError(
                f"{path} holds many labels, a score and a label for each of {data.n_classes}: fit, apply, evaluate and report "
                "take such files; name the columns of one label with --logits-name and --labels-name."
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
        self, calibrator: Calibrator, path: Path, *, with_labels: bool = False, **how: Any
    ) -> tuple[Calibrator, LogitsSet]:
        """A set that a fitted calibrator can take, and the calibrator as it takes it: rows, in columns without names.

        Labels are read only where they are needed or asked for.
        """
        from ..calibrators.multilabel import MultilabelMCCT
        from ..inputs.names import classes_of

        names = getattr(calibrator, "feature_names_in_", None)
        names = None if names is None else tuple(map(str, names))
        # Where nothing is said, classes and labels are as they were in the fit.
        as_fitted = replace(
            self,
            class_axis=calibrator.class_axis if self.class_axis is None else self.class_axis,
            ignore_index=calibrator.ignore_index if self.ignore_index is None else self.ignore_index,
        )
        data = as_fitted.read(
            path,
            expected=calibrator.input,
            known_classes=names,
            many=isinstance(calibrator, MultilabelMCCT),
            with_labels=with_labels or how.get("need_labels", False),
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
        data = ordered(data, names)
        if data.class_names is None and names is not None:
            data = replace(data, class_names=classes_of(names))
        return of_rows, data

    def read_both(
        self, path: Path, test: Path | None, many_labels: bool = False
    ) -> tuple[LogitsSet, LogitsSet | None]:
        """A set to fit on and one to judge on: a second file, or the test part of the first, or none."""
        cal = self.read_to_learn(path, many_labels=many_labels)
        if test is None:
            if self.part is None and _has_parts(self.open(path)):
                return cal, self.read(path, need_labels=True, many_labels=many_labels)
            return cal, None
        as_cal: dict[str, Any] = {
            "expected": cal.kind,
            "known_classes": cal.class_names,
            "many": cal.many_labels,
        }
        judge = self.read(test, need_labels=True, many_labels=cal.many_labels, **as_cal)
        judge = judge.with_classes(cal.n_classes)
        cal = cal.with_classes(judge.n_classes)
        return cal, ordered(judge, cal.class_names) if judge.n_classes == cal.n_classes else judge

    def typed(self) -> list[str]:
        """The options as they were given."""
        words: list[str] = []
        for one in fields(self):
            value = getattr(self, one.name)
            if value not in (None, False):
                words += [wording(one.name)] if value is True else [wording(one.name), str(value)]
        return words


def takes(command: Callable[..., None]) -> Callable[..., None]:
    """A function for typer: each parameter becomes the argument or option of this name in `OPTIONS`.

    A command with the parameter ``reading`` has the options of `Reading`, too.
    """
    parameters, shared = (dict(inspect.signature(f, eval_str=True).parameters) for f in (command, Reading))
    if parameters.pop("reading", None) is None:
        shared = {}

    @functools.wraps(command)
    def with_options(**options: Any) -> None:
        if shared:
            options["reading"] = Reading(**{name: options.pop(name) for name in shared if name in options})
        command(**options)

    annotated = [_annotated(command.__name__, p) for p in (parameters | shared).values()]
    # Where inspect, and so typer, looks first; to mypy a function has no such attribute.
    with_options.__signature__ = inspect.Signature(annotated)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in annotated}
    return with_options


def _annotated(command: str, parameter: inspect.Parameter) -> inspect.Parameter:
    name = parameter.name
    option = OPTIONS.get(f"{command} {name}") or OPTIONS[name]
    kind = inspect.Parameter.KEYWORD_ONLY
    return parameter.replace(kind=kind, annotation=Annotated[parameter.annotation, option])


def ordered(data: LogitsSet, names: Sequence[str] | None) -> LogitsSet:
    """The classes in the order of ``names``, by name, where both have names."""
    result = data.in_order_of(names)
    for text in result.notes[len(data.notes) :]:
        note(f"{data.path}: {text}")
    return result


def refuse_for_many_labels(path: Path, options: Mapping[str, Any]) -> None:
    """Options that files of many labels have no use for are refused."""
    given = [flag for flag, value in options.items() if value]
    if given:
        raise InputError(f"{path} holds many labels: leave out {' '.join(given)}, which is for classes only.")


def _listed(names: str | None, always: bool) -> str | list[str] | None:
    """Names with commas between; a single one stays a name unless ``always`` a list."""
    parts = [] if names is None else [name.strip() for name in names.split(",")]
    return parts if len(parts) > 1 or (parts and always) else names


def _has_parts(source: NamedArrays) -> bool:
    """Whether a file has outputs for two parts or more."""
    from ..io.columns import meaning

    return len({one.part for one in map(meaning, source.names) if one.part and one.holds_values}) > 1


def suspicion(data: LogitsSet) -> str | None:
    """The first thing that looks wrong in a labelled set, or None.

    A classifier is right more often than one that guesses, wrong now and then, and has seen more than one class. Where it is not
    so, labels and columns are mostly of different rows or counted differently.
    """
    import numpy as np
    from scipy.stats import binom

    labels, n, m = np.asarray(data.labels), data.n_samples, data.n_classes
    largest = np.asarray(data.values).argmax(axis=1)
    right, shifted = int(np.sum(largest == labels)), int(np.sum(largest == labels - 1))
    names_the_label = f"The largest value of {data.path or data.name} names the label in"
    if shifted > 2 * right and labels.min() >= 1 and binom.cdf(n - shifted, n, 1 - 1 / m) < _CHANCE:
        return (
            f"{names_the_label} {right / n:.0%} of the rows, and in {shifted / n:.0%} if labels count from 1: if they do, say "
            f"{wording('first_label=', 1)}."
        )
    if labels.min() == labels.max():
        name = data.class_names[labels[0]] if data.class_names else int(labels[0])
        return f"All {n:,} labels of {data.path or data.name} are {name!r}: with one class there is little to learn."
    if binom.cdf(right, n, 1 / m) < _CHANCE and m > 2:
        return (
            f"{names_the_label} {right / n:.1%} of the rows, less than guessing would ({1 / m:.1%}): check that rows and columns "
            "are in the order of the labels."
        )
    if right == n:
        return f"{names_the_label} all {n:,} rows: were these rows seen in training? Calibrate on others."
    if n < _FEW_ROWS:
        return f"{data.path or data.name} has {n} rows, few to learn from: a few hundred give more reliable probabilities."
    return None


def find_columns(names: str | None, data: LogitsSet, path: Path, group: str | None, argument: str) -> Any:
    """Columns by name, one value per row of the set; None where none is asked for."""
    from .. import io

    if names is None:
        return None
    return _of_rows(io.find_columns(names, path, part=data.part, group=group, argument=argument), data)


def _of_rows(columns: Mapping[str, Any], data: LogitsSet) -> dict[str, Any]:
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
