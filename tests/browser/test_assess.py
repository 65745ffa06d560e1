"""The Assess button: the reference passes before the learner's eyes, Stop ends an attempt, a reload loses nothing."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from course_lib.system.paths import ROOT

pytestmark = pytest.mark.alone


@pytest.fixture
def settings():
    return {"COURSE_PROFILE": "short"}


def test_assess_watch_stop_and_come_back(page, lab, opened, shot):
    reference = (ROOT / "assessment" / "reference" / "assessment.py").read_text()
    (lab.workspace / "assessment" / "assessment.py").write_text(reference)
    notebook = opened("Assessment")
    contract = notebook.run("from course_lib import", "terms.read()")
    expect(contract.get_by_text("Gradients averaged on every step")).to_be_visible()
    notebook.show(contract)
    shot("assess-contract")
    cell = notebook.run("widgets.assess(")
    assess, stop = (cell.get_by_role("button", name=name) for name in ("Assess", "Stop"))
    expect(stop).to_be_disabled()

    assess.click()
    expect(assess).to_be_disabled()
    expect(cell.get_by_text("time limit in")).to_be_visible()
    expect(cell.locator(".course-live-figure img, img.course-live-figure").first).to_be_visible()
    lab.wait_until(lambda: min(notebook.progress(cell)[-2:]) > 0)  # behind the bar of the time
    notebook.show(cell)
    shot("assess-running")
    expect(cell.get_by_text("Passed: 100 of 100 points")).to_be_visible()
    expect(cell.locator(".course-report-full")).to_have_count(10)
    expect(assess).to_be_enabled()
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        for part in (".course-report-score b", ".course-report dt", ".course-report li b", ".course-assess-history td"):
            # The new theme's colours may arrive a moment after its name.
            lab.wait_until(lambda part=part: notebook.contrast(cell.locator(part).first) > 4.5)
        notebook.show(cell)
        shot(f"assess-verdict-{theme.lower()}")

    (lab.workspace / "assessment" / "assessment.py").write_text("import time\n\ntime.sleep(600)\n")
    assess.click()
    expect(cell.get_by_text("Running on one rank")).to_be_visible()
    lab.wait_until(lambda: lab.running("course_grader"))
    result = notebook.add("widgets.assess(", "print('still', 6 * 7)")  # other cells run meanwhile
    expect(result.get_by_text("still 42")).to_be_visible()
    page.keyboard.press("Control+s")
    lab.wait_until(lambda: "still 42" in (lab.workspace / "assessment" / "assessment.ipynb").read_text())
    page.reload()
    cell = notebook.cell("widgets.assess(")
    expect(cell.get_by_text("Running on one rank")).to_be_visible()
    cell.get_by_role("button", name="Stop").click()
    expect(cell.get_by_text("Stopped after")).to_have_count(2)  # as what has just happened, and in the history
    expect(cell.get_by_text("Passed: 100 of 100 points")).to_be_visible()
    lab.wait_until(lambda: not lab.running("course_grader"))
    notebook.show(cell)
    shot("assess-stopped")
