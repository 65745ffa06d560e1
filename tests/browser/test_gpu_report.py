"""The page of `course doctor --gpu --report`, as the person who gets it sees it."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from course_lib.command.doctor.gpu import report as reports
from course_lib.command.doctor.gpu.devices import Gpu, Host
from course_lib.command.doctor.gpu.report import Report, Section, failed, passed, untested

HOST = Host((Gpu("NVIDIA H100 80GB HBM3", 81559.0, "9.0"),) * 2, 2, "550.54.15", "12.4")
LINES = (
    passed("Driver", "Driver 550.54.15, for CUDA up to 12.4.", **{"memory MiB": 81559.0}),
    failed("Versions", "TensorFlow has no kernels for <compute_120>: use `another image`." + " long" * 60),
    untested("Kernels", "The driver does not say."),
)

CONTRAST = """element => {
    const light = colour => {
        const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const page = matchMedia('(prefers-color-scheme: dark)').matches ? 'rgb(18, 18, 18)' : 'rgb(255, 255, 255)';
    const [low, high] = [getComputedStyle(element).color, page].map(light).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_tells_what_was_found(chromium, tmp_path, scheme):
    reports.save(Report(HOST, [Section("driver", "Driver", LINES)], seconds=321.0), tmp_path / "found")
    page = chromium.new_page(viewport={"width": 420, "height": 900}, color_scheme=scheme)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "found.html").as_uri())
    expect(page.locator("h1")).to_have_text("One Model, Many GPUs on 2 × NVIDIA H100 80GB HBM3")
    expect(page.locator(".headline")).to_have_text("Something failed: 1 passed, 1 failed, 1 not tested.")
    expect(page.locator("li.failed")).to_contain_text("no kernels for <compute_120>")
    expect(page.locator("li.failed code")).to_have_text("another image")
    expect(page.locator("dl")).to_contain_text("321 s")
    value = page.get_by_role("cell", name="8.156e+04")
    expect(value).to_be_hidden()
    page.get_by_text("measured").click()
    expect(value).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "a narrow window needs no scrolling"
    for element in ("li.passed em", "li.failed em", "li.not-tested em", ".headline", "dt"):
        assert page.locator(element).first.evaluate(CONTRAST) >= 4.5, element
    held = json.loads(page.locator("#report").text_content())
    assert held == json.loads((tmp_path / "found.json").read_text())
    assert len(asked) == 1, "the page needs no other file"
    page.close()
