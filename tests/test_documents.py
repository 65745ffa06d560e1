"""What a visitor reads first: links lead somewhere, the README is short, versions and hours agree with the course."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from course_lib.authoring import released, ways
from course_lib.command import cli
from course_lib.system.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCUMENTS = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    ROOT / "assessment/README.md",
    ROOT / "containers/README.md",
]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", path.read_text(encoding="utf-8"))
    missing = []
    for link, anchor in links:
        target = path.parent / link if link else path
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            missing.append(f"{link}#{anchor}" if anchor else link)
    assert not missing


def anchors(page: Path) -> list[str]:
    """The names that GitHub and Sphinx give the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).strip().lower() for heading in headings]
    return [re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain]


def test_the_readme_is_short_and_its_hours_are_those_of_the_notebooks():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    minutes: dict[str, int] = {}
    for part in ways.read(released.course_files())["term"].parts:
        lab = "A" if part.notebook.code == "assessment" else part.notebook.code[0]
        minutes[lab] = minutes.get(lab, 0) + part.minutes
    rows = re.findall(r"^\| (\w).* \| (\d+)([¼½¾]?) \|$", text, re.MULTILINE)
    hours = {lab: int(whole) + {"": 0, "¼": 0.25, "½": 0.5, "¾": 0.75}[part] for lab, whole, part in rows}
    assert hours == {lab: round(total / 15) / 4 for lab, total in minutes.items()}


def test_versions_agree():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == VERSION
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()
    done = CliRunner().invoke(cli.app, ["--version"])
    assert (done.exit_code, done.stdout.strip()) == (0, VERSION)
