"""Watching over time: few false alarms over a whole stream, alarms where something changed, and a state that continues."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import fisher_exact

import monocal as mc
from monocal.monitoring.betting import Bets, log_factors
from monocal.monitoring.frequencies import FrequencyWatch, exact_test
from monocal.monitoring.watch import off_in_words


def stream(
    seed: int, n: int, m: int = 5, power: float = 1.0, weights: object = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, honest with ``power=1`` and too sure above, and labels."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(m) / 2, size=n) * weights
    truth /= truth.sum(axis=1, keepdims=True)
    labels = (rng.random(n)[:, None] > truth.cumsum(axis=1)).sum(axis=1).clip(max=m - 1)
    claimed = truth**power
    return claimed / claimed.sum(axis=1, keepdims=True), labels


def kinds(monitor):
    return [alarm.kind for alarm in monitor.alarms]


def test_no_bet_expects_to_win_where_confidence_is_honest_within_the_tolerance():
    for c in (1e-9, 0.011, 0.2, 0.5, 0.93, 0.989, 0.995, 1 - 1e-9, 1.0):
        for tolerance in (0.0, 0.01, 0.1):
            won, lost = (
                np.exp(log_factors(np.array([c]), np.array([right]), tolerance)) for right in (True, False)
            )
            for p in np.clip(np.linspace(c - tolerance, c + tolerance, 9), 0.0, 1.0):
                assert (p * won + (1 - p) * lost <= 1 + 1e-9).all(), (c, tolerance, p)


@pytest.mark.parametrize("tolerance", [0.0, 0.02])
@pytest.mark.parametrize("side", [-1, 1])
def test_the_wealth_of_the_bet_does_not_grow_where_confidence_is_within_the_tolerance(tolerance, side):
    """At the edge of what is tolerated the mean wealth after 20 windows is no more than 1."""
    rng = np.random.default_rng(0)
    wealth = []
    for _ in range(200):
        bets = Bets.begin(tolerance)
        for _ in range(20):
            c = rng.uniform(0.3, 0.97, 15)
            bets.update(c, rng.random(15) < c + side * tolerance, 0)
        wealth.append(np.exp(bets.log_wealth))
    assert np.mean(wealth) <= 1 + 3 * np.std(wealth) / np.sqrt(len(wealth))


def test_false_alarms_over_whole_streams_are_rare():
    alarms = 0
    for seed in range(25):
        monitor = mc.Monitor(window=60, alpha=0.3, tolerance=0, reference=stream(seed + 1000, 2000)[0])
        alarms += bool(monitor.update(*stream(seed, 1800)).alarms)
    assert alarms <= 7  # 25 alpha; a few per cent is what it is


def test_the_noise_of_a_fit_on_few_rows_is_no_change(tmp_path):
    """Confidences off as those of a fit on 300 rows are: an alarm without the number of rows, none with it, one for a drift."""
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.ones(5) / 2, size=60_000)
    labels = (rng.random((60_000, 1)) > truth.cumsum(axis=1)).sum(axis=1).clip(max=4)
    logits = 2 * np.log(truth)

    class Noisy:
        """Temperature scaling as a fit on 300 rows may leave it: 20 % too sure."""

        n_rows_ = 300.0

        def predict_proba(self, X):
            e = np.exp(0.6 * X)
            return e / e.sum(axis=1, keepdims=True)

    cal = Noisy()
    assert kinds(mc.Monitor().update(cal.predict_proba(logits), labels)) == ["calibration"]
    result = mc.monitor([(logits, labels)], calibrator=cal)
    assert result.fitted_rows == 300
    assert not result.alarms
    result.save(tmp_path / "state.json")
    again = mc.Monitor.load(tmp_path / "state.json")
    assert again.fitted_rows == 300
    assert "calibration" in kinds(again.update(cal.predict_proba(2 * logits[:10_000]), labels[:10_000]))
    assert again.restart().fitted_rows is None


def test_the_rows_of_a_fit_are_those_of_the_calibrator_or_of_the_reference():
    data = mc.data.synthetic(900, 4, seed=1)
    weight = np.where(np.arange(900) % 10 == 0, 10.0, 1.0)
    weighted = mc.MCCT().fit(data.values, data.labels, sample_weight=weight)
    assert weighted.n_rows_ == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert mc.monitor([], calibrator=weighted).fitted_rows == weighted.n_rows_
    assert mc.Monitor(weighted.predict_proba(data.values)).fitted_rows == 900


def test_the_frequency_test_is_fisher_exact_and_its_levels_sum_to_alpha():
    p, _ = exact_test(np.array([40, 60]), np.array([22, 8]))
    one_sided = min(fisher_exact([[40, 60], [22, 8]], side).pvalue for side in ("less", "greater"))
    assert p == pytest.approx(min(1.0, 4 * one_sided))  # two-sided, two classes
    watch = FrequencyWatch(0.05, np.array([500, 500]))
    tests = []
    made, watch._test = watch._test, lambda *expected: tests.append(made(*expected)) or tests[-1]
    for _ in range(64):
        watch.update(np.array([10, 10]))
    assert [test.windows for test in tests].count(1) == 64
    assert len(tests) == 127  # every span of 1, 2, 4, ... windows once
    assert 0.049 < sum(test.level for test in tests) < 0.05


@pytest.mark.parametrize(("power", "how"), [(1.5, "over-confident"), (0.6, "under-confident")])
def test_a_change_is_seen_soon_and_its_beginning_found(power, how):
    monitor = mc.Monitor(window=250).update(*stream(1, 5000)).update(*stream(2, 5000, power=power))
    (alarm,) = [a for a in monitor.alarms if a.kind == "calibration"]
    assert 5000 < alarm.row <= 8000
    assert abs(alarm.since - 5000) <= 500
    assert how in alarm.sentence
    assert alarm.sentence in monitor.verdict
    assert monitor.restart().alarms == []
    assert "calibration" not in kinds(monitor.update(*stream(4, 3000)))


def test_frequencies_change_without_any_label():
    monitor = mc.Monitor(reference=stream(0, 4000)[0], class_names=list("abcde"))
    monitor.update(stream(1, 3000)[0])
    assert not monitor.alarms
    assert "without labels" in monitor.verdict
    monitor.update(stream(2, 3000, weights=np.array([4, 1, 1, 1, 1]))[0])
    assert kinds(monitor) == ["frequencies"]
    assert ": a is " in monitor.verdict
    assert monitor.windows[-1].ece is None


def test_a_slow_drift_is_seen_by_long_spans():
    weights = np.array([1.3, 1, 1, 1, 1])
    monitor = mc.Monitor(reference=stream(0, 50_000)[0], window=200)
    monitor.update(stream(1, 40_000, weights=weights)[0])
    assert [a.kind for a in monitor.alarms] == ["frequencies"]


def test_neither_cuts_nor_a_pause_change_anything(tmp_path):
    probs, labels = stream(3, 2600, power=1.2)
    labels[::3] = -1  # not known
    whole = mc.Monitor(window=300).update(probs, labels)
    parts = mc.Monitor(window=300)
    for start in range(0, 2600, 170):
        parts.update(probs[start : start + 170], labels[start : start + 170])
        parts.save(tmp_path / "state.json")
        parts = mc.Monitor.load(tmp_path / "state.json")
    assert parts.to_dict() == whole.to_dict()
    assert whole.n_rows == 2600
    assert whole.windows[0].labelled == 200
    assert len(whole.finish().windows) == 9


def test_every_library_gives_the_same_state():
    torch = pytest.importorskip("torch")
    probs, labels = stream(4, 600)
    expected = mc.Monitor(window=200).update(probs, labels).to_dict()
    for p, y in ((torch.from_numpy(probs), torch.from_numpy(labels)), (probs.tolist(), labels.tolist())):
        assert mc.Monitor(window=200).update(p, y).to_dict() == expected
    assert mc.Monitor(window=200).update(probs[:0], labels[:0]).to_dict()["rows"] == 0
    top = mc.TopK(np.log([[0.6, 0.2], [0.5, 0.3]] * 50), [[0, 1], [1, 2]] * 50, n_classes=4)
    result = mc.Monitor(window=50).update(top, np.array([0, 1] * 50)[:, None])
    assert result.windows[0].labelled == 50


def test_the_function_reports_alarms_as_they_come():
    result = []
    data = mc.data.synthetic(9000, 4, seed=1)
    cal = mc.MCCT().fit(data.values[:3000], data.labels[:3000])
    days = [
        (data.values[i : i + 500] * (1 + (i >= 5000)), data.labels[i : i + 500])
        for i in range(3000, 9000, 500)
    ]
    actual = mc.monitor(days, calibrator=cal, on_alarm=result.append)
    assert result == actual.alarms
    assert result[0].kind == "calibration"
    assert mc.monitor([x for x, _ in days[:3]], calibrator=cal).windows[0].labelled == 0
    rows = [np.full(3, 1 / 3), np.full(3, 1 / 3)]
    assert mc.monitor([rows]).windows[0].labelled == 0  # a list of two rows is rows


@pytest.mark.parametrize("gap", [-0.3, -0.004, 0.004, 0.3])
@pytest.mark.parametrize(("rows", "since"), [(30, 700), (5000, 0)])
@pytest.mark.parametrize("fitted", [False, True])
def test_what_an_alarm_says_is_true(gap, rows, since, fitted):
    sentence = off_in_words(gap, rows, since, 0.01, fitted)
    assert ("any more" in sentence) == (fitted and since > 0)
    assert ("over-confident" in sentence, "under-confident" in sentence) == (gap > 0.01, gap < -0.01)
    assert ("refit" in sentence, "start=" in sentence) == (fitted, fitted and rows < 500)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"window": 0}, "window"),
        ({"alpha": 1.5}, "alpha"),
        ({"tolerance": -0.1}, "tolerance"),
        ({"fitted_rows": 0}, "fitted_rows"),
        ({"reference": [1.5, 2.0]}, "reference"),
        ({"reference": [0, 0]}, "reference"),
        ({"reference": [3, 4], "class_names": ["a"]}, "class_names"),
    ],
)
def test_wrong_parameters_are_refused(parameters, words):
    with pytest.raises(mc.InputError, match=words):
        mc.Monitor(**parameters)


def test_wrong_rows_are_refused_and_change_nothing():
    monitor = mc.Monitor(window=100).update(*stream(0, 150))
    before = monitor.to_dict()
    for probs, labels in (
        (np.full((5, 3), 1 / 3), None),
        (np.full((5, 5), 0.3), None),
        (np.full((5, 5), 0.2), [7] * 5),
        (np.full((5, 5), 0.2), ["a"] * 5),
    ):
        with pytest.raises(mc.InputError):
            monitor.update(probs, labels)
    assert monitor.to_dict() == before
    with pytest.raises(mc.InputError, match="reference has 3 classes, but those before had 5"):
        monitor.restart(reference=[1, 2, 3])
    mc.Monitor(reference=[10**18, 10**18, 5], window=50).update(np.full((100, 3), 1 / 3))


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.update(kind="x"),
        lambda s: s.pop("bets"),
        lambda s: s["bets"].update(won=[1.0]),
        lambda s: s.update(n_classes=3),
        lambda s: s.update(rows=-5),
        lambda s: s["bets"].update(tolerance=float("nan")),
        lambda s: s["waiting"].update(confidence=[5.0] * 50),
        lambda s: s["waiting"].update(predicted=[-1] * 50),
        lambda s: s["frequencies"].update(waiting=[[1, 2]]),
    ],
)
def test_a_damaged_state_is_refused(tmp_path, damage):
    state = mc.Monitor(window=100).update(*stream(0, 150)).to_dict()
    damage(state)
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(mc.FileError, match="damaged"):
        mc.Monitor.load(tmp_path / "state.json")
    with pytest.raises(mc.FileError, match="check the name"):
        mc.Monitor.load(tmp_path / "nothing.json")


def test_certain_rows_that_are_wrong_are_finite_evidence():
    probs = np.tile([1.0, 0.0], (400, 1))
    labels = np.zeros(400, int)
    labels[::10] = 1
    monitor = mc.Monitor(window=100).update(probs, labels)
    assert np.isfinite([w.evidence for w in monitor.windows]).all()
    assert monitor.alarms[0].kind == "calibration"
    json.dumps(monitor.to_dict(), allow_nan=False)
