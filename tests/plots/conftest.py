"""What displays are tested with: a matplotlib that draws into no window and must be left as it was, and fitted calibrators."""

import pytest

import monocal as mc


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")  # of other tests in this process
    settings = dict(matplotlib.rcParams)
    yield plt
    assert dict(matplotlib.rcParams) == settings
    plt.close("all")


@pytest.fixture(scope="session")
def fitted():
    data = mc.data.synthetic(800, 25, seed=2)
    ts = mc.TemperatureScaling().fit(data.values, data.labels)
    return data, ts, mc.ConditionalMCCT(n_knots=3).fit(data.values, data.labels)
