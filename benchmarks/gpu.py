"""Fitting and predicting on a GPU: time, memory, certificate, agreement with the CPU.

    python benchmarks/gpu.py [--small] [--markdown FILE]

Cases: 25,000 x 1000 (an image classifier) in three types, and 65,536 x 128,256 bfloat16 with the top 400 ranks free (a
language model's head, the tail in the normaliser); each prediction is compared with `torch.log_softmax` of the same rows.
Then the logits processor on 16 rows of a vocabulary: called by itself, inside a CUDA graph, and in generation by a small model
of the package transformers, where that is installed. Logits are generated on the device; times are medians after a warm-up,
with the device synchronised; memory is the peak that torch allocated beyond the input. On a machine without CUDA it says so and
ends.
"""

from __future__ import annotations

import statistics
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch

import monocal as mc
import pages
from monocal.export import LogitsProcessor


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
        "log_softmax_s": timed(lambda: torch.log_softmax(part, dim=1), repeats),
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


def profile_lines(n, m):
    """Where the time goes: on the device, and on the host between its calls."""
    from torch.profiler import ProfilerActivity, profile

    lines = [
        f"| what, {n} x {m} float32 | in all, ms | kernels, ms | launches | the largest |",
        "|---|---:|---:|---:|---|",
    ]
    logits, labels = make_logits(n, m, torch.float32, "cuda")
    for method in (mc.MCCT(), mc.ConditionalMCCT()):
        steps = {
            "fit": lambda method=method: method.fit(logits, labels),
            "predict": lambda method=method: method.predict_proba(logits),
        }
        for step, function in steps.items():
            seconds = timed(function, 7)
            with profile(activities=[ProfilerActivity.CUDA]) as trace:
                function()
                torch.cuda.synchronize()
            kernels = [e for e in trace.key_averages() if e.self_device_time_total > 0]
            kernels.sort(key=lambda e: -e.self_device_time_total)
            largest = ", ".join(f"{_short(e.key)} {e.self_device_time_total / 1e3:.2f}" for e in kernels[:3])
            lines.append(
                f"| `{type(method).__name__}`, {step} | {1e3 * seconds:.2f} | "
                f"{sum(e.self_device_time_total for e in kernels) / 1e3:.2f} | {sum(e.count for e in kernels)} | {largest} |"
            )
    return lines


def _short(kernel):
    """What a kernel is called, without its types."""
    return kernel.split("(")[0].split("<")[0].split("::")[-1].split(" ")[-1][:24]


def processor_lines(small):
    """The logits processor: milliseconds a call, and what it adds to generation."""
    lines = [
        "| logits processor, 16 rows, `top_k=400` | a call, ms | in a CUDA graph, ms | `log_softmax`, ms |",
        "|---|---:|---:|---:|",
    ]
    last = None
    for m in (50_257, 128_256):
        for dtype in (torch.float32, torch.bfloat16):
            logits, labels = make_logits(512 if small else 2048, m, dtype, "cuda")
            for method in (mc.MCCT(top_k=400), mc.ConditionalMCCT(top_k=400)):
                process = LogitsProcessor(method.fit(logits, labels))
                rows = logits[:16].contiguous()
                alone = timed(lambda process=process, rows=rows: process(None, rows), 50)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    process(None, rows)
                softmax = timed(lambda rows=rows: torch.log_softmax(rows, dim=1), 50)
                lines.append(
                    f"| {type(method).__name__}, {m:,} tokens, {str(dtype).removeprefix('torch.')} | {1e3 * alone:.3f} | "
                    f"{1e3 * timed(graph.replay, 50):.3f} | {1e3 * softmax:.3f} |"
                )
                if m == 50_257 and dtype == torch.float32:
                    last = process if isinstance(method, mc.MCCT) else last
            del logits
    try:
        import transformers
    except ImportError:
        return [*lines, "", "Generation was not measured: the package transformers is not installed."]
    config = transformers.GPT2Config(n_layer=6, n_embd=512, n_head=8, bos_token_id=0, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).cuda().eval()
    prompt = torch.ones((16, 8), dtype=torch.int64, device="cuda")
    how = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
    plain = timed(lambda: model.generate(prompt, **how), 7)
    calibrated = timed(lambda: model.generate(prompt, logits_processor=[last], **how), 7)
    return [
        *lines,
        "",
        f"Generation of 64 tokens for 16 prompts by a model of 6 layers (transformers {transformers.__version__}): "
        f"{1e3 * plain:.0f} ms without, {1e3 * calibrated:.0f} ms with the processor, {calibrated / plain:.3f} times as long.",
    ]


def main():
    parser = pages.parser_of(__doc__)
    parser.add_argument("--small", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--repeats", type=int, default=5, help="runs, of which the median counts")
    parser.add_argument("--markdown", help="a file to write the table to, for --docs where the repository is")
    parser.add_argument("--docs", metavar="FILE", help="write such a file into docs/performance.md, and end")
    options = parser.parse_args()
    if options.docs:
        pages.write_into("docs/performance.md", "gpu", Path(options.docs).read_text(encoding="utf-8"))
        return
    if not torch.cuda.is_available():
        sys.exit("benchmarks/gpu.py needs a CUDA device, and torch sees none here.")
    n, m, big_n, big_m = (4000, 100, 2048, 8000) if options.small else (25_000, 1000, 65_536, 128_256)
    cases = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        methods = [mc.MCCT(), mc.ConditionalMCCT()]
        if dtype == torch.float32:
            methods.append(mc.TemperatureScaling())
        for method in methods:
            name = f"{type(method).__name__}, {n} x {m} {str(dtype).removeprefix('torch.')}"
            compare = dtype == torch.float32 and not isinstance(method, mc.TemperatureScaling)
            cases.append(case(name, method, n, m, dtype, options.repeats, compare_cpu=compare))
    name = f"MCCT top_k=400, {big_n} x {big_m} bfloat16"
    cases.append(case(name, mc.MCCT(top_k=400), big_n, big_m, torch.bfloat16, 2, 8192))
    lines = [
        f"{date.today()}, {torch.cuda.get_device_name()}, torch {torch.__version__}. Memory is what was allocated beyond the "
        "input, in multiples of it; the last case predicts 8192 of its rows.",
        "",
        "| case | fit, ms | violation | passes | predict, ms | `log_softmax`, ms | memory of fit | of predict | inverted rows |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for c in cases:
        lines.append(
            f"| {c['case']} | {1e3 * c['fit_s']:.0f} | {c['kkt']:.1e} | {c['passes']} | {1e3 * c['predict_s']:.2f} | "
            f"{1e3 * c['log_softmax_s']:.3f} | {c['fit_memory']:.2f} | {c['predict_memory']:.2f} | {c['inverted_rows']} |"
        )
    for c in cases:
        if "cpu_difference" in c:
            lines += [
                "",
                f"{c['case']}: fitted on the GPU and on the CPU, probabilities differ by at most {c['cpu_difference']:.1e}; the "
                f"same map applied on both by {c['same_map_difference']:.1e}; predicted classes equal: {c['argmax_equal']}.",
            ]
    lines += ["", *profile_lines(n, m), "", *processor_lines(options.small)]
    text = "\n".join(lines)
    print(text)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
