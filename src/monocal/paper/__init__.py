"""The experiments of the MCCT paper on anybody's logits: tables, figures, findings, one page.

    plan (which cells)  ->  run (each cell once, resumable)  ->  tables, curves, findings  ->  files

A cell is one method fitted on one set; everything shown is computed from the cells' result files. Written on the public
API of monocal only.
"""

from __future__ import annotations

from .plan import FULL, QUICK, Settings
from .reproduce import Outcome, reproduce

__all__ = ["FULL", "QUICK", "Outcome", "Settings", "reproduce"]
