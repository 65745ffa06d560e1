"""The course's environment variables: few, and all of them documented."""

from __future__ import annotations

import re
import subprocess

import pytest

from course_lib.system import variables
from course_lib.system.paths import ROOT

MAX_VARIABLES = 10


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git knows which files are the course's")
def test_every_variable_is_in_the_documented_table():
    search = ["git", "grep", "-IohE", r"\bCOURSE_[A-Z][A-Z_]*[A-Z]\b"]
    used = set(subprocess.run(search, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())
    documented = re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "variables.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = [value for name, value in vars(variables).items() if name.isupper()]
    assert named == documented
    assert used == set(documented) and len(documented) <= MAX_VARIABLES
