"""A learner's first minutes: open the lab, open 2b, run its first cells, watch, stop."""

from __future__ import annotations

import re

from playwright.sync_api import expect

LONG = 'long = widgets.train("fashion_mnist.py", "--epochs", 100, ranks=2, data=fashion.name)'


def assert_uncluttered(page):
    expect(page.get_by_text("Jupyter news")).to_have_count(0)
    expect(page.get_by_text("nbgrader")).to_have_count(0)
    expect(page.get_by_text("Create Assignment")).to_have_count(0)
    expect(page.get_by_text("Validate", exact=True)).to_have_count(0)


def test_the_lab_opens_on_the_syllabus(page, lab, shot):
    page.goto(lab.url)
    expect(page.get_by_role("heading", name="One Model, Many GPUs")).to_be_visible()
    expect(page.get_by_role("link", name="2b Convert a script")).to_be_visible()
    assert_uncluttered(page)
    shot("welcome")


def test_two_ranks_train_live_until_stop_is_pressed(page, lab, convert, shot):
    serial = convert.run("import numpy", "serial = widgets.train(")
    expect(serial.get_by_text("Finished in")).to_be_visible()
    expect(serial.locator("img.course-live-figure")).to_be_visible()

    cell = convert.add("serial = widgets.train(", LONG)
    expect(cell.locator("img.course-live-figure, .course-live-figure img").first).to_be_visible()
    lab.wait_until(lambda: [percent > 0 for percent in convert.progress(cell)] == [True, True])
    expect(cell.get_by_text("images/s")).to_have_count(3)
    expect(cell.get_by_text("left").first).to_be_visible()
    assert len(lab.running("fashion_mnist.py")) >= 2
    assert_uncluttered(page)

    for theme in ("Light", "Dark"):
        convert.theme(f"JupyterLab {theme}")
        for part in (".course-live-headline b", ".course-live-bars span", ".course-live-head span"):
            # The new theme's colours may arrive a moment after its name.
            lab.wait_until(lambda part=part: convert.contrast(cell.locator(part).first) > 4.5)
        convert.show(cell)
        shot(f"live-{theme.lower()}")

    cell.get_by_role("button", name="Stop").click()
    expect(cell.get_by_text("Stopped after")).to_be_visible()
    lab.wait_until(lambda: not lab.running("fashion_mnist.py"))
    result = convert.add(LONG, "print('codes', serial.result.code, long.result.code != 0)")
    expect(result.get_by_text("codes 0 True")).to_be_visible()

    # The notebook keeps what it showed, without widgets that would be gone when it is opened again.
    notebook = lab.workspace / "lab2_horovod" / "2b_convert_a_script.ipynb"
    page.keyboard.press("Control+s")
    lab.wait_until(lambda: "Stopped after" in notebook.read_text())
    assert "data:image/png" in notebook.read_text()
    assert "widget-view" not in notebook.read_text()


def test_what_is_solved_stands_on_the_welcome_page(page, lab, opened, shot):
    line = opened("1a Linear model")
    line.run("import numpy", "import numpy")
    line.add("def years(", "def years(work, rate):\n    return work * 1e15 / rate / 365")
    expect(line.run("check(years)").get_by_text("✅").first).to_be_visible()
    welcome = lab.workspace / "Welcome.md"
    lab.wait_until(lambda: "1 of 5 solved" in welcome.read_text())
    page.goto(lab.url)  # the page, opened again
    expect(page.get_by_text("Continue here:")).to_be_visible()
    expect(page.get_by_text("▰▱▱▱▱▱ 1 of 5")).to_be_visible()
    shot("welcome-progress")


def test_a_section_that_shorter_ways_leave_out_is_folded_until_it_is_clicked(page, opened, shot):
    opened("3d Layer-wise rates")
    page.get_by_role("heading", name="NovoGrad").scroll_into_view_if_needed()
    section = page.locator(".jp-Cell", has=page.get_by_role("heading", name="NovoGrad"))
    text = page.locator(".jp-MarkdownOutput", has_text="A colleague's version trains")
    expect(section.locator("em", has_text="Further: the shorter ways")).to_be_visible()
    expect(text).to_be_hidden()
    shot("further")
    section.get_by_role("button", name="cells hidden").click()
    expect(text).to_be_visible()


def test_a_way_is_chosen_in_the_labs_terminal(page, lab, shot):
    page.goto(lab.url)
    expect(page.get_by_role("heading", name="One Model, Many GPUs")).to_be_visible()
    page.get_by_role("menuitem", name="File").click()
    for item in ("New", "Terminal"):
        page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{item}$")).click()
    page.locator(".jp-Terminal .xterm").click()
    page.keyboard.type("ls Welcome.md && course plan day --choose\n")  # the terminal opens in the workspace
    lab.wait_until(lambda: "## Your way: One day" in (lab.workspace / "Welcome.md").read_text())
    page.goto(lab.url)  # the page, opened again
    expect(page.get_by_role("heading", name="Your way: One day")).to_be_visible()
    shot("welcome-way")
