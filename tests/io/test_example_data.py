"""The example network is over-confident, and the generator's truth is true."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.special import softmax

from monocal.data import digits_example, synthetic
from monocal.errors import InputError


def test_digits_network_is_good_and_far_too_sure() -> None:
    splits = digits_example()
    assert (splits.cal.values.shape, splits.test.values.shape) == ((600, 10), (797, 10))
    for part in (splits.cal, splits.test):
        accuracy = (part.values.argmax(axis=1) == part.labels).mean()
        confidence = softmax(part.values, axis=1).max(axis=1).mean()
        assert 0.82 < accuracy < 0.95
        assert confidence > accuracy + 0.06
    again = digits_example()
    np.testing.assert_array_equal(again.test.values, splits.test.values)
    assert not np.array_equal(digits_example(1).test.labels, splits.test.labels)


@pytest.mark.parametrize("m", [2, 10, 300])
def test_labels_follow_the_stated_probabilities(m: int) -> None:
    data = synthetic(40_000, m, seed=1)
    assert data.truth is not None
    assert data.labels is not None
    np.testing.assert_allclose(data.truth.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(softmax(data.values / 2, axis=1), data.truth, atol=1e-5)
    # The share of correct labels among rows with confidence c is c, within four standard errors.
    top = data.truth.max(axis=1)
    hit = data.truth.argmax(axis=1) == data.labels
    for low, high in ((0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 0.99), (0.99, 1.01)):
        rows = (top >= low) & (top < high)
        if rows.sum() > 50:
            error = (hit[rows] - top[rows]).mean()
            assert abs(error) < 4 * np.sqrt((top[rows] * (1 - top[rows])).sum()) / rows.sum()
    assert 0.7 < hit.mean() < 0.95
    # ... and the reported logits are over-confident.
    assert softmax(data.values, axis=1).max(axis=1).mean() > hit.mean() + 0.03
    shares = np.bincount(data.labels, minlength=m) / len(data.labels)
    assert abs(shares * m - 1).max() < 5 * np.sqrt(m / 40_000)


def test_rows_do_not_depend_on_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monocal.data._BLOCK", 700)  # 70 rows a block
    short, long = synthetic(100, 10, seed=4), synthetic(333, 10, seed=4)
    np.testing.assert_array_equal(short.values, long.values[:100])
    np.testing.assert_array_equal(short.labels, long.labels[:100])
    assert not np.array_equal(short.values, synthetic(100, 10, seed=5).values)
    assert not np.array_equal(long.values[:70], long.values[70:140])


def test_known_distortion_dtype_and_place() -> None:
    out = np.empty((50, 6), np.float16)
    data = synthetic(50, 6, distort=lambda t: 3 * t + 1, out=out, keep_truth=False)
    plain = synthetic(50, 6, overconfidence=1.0)
    assert data.values is out
    assert data.truth is None
    np.testing.assert_array_equal(out, (3 * plain.values + 1).astype(np.float16))
    np.testing.assert_array_equal(data.labels, plain.labels)
    assert synthetic(5, 3, dtype=np.float64).values.dtype == np.float64


def test_impossible_sizes() -> None:
    for n, m in ((0, 3), (3, 1)):
        with pytest.raises(InputError, match="n must be at least 1 and m at least 2"):
            synthetic(n, m)
    with pytest.raises(InputError, match="out must have shape"):
        synthetic(3, 3, out=np.empty((2, 2)))
    with pytest.raises(InputError, match="overconfidence must be positive"):
        synthetic(3, 3, overconfidence=-1)


def test_importing_data_is_light() -> None:
    code = (
        "import sys, monocal; monocal.read; "
        "heavy = {'sklearn', 'pandas', 'pyarrow', 'h5py', 'safetensors', 'torch'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
