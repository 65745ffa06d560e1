"""What holds for the figures of all labs."""

from __future__ import annotations

import subprocess
import sys

from course_lib.system.paths import ROOT

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(ROOT.glob("labs/*/lessons/figures_*.py"))
    if path.stem != "figures_5d"  # needs a model
]


def test_drawing_needs_neither_tensorflow_nor_pyplot():
    code = f"import sys, {', '.join(MODULES)}; print({{'tensorflow', 'matplotlib.pyplot'}} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
