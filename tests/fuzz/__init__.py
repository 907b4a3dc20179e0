"""A fuzzer: random fits and predictions, held to what the library promises by an oracle that shares no code with it.

    python -m fuzz --seed 0 --rows 10_000_000        (`make fuzz`)

`draws` makes a case from a seed (a calibrator, its calibration set, batches of hostile `row_kinds`), `engines` predicts,
`checks` compares the results with the promises and with the `oracle`.
"""
