"""``python -m fuzz``: run cases until the rows or the minutes are spent, then say what was found."""

from __future__ import annotations

import argparse
import sys
import time

from .row_kinds import real_sets
from .run import Run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases (default 0)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="stop after so many predicted rows")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so many minutes")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first fit, to go on or to see one again"
    )
    parser.add_argument("--fits", type=int, default=None, help="stop after so many fits")
    options = parser.parse_args(arguments)
    run = Run(options.seed, real_sets())
    began = last = time.monotonic()
    for number in range(options.first, sys.maxsize):
        run.fit(number)
        now = time.monotonic()
        if now - last > 30:
            print(run.figures(now - began), file=sys.stderr, flush=True)
            last = now
        enough = options.fits is not None and number + 1 - options.first >= options.fits
        if enough or run.rows >= options.rows or now - began > 60 * options.minutes:
            break
    print(run.figures(time.monotonic() - began))
    for failure in run.kinds():
        print(f"  {failure}")
    return 1 if run.counts else 0


if __name__ == "__main__":
    sys.exit(main())
