"""Half precision, results in another type than the rows, numbers that no type holds: `argmax` is kept, or rows are refused."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import monocal as mc
from every_form import (
    METHODS,
    M,
    assert_near,
    assert_sound,
    calibration_rows,
    double,
    fitted,
    in_batch_and_alone,
    in_form,
)
from hostile import assert_order_kept
from monocal.arrays import ordered_exp

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [np.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("make", [mc.MCCT, mc.ConditionalMCCT])
def test_real_logits_in_half_precision_half_of_the_rows_masked(make, dtype, shared_logits):
    data = shared_logits("netcal_cifar100_densenet-bc-100")
    cal = make().fit(data.logits_val[:1000], data.y_val[:1000])
    rng = np.random.default_rng(0)
    z = data.logits_val[2000:2640].astype(np.float64)
    hidden = rng.random(z.shape) < rng.choice([0.0, 0.3, 0.9], size=(len(z), 1), p=[0.5, 0.3, 0.2])
    hidden[np.arange(len(z)), z.argmax(axis=1)] = False
    rows = in_form(np.where(hidden, -np.inf, z), dtype)
    batches = np.concatenate([double(cal.predict_proba(rows[i : i + 32])) for i in range(0, len(z), 32)])
    assert_sound(rows, batches, "predict_proba")
    some = rows[:60]
    np.testing.assert_array_equal(in_batch_and_alone(cal.predict_proba, some)[1], batches[:60])


@pytest.mark.parametrize(("name", "m"), [("MCCT", 1000), ("MCCT, top 5", 5000), ("PTS", 1000)])
def test_many_classes_in_float16(name, m):
    z, y = calibration_rows(m, n=150)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("centre", [-1e-3, -0.5, -3.3, -40.0, -95.0])
def test_exp_is_monotone_in_the_last_bit(dtype, centre):
    start = torch.tensor(centre, dtype=dtype)
    unit = torch.nextafter(start.abs(), start.abs() + 1) - start.abs()
    x = (torch.cumsum(unit.repeat(200_000), dim=0) + start).clamp(max=0)
    assert (torch.diff(ordered_exp(x.sort().values)) >= 0).all()


@pytest.mark.parametrize("kind", ["array", "memory map", "dask", "tensor"])
@pytest.mark.parametrize("method", ["predict_proba", "transform"])
def test_argmax_is_kept_in_the_type_of_out(kind, method, tmp_path, monkeypatch):
    from monocal.inputs import files

    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(500, M)) * 1e-3).astype(np.float32)
    out = np.full(rows.shape, np.nan, dtype=np.float16)
    X = rows
    if kind == "memory map":
        monkeypatch.setattr(files, "IN_MEMORY", 0)
        np.save(tmp_path / "rows.npy", rows)
        X = np.load(tmp_path / "rows.npy", mmap_mode="r")
    elif kind == "dask":
        X = pytest.importorskip("dask.array").from_array(rows, chunks=(100, M))
    elif kind == "tensor":
        X = torch.as_tensor(rows)
    cal = fitted("MCCT")
    assert getattr(cal, method)(X, out=out) is out
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
        (np.array([[1 + Decimal(j) / 10**20 for j in range(M)]]), "a Decimal may be more precise"),
        (np.array([[1 + Fraction(j, 10**20) for j in range(M)]]), "a Fraction may be more precise"),
    ],
    ids=["int64", "torch int64", "object", "uint64", "longdouble", "decimal", "fraction"],
)
def test_numbers_that_double_precision_cannot_hold_are_refused(rows, words):
    if getattr(rows, "dtype", None) == np.float64:
        pytest.skip("long double is double precision here")
    with pytest.raises(mc.InputError, match=words):
        fitted("MCCT").predict_proba(rows)
    large = np.array([[1e300] * (M - 1) + [1e301]], dtype=object)
    assert fitted("MCCT").predict(large)[0] == M - 1
    assert fitted("MCCT").predict(np.arange(M)[None] + 2**52)[0] == M - 1
