"""What servers of language models return: the k largest logits of a row, their ids, and the log-sum-exp of all.

What is not named counts as ``N`` equal classes that have the remaining mass together (see `_rest_of`). It is what the tail is
with ``top_k``: it has the parameters of the lowest rank and stays in the normaliser. A label that is not named falls on one of
its classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..arrays import to_numpy
from ..errors import InputError, warn
from ..inputs.validation import (
    ANY_CLASS,
    check_choice,
    check_labels,
    check_logits,
    check_number,
    read_matrix,
    read_numbers,
)
from .responses import SENTINEL, Origin, Vocabulary, read_top

# More than any server names of a row: a map of more ranks was fitted on all logits.
_MOST_NAMED = 1024


@dataclass(frozen=True, eq=False)
class TopK:
    """The largest logits of each row with the ids of their classes, and the log-sum-exp of all classes.

    Parameters
    ----------
    values : array-like of shape (n, k)
        Logits or log-probabilities of the named classes, in any order. Rows that name fewer are filled up with ``-inf``;
        -9999.0, which OpenAI's servers write for "very unlikely", counts as ``-inf``, too.
    ids : array-like of int, shape (n, k)
        Their class numbers; those of filled places do not matter.
    logsumexp : array-like of shape (n,) or float
        ``log sum exp`` over all classes, named or not; 0 for log-probabilities, which is the default.
    n_classes : int, optional
        How many classes there are in all (the size of the vocabulary), if that is known.
    k : int, optional
        How many of the largest to keep of each row, largest first. vLLM's ``prompt_logprobs`` names the actual token next to the
        k largest: give its k, and that token is one of the rest unless it is among them.

    Examples
    --------
    >>> import numpy as np, monocal as mc
    >>> top = mc.TopK(np.log([[0.6, 0.2], [0.5, 0.3]]), [[7, 3], [3, 9]], n_classes=1000)
    >>> cal = mc.TemperatureScaling().fit(top, [7, 4])
    >>> result = cal.predict_proba(top)
    >>> bool(np.allclose(result.probabilities.sum(axis=1) + result.rest, 1.0))
    True
    """

    values: np.ndarray
    ids: np.ndarray
    logsumexp: Any = 0.0
    n_classes: int | None = None
    k: int | None = None
    origin: Origin | None = field(default=None, repr=False)
    rest_count: np.ndarray = field(init=False, repr=False)  # (n,), N
    rest_value: np.ndarray = field(init=False, repr=False)  # (n,), z_rest

    def __post_init__(self) -> None:
        for number, name in ((self.k, "k"), (self.n_classes, "n_classes")):
            if number is not None:
                check_number(number, name, least=1, whole=True)
        z = np.asarray(to_numpy(read_matrix(self.values, "values").values), dtype=np.float64)
        z = to_numpy(check_logits(np.where(z == SENTINEL, -np.inf, z), "values").values)
        ids = to_numpy(read_numbers(self.ids, "ids", "a class number"))
        if ids.shape != z.shape or ids.dtype.kind not in "iu":
            raise InputError(
                f"ids must be whole numbers of the shape of values, {z.shape}, but have shape {ids.shape} and type {ids.dtype}."
            )
        if self.k is not None:
            largest = np.argsort(-z, axis=1, kind="stable")[:, : self.k]
            z, ids = (np.take_along_axis(a, largest, axis=1) for a in (z, ids))
        if self.n_classes is not None and self.n_classes < z.shape[1]:
            raise InputError(f"n_classes is {self.n_classes}, but values name {z.shape[1]} classes a row.")
        _check_ids(ids, np.isfinite(z), self.n_classes)
        total = to_numpy(read_numbers(self.logsumexp, "logsumexp", "a real number")).astype(np.float64)
        if total.shape not in ((), (len(z),)):
            raise InputError(
                f"logsumexp must be one number or one per row, ({len(z)},), but has shape {total.shape}."
            )
        total = np.broadcast_to(total, (len(z),))
        _check_total(z, total)
        count, value = _rest_of(z, total, self.n_classes)
        _warn_of_too_little(z, total, count, value)
        arrays = {"values": z, "ids": ids, "logsumexp": total, "rest_count": count, "rest_value": value}
        for name, array in arrays.items():
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> TopK:
        """Some of the rows."""
        index = np.atleast_1d(np.arange(len(self))[rows])
        origin = None if self.origin is None else self.origin[index]
        return TopK(self.values[index], self.ids[index], self.logsumexp[index], self.n_classes, origin=origin)

    def filled_to(self, k: int) -> TopK:
        """The same rows with at least k places, as in a batch with rows that name so many."""
        more = k - self.values.shape[1]
        if more <= 0 or k > _MOST_NAMED:
            return self
        values = np.pad(self.values, ((0, 0), (0, more)), constant_values=-np.inf)
        ids = np.pad(self.ids, ((0, 0), (0, more)))
        return TopK(values, ids, self.logsumexp, self.n_classes, origin=self.origin)

    @classmethod
    def from_openai(cls, responses: Any, **options: Any) -> TopK:
        """Rows of chat or completion responses in OpenAI's format, whichever server wrote them; options as of `from_vllm`."""
        return cls.from_vllm(responses, part="generated", **options)

    @classmethod
    def from_vllm(
        cls,
        responses: Any,
        *,
        part: str | None = None,
        position: int | None = None,
        vocabulary: Any = None,
        n_classes: int | None = None,
        k: int | None = None,
    ) -> TopK:
        """Rows of what vLLM returns: ``RequestOutput`` objects of ``LLM.generate``, or responses of its server.

        Parameters
        ----------
        responses : dict, object, list of these, or path
            Parsed JSON or a client's own objects; a ``.json`` file, or a ``.jsonl`` file with a response in each line, also the
            output of a batch.
        part : {"prompt", "generated"}, optional
            Log-probabilities of the prompt (``prompt_logprobs``) or of what was generated; needed where there are both.
        position : int, optional
            Which position of each text to take, such as 0 for the first token; all by default.
        vocabulary : mapping of str to int, or list of str, optional
            Numbers of all tokens by their text. By default tokens get numbers as they come; the `vocabulary` of an earlier set
            goes on where that ended. Tokens called ``"token_id:15"`` have their numbers already.
        n_classes : int, optional
            The size of the model's vocabulary.
        k : int, optional
            How many likely tokens the server was asked for. Where the sampled token is named as well, less likely, it counts
            as one of the rest. Without ``k`` a sampled token that is strictly the lowest of its row is left out (in a chat where
            it stands first), though it may have been the k-th largest.
        """
        if part is not None:
            check_choice(part, "part", ("prompt", "generated"))
        for value, name, least in ((position, "position", None), (k, "k", 1)):
            if value is not None:
                check_number(value, name, least=least, whole=True)
        values, ids, origin = read_top(responses, part, position, vocabulary, k)
        return cls(values, ids, 0.0, n_classes, origin=origin)

    def as_source(self, y: Any, sample_weight: Any, context: Any = None) -> Any:
        """How a calibrator reads these rows, with their labels, weights and context in a fit."""
        from .top_k_rows import TopKSource

        return TopKSource(self, y, sample_weight, context)

    @property
    def top_class(self) -> np.ndarray:
        """The class of the largest logit of each row, (n,)."""
        return self.ids[np.arange(len(self)), self.values.argmax(axis=1)]

    @property
    def tokens(self) -> np.ndarray | None:
        """The token that stands at each position of a text, sampled or the prompt's own, where that is known."""
        return None if self.origin is None else self.origin.tokens

    @property
    def places(self) -> np.ndarray | None:
        """Response, choice and position of each row, where they came from responses."""
        return None if self.origin is None else self.origin.places

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Numbers of tokens by their text, where rows came from responses."""
        return None if self.origin is None else self.origin.vocabulary

    def class_numbers(self, y: Any, name: str = "y", rows: str = "X") -> np.ndarray:
        """Labels (n,) as class numbers, given as such or, after `from_openai` and `from_vllm`, as text."""
        vocabulary = self.vocabulary
        if vocabulary is not None and _is_text(y):
            texts = np.asarray(y, dtype=object)
            words = texts.ravel().tolist()
            if all(number is None for number in vocabulary.find(words)):
                raise InputError(
                    f"{name}: no label is a token of these responses; the first is {words[0]!r}. Tokens often "
                    "begin with a space, and top.vocabulary lists them."
                )
            y = np.reshape(vocabulary.labels(words), texts.shape)
        like = np.broadcast_to(0.0, (len(self), self.n_classes or ANY_CLASS))
        return to_numpy(check_labels(y, like, name, rows=rows))

    def label_column(self, labels: np.ndarray) -> np.ndarray:
        """Where each row names its label; k where it does not."""
        named = (self.ids == labels[:, None]) & np.isfinite(self.values)
        return np.where(named.any(axis=1), named.argmax(axis=1), self.values.shape[1])

    def probabilities(self) -> TopKProbabilities:
        """The probabilities that the model gave, uncalibrated, with the rest spread as everywhere here."""
        with np.errstate(divide="ignore"):
            total = np.logaddexp(logsumexp(self.values, axis=1), self.rest_value + np.log(self.rest_count))
        logs, log_each = self.values - total[:, None], self.rest_value - total
        with np.errstate(under="ignore"):
            p, each = np.exp(logs), np.where(self.rest_count > 0, np.exp(log_each), 0.0)
        return TopKProbabilities(p, self.ids, each * self.rest_count, each, logs, log_each, self)


@dataclass(frozen=True, eq=False)
class TopKProbabilities:
    """Probabilities of the named classes and of all others together: a row of both sums to 1.

    `metrics` and `evaluate` take it with the labels of its rows.

    Attributes
    ----------
    probabilities, log_probabilities, ids : ndarray of shape (n, k)
        In the order of the logits; 0 in filled places.
    rest : ndarray of shape (n,)
        Probability of all other classes.
    each, log_each : ndarray of shape (n,)
        Probability of one of them, if they share it equally; never above that of a named class.
    rows : TopK
        What they are probabilities of.

    Examples
    --------
    >>> import numpy as np, monocal as mc
    >>> top = mc.TopK(np.log([[0.6, 0.2], [0.5, 0.3]]), [[7, 3], [3, 9]], n_classes=1000)
    >>> mc.TemperatureScaling().fit(top, [7, 4]).predict_proba(top).rest.shape
    (2,)
    """

    probabilities: np.ndarray
    ids: np.ndarray
    rest: np.ndarray
    each: np.ndarray
    log_probabilities: np.ndarray
    log_each: np.ndarray
    rows: TopK

    def __len__(self) -> int:
        return len(self.probabilities)

    def log_likelihood(self, labels: np.ndarray) -> np.ndarray:
        """Logarithms of the probabilities (n,) of these class numbers; one that is not named has that of each other."""
        column = self.rows.label_column(labels)
        all_logs = np.concatenate([self.log_probabilities, self.log_each[:, None]], axis=1)
        return all_logs[np.arange(len(self)), column]

    def to_response(self) -> Any:
        """The responses that the rows came from, with these log-probabilities in place of the server's; -9999.0 stays."""
        if self.rows.origin is None:
            raise InputError(
                "to_response: these rows came from arrays. Read the responses with TopK.from_openai or TopK.from_vllm first."
            )
        return self.rows.origin.written(self.ids, self.log_probabilities, self.log_each)


