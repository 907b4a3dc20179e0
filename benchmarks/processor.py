"""What a logits processor costs on the CPU, in units of one ``torch.log_softmax`` of the same scores, one thread.

python benchmarks/processor.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import monocal as mc
import pages
from command_line import parser_of
from monocal.export import LogitsProcessor


def best(functions: dict[str, Callable[[], Any]], rounds: int = 40) -> dict[str, float]:
    """The shortest processor time of each, in turns, so that all meet the same machine, busy or not."""
    for function in functions.values():
        function()
    times = dict.fromkeys(functions, np.inf)
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.thread_time()
            function()
            times[name] = min(times[name], time.thread_time() - begin)
    return times


def main() -> None:
    parser_of(__doc__).parse_args()
    torch.set_num_threads(1)
    header = ["log-probabilities", "logits (`normalize=False`)", "the module's own `log_probabilities`"]
    lines = []
    for tokens in (50_257, 128_256):
        data = mc.data.synthetic(60, tokens, seed=0, dtype=np.float32, keep_truth=False)
        cal = mc.TemperatureScaling().fit(data.values, data.labels)
        for dtype in (torch.float32, torch.bfloat16):
            scores = torch.from_numpy(data.values[:16]).to(dtype)
            process, logits = LogitsProcessor(cal), LogitsProcessor(cal, normalize=False)
            module = cal.to_torch()
            with torch.no_grad():
                times = best(
                    {
                        "one": lambda scores=scores: torch.log_softmax(scores, -1),
                        "logs": lambda scores=scores, f=process: f(None, scores),
                        "logits": lambda scores=scores, f=logits: f(None, scores),
                        "module": lambda scores=scores, f=module: f.log_probabilities(scores),
                    },
                    rounds=15,
                )
            ratios = (f"{times[name] / times['one']:.1f}" for name in ("logs", "logits", "module"))
            lines.append([f"16 x {tokens:,}, {str(dtype).removeprefix('torch.')}", *ratios])
    print(pages.table(["rows x tokens, type", *header], lines))


if __name__ == "__main__":
    main()
