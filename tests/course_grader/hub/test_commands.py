"""The three commands as an instructor types them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from course_lib.command import cli
from tests.course_grader.classes import LAB, NAME
from tests.course_grader.hub import exchanges
from tests.course_grader.hub.exchanges import from_now, submit


def test_from_collecting_to_the_page(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    exchange = exchanges.make(tmp_path, "anna", "ben", "cleo")
    for learner in ("anna", "ben"):
        submit(exchange, learner)
    place = ("--exchange", str(exchange))

    def course(*arguments):
        done = CliRunner().invoke(cli.app, [*arguments, *place])
        return done.exit_code, done.output

    code, _ = course("collect", "0", "--deadline", from_now(hours=-1), "--extend", f"ben={from_now(hours=1)}")
    assert code == 0
    assert list((tmp_path / "class").rglob("*.ipynb")) == [tmp_path / "class" / "ben" / LAB / f"{NAME}.ipynb"]
    (submit(exchange, "cleo") / "timestamp.txt").unlink()
    assert course("collect", "--dir", "class")[0] == 1  # hers is not complete
    code, output = course("return", "lab0")
    assert code == 1 and "ben, lab0_tiny: not graded since" in output
    code, output = course("class", "--html", "page.html")
    assert code == 0 and "1 late, 1 collected, 1 nothing" in output
    assert "collected" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("command", ["collect", "return", "class"])
def test_elsewhere_a_sentence_says_where_it_belongs(tmp_path, command):
    exchange = tmp_path / "none"
    arguments = [sys.executable, "-m", "course_lib.command.cli", command, "--exchange", str(exchange)]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert f"here is no exchange at {exchange}" in done.stderr and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
