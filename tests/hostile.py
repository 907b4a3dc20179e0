"""Rows of every unpleasant kind, and what keeping their order means."""

import numpy as np

DTYPES = [np.float16, np.float32, np.float64]


def assert_order_kept(before, after):
    """``before`` larger never gives ``after`` smaller; equal stays equal; the top stays the top."""
    before, after = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    assert np.isfinite(after[np.isfinite(before)]).all()
    index = np.argsort(before, axis=1, kind="stable")
    z, p = np.take_along_axis(before, index, axis=1), np.take_along_axis(after, index, axis=1)
    both = np.isfinite(z[:, 1:]) & np.isfinite(z[:, :-1])
    assert not (p[:, 1:] < p[:, :-1])[both].any()
    tied = both & (z[:, 1:] == z[:, :-1])
    assert not (p[:, 1:] != p[:, :-1])[tied].any()
    np.testing.assert_array_equal(before.argmax(axis=1), after.argmax(axis=1))


def narrow(rows, dtype):
    """Rows in a narrower type, cut to its range."""
    return np.clip(rows, np.finfo(dtype).min, np.finfo(dtype).max).astype(dtype)


def hard_rows(m, seed=1):
    """Negative, tied, constant, huge, tiny, neighbouring, sorted rows."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=(40, m)) * 5
    return np.concatenate(
        [
            normal,
            -np.abs(normal) - 3,
            normal - np.log(np.exp(normal).sum(axis=1, keepdims=True)),
            np.round(normal * 2) / 2,
            np.zeros((3, m)),
            np.full((2, m), -7.25),
            rng.uniform(-1e4, 1e4, size=(20, m)),
            rng.uniform(-1e38, 1e38, size=(10, m)),
            np.round(normal) + 1e6,
            normal * 1e-30,
            np.nextafter(np.ones((10, m)), rng.integers(0, 2, size=(10, m)) * 2.0),
            np.sort(normal, axis=1),
            np.sort(normal, axis=1)[:, ::-1],
        ]
    )


def calibration_set(m, seed=0, n=400, temperature=2.0):
    """Over-confident logits (n, m) and labels: the truth has the given temperature."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 4
    gumbel = rng.gumbel(size=(n, m))
    return z, (z / temperature + gumbel).argmax(axis=1)


def bent(m, n=400):
    """A calibration set whose labels want a map far from temperature scaling: many jumps in weights and biases."""
    z, _ = calibration_set(m, n=n)
    rng = np.random.default_rng(3)
    place = np.where(rng.random(n) < 0.7, 0, np.minimum(rng.geometric(0.3, n), m) - 1)
    return z, np.argsort(-z, axis=1)[np.arange(n), place]


def masked_set(m, share=0.3):
    """The same with a share of the classes masked (never the label), and where."""
    z, y = bent(m)
    mask = np.random.default_rng(5).random(z.shape) < share
    mask[np.arange(len(y)), y] = False
    return np.where(mask, -np.inf, z), y, mask
