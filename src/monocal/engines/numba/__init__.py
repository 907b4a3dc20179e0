"""Sums over rows by loops that numba compiles (the extra ``fast``). Only `engine` may be imported where numba is not there."""
