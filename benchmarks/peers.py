"""monocal side by side with scikit-learn, probmetrics, netcal, torch-uncertainty, uncertainty-calibration and dirichletcal.

    python benchmarks/peers.py [--sizes 5000x100 ...] [--methods 'monocal/*' ...] [--limit 300] [--out out/peers]

The peers are installed in an environment of their own (``--env``), made on first use. Every method on every size has a process
of its own, with one thread, and is measured in units of one ``scipy.special.log_softmax`` there: fit, predict, peak memory, NLL
on a second sample, whether it reached the minimum of its own objective and whether it kept the order of the classes. What is
finished is kept in ``--out`` and not measured again, so a run that was stopped goes on where it was. At the end ``--out``
holds ``peers.md``, ``peers.csv``, ``pairs.csv`` and ``peers.json``. ``--docs`` writes its summary into docs/peers.md, and all of
it into benchmarks/results/peers.md.

    python benchmarks/peers.py --real ../shared/logits

instead fits structured scaling, probmetrics' and monocal's, and monocal's combination to real sets and judges them (``real.md``).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pages
from peers import environment

SIZES = ["5000x10", "5000x100", "25000x1000", "2000x32000", "500x128256"]


def read_size(text: str) -> tuple[int, int]:
    try:
        n, m = map(int, text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected rows x classes, as 5000x100, got {text!r}") from None
    if n < 1 or m < 2:
        raise argparse.ArgumentTypeError(f"expected at least 1 row and 2 classes, got {text!r}")
    return n, m


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = pages.parser_of(__doc__)
    parser.add_argument(
        "--env", type=Path, default=environment.ROOT / ".venv-peers", help="environment of the peers"
    )
    parser.add_argument(
        "--sizes",
        type=read_size,
        nargs="+",
        default=[read_size(s) for s in SIZES],
        help="rows x classes, as 5000x100",
    )
    parser.add_argument(
        "--methods", nargs="+", default=[], help="patterns as 'netcal/*'; all where not given"
    )
    parser.add_argument("--limit", type=float, default=300, help="seconds for one method on one size")
    parser.add_argument("--memory", type=float, default=12, help="gigabytes for one process; 0: no limit")
    parser.add_argument(
        "--out", type=Path, default=environment.ROOT / "out" / "peers", help="where results are kept"
    )
    parser.add_argument(
        "--docs", action="store_true", help="write docs/peers.md and benchmarks/results/peers.md"
    )
    parser.add_argument(
        "--real",
        type=Path,
        metavar="FOLDER",
        help="a folder of real logits: structured scaling on these, and nothing else",
    )
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if not environment.is_current(options.env):
        environment.make(options.env)
        python = environment.python_of(options.env)
        sys.exit(subprocess.call([str(python), __file__, *sys.argv[1:]]))
    from peers import real, tables
    from peers.methods import choose
    from peers.runner import Runner

    if options.real is not None:
        rows = real.judge(options.real)
        options.out.mkdir(parents=True, exist_ok=True)
        tables.write_csv(options.out / "real.csv", rows)
        page = real.table(rows)
        (options.out / "real.md").write_text(page + "\n", encoding="utf-8")
        print(page)
        return
    run = Runner(options.out, options.limit, options.memory, environment.why_missing(options.env))
    tasks = [(name, n, m) for n, m in options.sizes for name in choose(options.methods)]
    cells = []
    for done, (name, n, m) in enumerate(tasks, 1):
        print(f"{done} of {len(tasks)}: {name} {n} x {m}", file=sys.stderr, flush=True)
        cells.append(run.cell(name, n, m))
    machine = environment.machine() | {"date": tables.seen(cells, "date")}
    versions = environment.versions() | {"monocal": tables.seen(cells, "version")}
    options.out.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine, "versions": versions, "limit": options.limit, "cells": cells}
    (options.out / "peers.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    tables.write_csv(options.out / "peers.csv", cells)
    tables.write_csv(options.out / "pairs.csv", tables.pairs(cells))
    page = tables.page(cells, machine, versions, options.limit)
    (options.out / "peers.md").write_text(page, encoding="utf-8")
    if options.docs:
        summary, _, _ = page.partition("## Instead of")
        pages.write_into("docs/peers.md", "peers", summary.removeprefix("## At a glance"))
        pages.write_into("benchmarks/results/peers.md", "peers", page)
    print(page)


if __name__ == "__main__":
    main()
