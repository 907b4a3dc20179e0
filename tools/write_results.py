"""Write benchmarks/results/reproduce.md and its figures from the nine sets of image classifiers.

    python tools/write_results.py LOGITS [OUT]

LOGITS is the folder that holds the sets; OUT, by default out/results, keeps the fits, so that a run that was stopped goes on.
Three seeds and draws, and the published optimiser at the top 400 ranks that its paper recommends beyond 500 classes, make it
about twenty minutes of one core; `make reproduce` alone runs ten of each, and all ranks, for more than an hour.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.plan import Settings  # noqa: E402 -- after the root is on the path
from experiments.reproduce import reproduce  # noqa: E402

SETTINGS = Settings(seeds=3, draws=3, table_ranks=400)
SETS = (
    "imagenet5k_efficientnet_lite0",
    "netcal_cifar100_densenet-bc-100",
    "netcal_cifar10_lenet-5",
    "nncal_cifar10_densenet40",
    "sctl_cifar10LT_densenet40",
    "toplabel_cifar100_densenet121_brier",
    "toplabel_cifar100_wide_resnet_brier",
    "toplabel_cifar10_resnet50_brier",
    "toplabel_cifar10_wide_resnet_flsd53",
)


def main(logits: Path, out: Path) -> None:
    """Fit what is missing, and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        for name in SETS:
            (Path(folder) / f"{name}.npz").symlink_to((logits / f"{name}.npz").resolve(strict=True))
        reproduce(
            Path(folder),
            out,
            settings=SETTINGS,
            jobs=1,
            markdown=ROOT / "benchmarks" / "results" / "reproduce.md",
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "out" / "results")
