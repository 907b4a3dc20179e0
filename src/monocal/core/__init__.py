"""Sorted rows: what a row of logits is to the mathematics."""
