"""The sums over rows: one interface, engines side by side."""
