"""Rows larger than memory: the same fit, bit for bit, from files and blocks; bounded memory; errors that name the row."""

import itertools
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import monocal as mc
from monocal.calibrators import calibrated_rows, conditional
from monocal.calibrators.adjustment import fit_second_stage
from monocal.data import synthetic
from monocal.inputs import files

CALIBRATORS = [
    mc.MCCT(top_k=5),
    mc.MCCTInverse(shrinkage=0.0),
    mc.TemperatureScaling(),
    mc.ConditionalMCCT(),
]


@pytest.fixture(autouse=True)
def stream_everything(monkeypatch):
    monkeypatch.setattr(files, "IN_MEMORY", 0)
    monkeypatch.setattr(files, "_READ", 50_000)


@pytest.fixture(scope="module")
def rows():
    data = synthetic(9000, 20, seed=3)
    return data.values.astype(np.float32), data.labels


def in_file(array, path):
    out = np.memmap(path, dtype=array.dtype, mode="w+", shape=array.shape)
    out[:] = array
    out.flush()
    return np.memmap(path, dtype=array.dtype, mode="r", shape=array.shape)


def same_fit(a, b):
    np.testing.assert_array_equal(a.solution_.coefficients, b.solution_.coefficients)
    assert a.solution_.kkt == b.solution_.kkt
    assert a.solution_.objective == b.solution_.objective


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_memory_map_gives_the_fit_in_memory(calibrator, rows, tmp_path):
    X, y = rows
    expected = type(calibrator)(**calibrator.get_params()).fit(X, y)
    file = in_file(X, tmp_path / "x.bin")
    calibrator.fit(file, in_file(y, tmp_path / "y.bin"))
    same_fit(calibrator, expected)
    assert calibrator.n_features_in_ == 20
    out = np.memmap(tmp_path / "p.bin", dtype=np.float32, mode="w+", shape=X.shape)
    assert calibrator.predict_proba(file, out=out) is out
    np.testing.assert_array_equal(out, expected.predict_proba(X))
    np.testing.assert_array_equal(calibrator.predict_proba(file), out)
    np.testing.assert_array_equal(calibrator.transform(file), expected.transform(X))
    np.testing.assert_array_equal(calibrator.predict(file), expected.predict(X))


def test_a_result_may_be_written_to_zarr(rows, tmp_path):
    zarr = pytest.importorskip("zarr")
    X, y = rows
    expected = mc.MCCT().fit(X, y)
    z = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(700, 10), dtype="f4")
    z[:] = X
    labels = zarr.create_array(tmp_path / "y.zarr", shape=y.shape, chunks=(500,), dtype="i8")
    labels[:] = y
    cal = mc.MCCT().fit(z, labels)
    same_fit(cal, expected)
    out = zarr.create_array(tmp_path / "p.zarr", shape=X.shape, chunks=(700, 20), dtype="f4")
    assert cal.predict_proba(z, out=out) is out
    np.testing.assert_array_equal(out[:], expected.predict_proba(X))


@pytest.mark.parametrize("form", ["function", "list", "list of lists", "torch"])
def test_blocks_of_any_size(form, rows):
    X, y = rows
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    cuts = [0, 1, 17, 4000, 4001, 8000, 9000]
    if form == "torch":
        torch = pytest.importorskip("torch")
        blocks = [
            (torch.from_numpy(X[a:b]), torch.from_numpy(y[a:b]), weight[a:b])
            for a, b in itertools.pairwise(cuts)
        ]
    else:
        kind = list if form == "list of lists" else tuple
        blocks = [kind((X[a:b], y[a:b], weight[a:b])) for a, b in itertools.pairwise(cuts)]
    cal = mc.MCCT().fit(blocks if form.startswith("list") else lambda: iter(blocks))
    same_fit(cal, mc.MCCT().fit(X, y, weight))
    got = list(cal.predict_blocks(iter(blocks)))
    assert [len(p) for p in got] == [len(b[0]) for b in blocks]
    rounding = 1e-5 if form == "torch" else 0.0
    np.testing.assert_allclose(
        np.concatenate([np.asarray(p) for p in got]), cal.predict_proba(X), rtol=rounding
    )


