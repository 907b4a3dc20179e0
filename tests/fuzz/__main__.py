"""``python -m fuzz``: run cases until the rows or the minutes are spent, then print the failures."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import monocal as mc
from monocal.errors import CalibrationWarning, OrderWarning

from .checks import Failure, failures
from .draws import Case, draw_batches, draw_case
from .engines import Batch
from .row_kinds import real_sets


class Run:
    """Cases of one seed. A kind of failure (promise, method, engine, type) is printed the first time it is seen."""

    def __init__(self, seed: int, real_names: list[str] | None = None):
        self.seed, self.real_names = seed, real_names or []
        self.fits = self.refused = self.unfinished = self.batches = self.rows = 0
        self.counts: Counter[tuple[str, str, str, str]] = Counter()

    def fit(self, number: int) -> None:
        """Draw, fit and check case ``number``."""
        rng = np.random.default_rng([self.seed, number])
        case = draw_case(rng, self.real_names)
        self.fits += 1
        try:
            self.unfinished += not converges(case)
        except mc.InputError:
            self.refused += 1
            return
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({at.filename.rpartition('/')[2]}:{at.lineno})"
            self.report(number, case, Batch(case.x[:1]), Failure("fit", 0, text[:300]))
            return
        for batch in draw_batches(rng, case):
            try:
                broken, predicted = failures(case.cal, batch, rng)
            except mc.InputError:
                self.refused += 1
                continue
            self.batches += 1
            self.rows += predicted
            for failure in broken:
                self.report(number, case, batch, failure)

    def report(self, number: int, case: Case, batch: Batch, failure: Failure) -> None:
        kind = (failure.promise, case.name, batch.engine, batch.dtype)
        self.counts[kind] += 1
        if self.counts[kind] == 1:
            print(
                f"\n# {failure.promise}, row {failure.row}: {failure.text}"
                f"\n# {case.cal!r}, {batch.engine}, {batch.dtype}"
                f"\n# again by: python -m fuzz --seed {self.seed} --first {number} --fits 1",
                flush=True,
            )

    def figures(self, seconds: float) -> str:
        return (
            f"{self.fits} fits ({self.refused} fits or batches refused in a sentence, {self.unfinished} not converged), "
            f"{self.batches} batches, {self.rows:,} predicted rows, {self.counts.total()} failures of "
            f"{len(self.counts)} kinds, {seconds:.0f} s"
        )


def converges(case: Case) -> bool:
    """Fits the case; any warning but those of the library is an error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        for kind in (ConvergenceWarning, OrderWarning, CalibrationWarning):
            warnings.simplefilter("always", kind)
        case.cal.fit(case.x, case.y, sample_weight=case.weight)
    return not any(issubclass(w.category, ConvergenceWarning) for w in caught)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases (default 0)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="stop after so many predicted rows")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so many minutes")
    parser.add_argument("--first", type=int, default=0, help="number of the first fit")
    parser.add_argument("--fits", type=int, default=sys.maxsize, help="stop after so many fits")
    options = parser.parse_args()
    run = Run(options.seed, real_sets())
    began = last = time.monotonic()
    while run.fits < options.fits and run.rows < options.rows and last - began < 60 * options.minutes:
        run.fit(options.first + run.fits)
        if time.monotonic() - last > 30:
            last = time.monotonic()
            print(run.figures(last - began), file=sys.stderr, flush=True)
    print(run.figures(time.monotonic() - began))
    for kind, count in sorted(run.counts.items()):
        print(f"  {count} x {', '.join(kind)}")
    return 1 if run.counts else 0


if __name__ == "__main__":
    sys.exit(main())
