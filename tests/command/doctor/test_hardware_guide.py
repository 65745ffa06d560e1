"""The numbers of docs/hardware: derived as it says, reached, printed."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from course_grader.script import contract
from course_lib.command.doctor.gpu import grading
from course_lib.command.doctor.gpu.runner import STEPS
from course_lib.system.paths import ROOT

HARDWARE = ROOT / "docs" / "hardware"
GUIDE = (HARDWARE / "README.md").read_text()


def test_the_guide_names_the_profiles_limit_and_targets():
    gpu = contract.read().profiles["gpu"]
    assert f"The limit is {gpu.seconds} s" in GUIDE and f"with {grading.EPOCHS_OF_GPU} epochs" in GUIDE
    assert f"The targets are {gpu.train_accuracy:.2f} and {gpu.test_accuracy:.2f}" in GUIDE


def test_the_profiles_targets_stand_below_what_was_reached():
    gpu, comment = contract.read().profiles["gpu"], contract.CONTRACT.read_text()
    [row] = pd.read_csv(ROOT / "benchmarks/results/gpu_targets.csv", comment="#").to_dict("records")
    assert (row["ranks"], row["epochs"]) == (8, grading.EPOCHS_OF_GPU)
    assert row["train accuracy"] > gpu.train_accuracy + 0.03 and row["test accuracy"] > gpu.test_accuracy + 0.03
    for value in (row["train accuracy"], row["test accuracy"]):
        assert f"{value:.3f}" in GUIDE and f"{value:.3f}" in comment


@pytest.mark.parametrize("report", sorted(HARDWARE.glob("[!R]*.md")), ids=lambda path: path.stem)
def test_each_number_of_a_report_was_printed(report):
    text = report.read_text()
    printed = report.with_suffix(".txt").read_text()
    assert f"]({report.name})" in GUIDE
    proven, _, refuted = text.partition("## What it proves")[2].partition("## What it refuted")
    numbers = re.findall(r"(?<![\w.])(\d[\d,]*\.\d+|\.\d+|\d+e-\d+|[\d,]*\d,\d{3}|\d+%)", proven + refuted)
    assert len(numbers) > 20
    for number in numbers:
        exact = re.search(rf"(?<![\d,.]){re.escape(number.lstrip('.'))}|0{re.escape(number)}", printed)
        rounded = "e-" in number and any(
            float(f"{float(one):.2e}") == float(number) for one in re.findall(r"\d\.\d+e-\d+", printed)
        )
        assert exact or rounded, number


def test_the_guide_says_what_is_true_of_the_command():
    [table] = re.findall(r"^\| step \| what passes \|\n\|---\|---\|\n((?:\|.+\n)+)", GUIDE, re.MULTILINE)
    rows = [row.split(" | ")[0].strip("| ") for row in table.splitlines()]
    steps = [name for row in rows for name in (row.split(", ") if row.startswith("reference") else [row])]
    assert len(steps) == len(STEPS)
