"""A calibrator as CONTRIBUTING describes one, all in one file: logits divided by a number that is given, not learnt."""

from dataclasses import dataclass
from typing import ClassVar

from monocal.calibrators import state
from monocal.calibrators.base import Calibrator
from monocal.core.libraries import classes_first
from monocal.core.map import FUNCTIONS, MapRows, MapStep
from monocal.inputs.validation import check_number


def divided(z, a, s, xp, context):
    """The formula, in array API operations."""
    return MapRows(classes_first(z, xp) / s["divisor"])


FUNCTIONS["divided"] = divided


@dataclass(kw_only=True, eq=False, repr=False)
class Divided(Calibrator):
    """Logits divided by ``divisor``."""

    divisor: float = 2.0

    _state: ClassVar[state.Rules] = {"divisor_": state.positive}

    def _fit(self, logits, labels, weight):
        check_number(self.divisor, "divisor", above=0)
        self.divisor_ = float(self.divisor)

    def _calibrate(self, logits):
        return logits / self.divisor_

    def _map_steps(self):
        return [MapStep("divided", {}, {"divisor": self.divisor_})]
