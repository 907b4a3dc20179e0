"""Rows of every kind side by side in one batch: each is answered as if it were alone, in order, finite.

Every method of the registry (and some variants) x every form of array x every export. A new method joins through the registry,
a form or an export by a line in its list, a kind of row by a line in `hostile.ROW_KINDS`.
"""

import warnings
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

import monocal as mc
from hostile import assert_order_kept, mixed_rows
from monocal.calibration.cone import ConeCalibrator
from monocal.calibration.ramps import Ramp
from monocal.calibration.statistics import STATISTICS
from monocal.errors import OrderWarning
from monocal.kernel import compiled

torch = pytest.importorskip("torch")

M = 20
ALL_STATISTICS = tuple(STATISTICS)

METHODS = {info.name: info.make for info in mc.calibrators()} | {
    "MCCT, many jumps": lambda: mc.MCCT(shrinkage=0),
    "MCCT, top 5": lambda: mc.MCCT(shrinkage=0, top_k=5),
    "conditional, all statistics": lambda: mc.ConditionalMCCT(shrinkage=0.1, statistics=ALL_STATISTICS),
    "conditional, top 5": lambda: mc.ConditionalMCCT(shrinkage=0.1, statistics=ALL_STATISTICS, top_k=5),
    "conditional, top 1": lambda: mc.ConditionalMCCT(shrinkage=0.1, top_k=1),
    "conditional, by class": lambda: mc.ConditionalMCCT(shrinkage=0.1, by_class=True),
    "conditional, not by class": lambda: mc.ConditionalMCCT(shrinkage=0.1, by_class=False),
}
# The rounding of a matrix product depends on how many rows it is given; all else is the same to the last bit.
MATRIX_PRODUCTS = {"MS", "MS published", "Dirichlet", "PTS", "PTS published", "OI", "OP", "SMS", "Stacked"}

# Forms of array: the type, and whether it goes through the compiled loops.
FORMS: dict[str, tuple[Any, bool]] = {
    "numpy float64": (np.float64, False),
    "numpy float32": (np.float32, False),
    "numpy float16": (np.float16, False),
    "compiled float32": (np.float32, True),
    "torch float64": (torch.float64, False),
    "torch float32": (torch.float32, False),
    "torch float16": (torch.float16, False),
    "torch bfloat16": (torch.bfloat16, False),
}


@dataclass
class Export:
    """A calibrator somewhere else: ``make(cal, method)`` gives a function of rows of the type."""

    make: Any
    dtype: Any


def as_module(cal, method):
    module = cal.to_torch(dtype=torch.float64)
    return module if method == "predict_proba" else module.transform


def as_single_module(cal, method):
    module = cal.to_torch()
    return module if method == "predict_proba" else module.transform


def as_graph(dtype):
    def make(cal, method):
        ort = pytest.importorskip("onnxruntime")
        output = "probabilities" if method == "predict_proba" else "logits"
        model = cal.to_onnx(dtype=dtype, output=output)
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda rows: session.run(None, {name: rows})[0]

    return make


EXPORTS = {
    "torch module float64": Export(as_module, torch.float64),
    "torch module float32": Export(as_single_module, torch.float32),
    "torch module float16": Export(as_single_module, torch.float16),
    "torch module bfloat16": Export(as_single_module, torch.bfloat16),
    "onnx float32": Export(as_graph("float32"), np.float32),
    "onnx float64": Export(as_graph("float64"), np.float64),
}


