"""Fitting and predicting on a GPU: time, memory, certificate, agreement with the CPU.

    python benchmarks/gpu.py [--small] [--markdown FILE]

Cases: 25,000 x 1000 (an image classifier) and 65,536 x 128,256 bfloat16 with the top 400 ranks free (a language
model's head, the tail in the normaliser). Logits are generated on the device; times are medians after a warm-up, with the
device synchronised; memory is the peak that torch allocated beyond the input. On a machine without CUDA it says so and ends.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch

import monocal as mc
import pages


def make_logits(n, m, dtype, device, seed=0, block=2048):
    """Logits of an over-confident classifier: a broad bulk, a few strong candidates, labels from softer probabilities."""
    generator = torch.Generator(device=device).manual_seed(seed)
    logits = torch.empty((n, m), dtype=dtype, device=device)
    labels = torch.empty(n, dtype=torch.int64, device=device)
    for begin in range(0, n, block):
        rows = min(block, n - begin)
        z = torch.randn((rows, m), generator=generator, device=device) * 1.5
        strong = torch.randint(0, m, (rows, 20), generator=generator, device=device)
        height = np.log(m) + 2.0 + 3.0 * torch.rand((rows, 1), generator=generator, device=device)
        gain = (
            height
            - 0.8 * torch.arange(20, device=device)
            + torch.randn((rows, 20), generator=generator, device=device)
        )
        z.scatter_add_(1, strong, gain)
        logits[begin : begin + rows] = z.to(dtype)
        p = torch.softmax(z / 1.6, dim=1)
        labels[begin : begin + rows] = torch.multinomial(p, 1, generator=generator)[:, 0]
    return logits, labels


def timed(function, repeats):
    function()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def peak(function, logits):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    return (torch.cuda.max_memory_allocated() - before) / (logits.numel() * logits.element_size())


def inversions(logits, values, block=1024):
    """Rows in which a larger logit has a smaller value, or equal logits differ."""
    wrong = 0
    for begin in range(0, len(logits), block):
        z, index = logits[begin : begin + block].float().sort(dim=1)
        v = values[begin : begin + block].float().gather(1, index)
        step, gap = v.diff(dim=1), z.diff(dim=1)
        wrong += int(((step < 0) | ((gap == 0) & (step != 0))).any(dim=1).sum())
    return wrong


def case(name, calibrator, n, m, dtype, repeats, predict_rows=None, compare_cpu=False):
    logits, labels = make_logits(n, m, dtype, "cuda")
    part = logits if predict_rows is None else logits[:predict_rows]
    result = {"case": name, "fit_s": timed(lambda: calibrator.fit(logits, labels), repeats)}
    solution = calibrator.solution_
    result |= {
        "kkt": solution.kkt,
        "converged": solution.converged,
        "passes": sum(step.rows == n for step in solution.history),
        "predict_s": timed(lambda: calibrator.predict_proba(part), repeats),
        "fit_memory": peak(lambda: calibrator.fit(logits, labels), logits),
        "predict_memory": peak(lambda: calibrator.predict_proba(part), part),
        "inverted_rows": inversions(part[:8192], calibrator.predict_proba(part[:8192])),
    }
    if compare_cpu:
        host = calibrator.__class__(**calibrator.get_params()).fit(logits.cpu().numpy(), labels.cpu().numpy())
        on_host, on_device = (
            torch.as_tensor(c.predict_proba(logits.cpu().numpy())) for c in (host, calibrator)
        )
        result["cpu_difference"] = float((on_host - on_device).abs().max())
        there = calibrator.predict_proba(logits).cpu()
        result["same_map_difference"] = float((there - on_device).abs().max())
        result["argmax_equal"] = bool((there.argmax(1) == on_host.argmax(1)).all())
    return result


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--markdown", help="a file to write the table to, for --docs where the repository is")
    parser.add_argument(
        "--docs", metavar="FILE", help="write such a file into README.md and docs/performance.md, and end"
    )
    options = parser.parse_args()
    if options.docs:
        text = Path(options.docs).read_text(encoding="utf-8")
        for page in ("README.md", "docs/performance.md"):
            pages.write_into(page, "gpu", text)
        return
    if not torch.cuda.is_available():
        sys.exit("benchmarks/gpu.py needs a CUDA device, and torch sees none here.")
    n, m, big_n, big_m = (4000, 100, 2048, 8000) if options.small else (25_000, 1000, 65_536, 128_256)
    cases = [
        case(f"MCCT, {n} x {m} float32", mc.MCCT(), n, m, torch.float32, options.repeats, compare_cpu=True),
        case(
            f"TemperatureScaling, {n} x {m} float32",
            mc.TemperatureScaling(),
            n,
            m,
            torch.float32,
            options.repeats,
        ),
        case(
            f"ConditionalMCCT, {n} x {m} float32",
            mc.ConditionalMCCT(),
            n,
            m,
            torch.float32,
            options.repeats,
            compare_cpu=True,
        ),
        case(f"MCCT, {n} x {m} float16", mc.MCCT(), n, m, torch.float16, options.repeats),
        case(
            f"MCCT top_k=400, {big_n} x {big_m} bfloat16",
            mc.MCCT(top_k=400),
            big_n,
            big_m,
            torch.bfloat16,
            2,
            8192,
        ),
    ]
    lines = [
        f"{date.today()}, {torch.cuda.get_device_name()}, torch {torch.__version__}. Memory is what was allocated beyond the "
        "input, in multiples of it.",
        "",
        "| case | fit, s | violation | passes | predict, s | memory of fit | of predict | inverted rows |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in cases:
        lines.append(
            f"| {c['case']} | {c['fit_s']:.3f} | {c['kkt']:.1e} | {c['passes']} | {c['predict_s']:.3f} | "
            f"{c['fit_memory']:.2f} | {c['predict_memory']:.2f} | {c['inverted_rows']} |"
        )
    for c in cases:
        if "cpu_difference" in c:
            lines += [
                "",
                f"{c['case']}: fitted on the GPU and on the CPU, probabilities differ by at most {c['cpu_difference']:.1e}; the "
                f"same map applied on both by {c['same_map_difference']:.1e}; predicted classes equal: {c['argmax_equal']}.",
            ]
    text = "\n".join(lines)
    print(text)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
