"""Stages one after another: fitted on out-of-fold outputs, in order when all stages keep it, whole in files and pipelines."""

from contextlib import nullcontext

import numpy as np
import pytest
from biased_rows import BIASED, DATA
from scipy.special import log_softmax
from sklearn.base import clone

import monocal as mc
from monocal.data import synthetic


class Parrot(mc.Calibrator):
    """Knows the rows it was fitted on by heart, and nothing else."""

    def __init__(self, input="logits"):
        self.input = input

    def _fit(self, logits, labels, weight):
        self.known_ = {row.tobytes(): label for row, label in zip(logits, labels, strict=True)}

    def _calibrate(self, logits):
        sure = np.array([self.known_.get(row.tobytes(), -1) for row in logits])
        return np.where(sure[:, None] >= 0, 2.0 * (sure[:, None] == np.arange(logits.shape[1])), logits)


def test_the_second_stage_sees_out_of_fold_outputs():
    z, y = DATA.values.astype(np.float64), DATA.labels
    cal = mc.Stacked([Parrot(), mc.TemperatureScaling()]).fit(z, y)
    # What the parrot has not seen it leaves as it is; what it has seen it knows, and a temperature would be next to nothing.
    assert cal.stages_[1].temperature_ == pytest.approx(mc.TemperatureScaling().fit(z, y).temperature_)
    in_sample = mc.TemperatureScaling().fit(cal.stages_[0].transform(z), y)
    assert in_sample.temperature_ < 0.5 * cal.stages_[1].temperature_


def test_order_is_kept_exactly_when_all_stages_keep_it():
    keeps = mc.Stacked([mc.TemperatureScaling(), mc.MCCT(), mc.ConditionalMCCT()])
    assert keeps.preserves_order
    assert keeps.preserves_top1
    assert not mc.Stacked([mc.MCCT(), mc.VectorScaling()]).preserves_order
    assert not mc.Stacked([mc.StructuredScaling(), mc.MCCT()]).preserves_order
    z = np.round(DATA.values, 1)
    keeps.fit(z, DATA.labels)
    for after in (keeps.transform(z), keeps.predict_proba(z)):
        audit = mc.order_audit(z, after, input="logits")
        assert audit.preserved


BY_FOLDS = {
    "Stacked": mc.Stacked,
    "StructuredMCCT": mc.StructuredMCCT,
    "StructuredScaling": lambda: mc.StructuredScaling(shrinkage="cv"),
    "MCCT": lambda: mc.MCCT(shrinkage="cv"),
    "ConditionalMCCT": lambda: mc.ConditionalMCCT(shrinkage="cv", by_class=False),
}


@pytest.mark.filterwarnings("ignore::monocal.CalibrationWarning")  # the order is the obstacle in these rows
@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("name", BY_FOLDS)
def test_neither_arrangement_nor_names_nor_shift_nor_weights_matter(name, classes):
    make = BY_FOLDS[name]
    data = synthetic(300, classes, seed=3)
    z, y = data.values.astype(np.float64) + np.linspace(3.0, -3.0, classes), data.labels
    # A map that keeps the order cannot move the rate of one of two classes; the others can.
    rate_stays_off = classes == 2 and make().preserves_order

    def fit(*args, **keywords):
        warning = pytest.warns(mc.CalibrationWarning, match="try BinaryMCCT")
        with warning if rate_stays_off else nullcontext():
            return make().fit(*args, **keywords)

    p = fit(z, y).predict_proba(z)
    rng = np.random.default_rng(0)

    def assert_same(other, rows=z, expected=p):
        np.testing.assert_allclose(other.predict_proba(rows), expected, rtol=0, atol=1e-11)

    mixed = rng.permutation(300)
    assert_same(fit(z[mixed], y[mixed]))
    names = np.roll(rng.permutation(classes), 1) if classes > 2 else np.array([1, 0])
    assert_same(fit(z[:, names], np.argsort(names)[y]), z[:, names], p[:, names])
    for shifted in (z + 2.0 * rng.normal(size=(300, 1)), log_softmax(z, axis=1)):
        assert_same(fit(shifted, y))
    w = np.arange(300) % 3
    twice = np.repeat(np.arange(300), w)
    assert_same(fit(z, y, sample_weight=w), expected=fit(z[twice], y[twice]).predict_proba(z))


def test_strengths_are_judged_by_some_of_many_rows(monkeypatch):
    from monocal.calibrators import stacked

    whole = mc.StructuredMCCT().fit(BIASED, DATA.labels)
    monkeypatch.setattr(stacked, "_JUDGED", BIASED.size // 2)
    part = mc.StructuredMCCT().fit(BIASED, DATA.labels)
    assert [type(stage) for stage in part.stages_] == [mc.StructuredScaling, mc.ConditionalMCCT]
    assert part.score(BIASED, DATA.labels) == pytest.approx(whole.score(BIASED, DATA.labels), abs=0.01)


def test_one_calibrator_is_a_sequence_of_one(tmp_path):
    cal = mc.Stacked(mc.MCCT()).fit(BIASED, DATA.labels)
    assert cal.preserves_order
    alone = mc.MCCT().fit(BIASED, DATA.labels).predict_proba(BIASED)
    for one in (cal, mc.load(cal.save(tmp_path / "a.json"))):
        np.testing.assert_array_equal(one.predict_proba(BIASED), alone)


def test_stacked_is_cloned_saved_and_loaded(tmp_path):
    stages = [mc.StructuredScaling(kind="vector", shrinkage="cv"), mc.HistogramBinning(), mc.MCCT()]
    cal = mc.Stacked(stages, folds=3)
    assert repr(clone(cal)) == repr(cal)
    shift = mc.LabelShift(mc.Stacked([mc.StructuredScaling(), mc.MCCT()]))
    cal.fit(BIASED, DATA.labels)
    shift.fit(BIASED, DATA.labels).adapt(BIASED[:200])
    for one in (cal, shift):
        loaded = mc.load(one.save(tmp_path / "a.json", force=True))
        assert repr(loaded) == repr(one)
        np.testing.assert_array_equal(loaded.predict_proba(BIASED), one.predict_proba(BIASED))
    assert not hasattr(mc.load(cal.save(tmp_path / "b.json")).stages[0], "coef_")


@pytest.mark.parametrize(
    "stage",
    [
        mc.StructuredScaling(shrinkage=np.inf),
        mc.ParameterizedTemperatureScaling(published=True, validation=0.0, max_epochs=1),
    ],
    ids=repr,
)
def test_parameters_of_a_stage_may_be_infinite_or_truth_values(stage, tmp_path):
    for cal in (mc.Stacked([stage]), mc.LabelShift(stage)):
        cal.fit(DATA.values, DATA.labels).save(tmp_path / "a.json", force=True)
        result = mc.load(tmp_path / "a.json").predict_proba(DATA.values)
        np.testing.assert_array_equal(result, cal.predict_proba(DATA.values))


@pytest.mark.parametrize("last", [mc.MCCT(), mc.ConditionalMCCT(), mc.StructuredScaling()], ids=repr)
def test_a_stage_may_find_that_nothing_is_known(last):
    """Labels that go against the logits: the best temperature is infinite, and what comes next has only ties to work on."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 3))
    y = z.argmin(axis=1)
    p = mc.Stacked([mc.TemperatureScaling(), last]).fit(z, y).predict_proba(z)
    assert mc.metrics.nll(p, y) == pytest.approx(np.log(3), abs=0.02)
