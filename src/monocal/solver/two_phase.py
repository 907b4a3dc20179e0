"""Two-phase Newton: the gradient at a point chooses the working set, and the Hessian of that set is computed on demand.

An atom takes part in the step from the point at which it is first wanted, not in the one after, and no Hessian is computed at a
point from which no step is taken. That pays where a gradient is much cheaper than a Hessian, or where steps are costly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .certificate import Iterate
from .newton import SHORTEST, Move, Newton

# A Newton step that moves the model by less leaves about this part of the violation, unless many atoms add up.
SURE = 0.05
# A step that leaves less than this part of it had a Hessian that is good for another.
_GOOD = 0.2
NOTHING = np.zeros(0, dtype=np.intp)


@dataclass
class TwoPhaseNewton(Newton):
    """The last Hessian is used again after a small step that did well and added no atom."""

    _leap: float = field(default=np.inf, init=False)
    _kkt_before: float = field(default=0.0, init=False)

    def _propose(self) -> Move:
        served = self._leap <= SURE and self.here.kkt <= _GOOD * self._kkt_before
        self._kkt_before = self.here.kkt
        if not (served and self._has_all()):
            problem, here = self.problem, self.here
            free = here.slope.copy()
            free[here.active] = 0.0
            working = np.union1d(here.active, problem.candidates(free, self._n_welcome))
            hessian = problem.hessian(here.coefficients, working)
            self.here = replace(here, working=working, expansion=replace(here.expansion, hessian=hessian))
        move = super()._propose()
        self._leap = move.leap
        return move

    def _search(self, move: Move) -> Iterate | None:
        self._step_size = 1.0
        while self._step_size >= SHORTEST:
            there = Iterate.of(self.problem, self._trial(move, self._step_size), NOTHING)
            if self._is_better(there, move):
                known = replace(there.expansion, hessian=self.here.expansion.hessian)
                return replace(there, working=move.working, expansion=known)
            self._step_size /= 2
        return None
