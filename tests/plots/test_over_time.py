"""The picture over time shows what the monitor saw."""

from __future__ import annotations

import numpy as np
import pytest

import monocal as mc


def test_panels_show_the_windows(tmp_path):
    data = mc.data.synthetic(5000, 4, seed=1)
    cal = mc.MCCT().fit(data.values[:2000], data.labels[:2000])
    late = [(data.values[2000:], data.labels[2000:]), (3 * data.values[2000:], data.labels[2000:])]
    monitor = mc.monitor(late, calibrator=cal)
    display = mc.MonitorDisplay(monitor).plot()
    assert len(display.ax_) == 3
    (line,) = [line for line in display.ax_[2].lines if len(line.get_xdata()) == len(monitor.windows)]
    np.testing.assert_allclose(line.get_ydata(), [w.evidence for w in monitor.windows])
    dashed = [line for line in display.ax_[0].lines if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in dashed] == [alarm.row for alarm in monitor.alarms]
    display.figure_.savefig(tmp_path / "over-time.png")
    with pytest.raises(mc.InputError, match="no window"):
        mc.MonitorDisplay(mc.Monitor())


def test_a_stream_without_labels_is_drawn():
    probs = np.full((1200, 3), 1 / 3)
    display = mc.MonitorDisplay(mc.Monitor().update(probs)).plot()
    assert len(display.ax_) == 3