def calibration_rows(m, n=500, seed=0):
    """Logits and labels that want a map with many jumps, far from temperature scaling."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 3
    return z, np.argsort(-z, axis=1)[np.arange(n), np.minimum(rng.geometric(0.35, n), m) - 1]


@cache
def fitted(name, m=M):
    cal = METHODS[name]()
    if "max_epochs" in cal.get_params():
        cal.set_params(max_epochs=10, validation=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cal.fit(*calibration_rows(m))


def with_names(cal, names):
    """The same calibrator for renamed classes: what it knows of classes is renamed with them."""
    stage = getattr(cal, "adjustment_", None)
    if stage is None or stage.class_scales is None:
        return cal
    other = copy(cal)
    scales = replace(stage.class_scales, scales=stage.class_scales.scales[names])
    other.adjustment_ = replace(stage, class_scales=scales)
    return other


def in_form(rows, dtype):
    """Rows in a type of numpy or torch, cut to its range."""
    limits = torch.finfo(dtype) if isinstance(dtype, torch.dtype) else np.finfo(dtype)
    rows = np.where(np.isinf(rows), rows, np.clip(rows, float(limits.min), float(limits.max)))
    return torch.as_tensor(rows).to(dtype) if isinstance(dtype, torch.dtype) else rows.astype(dtype)


def double(values):
    return (
        values.double().numpy() if isinstance(values, torch.Tensor) else np.asarray(values, dtype=np.float64)
    )


def epsilon(values):
    return float((torch if isinstance(values, torch.Tensor) else np).finfo(values.dtype).eps)


def in_batch_and_alone(function, rows):
    """Results of all rows at once and of each by itself, in double precision."""
    return double(function(rows)), np.concatenate(
        [double(function(rows[i : i + 1])) for i in range(len(rows))]
    )


def assert_sound(rows, result, method, keeps_order=True):
    """Order and ties kept; nothing given to masked classes; finite, and probabilities sum to one."""
    before = double(rows)
    masked = np.isinf(before)
    assert (result[masked] == (0.0 if method == "predict_proba" else -np.inf)).all()
    assert np.isfinite(result[~masked]).all()
    if method == "predict_proba":
        np.testing.assert_allclose(result.sum(axis=1), 1.0, atol=16 * epsilon(rows))
    if keeps_order:
        assert_order_kept(before, result)


def assert_near(got, expected, tolerance):
    """Equal up to a part of the largest number of the row, and of 1."""
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    got, expected = (np.where(np.isinf(x), 0.0, x) for x in (got, expected))
    unit = np.maximum(np.abs(expected).max(axis=1, keepdims=True), 1.0)
    np.testing.assert_allclose(got / unit, expected / unit, rtol=0, atol=tolerance)


def sane(rows):
    """Rows whose logits mean something."""
    return np.abs(np.where(np.isinf(double(rows)), 0, double(rows))).max(axis=1) < 100


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", METHODS)
def test_each_row_alone_equals_the_row_in_the_batch(name, form, monkeypatch):
    dtype, loops = FORMS[form]
    if loops:
        pytest.importorskip("numba")
        monkeypatch.setattr(compiled, "LARGE", 1)
    cal = fitted(name)
    rows = in_form(mixed_rows(M, seed=len(name), each=1), dtype)
    for method in ("predict_proba", "transform"):
        batch, alone = in_batch_and_alone(getattr(cal, method), rows)
        if name not in MATRIX_PRODUCTS:
            np.testing.assert_array_equal(batch, alone)
        else:
            assert_near(batch[sane(rows)], alone[sane(rows)], 4 * max(epsilon(rows), 1e-6))
        for result in (batch, alone):
            assert_sound(rows, result, method, cal.preserves_order)
        if cal.preserves_top1:
            np.testing.assert_array_equal(batch.argmax(axis=1), double(rows).argmax(axis=1))


# Arrays of several axes: where the classes are, and the shape of all.
LAYOUTS = {"tokens": (-1, (-1, 2)), "pixels": (1, (1, 2, -1))}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", METHODS)
def test_a_place_alone_equals_the_place_among_others(name, dtype, layout):
    """A pixel of an image and a token of a sequence are answered as the row they are: order, ties and all."""
    axis, lead = LAYOUTS[layout]
    cal = copy(fitted(name)).set_params(class_axis=axis)
    rows = mixed_rows(M, seed=len(name), each=1)
    rows = in_form(rows[: len(rows) // 2 * 2], dtype)
    places = rows.reshape(*lead, M)
    places = places if axis == -1 else (torch if torch.is_tensor(rows) else np).moveaxis(places, -1, axis)
    for method in ("predict_proba", "transform"):
        found = getattr(cal, method)(places)
        assert found.shape == places.shape
        found = np.moveaxis(double(found), axis, -1).reshape(-1, M)
        alone = [double(getattr(fitted(name), method)(rows[i : i + 1])) for i in range(len(rows))]
        if name not in MATRIX_PRODUCTS:
            np.testing.assert_array_equal(found, np.concatenate(alone))
        assert_sound(rows, found, method, cal.preserves_order)


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize(
    "name", [name for name, make in METHODS.items() if isinstance(make(), ConeCalibrator)]
)
def test_each_row_alone_equals_the_row_in_the_batch_of_an_export(name, export):
    cal = fitted(name)
    make, dtype = EXPORTS[export].make, EXPORTS[export].dtype
    rows = in_form(mixed_rows(M, seed=len(name), each=1), dtype)
    for method in ("predict_proba", "transform"):
        batch, alone = in_batch_and_alone(make(cal, method), rows)
        rounding = 1e-12 if epsilon(rows) < 1e-12 else 2e-6  # a runtime may take matrix products
        np.testing.assert_allclose(batch, alone, rtol=rounding, atol=rounding)
        for result in (batch, alone):
            assert_sound(rows, result, method)
        own = double(getattr(cal, method)(rows))
        narrow = epsilon(rows) if epsilon(rows) > 1e-6 else 0.0
        assert_near(batch[sane(rows)], own[sane(rows)], max(rounding, narrow))


@pytest.mark.parametrize("name", ["MCCT, many jumps", "conditional, all statistics", "conditional, top 5"])
@pytest.mark.parametrize("form", FORMS)
def test_neighbours_do_not_matter(name, form, monkeypatch):
    """Any two rows together, and all kinds at once in another order."""
    dtype, loops = FORMS[form]
    if loops:
        pytest.importorskip("numba")
        monkeypatch.setattr(compiled, "LARGE", 1)
    function = fitted(name).predict_proba
    rows = in_form(mixed_rows(M, seed=5, each=2), dtype)
    alone = in_batch_and_alone(function, rows)[1]
    rng = np.random.default_rng(0)
    for size in (2, 2, 2, 2, 3, 3, 5, 8, len(rows)):
        some = rng.permutation(len(rows))[:size]
        np.testing.assert_array_equal(double(function(rows[some])), alone[some])


def test_a_tie_and_a_mask_that_cancel():
    """One class too many above a jump in one row, one too few in another: rows between them are not reshaped."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3000, 100)) * 3
    y = np.argsort(-z, axis=1)[np.arange(3000), np.minimum(rng.geometric(0.35, 3000), 100) - 1]
    cal = mc.MCCT().fit(z, y)
    start = cal.rank_map_.starts[1]
    rows = np.sort(rng.normal(size=(3, 100)) * 3, axis=1)
    rows[0, start - 1] = rows[0, start]
    rows[2, : start + 1] = -np.inf
    rows[1] = np.roll(rows[1], 10)
    batch, alone = in_batch_and_alone(cal.predict_proba, rows)
    np.testing.assert_array_equal(batch, alone)
    assert_order_kept(rows, batch)


