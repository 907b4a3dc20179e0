"""The objective: sums over rows, and the cone problem they make."""
