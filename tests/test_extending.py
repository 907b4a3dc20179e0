"""What CONTRIBUTING promises: a statistic and an engine join by one entry in a table, a kind of input by one class.

A calibrator is one file.

Each test is what a contributor would write: the new part stands here, in one place, and the whole library works with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import monocal as mc
from monocal import engines
from monocal.core.statistics import STATISTICS
from monocal.data import synthetic
from monocal.engines.array import ArrayEngine
from monocal.inputs.files import BlockLogits


@pytest.fixture
def data():
    return synthetic(600, 6, seed=4)


def far_share(v):
    """A statistic: the mean depth of the classes in units of the largest, without the top."""
    return v.sum(v.depth) / (v.or_one(v.largest(v.depth)) * v.count)


def test_a_statistic_is_one_entry(data, monkeypatch, tmp_path):
    monkeypatch.setitem(STATISTICS, "far_share", far_share)
    z, y = data.values.astype(np.float64), data.labels
    z[::7, 2] = np.where(y[::7] == 2, z[::7, 2], -np.inf)
    cal = mc.ConditionalMCCT(statistics=("far_share", "margin"), shrinkage=0.01, n_knots=3).fit(z, y)
    assert any(cal.factors_.statistics[ramp.statistic] == "far_share" for ramp in cal.factors_.ramps)
    p = cal.predict_proba(z)
    assert (p.argmax(axis=1) == z.argmax(axis=1)).all()
    alone = mc.ConditionalMCCT(statistics=("margin",), shrinkage=0.01, n_knots=3).fit(z, y).predict_proba(z)
    assert np.abs(p - alone).max() > 1e-3  # it is in use
    cal.save(tmp_path / "cal.json")
    np.testing.assert_array_equal(mc.load(tmp_path / "cal.json").predict_proba(z), p)
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        in_torch = cal.to_torch(dtype=torch.float64)(torch.from_numpy(z)).numpy()
    np.testing.assert_allclose(in_torch, p, atol=1e-9)
    pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(cal.to_onnx(dtype="float64").SerializeToString())
    np.testing.assert_allclose(session.run(None, {"logits": z})[0], p, atol=1e-9)


class HalvingEngine(ArrayEngine):
    """An engine for arrays in double precision: the sums over a block are those of its two halves."""

    def __init__(self):
        self.calls = 0

    def takes(self, logits, dtype):
        return isinstance(logits, np.ndarray) and dtype == np.float64

    def sums(self, block, point, gradient=True):
        self.calls += 1
        half = len(block.weight) // 2
        first, second = (
            super(HalvingEngine, self).sums(block[rows], point, gradient)
            for rows in (slice(half), slice(half, None))
        )
        return first + second


def test_an_engine_is_one_entry(data, monkeypatch):
    z, y = data.values.astype(np.float64), data.labels
    expected = mc.MCCT().fit(z, y)
    engine = HalvingEngine()
    monkeypatch.setattr(engines, "ENGINES", [engine, *engines.ENGINES])
    result = mc.MCCT().fit(z, y)
    assert engine.calls > 0
    assert result.solution_.converged
    np.testing.assert_allclose(result.predict_proba(z), expected.predict_proba(z), atol=1e-6)


class Shards:
    """A kind of input: rows that lie in several files of numpy."""

    def __init__(self, *paths):
        self.paths = paths

    def as_source(self, y, sample_weight):
        return ShardLogits(self, y)


class ShardLogits(BlockLogits):
    """How it is read: for a fit one shard after another, as blocks are; a prediction is put together."""

    def __init__(self, X, y):
        self.shards = X
        ends = np.cumsum([0] + [len(np.load(path, mmap_mode="r")) for path in X.paths])
        cut = [slice(*pair) for pair in pairwise(ends)]
        super().__init__(
            lambda: ((np.load(path), y[rows]) for path, rows in zip(X.paths, cut, strict=True)), None, None
        )

    def apply(self, row_map, out):
        return np.concatenate([row_map.function(np.load(path), 0, None) for path in self.shards.paths])


def test_a_kind_of_input_is_one_class(data, tmp_path):
    z, y = data.values, data.labels
    for k, rows in enumerate((slice(0, 250), slice(250, None))):
        np.save(tmp_path / f"{k}.npy", z[rows])
    X = Shards(tmp_path / "0.npy", tmp_path / "1.npy")
    for method in (mc.TemperatureScaling, mc.MCCT, mc.ConditionalMCCT):
        result = method().fit(X, y)
        np.testing.assert_array_equal(result.predict_proba(X), method().fit(z, y).predict_proba(z))
    with pytest.raises(mc.InputError, match="in memory"):
        mc.HistogramBinning().fit(X, y)


def test_a_calibrator_is_one_file(data, tmp_path):
    """In a copy of the package: public name, list, command line, saved files and exports follow."""
    package = shutil.copytree(Path(mc.__file__).parent, tmp_path / "monocal")
    shutil.copy(Path(__file__).with_name("one_file_calibrator.py"), package / "calibrators")
    np.savez(tmp_path / "cal.npz", logits=data.values, labels=data.labels)

    def python(*arguments):
        command = [sys.executable, *arguments]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout

    python("-m", "monocal", "fit", "cal.npz", "-m", "divided", "--set", "divisor=4", "-o", "cal.json")
    use = "import monocal as mc; cal = mc.load('cal.json'); print(cal, 'Divided' in mc.__all__, "
    use += "[info.name for info in mc.all_calibrators() if info.cls is mc.Divided]); cal.to_torch()"
    pytest.importorskip("torch")
    assert python("-c", use).strip() == "Divided(divisor=4) True ['Divided']"