@pytest.mark.parametrize("dtype", [np.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("make", [mc.MCCT, mc.ConditionalMCCT])
def test_real_logits_in_half_precision_half_of_the_rows_masked(make, dtype, shared_logits):
    data = shared_logits("netcal_cifar100_densenet-bc-100")
    cal = make().fit(data.logits_val[:2000], data.y_val[:2000])
    rng = np.random.default_rng(0)
    z = data.logits_val[2000:3600].astype(np.float64)
    hidden = rng.random(z.shape) < rng.choice([0.0, 0.3, 0.9], size=(len(z), 1), p=[0.5, 0.3, 0.2])
    hidden[np.arange(len(z)), z.argmax(axis=1)] = False
    rows = in_form(np.where(hidden, -np.inf, z), dtype)
    batches = np.concatenate([double(cal.predict_proba(rows[i : i + 32])) for i in range(0, len(z), 32)])
    assert_sound(rows, batches, "predict_proba")
    some = rng.permutation(len(z))[:200]
    alone = np.concatenate([double(cal.predict_proba(rows[i : i + 1])) for i in some])
    np.testing.assert_array_equal(batches[some], alone)


@pytest.mark.parametrize("form", [name for name in FORMS if "64" in name])
@pytest.mark.parametrize(
    "make", [mc.TemperatureScaling, mc.MCCT, lambda: mc.MCCT(top_k=5), mc.ConditionalMCCT]
)
def test_probabilities_are_the_softmax_of_the_calibrated_logits(make, form):
    """Also of a map that trusts nothing, under which a class a million below the top still counts."""
    z, _ = calibration_rows(M)
    cal = make().fit(z, np.random.default_rng(0).integers(0, M, len(z)))
    rows = in_form(mixed_rows(M, seed=2), FORMS[form][0])
    np.testing.assert_allclose(
        double(cal.predict_proba(rows)), softmax(double(cal.transform(rows)), axis=1), atol=1e-9
    )


# Statistics that say nothing.


def _counted(u):
    return (u[:, -1] > 5) * 1.0


STRANGE_STATISTICS = {
    "constant": lambda u: 0 * u[:, -1] + 3.0,
    "offset of 1e8": lambda u: 1e8 + u[:, -1] / 5,
    "offset of 1e12": lambda u: 1e12 + u[:, -1],
    "nearly constant": lambda u: 1.0 + 1e-9 * u[:, -1],
    "of two values": _counted,
    "of two values that are one in single precision": lambda u: 1.0 + 1e-9 * _counted(u),
    "tiny": lambda u: 1e-300 * u[:, -1].astype(np.float64),
    "subnormal in single precision": lambda u: 1e-42 * u[:, -1].astype(np.float64),
    "huge": lambda u: 1e29 * u[:, -1],
    "infinite": lambda u: np.where(u[:, -1] > 5, np.inf, -np.inf),
    "entropy of certain rows": "entropy",
}


@pytest.mark.parametrize("name", STRANGE_STATISTICS)
def test_how_wrong_a_statistic_is_cannot_matter(name):
    z, y = calibration_rows(M)
    z = z * 5
    cal = mc.ConditionalMCCT(shrinkage=0.1, statistics=(STRANGE_STATISTICS[name], "margin")).fit(z, y)
    for dtype in (np.float64, np.float32, np.float16):
        for batch in (mixed_rows(M, seed=3), z):
            rows = in_form(batch, dtype)
            for method in ("predict_proba", "transform"):
                assert_sound(rows, double(getattr(cal, method)(rows)), method)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_standardised_logits(dtype, shared_logits):
    """Their spread is 1, give or take a rounding error, and that is no reason to tell rows apart."""
    data = shared_logits("netcal_cifar100_densenet-bc-100")
    z = data.logits_val.astype(np.float64)
    z = ((z - z.mean(axis=1, keepdims=True)) / z.std(axis=1, keepdims=True)).astype(dtype)
    cal = mc.ConditionalMCCT().fit(z[:3000], data.y_val[:3000])
    rows = z[3000:4000]
    p = cal.predict_proba(rows)
    assert_sound(rows, double(p), "predict_proba")
    if dtype != np.float16:
        assert not any(cal.factors_.statistics[ramp.statistic] == "spread" for ramp in cal.factors_.ramps)
    single = rows.astype(np.float32)
    expected = cal.predict_proba(single.astype(np.float64))
    for other in (cal.predict_proba, as_graph("float32")(cal, "predict_proba")):
        np.testing.assert_allclose(other(single), expected, atol=1e-5)
    np.testing.assert_allclose(cal.to_torch()(torch.as_tensor(single)), expected, atol=1e-5)


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("apart", [0.0, 1e-12, 1e-300, -1e-12])
def test_a_ramp_between_ends_that_are_one_number_is_a_step(apart, export):
    """As a file of an older version may hold it."""
    cal = mc.ConditionalMCCT(shrinkage=0.1, statistics=("spread",)).fit(*calibration_rows(M))
    factors = cal.rank_map_.factors
    steps = tuple(replace(ramp, one=ramp.zero + apart) for ramp in factors.ramps)
    zero = Ramp(0, 0.0, 0.0 + apart)  # where a constant row lies exactly
    cal.rank_map_ = replace(cal.rank_map_, factors=replace(factors, ramps=(zero, *steps[1:])))
    make, dtype = EXPORTS[export].make, EXPORTS[export].dtype
    rows = in_form(mixed_rows(M, seed=7), dtype)
    for method in ("predict_proba", "transform"):
        for function in (getattr(cal, method), make(cal, method)):
            batch, alone = in_batch_and_alone(function, rows)
            np.testing.assert_allclose(batch, alone, rtol=2e-6, atol=2e-6)
            assert_sound(rows, batch, method)


# Half precision, and argmax in whatever type the result has.


@pytest.mark.parametrize("m", [1000, 5000])
@pytest.mark.parametrize("name", ["MCCT", "MCCT, top 5", "PTS"])
def test_many_classes_in_float16(name, m):
    z, y = calibration_rows(m, n=200)
    make = METHODS[name]
    cal = (make() if name != "PTS" else make().set_params(max_epochs=2)).fit(z.astype(np.float32), y)
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(60, m)) * 3).astype(np.float16)
    rows[20:40][rng.random((20, m)) < 0.99] = -np.inf
    rows[40:] = -np.inf
    rows[np.arange(20, 60), rng.integers(0, m, 40)] = 1.0
    for method in ("predict_proba", "transform"):
        got, wide = getattr(cal, method)(rows), getattr(cal, method)(rows.astype(np.float32))
        assert_sound(rows, double(got), method)
        assert_near(double(got), double(wide), np.finfo(np.float16).eps)


