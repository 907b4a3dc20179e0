"""What each metric is, in a few words, and which of them are shares and so shown in per cent."""

from __future__ import annotations

# Every metric of monocal.metrics; a test checks that none is missing.
GLOSSES = {
    "accuracy": "rows whose most probable class is the label",
    "top_k_accuracy": "rows with the label among the k = 5 most probable",
    "nll": "mean of -log p(label); lower is better",
    "brier": "squared error of the probabilities, 0 to 2",
    "brier_calibration": "the part of brier that calibration can mend",
    "brier_refinement": "the part of brier that it cannot",
    "ece": "gap between confidence and accuracy, 15 bins",
    "mce": "the largest gap of a bin",
    "debiased_ece": "root mean square gap, less what noise adds",
    "classwise_ece": "the ece of one class, mean over the classes",
    "top_label_ece": "the ece of each predicted class, mean over rows",
    "adaptive_ece": "as ece, bins of equally many rows",
    "eq_bin_ece": "sum of gaps of bins of 1,000 rows; grows with rows",
    "kde_ece": "as ece, smooth densities instead of bins",
    "smooth_ece": "as ece, smoothed instead of binned",
    "positive_ece": "as ece, of the second of two classes alone",
    "aurc": "mean risk when only the surest rows are answered",
    "e_aurc": "the part of aurc that a better order of rows can mend",
}
SHARES = {name for name in GLOSSES if name.endswith(("accuracy", "ece", "mce"))} - {"eq_bin_ece"}
