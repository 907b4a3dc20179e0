"""Whatever can be saved can be loaded: parameters in numpy's types, the published procedure, somebody else's family."""

import warnings

import numpy as np
import pytest

import monocal as mc
from monocal.data import synthetic

DATA = synthetic(300, 6, seed=4)


class Shifted(mc.Calibrator):
    """A family of somebody else, whose attributes have names that monocal uses otherwise."""

    def _fit(self, logits, labels, weight):
        self.coef_ = np.array([1.0, 2.0])
        self.weights_ = np.array([3.0, -1.0])

    def _calibrate(self, logits):
        return 0.5 * logits


def same_after_loading(calibrator, tmp_path):
    calibrator.save(tmp_path / "c.json")
    np.testing.assert_array_equal(
        mc.load(tmp_path / "c.json").predict_proba(DATA.values), calibrator.predict_proba(DATA.values)
    )


def test_numpy_integers_as_parameters(tmp_path):
    same_after_loading(mc.MCCT(top_k=np.int64(3)).fit(DATA.values, DATA.labels), tmp_path)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_the_published_procedure_meets_its_constraints_to_rounding_only(unit, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cal = mc.MCCT.as_published().fit(DATA.values * unit, DATA.labels)
        same_after_loading(cal, tmp_path)


def test_the_attributes_of_another_family_mean_what_they_will(tmp_path):
    same_after_loading(Shifted().fit(DATA.values, DATA.labels), tmp_path)


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    cal = mc.MCCT().fit(DATA.values, DATA.labels)
    cal.biases_ = cal.biases_[:-1]
    with pytest.raises(mc.InputError, match="cannot be saved: biases_"):
        cal.save(tmp_path / "c.json")
