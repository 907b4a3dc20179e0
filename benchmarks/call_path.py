"""The data's way through a fit and a prediction: which functions of monocal are called, in the order of their first call.

    python benchmarks/call_path.py            counts, and the list by file
    python benchmarks/call_path.py --order    the list in the order of the calls

Counted are functions and methods with a name of their own; lambdas and comprehensions belong to the function they stand in.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import monocal as mc
from command_line import parser_of
from monocal.data import synthetic

ROOT = Path(mc.__file__).parent


def trace(work: Callable[[], Any]) -> Counter[tuple[str, str]]:
    """File and qualified name of every function of monocal that ``work`` calls, first calls first, and how often."""
    calls: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and not code.co_name.startswith("<") and path.is_relative_to(ROOT):
            calls[str(path.relative_to(ROOT)), code.co_qualname] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # None removes it
    return calls


def called(work: Callable[[], Any]) -> list[tuple[str, str]]:
    """File and qualified name of every function of monocal that ``work`` calls, first calls first."""
    return list(trace(work))


def count_calls(work: Callable[[], Any]) -> int:
    """How many calls of functions of monocal ``work`` makes."""
    return trace(work).total()


def show(title: str, calls: list[tuple[str, str]], in_order: bool) -> None:
    files = list(dict.fromkeys(path for path, _ in calls))
    print(f"{title}: {len(calls)} functions in {len(files)} files\n")
    if in_order:
        print(*(f"{path:32} {name}" for path, name in calls), sep="\n")
    else:
        for path in files:
            names = [name for where, name in calls if where == path]
            print(f"{path:32} {len(names):3}  {', '.join(names)}")
    print()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--order", action="store_true", help="list the functions in the order of the calls")
    in_order = parser.parse_args().order
    data = synthetic(500, 5, seed=0)
    model = mc.ConditionalMCCT()
    model.fit(data.values, data.labels)  # modules that load on first use have loaded now
    model.predict_proba(data.values)
    show("ConditionalMCCT().fit", called(lambda: model.fit(data.values, data.labels)), in_order)
    show("predict_proba", called(lambda: model.predict_proba(data.values)), in_order)


if __name__ == "__main__":
    main()