def test_the_audit_sorts_float16_as_it_should():
    rng = np.random.default_rng(0)
    before = rng.normal(size=(20, 1000))
    after = np.where(rng.random(before.shape) < 0.99, -np.inf, before[:, ::-1]).astype(np.float16)
    after[:, 3] = 0.0
    narrow, wide = (mc.order_audit(before, x, input="logits") for x in (after, after.astype(np.float64)))
    assert str(narrow) == str(wide)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("top_k", [None, 1, 5])
def test_a_negative_zero_is_no_less_than_zero(top_k, dtype):
    """Below the top k, calibrated logits may underflow to -0.0 where the top has 0.0."""
    z, y = calibration_rows(M)
    cal = mc.MCCT(top_k=top_k).fit(2 * z, y)
    assert cal.weights_[0] < 0.5
    least = torch.nextafter(torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype))
    rows = -least * (1 - torch.eye(M, dtype=dtype))
    module = cal.to_torch(dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    for method in (module, module.transform):
        result = double(method(rows))
        assert_order_kept(double(rows), result)
        np.testing.assert_array_equal(result.argmax(axis=1), np.arange(M))


@pytest.mark.parametrize("kind", ["array", "memory map", "dask", "tensor"])
@pytest.mark.parametrize("method", ["predict_proba", "transform"])
def test_argmax_is_kept_in_the_type_of_out(kind, method, tmp_path, monkeypatch):
    from monocal.rows import files

    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(500, M)) * 1e-3).astype(np.float32)
    out = np.full(rows.shape, np.nan, dtype=np.float16)
    given = rows
    if kind == "memory map":
        monkeypatch.setattr(files, "IN_MEMORY", 0)
        np.save(tmp_path / "rows.npy", rows)
        given = np.load(tmp_path / "rows.npy", mmap_mode="r")
    elif kind == "dask":
        given = pytest.importorskip("dask.array").from_array(rows, chunks=(100, M))
    elif kind == "tensor":
        given = torch.as_tensor(rows)
    cal = fitted("MCCT")
    assert getattr(cal, method)(given, out=out) is out
    np.testing.assert_array_equal(out.argmax(axis=1), rows.argmax(axis=1))
    assert_near(double(out), double(getattr(cal, method)(rows)), np.finfo(np.float16).eps)
    huge = np.array([np.arange(M) * 1e5], dtype=np.float32)
    assert np.isfinite(cal.transform(huge, out=out[:1])).all()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (2**60 + np.arange(M)[None], r"2\*\*53"),
        (torch.arange(M)[None] - 2**54, r"2\*\*53"),
        (np.array([[2**70 + i for i in range(M)]], dtype=object), r"2\*\*53"),
        (np.uint64(2**63) + np.arange(M, dtype=np.uint64)[None], r"2\*\*53"),
        (1 + np.finfo(np.longdouble).eps * np.arange(M, dtype=np.longdouble)[None], "astype"),
    ],
    ids=["int64", "torch int64", "object", "uint64", "longdouble"],
)
def test_numbers_that_double_precision_cannot_hold_are_refused(rows, words):
    if getattr(rows, "dtype", None) == np.float64:
        pytest.skip("long double is double precision here")
    with pytest.raises(mc.InputError, match=words):
        fitted("MCCT").predict_proba(rows)
    large = np.array([[1e300] * (M - 1) + [1e301]], dtype=object)
    assert fitted("MCCT").predict(large)[0] == M - 1
    assert fitted("MCCT").predict(np.arange(M)[None] + 2**52)[0] == M - 1


