"""How often does the monitor cry wolf, and how soon does it see a drift?

    python benchmarks/monitoring.py [--streams 1000] [--docs]

Honest streams: labels are drawn from the probabilities themselves; the share with any alarm must not exceed alpha. Drifts: after
5,000 honest rows all probabilities are raised to a power and normalised, or one class becomes twice as frequent and there are no
labels; rows until the alarm, median over the streams.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import monocal as mc
import pages
from command_line import parser_of

BEFORE, AFTER = 5_000, 20_000


def rows(
    rng: np.random.Generator, n: int, power: float = 1.0, weights: Any = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    truth = rng.dirichlet(np.ones(5) / 2, size=n) * weights
    truth /= truth.sum(axis=1, keepdims=True)
    labels = (rng.random(n)[:, None] > truth.cumsum(axis=1)).sum(axis=1).clip(max=4)
    said = truth**power
    return said / said.sum(axis=1, keepdims=True), labels


def false_alarms(streams: int, tolerance: float) -> dict[str, float]:
    """Share of honest streams of 20,000 rows with an alarm."""
    found = {"calibration": 0, "frequencies": 0, "any": 0}
    for seed in range(streams):
        rng = np.random.default_rng(seed)
        monitor = mc.Monitor(reference=rows(rng, 5_000)[0], window=250, tolerance=tolerance)
        kinds = {alarm.kind for alarm in monitor.update(*rows(rng, 20_000)).alarms}
        for kind in (*kinds, *(["any"] if kinds else [])):
            found[kind] += 1
    return {kind: number / streams for kind, number in found.items()}


def delay(streams: int, **drift: Any) -> tuple[float, float]:
    """Rows from the drift to the alarm (median), and the share of streams in which there was one."""
    found = []
    for seed in range(streams):
        rng = np.random.default_rng([seed, 1])
        monitor = mc.Monitor(reference=rows(rng, 5_000)[0], window=250)
        monitor.update(*rows(rng, BEFORE))
        early = len(monitor.alarms)
        probs, labels = rows(rng, AFTER, **drift)
        monitor.update(probs, None if "weights" in drift else labels)
        late = monitor.alarms[early:]
        found.append(late[0].row - BEFORE if late else np.inf)
    return float(np.median(found)), float(np.isfinite(found).mean())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--streams", type=int, default=1000, help="honest streams; a tenth of them, 20 at least, drift"
    )
    parser.add_argument(
        "--docs", action="store_true", help="write the table into docs/examples/monitoring.md"
    )
    given = parser.parse_args()
    lines = []
    for tolerance in (0.0, 0.01):
        shares = false_alarms(given.streams, tolerance)
        told = ", ".join(f"{kind} {100 * share:.1f} %" for kind, share in shares.items())
        stream = f"honest, {given.streams:,} streams of 20,000 rows, tolerance {tolerance:g}"
        lines.append([stream, f"false alarms: {told} (alpha: 5 %)"])
    few = max(20, given.streams // 10)
    for name, drift in (
        ("too sure, power 1.2", {"power": 1.2}),
        ("too sure, power 1.4", {"power": 1.4}),
        ("too sure, power 2", {"power": 2.0}),
        ("not sure enough, power 0.7", {"power": 0.7}),
        ("one class of five twice as frequent, no labels", {"weights": np.array([2.0, 1, 1, 1, 1])}),
    ):
        rows_, share = delay(few, **drift)
        seen = f"alarm after {rows_:,.0f} rows (median of {few}); in {100 * share:.0f} % of streams"
        lines.append([name, seen])
    table = pages.table(["stream", "what happened"], lines, words=2)
    print(table)
    if given.docs:
        pages.write_into("docs/examples/monitoring.md", "monitoring", table)


if __name__ == "__main__":
    main()
