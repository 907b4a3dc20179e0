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


def finite_rows(most, m):
    """A strategy of hypothesis: up to so many rows of finite numbers of any size."""
    # Here, since a machine with a device may lack hypothesis.
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    elements = st.floats(-1e308, 1e308) | st.sampled_from([0.0, -0.0, 1.0, 1e-300, -1e6, 1e6])
    return hnp.arrays(np.float64, st.tuples(st.integers(1, most), st.just(m)), elements=elements)


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


def two_kinds(m=10, n=3000, seed=0):
    """Rows with a small margin are honest, those with a large one over-confident: one temperature cannot serve both."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 3
    top = np.sort(z, axis=1)
    wide = (top[:, -1] - top[:, -2])[:, None] > 1.5
    truth = np.where(wide, z / 4, z)
    return z, (truth + rng.gumbel(size=(n, m))).argmax(axis=1)


# Kinds of rows that have to stand side by side in one batch: (rng, n, m) -> rows (n, m) in double precision. A new kind joins
# by a line here, and every test of mixed batches has it.
def _normal(rng, n, m):
    return rng.normal(size=(n, m)) * rng.choice([0.3, 3.0, 30.0], size=(n, 1))


def _masked(rng, n, m):
    rows = _normal(rng, n, m)
    rows[rng.random(rows.shape) < rng.choice([0.05, 0.5, 0.95], size=(n, 1))] = -np.inf
    rows[np.arange(n), rng.integers(0, m, n)] = 0.0
    return rows


def _tied_at_top(rng, n, m):
    rows = _normal(rng, n, m)
    return np.minimum(rows, np.quantile(rows, rng.uniform(0.3, 1.0), axis=1, keepdims=True))


def _one_pair_tied(rng, n, m):
    rows = np.sort(_normal(rng, n, m), axis=1)
    upper = rng.integers(1, m, n)
    rows[np.arange(n), upper - 1] = rows[np.arange(n), upper]
    return rng.permuted(rows, axis=1)


def _lowest_masked(rng, n, m):
    rows = np.sort(_normal(rng, n, m), axis=1)
    rows[np.arange(m) < rng.integers(1, m, size=(n, 1))] = -np.inf
    return rng.permuted(rows, axis=1)


def _standardised(rng, n, m):
    rows = _normal(rng, n, m)
    return (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)


def to_bfloat16(rows):
    """Rounded to bfloat16, in double precision."""
    bits = np.asarray(rows, dtype=np.float32).view(np.uint32)
    return ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


ROW_KINDS = {
    "normal": _normal,
    "tied": lambda rng, n, m: np.round(_normal(rng, n, m)),
    "one pair tied": _one_pair_tied,
    "tied at the top": _tied_at_top,
    "constant": lambda rng, n, m: np.zeros((n, m)) + rng.choice([0.0, -7.25, 1e4], size=(n, 1)),
    "masked": _masked,
    "lowest masked": _lowest_masked,
    "masked and tied": lambda rng, n, m: np.round(_masked(rng, n, m)),
    "one class available": lambda rng, n, m: np.where(
        np.arange(m) == rng.integers(0, m, (n, 1)), 1.0, -np.inf
    ),
    "rounded to float16": lambda rng, n, m: _normal(rng, n, m).astype(np.float16).astype(np.float64),
    "rounded to bfloat16": lambda rng, n, m: to_bfloat16(_normal(rng, n, m)),
    "standardised": _standardised,
    "huge": lambda rng, n, m: _normal(rng, n, m) * rng.choice([1e4, 1e6, 1e36], size=(n, 1)),
    "huge below": lambda rng, n, m: np.where(rng.random((n, m)) < 0.5, -3e38, _normal(rng, n, m)),
    "finite masks": lambda rng, n, m: np.where(
        (rng.random((n, m)) < 0.5) & (np.arange(m) > 0),
        rng.choice([-1e4, -1e5, -9e5, -3e38], size=(n, 1)),
        _normal(rng, n, m),
    ),
    "tiny": lambda rng, n, m: _normal(rng, n, m) * rng.choice([1e-6, 1e-30, 1e-40], size=(n, 1)),
    "signed zeros": lambda rng, n, m: (
        np.where(rng.random((n, m)) < 0.5, -0.0, 0.0) - (rng.random((n, m)) < 0.3)
    ),
    "shifted far": lambda rng, n, m: _normal(rng, n, m) + 1e4,
}


def mixed_rows(m, seed=0, each=2):
    """A batch (n, m) with rows of every kind side by side, in random order."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.concatenate([kind(rng, each, m) for kind in ROW_KINDS.values()]))