# What a shift and a renaming of the classes change.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["TS", "MCCT, many jumps", "conditional, all statistics", "conditional, top 5"]
)
def test_a_shift_that_is_exact_changes_nothing_at_all(name, form):
    dtype, _ = FORMS[form]
    rows = in_form(np.random.default_rng(0).integers(-40, 40, size=(200, M)) / 8.0, dtype)
    p = fitted(name).predict_proba(rows)
    for shift in (1.0, -11.0, 0.125):
        np.testing.assert_array_equal(double(fitted(name).predict_proba(rows + shift)), double(p))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["TS", "MCCT, many jumps", "conditional, all statistics", "conditional, top 5"]
)
def test_renaming_the_classes_renames_the_result_up_to_the_order_of_sums(name, form):
    dtype, _ = FORMS[form]
    rows = in_form(mixed_rows(M, seed=11, each=5), dtype)
    names = np.random.default_rng(0).permutation(M)
    rounding = 1e-14 if epsilon(rows) < 1e-12 else max(epsilon(rows), 2e-6)
    cal = fitted(name)
    p, renamed = (
        double(c.predict_proba(x)) for c, x in ((cal, rows), (with_names(cal, names), rows[:, names]))
    )
    np.testing.assert_allclose(renamed, p[:, names], rtol=rounding, atol=rounding)


