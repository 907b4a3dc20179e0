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
    "positive_brier": "squared error of P(class 1), scikit-learn's Brier score",
    "auc": "how often a row of class 1 has the larger P(class 1)",
    "calibration_slope": "1 is right, below 1 too extreme",
    "calibration_intercept": "0 is right, above 0 P(class 1) is too small",
    "calibration_in_the_large": "mean P(class 1) less the share of class 1",
    "ici": "mean gap between P(class 1) and the smoothed frequency",
    "e50": "the median of these gaps",
    "e90": "the 90th percentile of these gaps",
    "mcb": "what isotonic regression takes off positive_brier",
    "dsc": "how much that is better than the base rate",
    "unc": "the squared error of the base rate",
    "aurc": "mean risk when only the surest rows are answered",
    "e_aurc": "the part of aurc that a better order of rows can mend",
}
SHARES = {name for name in GLOSSES if name.endswith(("accuracy", "ece", "mce"))} - {"eq_bin_ece"}
