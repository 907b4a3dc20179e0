"""Every statistic is the same in numpy, in the torch module and in ONNX: one table, `STATISTICS`, times three."""

import numpy as np
import pytest
import torch
from exportable import hostile_rows

from monocal.core.ranked import LARGEST, rank_rows
from monocal.core.statistics import STATISTICS, Depths, compute
from monocal.export.torch import xp

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def by_torch(name, rows):
    """A statistic (n,) of rows in double precision, by torch."""
    x = torch.from_numpy(rows).sort(dim=1, descending=True).values.T
    masked = torch.isinf(x)
    depth = torch.where(masked, 0.0, (x[0] - x).clamp(max=LARGEST))
    return STATISTICS[name](Depths(depth, masked, xp)).numpy()


def by_onnx(name, rows):
    """The same by a graph that holds nothing but the statistic."""
    ndonnx = pytest.importorskip("ndonnx")
    from monocal.export.onnx_map import GRAPH

    z = ndonnx.argument(shape=("n", rows.shape[1]), dtype=ndonnx.float64)
    x = ndonnx.permute_dims(GRAPH.largest_of_rows(z, rows.shape[1])[0], (1, 0))
    masked = ndonnx.isinf(x)
    depth = GRAPH.where(masked, GRAPH.filled(x, 0.0), GRAPH.clip(x[0, ...] - x, max=LARGEST))
    model = ndonnx.build({"z": z}, {"q": STATISTICS[name](Depths(depth, masked, GRAPH))})
    return ort.InferenceSession(model.SerializeToString()).run(None, {"z": rows})[0]


@pytest.mark.parametrize("name", STATISTICS)
def test_the_three_forms_of_a_statistic_agree_on_hostile_rows(name):
    rows = hostile_rows().astype(np.float64)
    assert np.isinf(rows).any()  # masked classes
    assert (np.sort(rows, axis=1)[:, -1] == np.sort(rows, axis=1)[:, -2]).any()  # tied tops
    expected = compute([name], rank_rows(rows))[0]
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(compute([name], rank_rows(rows, 2))[0] == 0, expected == 0)
    for form in (by_torch, by_onnx):
        np.testing.assert_allclose(form(name, rows), expected, rtol=1e-12, atol=1e-15, err_msg=form.__name__)