@pytest.mark.parametrize("kind", ["mixed", "tied"])
@pytest.mark.parametrize("form", ["numpy float64", "numpy float32", "torch float64"])
@pytest.mark.parametrize(
    "name", ["TS", "MCCT, many jumps", "MCCT, top 5", "conditional, all statistics", "conditional, top 5"]
)
def test_rows_that_lie_in_memory_class_by_class(name, form, kind):
    """As decision functions of scikit-learn and transposed arrays do. All that differs is the order of sums."""
    dtype, _ = FORMS[form]
    tied = np.round(4 * np.random.default_rng(0).normal(size=(200, M)))
    rows = in_form(tied if kind == "tied" else mixed_rows(M, seed=13, each=5), dtype)
    other = rows.T.contiguous().T if isinstance(rows, torch.Tensor) else np.asfortranarray(rows)
    rounding = 1e-13 if epsilon(rows) < 1e-12 else 2e-6
    for method in ("predict_proba", "transform"):
        expected, result = (double(getattr(fitted(name), method)(x)) for x in (rows, other))
        assert_sound(rows, result, method)
        if method == "predict_proba":
            np.testing.assert_allclose(result, expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 33, 64, 65, 100, 301, 4096, 4097])
def test_sums_do_not_depend_on_the_number_of_rows(classes, dtype):
    """Rows of few, of more and of many classes are laid out and summed in different ways: each as if it were alone."""
    data = mc.data.synthetic(60, classes, seed=classes)
    z = data.values.astype(dtype)
    for cal in (mc.TemperatureScaling(), mc.MCCT(shrinkage=0.1), mc.ConditionalMCCT(shrinkage=0.1)):
        if classes > 1000:  # what is fitted matters less than what is summed
            cal.set_params(max_iter=2, tol=1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            cal.fit(data.values, data.labels)
        for method in (cal.predict_proba, cal.transform):
            batch, alone = in_batch_and_alone(method, z)
            np.testing.assert_array_equal(batch, alone)
            np.testing.assert_array_equal(double(method(z[7:27])), alone[7:27])


@pytest.mark.parametrize("classes", [20, 65, 5000])
@pytest.mark.parametrize("make", [mc.TemperatureScaling, mc.MCCT, mc.ConditionalMCCT])
def test_how_rows_lie_in_memory_changes_no_bit(make, classes):
    data = mc.data.synthetic(40, classes, seed=classes)
    cal = make().fit(data.values, data.labels)
    for dtype in (np.float32, np.float64):
        z = data.values.astype(dtype)
        for method in (cal.predict_proba, cal.transform):
            np.testing.assert_array_equal(method(np.asfortranarray(z)), method(z))
            t = torch.from_numpy(z)
            np.testing.assert_array_equal(method(t.T.contiguous().T), method(t))
