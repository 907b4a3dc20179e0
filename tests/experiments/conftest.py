"""A small folder of sets, and settings that run in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.plan import Settings
from monocal.data import Splits, synthetic, write


@pytest.fixture(scope="session")
def tiny() -> Settings:
    """Enough of everything to draw every table and figure."""
    return Settings(
        seeds=2,
        draws=2,
        fractions=(0.5,),
        counts=(50,),
        curve_sets=2,
        rank_sets=1,
        rank_fractions=(0.3, 0.6),
        table_ranks=8,
        curve_ranks=8,
        table_pairs=10,
        curve_pairs=10,
    )


@pytest.fixture(scope="session")
def small_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of 4 and 12 classes."""
    folder = tmp_path_factory.mktemp("sets")
    for name, m in (("few_classes", 4), ("more_classes", 12)):
        write(folder / f"{name}.npz", Splits(synthetic(200, m, seed=1), synthetic(300, m, seed=2), name))
    return folder
