"""Experiments: each has a title, and what is recorded says where it comes from."""

from __future__ import annotations

import pandas as pd
import pytest

from course_lib.notebook import experiments
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

TABLES = sorted(ROOT.glob("labs/*/recorded/*.csv"))
PROVENANCE = {"command", "data", "seeds", "seconds", "date", "machine", "versions"}


def provenance(path):
    lines = [line[2:] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ")]
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_recorded_table_says_what_made_it(path):
    facts = provenance(path)
    assert facts.keys() >= PROVENANCE and all(facts.values())
    command, name = facts["command"].rsplit(" ", 1)
    assert command == "course reproduce"
    assert experiments.find()[name].parent.parent == path.parent.parent
    assert len(pd.read_csv(path, comment="#")) > 1


@pytest.mark.parametrize("name", experiments.find())
def test_an_experiment_has_a_title_and_a_record(name):
    path = experiments.find()[name]
    assert len(experiments.title(path)) > 10
    recorded = path.parent.parent / "recorded"
    assert experiments.provenance(path)["command"] == f"course reproduce {name}"
    assert list(recorded.glob(f"{name}*.png"))


def test_a_table_comes_back_as_it_was_written(tmp_path):
    table = pd.DataFrame({"batch": [64, 128], "accuracy": [0.5, None]})
    experiments.write_table(tmp_path / "t.csv", table, command="course reproduce t", data="d", seeds="1", seconds=2)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "t.csv", comment="#"), table)
    assert provenance(tmp_path / "t.csv").keys() == PROVENANCE


@pytest.fixture
def experiment(tmp_path):
    """A function that writes an experiment `falls` with these last lines, and returns the folder above its lab."""
    folder = tmp_path / "labs" / "lab0" / "experiments"
    folder.mkdir(parents=True)
    (folder.parent / "recorded").mkdir()
    (folder.parent / "recorded" / "falls.csv").write_text("old")

    def written(*lines):
        text = [
            "import subprocess, sys, pandas",
            "from course_lib.notebook.experiments import Recording",
        ]
        text += ["def main():", *(f"    {line}" for line in lines)]
        text += ["    return Recording(pandas.DataFrame({'new': [7]}), {}, data='d', seeds='1')"]
        (folder / "0a_falls.py").write_text("\n".join(text))
        return tmp_path

    return written


def test_what_an_experiment_made_is_recorded_when_it_has_ended(experiment):
    root = experiment()
    made = experiments.reproduce("falls", root) / "falls.csv"
    assert pd.read_csv(made, comment="#").to_dict("list") == {"new": [7]}
    assert provenance(made).keys() == PROVENANCE and provenance(made)["command"] == "course reproduce falls"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('subprocess.run([sys.executable, "-c", "raise OSError(7)"], check=True, capture_output=True, text=True)',
         "failed: OSError: 7"),
        ('subprocess.run(["sleep", "60"], timeout=2)', "did not finish within 2 seconds"),
    ],
)  # fmt: skip
def test_an_experiment_whose_process_fails_says_why_and_leaves_what_was_recorded(experiment, line, said):
    root = experiment(line)
    with pytest.raises(CourseError, match=said):
        experiments.reproduce("falls", root)
    assert [path.read_text() for path in (root / "labs/lab0/recorded").iterdir()] == ["old"]


def test_an_unknown_experiment_is_refused_with_the_names_of_all():
    with pytest.raises(CourseError, match=r"'perpetuum'; there are: .*batch_size"):
        experiments.reproduce("perpetuum")
