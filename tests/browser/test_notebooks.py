"""Notebooks as a learner who has solved them sees them: every figure drawn, every slider alive, in both themes."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import expect

from course_lib.authoring import masters
from course_lib.system.paths import ROOT

# Some that take seconds, with sliders, a quiz, figures of all kinds. tests/notebooks runs all without a browser.
QUICK = ("1a_", "1d_", "3d_", "4a_")
MASTERS = [masters.read(path) for path in masters.find(ROOT) if path.name.startswith(QUICK)]
OUTPUT = ".jp-OutputArea-output"


@pytest.fixture
def images():
    return 1279


@pytest.fixture(params=MASTERS, ids=lambda master: master.path.stem)
def solved(request, page, lab, opened):
    """A notebook with its solutions, opened, all its cells run. (name, notebook)"""
    master = request.param
    place = lab.workspace / master.assignment / master.notebook.name
    solution = masters.solution(master)
    for cell in solution.cells:
        cell.metadata.pop("jp-MarkdownHeadingCollapsed", None)  # figures of folded sections are not drawn
    place.write_text(nbformat.writes(solution))
    notebook = opened(master.title)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator(".lm-Menu-itemLabel", has_text="Run All Cells").first.click()
    code = [cell for cell in solution.cells if cell.cell_type == "code"]
    lab.wait_until(lambda: page.get_by_text(f"[{len(code)}]:").count() > 0)
    return master.path.stem, notebook


def test_every_cell_runs_and_every_slider_draws(page, lab, solved, shot):
    name, notebook = solved
    expect(page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']")).to_have_count(0)
    warnings = page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']")
    expect(warnings.filter(has_not_text="this run uses the stand-in")).to_have_count(0)
    pictures = notebook.cells.filter(has=page.locator(f"{OUTPUT} img"))
    assert pictures.count() > 0
    for theme in ("Light", "Dark"):
        notebook.theme(f"JupyterLab {theme}")
        for number in range(pictures.count()):
            cell = pictures.nth(number)
            cell.locator(f"{OUTPUT} img").first.scroll_into_view_if_needed()
            assert cell.locator(f"{OUTPUT} img").first.evaluate("image => image.naturalWidth") > 0
            shot(f"{name}-{theme.lower()}-{number}")
    sliders = notebook.cells.filter(has=page.locator(".widget-slider"))
    for number in range(sliders.count()):
        cell = sliders.nth(number)
        picture, handle = cell.locator("img.jupyter-widgets"), cell.locator(".widget-slider .noUi-handle").first
        handle.scroll_into_view_if_needed()
        before = picture.get_attribute("src")
        handle.focus()
        page.keyboard.press("ArrowLeft")
        expect(picture).not_to_have_attribute("src", before)