def _is_text(y: Any) -> bool:
    labels = np.asarray(to_numpy(y) if hasattr(y, "__array__") else y)
    return labels.dtype.kind in "U" or (
        labels.dtype.kind == "O" and all(isinstance(e, str) for e in labels.ravel())
    )


def _check_ids(ids: np.ndarray, valid: np.ndarray, n_classes: int | None) -> None:
    outside = valid & ((ids < 0) | (ids >= (n_classes or np.inf)))
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise InputError(
            f"ids: row {row} has {ids[row, column]}, expected numbers from 0 on and below n_classes={n_classes}."
        )
    # Filled places get numbers of their own, so that only real ids can meet.
    filled = -1 - np.arange(ids.shape[1])
    ordered = np.sort(np.where(valid, ids.astype(np.int64), filled), axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if twice.any():
        raise InputError(
            f"ids: row {int(np.argmax(twice))} names a class twice. Each class may be named once a row."
        )


# Single precision cannot tell a smaller part of the total from nothing.
_LEAST_REST = np.log(2.0**-24)
# How far the named classes may exceed the total: log-probabilities are often rounded to a few digits.
_SLACK = 0.02
# More classes than any vocabulary has, for rows that do not say how many there are.
_MOST = 2**20


def _check_total(z: np.ndarray, total: np.ndarray) -> None:
    """The named classes alone must not have more than all."""
    named = logsumexp(z, axis=1)
    wrong = ~np.isfinite(total) | (named > total + _SLACK)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"logsumexp: in row {row} it is {total[row]:.6g}, but the named classes alone have {named[row]:.6g}. It must be "
            "that of all classes (0 for log-probabilities)."
        )


