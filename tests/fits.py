"""Calibration sets of all kinds, drawn at random: for tests that ask whether every fit reaches its optimum."""

import numpy as np

import monocal as mc


def random_fit(seed):
    """A calibrator that is not fitted, logits, labels and weights, all decided by the seed."""
    rng = np.random.default_rng([11, seed])
    n = int(np.exp(rng.uniform(0, np.log(500))))
    m = int(np.exp(rng.uniform(np.log(2), np.log(2000 if seed % 10 == 0 else 60))))
    z = rng.normal(size=(n, m)) * rng.choice([0.3, 1.0, 3.0, 10.0], size=(n, 1) if seed % 3 == 0 else ())
    if rng.random() < 0.3:
        z += rng.exponential(4.0, size=(n, 1)) * np.eye(m)[rng.integers(m, size=n)]
    if rng.random() < 0.3:
        z = np.round(z * rng.choice([0.5, 2.0]))  # ties, also at the top
    if rng.random() < 0.1:
        z[:] = z[0]
    y = _labels(rng, z)
    masked = rng.random() < 0.2
    z = z * 10.0 ** rng.uniform(-6, 6)
    dtype = rng.choice([np.float16, np.float32, np.float64])
    if dtype == np.float16:
        z *= min(1.0, 3e4 / max(np.abs(z).max(), 1e-300))
    if masked:
        hide = rng.random(z.shape) < rng.choice([0.1, 0.9])
        hide[np.arange(n), y] = False
        z = np.where(hide, -np.inf, z)
    weight = None
    if rng.random() < 0.3:
        weight = rng.choice(
            [rng.exponential(size=n), rng.integers(1, 5, size=n), 10.0 ** rng.uniform(-3, 3, size=n)]
        )
    return _calibrator(rng, m), z.astype(dtype), y, weight


def _labels(rng, z):
    n, m = z.shape
    kind = rng.choice(["drawn", "right", "wrong", "any", "one"], p=[0.5, 0.2, 0.05, 0.15, 0.1])
    if kind == "drawn":
        return (z * 10.0 ** rng.uniform(-1, 1) + rng.gumbel(size=z.shape)).argmax(axis=1)
    if kind == "one":
        return np.full(n, rng.integers(m))
    return {"right": z.argmax(axis=1), "wrong": z.argmin(axis=1), "any": rng.integers(m, size=n)}[kind]


def _calibrator(rng, m):
    rest = {} if rng.random() < 0.6 else {"prior_rows": float(rng.choice([0.0, 0.1, 100.0]))}
    if rng.random() < 0.35:
        return mc.TemperatureScaling(**rest)
    top_k = int(rng.integers(1, m + 1)) if rng.random() < 0.3 else None
    if rng.random() < 0.5:
        rest["shrinkage"] = float(rng.choice([0.0, 0.1, 100.0]))
    kind = mc.MCCT if rng.random() < 0.6 else mc.ConditionalMCCT
    return kind(top_k=top_k, **rest)