@pytest.mark.parametrize("form", ["F", "half", "integers", "reversed", "masked", "private"])
def test_any_layout_and_type_of_a_file(form, rows, tmp_path):
    X, y = rows[0][:3000].copy(), rows[1][:3000]
    X = X.astype(np.float16) if form == "half" else (10 * X).astype(np.int8) if form == "integers" else X
    if form == "masked":
        X[(np.random.default_rng(0).random(X.shape) < 0.2) & (np.arange(20) != y[:, None])] = -np.inf
    np.save(tmp_path / "x.npy", np.asfortranarray(X) if form == "F" else X)
    file = np.load(tmp_path / "x.npy", mmap_mode="c" if form == "private" else "r")
    if form == "reversed":
        file, X = file[:, ::-1], X[:, ::-1].copy()
    elif form == "private":
        file[5, 5] = X[5, 5] = 9.0  # in memory only, and must not be forgotten
    cal, expected = mc.MCCT(top_k=7).fit(file, y), mc.MCCT(top_k=7).fit(X, y)
    same_fit(cal, expected)
    got = cal.predict_proba(file)
    np.testing.assert_array_equal(got, expected.predict_proba(X))
    assert got.dtype == expected.predict_proba(X).dtype
    np.testing.assert_array_equal(np.concatenate(list(cal.predict_blocks(file))), got)


def test_probabilities_with_zeros(rows, tmp_path):
    X, y = rows
    p = mc.TemperatureScaling().fit(X, y).predict_proba(X)[:4500].copy()
    p[7], p[4000] = np.eye(20)[3], np.eye(20)[0]
    p[4000, 1] = 1e-30
    expected = mc.MCCT(input="probabilities").fit(p, y[:4500])
    cal = mc.MCCT(input="probabilities").fit(in_file(p, tmp_path / "p.bin"), y[:4500])
    assert cal.smallest_probability_ == expected.smallest_probability_ == np.float32(1e-30)
    same_fit(cal, expected)


def test_errors_name_the_row_of_the_file(rows, tmp_path):
    X, y = rows[0].copy(), rows[1].copy()
    cal = mc.MCCT().fit(X, y)
    X[6000, 3] = np.nan
    file = in_file(X, tmp_path / "x.bin")
    with pytest.raises(mc.InputError, match="NaN: first in row 6000"):
        mc.MCCT().fit(file, y)
    with pytest.raises(mc.InputError, match="NaN: first in row 6000"):
        cal.predict_proba(file)
    good = in_file(rows[0], tmp_path / "good.bin")
    y[7000] = 20
    with pytest.raises(mc.InputError, match="label 20 in row 7000"):
        mc.MCCT().fit(good, y)
    with pytest.raises(mc.InputError, match="8999 entries and X has 9000 rows"):
        mc.MCCT().fit(good, rows[1][1:])
    with pytest.raises(mc.InputError, match="y is None"):
        mc.MCCT().fit(good)
    weight = np.ones(9000)
    weight[8000] = -1
    with pytest.raises(mc.InputError, match="entry 8000 is negative"):
        mc.MCCT().fit(good, rows[1], weight)
    with pytest.raises(mc.InputError, match="all weights are zero"):
        mc.MCCT().fit(good, rows[1], 0 * weight)
    with pytest.raises(mc.InputError, match=r"out must be an array of shape \(9000, 20\)"):
        cal.predict_proba(good, out=np.empty((9000, 19)))


