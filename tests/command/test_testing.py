"""`course test`: which tests it runs."""

from __future__ import annotations

import pytest

from course_lib.command import testing

ROUND = "test session starts"

pytestmark = pytest.mark.slow


@pytest.fixture
def one_test(tmp_path):
    path = tmp_path / "test_one.py"
    path.write_text("def test_one(): pass\n")
    return path


def test_all_tests_are_two_rounds(one_test, capfd):
    assert testing.run([str(one_test)], everything=True) == 0
    shown = capfd.readouterr().out
    assert shown.count(ROUND) == 2
    assert "1 passed" in shown
    assert "1 deselected" in shown


def test_ctrl_c_ends_all_rounds(one_test, capfd):
    interrupts = "import os, time\ndef test_one():\n    os.kill(os.getppid(), 2)\n    time.sleep(60)\n"
    one_test.write_text(interrupts)
    assert testing.run([str(one_test)], everything=True) == 2
    assert capfd.readouterr().out.count(ROUND) == 1


def test_a_failure_of_the_first_round_is_the_exit_code(one_test, capfd):
    one_test.write_text("def test_one(): assert False\n")
    assert testing.run([str(one_test)], everything=True) == 1


def test_chosen_tests_run_whatever_they_take(one_test, capfd):
    one_test.write_text("import pytest\n@pytest.mark.alone\ndef test_one(): pass\n")
    assert testing.run([str(one_test)]) == 0
    shown = capfd.readouterr().out
    assert "1 passed" in shown
    assert "Skipped" not in shown
