"""Reading a file of logits as the options say; the same options on every command that reads one."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError, warn
from .messages import speak_of
from .output import note

if TYPE_CHECKING:
    from ..calibrators import Calibrator
    from ..io import LogitsSet


class Kind(StrEnum):
    """What the numbers are."""

    logits = "logits"
    probabilities = "probabilities"
    percent = "percent"


class Part(StrEnum):
    """Which part of a file that has two."""

    cal = "cal"
    val = "val"
    test = "test"


@dataclass(frozen=True)
class Reading:
    """The options that say how a file is read."""

    labels: Annotated[Path | None, typer.Option("--labels", help="A second file that holds the labels.")] = (
        None
    )
    logits_name: Annotated[
        str | None,
        typer.Option(
            "--logits-name",
            help="Name of the array (or the columns, with commas between, or a pattern such as 'p_*') that holds the logits or "
            "probabilities.",
        ),
    ] = None
    labels_name: Annotated[
        str | None,
        typer.Option(
            "--labels-name",
            help="Name of the array or column of labels, or its place: -1 is the last column.",
        ),
    ] = None
    first_label: Annotated[
        int | None,
        typer.Option("--first-label", min=0, max=1, help="1 where labels count from 1.", show_default=False),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option("--classes", help="Names of the classes in the order of the columns, commas between."),
    ] = None
    weights_name: Annotated[
        str | None, typer.Option("--weights-name", help="Name of the array or column of weights of the rows.")
    ] = None
    kind: Annotated[
        Kind | None,
        typer.Option(
            "--kind", "--input", help="What the numbers are, where their name does not say it. Never guessed."
        ),
    ] = None
    part: Annotated[
        Part | None,
        typer.Option("--part", help="Which part of a file that holds two. val is another word for cal."),
    ] = None
    group: Annotated[
        str | None,
        typer.Option("--group", help="Which set of an HDF5 file that holds several: dataset/model."),
    ] = None
    class_axis: Annotated[
        int | None,
        typer.Option(
            "--class-axis",
            help="The axis of the classes of an array of more axes: 1 for images (n, m, h, w).",
            show_default=False,
        ),
    ] = None
    ignore_index: Annotated[
        int | None,
        typer.Option(
            "--ignore-index", help="A label that does not count, such as -100 for padding or 255 for void."
        ),
    ] = None

    separator: Annotated[
        str | None, typer.Option("--sep", help="What stands between cells, where it is not recognised.")
    ] = None
    decimal: Annotated[
        str | None, typer.Option("--decimal", help="The decimal point, where it is not recognised: ','.")
    ] = None
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave rows with missing values out.")
    ] = False

    def read(
        self,
        path: Path,
        *,
        prefer: str = "test",
        kind: str | None = None,
        known_classes: Sequence[str] | None = None,
        many: bool = False,
        need_labels: bool = False,
        with_labels: bool = True,
        mmap: bool = False,
        unknown: bool = False,
    ) -> LogitsSet:
        """One set; of a file with two parts the preferred one unless ``--part`` says otherwise.

        With ``unknown``, rows with a label that does not count, or with -1, stay: their label is not known.
        """
        from ..io.read import read_source
        from ..io.sources import open_source

        speak_of(path)
        parts = _parts(path)
        part = self.part.value if self.part else (prefer if len(parts) > 1 else None)
        found = read_source(
            open_source(path, mmap=mmap, separator=self.separator, decimal=self.decimal),
            values=_listed(self.logits_name),
            labels=_listed(self.labels_name),
            labels_file=self.labels,
            first_label=self.first_label,
            classes=None if self.classes is None else [name.strip() for name in self.classes.split(",")],
            weights=self.weights_name,
            kind=self.kind.value if self.kind else None,
            expected=kind,
            known_classes=known_classes,
            many=many,
            strict=True,
            part=part,
            group=self.group,
            need_labels=need_labels,
            with_labels=with_labels,
            class_axis=self.class_axis,
            ignore_index=None if unknown else self.ignore_index,
            unknown=(-1, -1 if self.ignore_index is None else self.ignore_index) if unknown else (),
            drop_missing=self.drop_missing,
        )
        for told in found.notes:
            note(f"{path}: {told}")
        return found

    def read_to_learn(self, path: Path, *, weights: bool = False) -> LogitsSet:
        """A labelled set to fit on; what looks wrong in it is warned of."""
        from .suspicions import suspicion

        if self.weights_name is not None and not weights:
            raise InputError(
                "--weights-name is for fit and evaluate; compare and report take every row alike."
            )
        found = self.read(path, prefer="cal", need_labels=True)
        odd = suspicion(found)
        if odd is not None:
            warn(odd)
        return found

    def read_for(
        self,
        calibrator: Calibrator,
        path: Path,
        *,
        need_labels: bool = False,
        with_labels: bool = False,
        mmap: bool = False,
        unknown: bool = False,
    ) -> tuple[Calibrator, LogitsSet]:
        """A set that a fitted calibrator can take, and the calibrator as it takes it: rows, in columns without names.

        Labels are read only where they are needed or asked for.
        """
        from ..calibrators import MultilabelMCCT
        from ..inputs.names import classes_of

        # Where nothing is said, classes and labels are as they were in the fit.
        asked = replace(
            self,
            class_axis=calibrator.class_axis if self.class_axis is None else self.class_axis,
            ignore_index=calibrator.ignore_index if self.ignore_index is None else self.ignore_index,
        )
        names = getattr(calibrator, "feature_names_in_", None)
        found = asked.read(
            path,
            kind=calibrator.input,
            known_classes=None if names is None else tuple(map(str, names)),
            many=isinstance(calibrator, MultilabelMCCT),
            need_labels=need_labels,
            with_labels=need_labels or with_labels,
            mmap=mmap,
            unknown=unknown,
        )
        if found.kind != calibrator.input:
            raise InputError(
                f"{path} holds {found.kind}, but the calibrator was fitted on {calibrator.input}: give it a file of "
                f"{calibrator.input}, or fit one on {found.kind}."
            )
        found = found.with_classes(calibrator.n_features_in_)
        if found.n_classes != calibrator.n_features_in_:
            raise InputError(
                f"{path} has {found.n_classes} classes, but the calibrator was fitted on {calibrator.n_features_in_}: "
                f"give it outputs of the same classifier."
            )
        # A copy: the next file is matched with the names, and read along the axis, of the fit again.
        of_rows = copy.copy(calibrator)
        if "class_axis" in of_rows.get_params():
            of_rows.set_params(class_axis=-1)
        names = of_rows.__dict__.pop("feature_names_in_", None)
        found = self.ordered(found, names)
        if found.class_names is None and names is not None:
            found = replace(found, class_names=classes_of(tuple(map(str, names))))
        return of_rows, found

    def read_both(self, path: Path, test: Path | None) -> tuple[LogitsSet, LogitsSet | None]:
        """A set to fit on and one to judge on: a second file, or the test part of the first, or none."""
        cal = self.read_to_learn(path)
        if test is not None:
            judge = self.read(test, kind=cal.kind, need_labels=True).with_classes(cal.n_classes)
            cal = cal.with_classes(judge.n_classes)
            return cal, self.ordered(judge, cal.class_names) if judge.n_classes == cal.n_classes else judge
        if self.part is None and len(_parts(path)) > 1:
            return cal, self.read(path, prefer="test", need_labels=True)
        return cal, None

    def typed(self) -> list[str]:
        """The options as they were given."""
        options = inspect.signature(Reading, eval_str=True).parameters
        given = [(one.name, getattr(self, one.name)) for one in fields(self)]
        return [
            word
            for name, value in given
            if value is not None and value is not False
            for word in (
                options[name].annotation.__metadata__[0].default,
                *([] if value is True else [str(value)]),
            )
        ]

    @staticmethod
    def ordered(found: LogitsSet, names: Any) -> LogitsSet:
        """The classes in the order of ``names``, by name, where both have names."""
        ordered = found.in_order_of(None if names is None else tuple(map(str, names)))
        for told in ordered.notes[len(found.notes) :]:
            note(f"{found.path}: {told}")
        return ordered


def _listed(names: str | None) -> str | list[str] | None:
    """Names with commas between, of which a single one stays a name."""
    found = [] if names is None else names.split(",")
    return found if len(found) > 1 else names


def _parts(path: Path) -> set[str]:
    """The parts that the names in a file speak of."""
    from ..io.column_choice import meaning
    from ..io.sources import open_source

    said = (meaning(name) for name in open_source(path).names)
    return {found.part for found in said if found.part and found.holds_values}


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Reading`; it gets them as one object, ``reading``."""
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.annotation
        )
        for name, option in inspect.signature(Reading, eval_str=True).parameters.items()
    ]
    own = [p for name, p in inspect.signature(command, eval_str=True).parameters.items() if name != "reading"]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        reading = Reading(**{option.name: given.pop(option.name) for option in options})
        command(reading=reading, **given)

    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    # Where inspect, and so typer, looks first; to mypy a function has no such attribute.
    with_options.__signature__ = inspect.Signature([*keyword_only, *options])  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in (*own, *options)}
    return with_options
