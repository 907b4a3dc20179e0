"""The vector form of structured scaling is the same wherever the rows live: in memory, in blocks, with Dask, as tensors."""

import numpy as np
import pytest

import monocal as mc
from monocal.data import synthetic

FEW = synthetic(1200, 7, seed=3)
MANY = synthetic(5000, 120, seed=4)  # single precision, a guessed Hessian, several blocks


def vector(*rows):
    return mc.StructuredScaling(kind="vector").fit(*rows)


@pytest.fixture(params=[(FEW, True), (FEW, False), (MANY, True)], ids=["few", "plain", "many"])
def rows(request):
    """Logits, labels and weights; some classes not available, and weights, or neither."""
    data, masked_and_weighted = request.param
    z, y, rng = data.values.copy(), data.labels, np.random.default_rng(0)
    n, m = z.shape
    if not masked_and_weighted:
        return z, y, None
    z[np.arange(n), (y + 1 + rng.integers(0, m - 1, n)) % m] = -np.inf
    return z, y, rng.uniform(0, 2, n) * (rng.random(n) < 0.8)


def test_blocks_of_any_size_give_the_same_bits(rows):
    z, y, w = rows
    whole = vector(z, y, w)
    assert whole.solution_.converged

    def blocks():
        for i in range(0, len(y), 733):
            part = slice(i, i + 733)
            yield (z[part], y[part]) if w is None else (z[part], y[part], w[part])

    streamed = vector(blocks)
    np.testing.assert_array_equal(streamed.coef_, whole.coef_)
    np.testing.assert_array_equal(streamed.intercept_, whole.intercept_)
    assert streamed.solution_.kkt == whole.solution_.kkt
    p = np.concatenate(list(streamed.predict_blocks(z[i : i + 500] for i in range(0, len(y), 500))))
    np.testing.assert_array_equal(p, whole.predict_proba(z))
    assert (p[np.isinf(z)] == 0).all()


def test_dask_gives_the_same_map(rows):
    da = pytest.importorskip("dask.array")
    z, y, w = rows
    whole, X = vector(z, y, w), da.from_array(z, chunks=(1001, 50))
    spread = vector(X, da.from_array(y, chunks=900), w)
    np.testing.assert_allclose(spread.coef_, whole.coef_, atol=1e-12)
    np.testing.assert_allclose(spread.predict_proba(X).compute(), whole.predict_proba(z), atol=1e-7)


def test_tensors(rows):
    torch = pytest.importorskip("torch")
    z, y, w = rows
    whole, Z = vector(z, y, w), torch.as_tensor(z)
    cal = vector(Z, torch.as_tensor(y), None if w is None else torch.as_tensor(w))
    np.testing.assert_array_equal(cal.coef_, whole.coef_)
    for dtype in (Z.dtype, torch.float16):
        p = cal.predict_proba(Z.to(dtype))
        assert isinstance(p, torch.Tensor)
        assert p.dtype == dtype
        assert (p[torch.isinf(Z)] == 0).all()
        np.testing.assert_allclose(p, whole.predict_proba(z), atol=2e-6 if dtype == Z.dtype else 0.05)


def test_few_rows_of_many_classes_in_single_precision_converge():
    data = synthetic(500, 1000, seed=0, keep_truth=False)
    cal = vector(data.values.astype(np.float32), data.labels)
    assert cal.solution_.converged
    assert cal.n_iter_ < 10


def test_what_needs_all_rows_says_so():
    z, y = FEW.values, FEW.labels
    for cal in (
        mc.StructuredScaling(),
        mc.StructuredScaling(kind="vector", shrinkage="cv"),
        mc.StructuredMCCT(kind="vector"),
    ):
        with pytest.raises(mc.InputError, match="all rows in memory"):
            cal.fit(lambda: iter([(z, y)]))
    total = np.logaddexp.reduce(z.astype(np.float64), axis=1)
    top = mc.TopK(np.sort(z)[:, -3:], np.argsort(z)[:, -3:], logsumexp=total, n_classes=7)
    with pytest.raises(mc.InputError, match="TopK"):
        vector(top, y)