def test_logits_in_an_impossible_unit_are_refused_as_in_memory(rows, tmp_path):
    X, y = rows[0] * 1e7, rows[1]
    cuts = [0, 1, 3, 9000]
    for arguments in (
        (in_file(X, tmp_path / "x.bin"), y),
        (lambda: ((X[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)),),
    ):
        with pytest.raises(mc.InputError, match="Divide all by a constant"):
            mc.MCCT().fit(*arguments)


def test_blocks_without_rows_are_passed_over(rows):
    z, y = rows
    blocks = [(z[:100], y[:100]), (z[:0], y[:0]), (z[100:], y[100:])]
    cal = mc.MCCT().fit(lambda: iter(blocks))
    same_fit(cal, mc.MCCT().fit(z, y))
    parts = list(cal.predict_blocks(blocks))
    assert [len(p) for p in parts] == [100, 0, len(z) - 100]
    np.testing.assert_array_equal(np.concatenate(parts), cal.predict_proba(z))
    bad = z.copy()
    bad[250, 1] = np.nan
    with pytest.raises(mc.InputError, match="row 250"):
        list(cal.predict_blocks(bad[i : i + 100] for i in range(0, len(bad), 100)))


X, Y = np.arange(1000.0).reshape(50, 20) % 7, np.arange(50) % 20
BLOCK = (X, Y)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda cal: cal.fit(b for b in [BLOCK]), "can be read only once"),
        (lambda cal: cal.fit(lambda: []), "no block to read"),
        (lambda cal: cal.fit(lambda: [BLOCK, (X[:5, :19], Y[:5])]), "begins at row 50 has 19 columns"),
        (lambda cal: cal.fit(lambda: [BLOCK, X]), "block 1 must be a tuple"),
        (lambda cal: cal.fit(lambda: [[[0.0, 1.0], [2.0, 0.0]]]), "block 0 must be a tuple"),  # no labels
        (lambda cal: cal.fit(lambda: [BLOCK], Y), "labels, weights and context come with its blocks"),
        (lambda cal: mc.VectorScaling().fit(lambda: [BLOCK]), "needs all rows in memory"),
        (lambda cal: mc.TemperatureScaling(loss="mse").fit(lambda: [BLOCK]), "in memory.*with loss='nll'"),
        (lambda cal: cal.fit(X, Y).predict_proba(lambda: [X]), "Use predict_blocks"),
        (lambda cal: cal.set_params(shrinkage="cv").fit(lambda: [BLOCK]), "'cv' needs all rows in memory"),
        (lambda cal: cal.fit(X, Y).predict_blocks(X), "but is one array"),
        (lambda cal: cal.fit(X, Y).predict_blocks(5), "blocks must be an iterable"),
        (lambda cal: cal.fit(X, Y).predict_proba(X, out=np.zeros(X.shape, dtype=int)), "floating-point"),
        (lambda cal: cal.fit(X, Y).predict_proba(X, out=np.broadcast_to(0.0, X.shape)), "read-only"),
    ],
)
def test_what_cannot_be_done_with_blocks_says_why(use, message):
    with pytest.raises(mc.InputError, match=message):
        use(mc.MCCT())


def test_passes_that_differ_are_refused(rows):
    block = (rows[0][:50], rows[1][:50])
    passes = iter([[block] * 100, [block] * 99])
    with pytest.raises(mc.InputError, match="gave 5000 rows and another gave 4950"):
        mc.MCCT().fit(lambda: next(passes))


def test_memory_stays_bounded(tmp_path):
    """A file of 160 MB is fitted and calibrated in a fraction of that, without what the imports take."""
    code = textwrap.dedent(
        """
        import resource, sys
        import numpy as np
        import monocal as mc

        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux

        n, m = 40_000, 1000
        rng = np.random.default_rng(0)
        mc.TemperatureScaling().fit(rng.standard_normal((50, 10)), np.arange(50) % 10)
        with open(sys.argv[1], "wb") as file:
            for _ in range(100):
                file.write((3 * rng.standard_normal((n // 100, m), dtype=np.float32)).tobytes())
        before = peak()
        X = np.memmap(sys.argv[1], dtype=np.float32, mode="r", shape=(n, m))
        cal = mc.TemperatureScaling(tol=1e-4).fit(X, np.arange(n) % m)
        out = np.memmap(sys.argv[1] + ".out", dtype=np.float32, mode="w+", shape=(n, m))
        cal.predict_proba(X, out=out)
        print((peak() - before) / X.nbytes)
        """
    )
    command = [sys.executable, "-c", code, str(tmp_path / "x.bin")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(result.stdout) < 0.75, result.stdout


@pytest.mark.parametrize("calibrator", [mc.TemperatureScaling(), mc.MCCT(), mc.ConditionalMCCT()], ids=repr)
def test_a_fit_says_how_often_it_read_the_blocks(calibrator, rows):
    X, y = rows
    calls = 0

    def blocks():
        nonlocal calls
        calls += 1
        yield from ((X[i : i + 500], y[i : i + 500]) for i in range(0, len(X), 500))

    assert calibrator.fit(blocks).passes_ == calls
    assert 2 < calls <= 25
    assert calibrator.fit(X, y).passes_ == 1


def test_the_second_stage_keeps_a_bounded_number_of_rows(rows, monkeypatch):
    X, y = rows
    kept = []

    def noted(calibrated, *args, **kwargs):
        kept.append(len(calibrated.weight))
        return fit_second_stage(calibrated, *args, **kwargs)

    monkeypatch.setattr(conditional, "fit_second_stage", noted)
    monkeypatch.setattr(calibrated_rows, "_MOST_ROWS", 2000)
    in_memory = mc.ConditionalMCCT().fit(X, y)
    for size in (300, 1000):
        cal = mc.ConditionalMCCT().fit(
            lambda size=size: ((X[i : i + size], y[i : i + size]) for i in range(0, len(X), size))
        )
        same_fit(cal, in_memory)
        np.testing.assert_array_equal(cal.adjustment_.steps, in_memory.adjustment_.steps)
    assert 1000 < min(kept) <= max(kept) <= 2000
