"""Memory of segmentation: images (N, C, H, W) in a memory-mapped file are fitted, calibrated and measured in parts.

    python benchmarks/dense.py --images 40 --images 160
    python benchmarks/dense.py --images 2000 --distinct 20 --method TemperatureScaling

Each number of images is worked on by a process of its own, stage by stage, and what counts is how its peak of resident memory
grows with the number of images: it should not. With ``--distinct`` the file holds so many images, which the array repeats (a view
with stride 0 along an axis more), so that 2000 images of 19 x 512 x 512, 40 GB, need 0.4 GB of disk. Then no results
are written; the distinct images are calibrated and measured one by one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import pages

IGNORED = 255
CLASSES = 19


def make_file(folder: Path, images: int, size: int, dtype: str) -> None:
    """Logits that are too sure, of smooth images in which one class prevails around every pixel."""
    rng = np.random.default_rng(0)
    shape = (images, CLASSES, size, size)
    X = np.lib.format.open_memmap(folder / "logits.npy", mode="w+", dtype=dtype, shape=shape)
    y = np.lib.format.open_memmap(
        folder / "labels.npy", mode="w+", dtype=np.uint8, shape=(images, size, size)
    )
    for i in range(images):
        coarse = rng.normal(size=(CLASSES, size // 32 or 1, size // 32 or 1)).astype(np.float32)
        smooth = np.repeat(np.repeat(coarse, 32, axis=1), 32, axis=2)[:, :size, :size]
        z = 2.0 * smooth + rng.normal(size=(CLASSES, size, size)).astype(np.float32)
        noise = -np.log(-np.log(rng.random(z.shape, dtype=np.float32) + 1e-12) + 1e-12)
        y[i] = (z + noise).argmax(axis=0)  # a label drawn from softmax(z)
        y[i, : size // 16] = IGNORED
        X[i] = 2.5 * z
    X.flush()
    y.flush()


def peak_gb() -> float:
    """Most resident memory that the process had, file pages included. (What getrusage says a child inherits from its parent.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9  # kilobytes


def work(folder: Path, images: int, method: str) -> None:
    """The stages for so many images; one line of JSON each."""
    import monocal as mc

    X, y = (np.load(folder / name, mmap_mode="r") for name in ("logits.npy", "labels.npy"))
    axis, repeated = 1, images > len(X)
    if repeated:
        times = -(-images // len(X))
        X, y = (np.broadcast_to(a, (times, *a.shape)) for a in (X, y))
        axis = 2
    else:
        X, y = X[:images], y[:images]

    def report(stage: str, began: float, **more: object) -> None:
        print(
            json.dumps({"stage": stage, "seconds": time.perf_counter() - began, "peak": peak_gb(), **more}),
            flush=True,
        )

    report("imports", time.perf_counter())
    began = time.perf_counter()
    cal = getattr(mc, method)(class_axis=axis, ignore_index=IGNORED).fit(X, y)
    report("fit", began, violation=float(cal.solution_.kkt), pixels=int(y.size), gigabytes=X.size * 4 / 1e9)
    began = time.perf_counter()
    if not repeated:
        out = np.lib.format.open_memmap(folder / "probabilities.npy", mode="w+", dtype=X.dtype, shape=X.shape)
        cal.predict_proba(X, out=out)
        report("predict into a file", began)
        began = time.perf_counter()
        result = mc.evaluate(out, y, class_axis=axis, ignore_index=IGNORED)
        report("evaluate the file", began, ece=result["ece"].value)
        return
    evaluator = mc.metrics.Evaluator()
    for image, labels in zip(X[0], y[0], strict=True):
        p = cal.predict_proba(image[None, None])
        evaluator.update(p, labels[None, None], class_axis=axis, ignore_index=IGNORED)
    report("predict and evaluate the distinct images", began, ece=evaluator.result()["ece"].value)


def main() -> None:
    parser = pages.parser_of(__doc__)
    parser.add_argument(
        "--images", type=int, action="append", help="how many, 40 and 160 if not said; may be repeated"
    )
    parser.add_argument(
        "--distinct", type=int, help="images in the file, which are repeated where more are asked for"
    )
    parser.add_argument("--size", type=int, default=512, help="height and width of an image")
    parser.add_argument("--dtype", default="float32", help="type of the logits in the file")
    parser.add_argument("--method", default="MCCT", help="name of a calibrator in monocal")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = options.images or [40, 160]
    if options.work:
        work(Path(options.work), sizes[0], options.method)
        return
    with tempfile.TemporaryDirectory() as name:
        make_file(Path(name), options.distinct or max(sizes), options.size, options.dtype)
        print(f"{options.method}, images of {CLASSES} x {options.size} x {options.size}, {options.dtype}\n")
        print("| images | float32, GB | stage | seconds | peak memory, GB | |\n|---:|---:|---|---:|---:|---|")
        for images in sizes:
            command = [
                sys.executable,
                __file__,
                "--work",
                name,
                "--images",
                str(images),
                "--method",
                options.method,
            ]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            for line in done.stdout.splitlines():
                stage = json.loads(line)
                more = ", ".join(f"{key} {stage[key]:.2g}" for key in ("violation", "ece") if key in stage)
                print(
                    f"| {images} | {images * CLASSES * options.size**2 * 4 / 1e9:.1f} | {stage['stage']} | "
                    f"{stage['seconds']:.0f} | {stage['peak']:.2f} | {more} |"
                )


if __name__ == "__main__":
    main()
