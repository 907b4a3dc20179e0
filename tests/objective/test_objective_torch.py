"""The kernel on torch tensors gives what it gives on numpy arrays."""

import numpy as np
import pytest
from test_objective import build, make, random_point

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("kind", ["plain", "ties", "masked"])
@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("conditional", [False, True])
def test_torch_gives_the_same_sums(kind, top_k, conditional):
    z, y, w = make(kind)
    here = build(z, y, w, top_k, conditional)
    there = build(z, y, w, top_k, conditional, dtype=torch.float64, to=torch.as_tensor)
    c = random_point(here)
    a, b = (p.evaluate(c, np.arange(len(c))) for p in (here, there))
    np.testing.assert_allclose(a.value, b.value, rtol=1e-12)
    np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-13)
    np.testing.assert_allclose(a.hessian, b.hessian, atol=1e-12)
