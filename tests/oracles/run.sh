#!/usr/bin/env bash
# Compares monocal.metrics with netcal, torchmetrics, relplot and uncertainty-calibration, and calibrators of one
# score with betacal and venn-abers; runs the blocks of docs/coming-from.md that need netcal and probmetrics. In an
# environment of their own (.venv-oracles, made on first use): they bring heavy dependencies the library does without.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=.venv-oracles
if [ ! -e "$venv/.ready" ]; then
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/python" -m pip install -q -e ".[cli,plots,torch]" -r tests/oracles/requirements.txt -c constraints-test.txt
  touch "$venv/.ready"
fi
"$venv/bin/python" -m pytest -W default tests/oracles/oracle_*.py "$@"
"$venv/bin/python" -m pytest -W default tests/test_pages.py -k coming-from
