"""A real classifier to calibrate: a small network that memorised a few digits, some of them mislabelled.

It is right nearly nine times in ten and almost always certain, which is what calibration is for. Data:
scikit-learn's copy of the UCI handwritten digits (1797 images of 8 x 8 pixels).
"""

from __future__ import annotations

import numpy as np

from monocal.data.sets import LogitsSet, Splits

_N_TRAIN = 400
_N_CAL = 600
_MISLABELLED = 0.02


def digits_example(seed: int = 0) -> Splits:
    """Train an over-confident network on digits images and return its logits on images it has not seen.

    Parameters
    ----------
    seed : int, default=0
        Decides the split, the wrong labels and the network's initial weights.

    Returns
    -------
    Splits
        ``digits``: 600 samples to calibrate on and 797 to test on, 10 classes, float64 logits (the last layer
        before its softmax).

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
    ):  # sums of several threads round in another way, and the training makes that visible
        network.fit(images[:_N_TRAIN], train_labels)

    hidden = np.maximum(images[_N_TRAIN:] @ network.coefs_[0] + network.intercepts_[0], 0.0)
    logits = hidden @ network.coefs_[1] + network.intercepts_[1]
    labels = labels[_N_TRAIN:]
    cal = LogitsSet(logits[:_N_CAL], labels[:_N_CAL], name="digits", part="cal")
    test = LogitsSet(logits[_N_CAL:], labels[_N_CAL:], name="digits", part="test")
    return Splits(cal, test, "digits")