def _warn_of_too_little(named: np.ndarray, total: np.ndarray, count: np.ndarray, value: np.ndarray) -> None:
    """The rest must be able to hold the remaining mass and lie below the named classes."""
    with np.errstate(divide="ignore"):
        held = np.logaddexp(logsumexp(named, axis=1), value + np.log(count))
    short = held < total - _SLACK
    if short.any():
        row = int(np.argmax(short))
        warn(
            f"logsumexp: in row {row} the named classes and {count[row]:.0f} others, none above them, have "
            f"{np.exp(held - total)[row]:.1%} of the total at most ({short.sum()} such rows). Their probabilities were scaled "
            "to 1. Is n_classes, or logsumexp, that of all classes? Classes that are named besides the k largest are left out "
            "with k=."
        )


def _rest_of(z: np.ndarray, total: np.ndarray, n_classes: int | None) -> tuple[np.ndarray, np.ndarray]:
    """``N`` and ``z_rest`` of each row."""
    valid = np.isfinite(z)
    with np.errstate(divide="ignore"):
        share = np.log(-np.expm1(np.minimum(logsumexp(z, axis=1) - total, 0.0)))
    mass = np.maximum(share, _LEAST_REST) + total
    lowest = np.where(valid, z, np.inf).min(axis=1)
    if n_classes is None:
        below = np.ceil(np.exp(np.minimum(mass - lowest, np.log(_MOST))) * (1.0 - 1e-12))
        count = np.maximum(below, 1.0)
    else:
        count = (n_classes - valid.sum(axis=1)).astype(np.float64)
    return count, np.minimum(mass - np.log(np.maximum(count, 1.0)), lowest)
