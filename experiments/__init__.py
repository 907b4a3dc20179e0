"""The experiments of the MCCT paper on anybody's logits: tables, figures, findings, one page.

    plan (which trials)  ->  run (each trial once, resumable)  ->  one data frame  ->  tables, figures, findings, page

A trial is one method fitted on one calibration set and judged on its test set. Everything shown is computed from the data frame
of trials. Only the public interface of monocal is used.
"""
