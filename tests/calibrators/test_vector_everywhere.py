"""The vector form of structured scaling is the same wherever the rows live: in memory, in blocks, with Dask, as tensors."""

import numpy as np
import pytest
from sklearn.base import clone

import monocal as mc
from monocal.data import synthetic

FEW = synthetic(1200, 7, seed=3)
MANY = synthetic(5000, 120, seed=4)  # single precision, a guessed Hessian, several blocks


def rows(data, masked, weighted):
    rng = np.random.default_rng(0)
    z, y = data.values.copy(), data.labels
    n, m = z.shape
    if masked:
        z[np.arange(n), (y + 1 + rng.integers(0, m - 1, n)) % m] = -np.inf
    return z, y, rng.uniform(0, 2, n) * (rng.random(n) < 0.8) if weighted else None


CASES = [(FEW, True, True), (FEW, False, False), (MANY, True, True)]


@pytest.mark.parametrize(("data", "masked", "weighted"), CASES)
def test_blocks_of_any_size_give_the_same_bits(data, masked, weighted):
    z, y, w = rows(data, masked, weighted)
    cal = mc.StructuredScaling(kind="vector")
    whole = clone(cal).fit(z, y, w)
    assert whole.solution_.converged

    def blocks():
        for i in range(0, len(y), 733):
            part = slice(i, i + 733)
            yield (z[part], y[part]) if w is None else (z[part], y[part], w[part])

    streamed = clone(cal).fit(blocks)
    np.testing.assert_array_equal(streamed.coef_, whole.coef_)
    np.testing.assert_array_equal(streamed.intercept_, whole.intercept_)
    assert streamed.solution_.kkt == whole.solution_.kkt
    p = np.concatenate(list(streamed.predict_blocks(z[i : i + 500] for i in range(0, len(y), 500))))
    np.testing.assert_array_equal(p, whole.predict_proba(z))
    assert (p[np.isinf(z)] == 0).all()


@pytest.mark.parametrize(("data", "masked", "weighted"), CASES)
def test_dask_gives_the_same_bits(data, masked, weighted):
    da = pytest.importorskip("dask.array")
    z, y, w = rows(data, masked, weighted)
    whole = mc.StructuredScaling(kind="vector").fit(z, y, w)
    X = da.from_array(z, chunks=(1001, 50))
    spread = mc.StructuredScaling(kind="vector").fit(X, da.from_array(y, chunks=900), w)
    np.testing.assert_allclose(spread.coef_, whole.coef_, atol=1e-12)
    np.testing.assert_allclose(spread.predict_proba(X).compute(), whole.predict_proba(z), atol=1e-7)


@pytest.mark.parametrize("kind", ["vector", "matrix"])
@pytest.mark.parametrize(("data", "masked", "weighted"), CASES)
def test_tensors(data, masked, weighted, kind):
    torch = pytest.importorskip("torch")
    z, y, w = rows(data, masked, weighted)
    if kind == "matrix" and data is MANY:
        z, y, w = z[:1000], y[:1000], w[:1000]
    whole = mc.StructuredScaling(kind=kind).fit(z, y, w)
    Z = torch.as_tensor(z)
    cal = mc.StructuredScaling(kind=kind).fit(
        Z, torch.as_tensor(y), None if w is None else torch.as_tensor(w)
    )
    assert cal.solution_.converged
    p = cal.predict_proba(Z)
    assert isinstance(p, torch.Tensor)
    assert p.dtype == Z.dtype
    np.testing.assert_allclose(p.numpy(), whole.predict_proba(z), atol=2e-6)
    half = whole.predict_proba(Z.to(torch.float16))
    assert half.dtype == torch.float16
    assert (half[torch.isinf(Z)] == 0).all()


def test_few_rows_of_many_classes_in_single_precision_converge():
    data = synthetic(500, 1000, seed=0, keep_truth=False)
    cal = mc.StructuredScaling(kind="vector").fit(data.values.astype(np.float32), data.labels)
    assert cal.solution_.converged
    assert cal.n_iter_ < 10


def test_what_needs_all_rows_says_so():
    z, y, _ = rows(FEW, False, False)

    def blocks():
        yield z, y

    for cal in (
        mc.StructuredScaling(),
        mc.StructuredScaling(kind="vector", shrinkage="cv"),
        mc.StructuredMCCT(kind="vector"),
    ):
        with pytest.raises(mc.InputError, match="all rows in memory"):
            cal.fit(blocks)
    total = np.logaddexp.reduce(z.astype(np.float64), axis=1)
    top = mc.TopK(np.sort(z)[:, -3:], np.argsort(z)[:, -3:], logsumexp=total, n_classes=7)
    with pytest.raises(mc.InputError, match="TopK"):
        mc.StructuredScaling(kind="vector").fit(top, y)
