r"""Example data, and what reads and writes files (`monocal.io`) under one public name.

``synthetic`` makes logits whose true probabilities are known:  y ~ softmax(t),  z = distort(t). A row has one favoured class,
raised above Gaussian noise by an evidence that differs from row to row, as easy and hard images do. The label is drawn from
``softmax(t)``, so ``t`` is calibrated by construction, and the classifier reports a distortion of it: by default
``z = overconfidence * t``, which temperature scaling with ``T = overconfidence`` undoes exactly. The evidence is measured from
``log(m - 1)``, which keeps the accuracy near 0.8 for any number of classes.

``digits_example`` trains a small network that memorised a few digits, some of them mislabelled: right nearly nine times in ten
and almost always certain. Data: scikit-learn's copy of the UCI handwritten digits (1797 images of 8 x 8 pixels).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike
from scipy.special import softmax

from monocal.errors import InputError
from monocal.io import (
    Location,
    LogitsSet,
    Splits,
    atomic_path,
    check_writable,
    find,
    find_columns,
    read,
    read_columns,
    read_splits,
    write,
)

__all__ = [
    "Location",
    "LogitsSet",
    "Splits",
    "Synthetic",
    "atomic_path",
    "check_writable",
    "digits_example",
    "find",
    "find_columns",
    "read",
    "read_columns",
    "read_splits",
    "synthetic",
    "write",
]

_BLOCK = 1 << 21  # elements made at a time
_N_TRAIN = 400
_N_CAL = 600
_MISLABELLED = 0.02


def digits_example(seed: int = 0) -> Splits:
    """Train an over-confident network on digits images and return its logits on images it has not seen.

    600 samples to calibrate on and 797 to test on, 10 classes, float64 logits.

    Parameters
    ----------
    seed : int, default=0
        Decides the split, the wrong labels and the network's initial weights.

    Examples
    --------
    >>> import monocal as mc
    >>> digits = mc.data.digits_example()
    >>> digits.cal.values.shape, digits.test.values.shape
    ((600, 10), (797, 10))
    """
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(seed)
    images, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(labels))
    images, labels = images[order] / 16.0, labels[order].astype(np.int64)

    train_labels = labels[:_N_TRAIN].copy()
    wrong = rng.random(_N_TRAIN) < _MISLABELLED
    train_labels[wrong] = (train_labels[wrong] + rng.integers(1, 10, wrong.sum())) % 10
    network = MLPClassifier((64,), solver="lbfgs", alpha=1e-4, max_iter=2000, random_state=seed)
    with threadpool_limits(
        1
    ):  # sums of several threads round in another way, which the training makes visible
        network.fit(images[:_N_TRAIN], train_labels)

    hidden = np.maximum(images[_N_TRAIN:] @ network.coefs_[0] + network.intercepts_[0], 0.0)
    logits = hidden @ network.coefs_[1] + network.intercepts_[1]
    labels = labels[_N_TRAIN:]
    cal = LogitsSet(logits[:_N_CAL], labels[:_N_CAL], name="digits", part="cal")
    test = LogitsSet(logits[_N_CAL:], labels[_N_CAL:], name="digits", part="test")
    return Splits(cal, test, "digits")


@dataclass(frozen=True, eq=False)
class Synthetic(LogitsSet):
    """A `LogitsSet` with the probabilities that its labels were drawn from, when kept.

    Attributes
    ----------
    truth : ndarray of shape (n, m), or None

    Examples
    --------
    >>> from monocal.data import synthetic
    >>> synthetic(100, 4).truth.shape
    (100, 4)
    """

    truth: np.ndarray | None = None


def synthetic(
    n: int,
    m: int,
    seed: int = 0,
    *,
    overconfidence: float = 2.0,
    distort: Callable[[np.ndarray], np.ndarray] | None = None,
    evidence: float = 3.0,
    spread: float = 2.5,
    dtype: DTypeLike = np.float32,
    keep_truth: bool = True,
    out: np.ndarray | None = None,
) -> Synthetic:
    """Make logits that are miscalibrated in a known way, in blocks and mostly in float32.

    Parameters
    ----------
    n, m : int
        Number of rows (at least 1) and of classes (at least 2).
    seed : int, default=0
        The same seed gives the same rows; a larger ``n`` adds rows at the end.
    overconfidence : float, default=2.0
        Reported logits are the true ones times this; below 1 the classifier is under-confident.
    distort : callable, optional
        Maps a block of true logits (rows, m) to reported logits of the same shape, instead of
        ``overconfidence``.
    evidence, spread : float
        Mean and standard deviation over rows of the favoured class's advantage, in units of log-odds.
    dtype : dtype, default=float32
        Type of the reported logits.
    keep_truth : bool, default=True
        Keep the true probabilities; they take as much memory as float32 logits.
    out : ndarray of shape (n, m), optional
        Where to put the logits, for instance a memory-mapped file larger than memory.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> data.values.shape, data.labels.shape
    ((1000, 5), (1000,))
    >>> round(mc.metrics.nll(data.truth, data.labels), 2)  # as low as it gets
    0.48
    """
    if n < 1 or m < 2:
        raise InputError(f"n must be at least 1 and m at least 2, got n={n}, m={m}.")
    if out is not None and out.shape != (n, m):
        raise InputError(f"out must have shape ({n}, {m}), got {out.shape}.")
    if distort is None and not overconfidence > 0:
        raise InputError(f"overconfidence must be positive, got {overconfidence}.")
    values = np.empty((n, m), dtype) if out is None else out
    truth = np.empty((n, m), np.float32) if keep_truth else None
    labels = np.empty(n, np.int64)

    step = max(1, _BLOCK // m)
    for number, start in enumerate(range(0, n, step)):
        # Always a whole block from its own stream, so that rows do not depend on n.
        rng = np.random.default_rng([seed, m, number])
        favoured = rng.integers(m, size=step)
        advantage = np.log(m - 1) + rng.normal(evidence, spread, step)
        rows = min(step, n - start)
        true_logits = rng.standard_normal((rows, m), dtype=np.float32)
        true_logits[np.arange(rows), favoured[:rows]] += advantage[:rows].astype(np.float32)

        block = slice(start, start + rows)
        values[block] = (
            true_logits * np.float32(overconfidence) if distort is None else distort(true_logits.copy())
        )
        probabilities = softmax(true_logits, axis=1)
        if truth is not None:
            truth[block] = probabilities
        reached = np.cumsum(probabilities, axis=1, dtype=np.float64)
        aim = np.random.default_rng([seed, m, number, 1]).random(rows) * reached[:, -1]
        labels[block] = (reached <= aim[:, None]).sum(axis=1)
    return Synthetic(values, labels, "logits", f"synthetic_{n}x{m}", truth=truth)
