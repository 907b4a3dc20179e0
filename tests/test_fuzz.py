"""The fuzzer itself: a run of seconds, an oracle that two ways of computing agree on, and checks that can fail."""

import numpy as np
import pytest

import monocal as mc
from hostile import bent, hard_rows

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
from fuzz import oracle
from fuzz.__main__ import Run, converges
from fuzz.checks import failures
from fuzz.draws import draw_batches, draw_case
from fuzz.engines import Batch
from fuzz.row_kinds import KINDS, mixed


def test_a_short_run_breaks_nothing():
    run = Run(seed=1)
    for number in range(3):
        run.fit(number)
    assert not run.counts
    assert run.rows > 4_000


def test_a_seed_is_a_case():
    for number in range(5):
        a, b = (np.random.default_rng([3, number]) for _ in range(2))
        case, again = draw_case(a), draw_case(b)
        assert repr(case.cal) == repr(again.cal)
        np.testing.assert_array_equal(case.x, again.x)
        converges(case)
        drawn = (list(draw_batches(rng, case)) for rng in (a, b))
        for one, two in zip(*drawn, strict=True):
            np.testing.assert_array_equal(one.rows, two.rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [2, 9])
def test_every_kind_of_row_has_an_available_class(kind, m):
    z = KINDS[kind](np.random.default_rng(0), 50, m)
    assert z.shape == (50, m)
    assert ((z > -np.inf) & (z < np.inf)).any(axis=1).all()


@pytest.mark.parametrize("top_k", [None, 1, 3])
def test_the_oracle_agrees_with_fifty_digits(top_k):
    cal = mc.MCCT(shrinkage=0, top_k=top_k).fit(*bent(6))
    z = mixed(np.random.default_rng(1), 60, 6)
    depth = z.max(axis=1, keepdims=True) - z
    z = z[(np.where(np.isinf(depth), 0, depth) < 1e5).all(axis=1)]
    exact = np.array([oracle.exact_row(row, cal.weights_, cal.biases_) for row in z])
    np.testing.assert_allclose(oracle.expected(cal, z, single=False).by_logit, exact, atol=1e-9)


class Broken:
    """A calibrator whose probabilities go through ``spoil``; `transform` and `predict` are right."""

    preserves_order = True

    def __init__(self, cal, spoil):
        self._cal, self._spoil = cal, spoil
        self.__class__ = type(type(cal).__name__, (Broken,), {})  # the oracle goes by the name

    def __getattr__(self, name):
        return getattr(self._cal, name)

    def predict_proba(self, X):
        return self._spoil(self._cal.predict_proba(X), X)


def swap_two(p, X):
    order = np.argsort(X, axis=1)
    rows = np.arange(len(p))
    p[rows, order[:, -1]], p[rows, order[:, -2]] = p[rows, order[:, -2]], p[rows, order[:, -1]].copy()
    return p


def split_a_tie(p, X):
    tied = np.flatnonzero((X.max(axis=1, keepdims=True) == X).sum(axis=1) > 1)[0]
    p[tied, X[tied].argmax()] += 1e-15
    return p


def neighbours_matter(p, X):
    return p if len(p) == 1 else np.roll(p, 1, axis=0)


@pytest.mark.parametrize(
    ("promise", "spoil"),
    [
        ("order", swap_two),
        ("argmax", swap_two),
        ("ties", split_a_tie),
        ("finite", lambda p, X: np.where(np.arange(len(p))[:, None] == 3, np.nan, p)),
        ("masked", lambda p, X: np.where(np.isinf(X), 1e-300, p)),
        ("rows sum to 1", lambda p, X: p * (1 + 1e-13)),
        ("value", lambda p, X: p**1.0001),
        ("softmax of transform", lambda p, X: p**1.0001),
        ("a row alone", neighbours_matter),
        ("renamed classes", lambda p, X: p + 1e-9 * np.arange(p.shape[1])),
        ("shift", lambda p, X: p + 1e-9 * X[:, :1].clip(-1, 1)),
        ("no exception", lambda p, X: p @ p),
    ],
)
def test_every_check_can_fail(promise, spoil):
    fitted = mc.MCCT(shrinkage=0).fit(*bent(6))
    rows = np.round(hard_rows(6)[:40] * 2) / 2
    rows[5:9, 2] = -np.inf
    rows[:3] = rows[:3, :1]
    rng = np.random.default_rng(0)
    assert failures(fitted, Batch(rows), rng)[0] == []
    result, _ = failures(Broken(fitted, spoil), Batch(rows), rng)
    assert promise in {failure.promise for failure in result}
