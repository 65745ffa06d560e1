"""What `course doctor --gpu` prints, writes and returns."""

from __future__ import annotations

import getpass
import json
import re
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course_lib.command import cli
from course_lib.command.doctor.gpu import report as reports
from course_lib.command.doctor.gpu import runner
from course_lib.command.doctor.gpu.devices import Gpu, Host
from course_lib.command.doctor.gpu.report import Report, Section, failed, passed, untested
from course_lib.system.errors import CourseError

ONE = Host((Gpu("NVIDIA H100 80GB HBM3", 81559.0, "9.0"),), 1, "550.54.15", "12.4")
GOOD = passed("All-reduce", "2 ranks: 30 µs.", **{"alpha s": 1.5e-05, "ranks": 2, "driver": "550", "peak": None})
BAD = failed("Versions", "TensorFlow has no kernels for <sm_120>: use `another` image.")
OPEN = untested("All-reduce over NCCL", "This host has one GPU.")


def sections(*lines) -> list[Section]:
    return [Section(f"step{number}", f"Step {number}", (line,)) for number, line in enumerate(lines)]


@pytest.fixture
def machine(monkeypatch):
    """machine(host, *lines): a host on which the steps find these lines; counts how often it is examined."""
    state = {"host": ONE, "lines": (), "examined": 0}

    def examine(host, follow):
        state["examined"] += 1
        yield from sections(*state["lines"])

    monkeypatch.setattr(runner, "detect", lambda: state["host"])
    monkeypatch.setattr(runner, "examine", examine)

    def make(host: Host, *lines) -> dict:
        state.update(host=host, lines=lines)
        return state

    return make


@pytest.mark.parametrize(
    ("lines", "host", "code", "headline"),
    [
        ((GOOD, OPEN), ONE, 0, "Nothing failed: 1 passed, 0 failed, 1 not tested."),
        ((GOOD, BAD), ONE, 1, "Something failed: 1 passed, 1 failed, 0 not tested."),
        ((GOOD, OPEN), Host(), 2, "No GPU was tested: 1 passed, 0 failed, 1 not tested."),
        ((BAD,), Host(), 1, "Something failed: 0 passed, 1 failed, 0 not tested."),
    ],
)
def test_exit_code_and_headline(machine, capsys, lines, host, code, headline):
    machine(host, *lines)
    assert runner.main(rehearse=True) == code
    out = capsys.readouterr().out
    assert headline in out
    for line in lines:
        assert f"{line.title}: {line.state}. {line.text}" in out


def test_without_a_gpu_it_says_what_is_missing_and_what_it_could_do(machine, tmp_path, capsys):
    state = machine(Host(), GOOD)
    assert runner.main(file=tmp_path / "found") == 2
    assert state["examined"] == 0
    said = capsys.readouterr().out.splitlines()[0]
    assert said.startswith("This host has no NVIDIA GPU, or no driver for it")
    assert "--rehearse runs all steps except “Memory growth” and “One GPU for each rank” on the CPU." in said
    [line] = json.loads((tmp_path / "found.json").read_text())["lines"]
    assert line["state"] == "not tested"


def test_a_broken_driver_fails_and_is_no_reason_to_rehearse(machine, capsys):
    state = machine(Host(problem="nvidia-smi did not answer within 20 s: the driver hangs; restart the host."), GOOD)
    assert runner.main(rehearse=True) == 1
    assert state["examined"] == 0
    out = capsys.readouterr().out
    assert "the driver hangs" in out and "rehearse" not in out


def test_json_and_page_hold_the_same(machine, tmp_path):
    machine(ONE, GOOD, BAD, OPEN)
    assert runner.main(file=tmp_path / "new" / "found.html") == 1
    table = json.loads((tmp_path / "new" / "found.json").read_text())
    assert (table["passed"], table["failed"], table["not_tested"], table["code"]) == (1, 1, 1, 1)
    assert table["host"]["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
    assert [line["state"] for line in table["lines"]] == ["passed", "failed", "not tested"]
    assert table["lines"][0]["values"] == {"alpha s": 1.5e-05, "ranks": 2, "driver": "550", "peak": None}
    page = (tmp_path / "new" / "found.html").read_text()
    held = re.search(r'<script type="application/json" id="report">(.*)</script>', page, re.DOTALL)[1]
    assert json.loads(held) == table
    assert "&lt;sm_120&gt;" in page and "<sm_120>" not in page
    assert "<code>another</code>" in page
    for word in ("1.5e-05", "unknown", "NVIDIA H100", "not tested"):
        assert word in page


@pytest.mark.parametrize(
    ("host", "user", "text", "written"),
    [
        ("node17", "ada", "/home/ada/x on node17 is ada's; adaptive", "~/x on HOST is USER's; adaptive"),
        ("lines", "course", "It belongs to course.", "It belongs to USER."),  # both are keys of the report
    ],
)
def test_names_of_user_and_host_stay_here(monkeypatch, tmp_path, host, user, text, written):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ada"))
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    monkeypatch.setattr(getpass, "getuser", lambda: user)
    first, second = reports.save(Report(ONE, sections(failed("It", text))), tmp_path / "found")
    assert json.loads(first.read_text())["lines"][0]["text"] == written
    assert json.dumps(written)[1:-1] in second.read_text()


def test_where_a_report_goes():
    for name in ("a/found", "a/found.json", "a/found.html", "a/found.htm"):
        assert reports.paths(Path(name)) == (Path("a/found.json"), Path("a/found.html"))
    assert reports.paths(Path("h100.2026")) == (Path("h100.2026.json"), Path("h100.2026.html"))


def test_a_report_that_cannot_be_written_is_told_before_the_quarter_of_an_hour(machine, tmp_path):
    state = machine(ONE, GOOD)
    (tmp_path / "file").touch()
    with pytest.raises(CourseError, match="can't be written") as refused:
        runner.main(file=tmp_path / "file" / "found")
    assert refused.value.code == 2
    assert state["examined"] == 0
    reports.require_places(tmp_path / "found")
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "it leaves no empty report"


def test_the_command(machine, tmp_path):
    machine(ONE, GOOD)
    run = CliRunner()
    done = run.invoke(cli.app, ["doctor", "--gpu", "--report", str(tmp_path / "found"), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])["passed"] == 1
    assert (tmp_path / "found.html").exists()
    machine(ONE, BAD)
    assert run.invoke(cli.app, ["doctor", "--gpu"]).exit_code == 1
    for words in (["--report", "x"], ["--rehearse"]):
        refused = run.invoke(cli.app, ["doctor", *words])
        assert isinstance(refused.exception, CourseError) and "need --gpu" in str(refused.exception)


@pytest.mark.parametrize(("value", "text"), [(1.23456789e9, "1.235e+09"), (0.0, "0"), (7, "7"), ("x", "x")])
def test_numbers_for_people(value, text):
    assert reports.number(value) == text
