"""Arrays as rows for the solver, as a fit prepares them."""

from monocal.core.rows import Rows
from monocal.inputs.reader import Checked, prepared


def rows_of(logits, labels, weight=None, **how):
    return Rows.of_blocks(prepared(Checked(logits, labels, weight), **how))
