r"""Have the predicted classes changed their frequencies? No label is needed.

If not, the rows of the stream and those of the reference are exchangeable: given how often class j occurs in both together, its
count among the n of the stream is hypergeometric, whatever the frequencies are. A test is the smallest two-sided p-value over the
classes, times their number (Bonferroni). Spans of 1, 2, 4, 8, ... windows are tested, so that a slow drift is seen as well as
a sudden one, and test r has the share

    alpha_r = alpha / (r (r + 1)),       sum over all tests = alpha:

over the whole stream a false alarm has at most the probability ``alpha``, however the tests depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import hypergeom

Counts = np.ndarray


class FrequencyTest(NamedTuple):
    """One test: the p-value (all classes together), its level, and the class that differs most, with its two shares."""

    p_value: float
    level: float
    windows: int
    most: int
    before: float
    now: float


def exact_test(reference: Counts, now: Counts) -> tuple[float, int]:
    """The p-value that two sets of counts (m,) have one distribution, and the class that differs most."""
    occurring = np.flatnonzero(reference + now)
    in_both = (reference + now)[occurring]
    law = hypergeom(int(in_both.sum()), in_both, int(now.sum()))
    each = 2.0 * np.minimum(law.cdf(now[occurring]), law.sf(now[occurring] - 1))
    most = int(np.argmin(each))
    return min(1.0, float(each[most]) * len(occurring)), int(occurring[most])


@dataclass
class FrequencyWatch:
    """Counts of the reference (m,), of spans of windows that wait for a partner, and the number of tests made."""

    alpha: float
    reference: Counts
    tests: int = 0
    waiting: list[Counts | None] = field(default_factory=list)

    def update(self, counts: Counts) -> FrequencyTest:
        """Test a window's counts (m,), and the spans that it completes; returns the test nearest to an alarm."""
        tests, size = [self._test(counts, 1)], 0
        while size < len(self.waiting) and (partner := self.waiting[size]) is not None:
            counts, self.waiting[size] = counts + partner, None
            size += 1
            tests.append(self._test(counts, 2**size))
        self.waiting[size : size + 1] = [counts]
        return min(tests, key=lambda test: test.p_value / test.level)

    def _test(self, counts: Counts, windows: int) -> FrequencyTest:
        self.tests += 1
        p_value, most = exact_test(self.reference, counts)
        level = self.alpha / (self.tests * (self.tests + 1.0))
        before, now = (float(x[most] / x.sum()) for x in (self.reference, counts))
        return FrequencyTest(p_value, level, windows, most, before, now)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        waiting = [None if counts is None else counts.tolist() for counts in self.waiting]
        return {**vars(self), "reference": self.reference.tolist(), "waiting": waiting}

    @classmethod
    def from_dict(cls, state: dict[str, Any], n_classes: int) -> FrequencyWatch:
        waiting = [None if counts is None else np.array(counts, np.int64) for counts in state["waiting"]]
        reference = np.array(state["reference"], np.int64)
        watch = cls(float(state["alpha"]), reference, int(state["tests"]), waiting)
        for counts in (reference, *waiting):
            if counts is not None and (counts.shape != (n_classes,) or counts.min() < 0 or not counts.any()):
                raise ValueError("counts")
        if not (0 < watch.alpha < 1 and watch.tests >= 0):
            raise ValueError("frequencies")
        return watch
