"""A run of the fuzzer: fits by number, failures by kind, figures."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence

import numpy as np

from .checks import Failure, failures
from .draws import draw_batches, draw_fit
from .engines import Batch, Case, Refused, fit


class Run:
    """Cases of one seed. A kind of failure (promise, method, engine, type) is printed the first time it is seen."""

    def __init__(self, seed: int, real_names: Sequence[str] = ()):
        self.seed, self.real_names = seed, real_names
        self.fits = self.refused = self.unfinished = self.batches = self.rows = 0
        self.counts: Counter[tuple[str, str, str, str]] = Counter()

    def fit(self, number: int) -> None:
        """Draw, fit and check case ``number``."""
        rng = np.random.default_rng([self.seed, number])
        method, training = draw_fit(rng, self.real_names)
        self.fits += 1
        try:
            cal, converged = fit(method, training)
        except Refused:
            self.refused += 1
            return
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({at.filename.rpartition('/')[2]}:{at.lineno})"
            self.report(
                Case(method, training, Batch(training.x[:1]), (self.seed, number)),
                Failure("fit", 0, text[:300]),
            )
            return
        self.unfinished += not converged
        for batch in draw_batches(rng, method, training, cal):
            try:
                broken, predicted = failures(cal, batch, rng)
            except Refused:
                self.refused += 1
                continue
            self.batches += 1
            self.rows += predicted
            for failure in broken:
                self.report(Case(method, training, batch, (self.seed, number)), failure)

    def report(self, case: Case, failure: Failure) -> None:
        kind = (failure.promise, case.method.name, case.batch.engine, case.batch.dtype)
        self.counts[kind] += 1
        if self.counts[kind] > 1:
            return
        print(
            f"\n# {failure.promise}, row {failure.row}: {failure.text}"
            f"\n# {case.method.source}, {case.batch.engine}, {case.batch.dtype}"
            f"\n# again by: python -m fuzz --seed {self.seed} --first {case.seed[1]} --fits 1",
            flush=True,
        )

    def figures(self, seconds: float) -> str:
        return (
            f"{self.fits} fits ({self.refused} fits or batches refused in a sentence, {self.unfinished} not converged), "
            f"{self.batches} batches, {self.rows:,} predicted rows, {sum(self.counts.values())} failures of "
            f"{len(self.counts)} kinds, {seconds:.0f} s"
        )

    def kinds(self) -> list[str]:
        return [f"{count} x {', '.join(kind)}" for kind, count in sorted(self.counts.items())]
