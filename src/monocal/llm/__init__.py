"""Rows that servers of language models return: the largest logits of each row, and the rest as one group."""
