"""Collecting: the newest in time, judged by what learners cannot fake, and nothing from outside of a submission."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import resource
import shutil
import time
from datetime import datetime, timezone

import pytest

from course_grader.classroom import submissions
from course_grader.hub import class_state, collect, receipt, snapshot
from course_lib.system.errors import CourseError
from tests.course_grader.classes import LAB, NAME, TINY
from tests.course_grader.hub import exchanges
from tests.course_grader.hub.exchanges import TIMESTAMPS, LearnersLab, from_now, submit


@pytest.fixture
def exchange(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # of the terminal
    return exchanges.make(tmp_path, "anna", "ben")


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "class"


@pytest.fixture
def run(exchange, directory):
    """run(LAB, …) collects; it returns the exit code."""
    return lambda lab=LAB, **options: collect.collect(lab, directory, exchange, **options)


@pytest.fixture
def work(directory):
    """work("anna") is what was collected from her: the content of her notebook; None: nothing."""

    def content(learner):
        path = directory / learner / LAB / f"{NAME}.ipynb"
        return path.read_text() if path.exists() else None

    return content


def test_what_nbgrader_submits_is_collected_under_the_name_of_the_folder(tmp_path, exchange, directory, run):
    lab = LearnersLab(tmp_path / "labs", exchange, "anna")
    lab.submit()
    (submitted,) = (exchange / "inbound" / "anna").iterdir()
    assert run() == 0
    collected = {path.name: path.read_bytes() for path in (directory / "anna" / LAB).iterdir()}
    own = {path.name: path.read_bytes() for path in submitted.iterdir()}
    assert own.pop("timestamp.txt") and own.pop("submission_secret.txt")
    assert collected == own and f"{NAME}.ipynb" in own
    assert sorted(path.name for path in directory.iterdir() if path.is_dir()) == ["anna"]


def test_the_name_that_a_submission_gives_itself_does_not_count(exchange, run, work):
    folder = submit(exchange, "anna", "hers")
    folder.rename(folder.with_name(folder.name.replace("learner+", "ben+")))
    assert run() == 0
    assert (work("anna"), work("ben")) == ("hers", None)


def test_the_newest_counts_and_a_second_run_takes_only_what_is_newer(exchange, directory, run, work, capsys):
    submit(exchange, "anna", "second", TIMESTAMPS[2])
    submit(exchange, "anna", "first", TIMESTAMPS[1])
    run()
    assert work("anna") == "second"
    before = (directory / "anna" / LAB).stat().st_ino
    assert run() == 0 and (directory / "anna" / LAB).stat().st_ino == before
    assert "as collected before" in " ".join(capsys.readouterr().out.split())
    submit(exchange, "anna", "third", TIMESTAMPS[3])
    run()
    assert work("anna") == "third"


def test_a_submission_with_the_same_files_leaves_the_folder_and_its_secret_counts(exchange, directory, run):
    submit(exchange, "anna", "same", TIMESTAMPS[1])
    run()
    before = (directory / "anna" / LAB).stat()
    submit(exchange, "anna", "same", TIMESTAMPS[2], secret="0f" * 64)
    run()
    after = (directory / "anna" / LAB).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert receipt.read(directory).entry("anna", LAB).secret == "0f" * 64


@pytest.mark.parametrize("name", [None, LAB, "lab0", "0"])
def test_a_lab_by_its_names_or_all(exchange, run, work, name):
    submit(exchange, "anna", "done")
    run(name)
    assert work("anna") == "done"


def test_of_very_many_submissions_the_newest_are_examined(exchange, run, work, monkeypatch):
    monkeypatch.setattr("course_grader.hub.exchange.MAX_SUBMISSIONS", 2)
    for number in range(4):
        submit(exchange, "anna", str(number), TIMESTAMPS[number], complete=number in (0, 2))
    assert run() == 1 and work("anna") == "2"
    for number in (4, 5):
        submit(exchange, "ben", str(number), TIMESTAMPS[number], complete=False)
    submit(exchange, "ben", "old", TIMESTAMPS[0])
    run()
    assert work("ben") is None


class TestDeadline:
    def test_times_that_a_learner_can_set_do_not_make_a_late_submission_early(self, exchange, run, work, capsys):
        folder = submit(exchange, "anna", "late", TIMESTAMPS[0].replace("2026", "2020"))
        for path in (*folder.iterdir(), folder):
            os.utime(path, (0, 0))
        assert run(deadline=from_now(hours=-2)) == 0
        assert work("anna") is None
        assert "late by 2 h 0 min: not collected" in " ".join(capsys.readouterr().out.split())

    def test_it_is_remembered_and_an_extension_is_for_one_learner(self, exchange, run, work):
        submit(exchange, "anna", "hers")
        submit(exchange, "ben", "his")
        run(deadline=from_now(hours=-2), extend=[f"ben={from_now(hours=2)}"])
        assert (work("anna"), work("ben")) == (None, "his")
        run()
        assert work("anna") is None
        run(deadline="none")
        assert work("anna") == "hers"

    def test_an_older_submission_in_time_counts_before_a_newer_late_one(self, exchange, run, work, capsys):
        submit(exchange, "anna", "in time", TIMESTAMPS[1])
        time.sleep(0.05)
        deadline = from_now()
        time.sleep(0.05)
        submit(exchange, "anna", "too late", TIMESTAMPS[2])
        run(deadline=deadline)
        assert work("anna") == "in time"
        assert "collected; a newer one is late" in " ".join(capsys.readouterr().out.split())

    def test_a_change_after_the_deadline_makes_a_submission_late(self, exchange, run, work):
        folder = submit(exchange, "anna", "as it was")
        time.sleep(0.05)
        deadline = from_now()
        time.sleep(0.05)
        (folder / f"{NAME}.ipynb").write_text("changed")
        run(deadline=deadline)
        assert work("anna") is None

    def test_a_change_while_it_is_copied_after_the_deadline_too(self, exchange, run, work, monkeypatch):
        folder, calls, examine = submit(exchange, "anna"), [], snapshot.examine

        def late_change(opened):
            listing = examine(opened)
            calls.append(opened)
            if len(calls) == 2:  # the copy's own, after the search for what is in time
                time.sleep(1)
                (folder / f"{NAME}.ipynb").write_text("changed")
            return listing

        monkeypatch.setattr(snapshot, "examine", late_change)
        assert run(deadline=from_now(seconds=0.8)) == 1
        assert len(calls) == 3 and work("anna") is None

    def test_what_was_collected_in_time_stays_when_something_newer_is_late(self, exchange, run, work):
        submit(exchange, "anna", "in time", TIMESTAMPS[1])
        run()
        time.sleep(0.05)
        deadline = from_now()
        time.sleep(0.05)
        submit(exchange, "anna", "too late", TIMESTAMPS[2])
        run(deadline=deadline)
        assert work("anna") == "in time"

    def test_a_deadline_set_afterwards_brings_the_older_one_back(self, exchange, run, work):
        submit(exchange, "anna", "in time", TIMESTAMPS[1])
        time.sleep(0.05)
        deadline = from_now()
        time.sleep(0.05)
        submit(exchange, "anna", "too late", TIMESTAMPS[2])
        run()
        assert work("anna") == "too late"
        run(deadline=deadline)
        assert work("anna") == "in time"

    @pytest.mark.parametrize(
        "options, sentence",
        [
            ({"lab": None, "deadline": "2026-12-01 18:00"}, "those of one lab: name it"),
            ({"deadline": "tomorrow"}, "'tomorrow' is no time: write it as"),
            ({"deadline": "2026-12-01"}, "'2026-12-01' is no time"),
            ({"extend": ["ben=2026-12-01 18:00"]}, "has no deadline that could be extended"),
            ({"deadline": "2026-12-01 18:00", "extend": ["ben"]}, "--extend takes NAME="),
        ],
    )
    def test_what_is_no_deadline_is_refused_and_nothing_is_collected(self, exchange, run, work, options, sentence):
        submit(exchange, "anna")
        with pytest.raises(CourseError, match=sentence) as refused:
            run(**options)
        assert refused.value.code == 2 and work("anna") is None

    def test_a_name_that_nobody_has_is_asked_about(self, exchange, run, capsys):
        run(deadline="2026-12-01 18:00", extend=["bne=2026-12-02 18:00"])
        assert "bne has not opened a lab yet: is the name right?" in capsys.readouterr().out


def restore(exchange, backup, restored):
    """Give all files new change times, as unpacking does, and note the restore."""
    before = exchange.with_name("before")
    exchange.rename(before)
    shutil.copytree(before, exchange)
    note = json.dumps({"backup": backup, "restored": time.time() if restored is None else restored})
    (exchange / "outbound" / ".restored.json").write_text(note)


class TestRestore:
    def test_what_was_collected_before_stays_in_time_and_nothing_is_newer(self, exchange, directory, run, work, capsys):
        submit(exchange, "anna", "in time")
        run()
        time.sleep(0.05)
        deadline = from_now()
        time.sleep(0.05)
        shutil.copytree(exchange / "inbound", exchange / "copy")
        shutil.rmtree(exchange / "inbound")
        (exchange / "copy").rename(exchange / "inbound")
        capsys.readouterr()
        assert run(deadline=deadline) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert "as collected before" in output and "late" not in output
        assert class_state.read(directory, exchange).standings["anna", LAB].note == ""
        shutil.rmtree(directory / "anna")
        assert run() == 0 and work("anna") == "in time"

    def test_other_files_under_the_same_name_are_newer(self, exchange, run, capsys):
        folder = submit(exchange, "anna", "in time")
        run()
        time.sleep(0.05)
        deadline = from_now()
        time.sleep(0.05)
        (folder / f"{NAME}.ipynb").write_text("changed")
        capsys.readouterr()
        run(deadline=deadline)
        output = " ".join(capsys.readouterr().out.split())
        assert "late by 1 min" in output and "as collected before" not in output

    def test_what_a_backup_has_counts_as_handed_in_when_it_was_made(self, exchange, run, work, capsys):
        submit(exchange, "anna", "in time")
        time.sleep(0.05)
        backup = time.time()
        time.sleep(0.05)
        deadline = from_now()
        time.sleep(0.05)
        restore(exchange, backup, None)
        assert run(deadline=deadline) == 0
        assert work("anna") == "in time"
        output = capsys.readouterr().out
        assert output.count("The exchange was restored on") == 1
        run(deadline=datetime.fromtimestamp(backup - 1, timezone.utc).isoformat())
        assert "not collected" in " ".join(capsys.readouterr().out.split())

    def test_what_is_handed_in_after_a_restore_has_its_own_time(self, exchange, run, work):
        backup = time.time() - 100
        restore(exchange, backup, backup + 50)
        submit(exchange, "anna", "after it")
        run(deadline=from_now(seconds=-30))
        assert work("anna") is None

    @pytest.mark.parametrize(
        "note", ["", "[]", '{"backup": 1}', '{"backup": "x", "restored": 2}', '{"backup": 9e9, "restored": 1}',
                 '{"backup": NaN, "restored": 1}', '{"backup": 0, "restored": 1e99}'],
    )  # fmt: skip
    def test_a_note_that_cannot_be_used_is_ignored_with_a_sentence(self, exchange, directory, run, work, capsys, note):
        submit(exchange, "anna")
        (exchange / "outbound" / ".restored.json").write_text(note)
        run(deadline=from_now(hours=-1))
        assert work("anna") is None
        assert "outbound/.restored.json cannot be used: " in capsys.readouterr().out
        assert any(".restored.json" in sentence for sentence in class_state.read(directory, exchange).missing)


class TestContent:
    @pytest.mark.parametrize("emptied", [False, True])
    @pytest.mark.parametrize("name", ["submission_secret.txt", "timestamp.txt"])
    def test_a_half_written_submission_is_not_taken_and_the_one_before_is(
        self, exchange, run, work, capsys, name, emptied
    ):
        submit(exchange, "anna", "whole", TIMESTAMPS[1])
        path = submit(exchange, "anna", "half", TIMESTAMPS[2]) / name
        path.unlink()
        if emptied:  # nbgrader opens the file, then writes it
            path.touch()
        assert run() == 1
        assert work("anna") == "whole"
        assert f"anna, {LAB}: the submission of {TIMESTAMPS[2]} was left out. It is not complete" in (
            " ".join(capsys.readouterr().out.split())
        )

    def test_links_and_special_and_large_files_are_left_out_and_named(
        self, tmp_path, exchange, directory, run, monkeypatch, capsys
    ):
        monkeypatch.setattr(snapshot, "MAX_FILE_BYTES", 1000)
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "grades.csv").write_text("secret")
        folder = submit(exchange, "anna")
        (folder / "link.py").symlink_to(tmp_path / "outside" / "grades.csv")
        (folder / "folder").symlink_to(tmp_path / "outside")
        os.link(tmp_path / "outside" / "grades.csv", folder / "hard.py")
        os.mkfifo(folder / "pipe.py")
        (folder / "large.py").write_bytes(bytes(1001))
        (folder / "closed").mkdir(mode=0)
        (folder / "a" / "b" / "c" / "d" / "e").mkdir(parents=True)
        (folder / "a" / "b" / "c" / "d" / "e" / "deep.py").touch()
        (folder / "fine.py").touch()
        assert run() == 1
        place = directory / "anna" / LAB
        assert {path.name for path in place.iterdir()} == {f"{NAME}.ipynb", "fine.py"}
        reasons = dict(re.findall(rf"anna, {LAB}: (\S+) was left out: ([^.]+)\.", capsys.readouterr().out))
        assert reasons == {
            "link.py": "it is a link",
            "folder": "it is a link",
            "hard.py": "it is a hard link: the file has another name",
            "pipe.py": "it is no file",
            "large.py": "it is larger than 0 MB",
            "a/b/c/d/e": "it lies more than 4 folders deep",
            **({} if os.geteuid() == 0 else {"closed": "it cannot be read (Permission denied)"}),
        }

    def test_all_files_together_are_bounded_and_what_is_graded_comes_first(
        self, exchange, directory, run, monkeypatch, capsys
    ):
        monkeypatch.setattr(snapshot, "MAX_BYTES", 1000)
        folder = submit(exchange, "anna", bytes(600))
        (folder / "0.weights").write_bytes(bytes(600))
        assert run() == 1
        assert [path.name for path in (directory / "anna" / LAB).iterdir()] == [f"{NAME}.ipynb"]
        assert "0.weights was left out: with it the submission is larger" in capsys.readouterr().out

    @pytest.mark.parametrize("text", [b"  ", b"\xff", bytes(1001)])
    def test_a_secret_that_is_none_is_not_taken(self, exchange, run, work, capsys, text):
        (submit(exchange, "anna") / "submission_secret.txt").write_bytes(text)
        assert run() == 1 and work("anna") is None
        assert "Its submission_secret.txt is empty or cannot be read." in capsys.readouterr().out

    def test_of_too_many_files_those_are_left_out_that_are_not_graded(
        self, exchange, directory, run, monkeypatch, capsys
    ):
        monkeypatch.setattr(snapshot, "MAX_FILES", 6)
        monkeypatch.setattr(collect, "MAX_NAMED", 2)
        folder = submit(exchange, "anna")
        (folder / "z").mkdir()
        (folder / "z" / "module.py").touch()
        for number in range(6):
            (folder / f"{number}.png").touch()
        assert run() == 1
        names = {path.name for path in (directory / "anna" / LAB).rglob("*.*")}
        assert names == {f"{NAME}.ipynb", "module.py", "0.png", "1.png"}
        output = capsys.readouterr().out
        assert "2.png was left out: the submission has more than 6 files." in output
        assert "5.png" not in output and "2 more files were left out." in output

    def test_of_very_many_those_after_the_graded_are_not_looked_at(self, exchange, directory, run, monkeypatch, capsys):
        monkeypatch.setattr(snapshot, "MAX_ENTRIES", 6)
        folder = submit(exchange, "anna")
        (folder / "module.py").touch()
        for number in range(4):
            (folder / f"{number}.png").touch()
        assert run() == 1
        names = {path.name for path in (directory / "anna" / LAB).iterdir()}
        assert names == {f"{NAME}.ipynb", "module.py", "0.png", "1.png"}
        assert (
            "2.png was left out: like all that follows, it comes after 6 files and folders" in capsys.readouterr().out
        )

    def test_too_many_notebooks_are_refused_and_the_submission_before_counts(
        self, exchange, run, work, monkeypatch, capsys
    ):
        monkeypatch.setattr(snapshot, "MAX_FILES", 5)
        submit(exchange, "anna", "few", TIMESTAMPS[1])
        folder = submit(exchange, "anna", "many", TIMESTAMPS[2])
        for number in range(5):
            (folder / f"{number}.py").touch()
        assert run() == 1
        assert work("anna") == "few"
        assert "It has more than 5 notebooks and Python files." in capsys.readouterr().out

    def test_folders_and_files_that_become_links_while_they_are_copied_lead_nowhere(
        self, tmp_path, exchange, directory, run, monkeypatch, capsys
    ):
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "module.py").write_text("secret")
        folder, calls, examine = submit(exchange, "anna"), [], snapshot.examine
        (folder / "sub").mkdir()
        (folder / "sub" / "module.py").write_text("own")
        (folder / "own.py").write_text("own")

        def swap(opened):
            listing = examine(opened)
            calls.append(opened)
            if len(calls) == 2:
                shutil.rmtree(folder / "sub")
                (folder / "sub").symlink_to(outside)
                (folder / "own.py").unlink()
                (folder / "own.py").symlink_to(outside / "module.py")
            return listing

        monkeypatch.setattr(snapshot, "examine", swap)
        assert run() == 1
        assert {path.name for path in (directory / "anna" / LAB).rglob("*")} == {f"{NAME}.ipynb"}
        assert re.findall(r": (\S+) was left out: it cannot be read", capsys.readouterr().out) == [
            "own.py",
            "sub/module.py",
        ]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
    def test_a_learner_who_closes_the_folder_is_named_and_the_others_are_collected(self, exchange, run, work, capsys):
        submit(exchange, "ben", "his")
        (exchange / "inbound" / "anna").chmod(0)
        assert run() == 1
        assert work("ben") == "his"
        assert "The learner's folder cannot be read (Permission denied)." in capsys.readouterr().out

    def test_a_submission_that_goes_away_while_it_is_looked_at(self, exchange, run, work, monkeypatch, capsys):
        calls, entries = [], snapshot._entries

        def gone(*about):
            calls.append(about)
            if len(calls) == 2:  # while hers is copied
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return entries(*about)

        monkeypatch.setattr(snapshot, "_entries", gone)
        submit(exchange, "anna")
        submit(exchange, "ben", "his")
        assert run() == 1
        assert (work("anna"), work("ben")) == (None, "his")
        assert "was left out. It cannot be read (No such file or directory)." in capsys.readouterr().out

    def test_names_of_labs_that_there_are_not_are_not_looked_at(self, exchange, run, monkeypatch):
        folder, examined, examine = submit(exchange, "anna"), [], snapshot.examine
        for number in range(3):
            shutil.copytree(folder, folder.with_name(folder.name.replace(LAB, f"lab{number}_of_mine")))
        monkeypatch.setattr(snapshot, "examine", lambda opened: examined.append(opened) or examine(opened))
        assert run(None) == 0
        assert len(examined) == 3  # to list it, and before and after it is copied

    @pytest.mark.parametrize("name", ["assessment", LAB])
    def test_who_has_the_name_of_a_part_of_the_course_is_left_out(self, exchange, run, work, capsys, name):
        (exchange / "inbound" / name).mkdir()
        submit(exchange, name)
        submit(exchange, "ben", "his")
        assert run() == 1
        assert (work(name), work("ben")) == (None, "his")
        assert f"{name}, {LAB}: This is the name of a part of the course: " in capsys.readouterr().out

    def test_a_link_in_the_place_of_a_submission(self, tmp_path, exchange, run, work):
        (submit(exchange, "anna", "elsewhere")).rename(tmp_path / "elsewhere")
        (exchange / "inbound" / "anna" / f"a+{LAB}+{TIMESTAMPS[1]}+x").symlink_to(tmp_path / "elsewhere")
        assert run() == 1
        assert work("anna") is None

    def test_names_whose_bytes_are_no_characters_or_control_the_terminal(self, exchange, directory, run, capsys):
        (submit(exchange, "anna") / "\x1b[2J.py").symlink_to("/")
        (folder,) = (os.fsencode(path) for path in (exchange / "inbound" / "anna").iterdir())
        with open(folder + b"/x\xe9.py", "wb") as file:
            file.write(b"own")
        os.symlink(b"/", folder + b"/\xff.py")
        assert run() == 1
        assert sorted(os.listdir(os.fsencode(directory / "anna" / LAB))) == [f"{NAME}.ipynb".encode(), b"x\xe9.py"]
        output = capsys.readouterr().out
        assert r": \x1b[2J.py was left out" in output and r": \xff.py was left out" in output and "\x1b" not in output


class TestPlace:
    def test_what_an_instructor_has_put_there_stays(self, exchange, directory, run, work, capsys):
        (directory / "anna" / LAB).mkdir(parents=True)
        (directory / "anna" / LAB / f"{NAME}.ipynb").write_text("sent by mail")
        submit(exchange, "anna", "from the hub")
        assert run() == 1
        assert work("anna") == "sent by mail"
        assert "is not from here: move it away" in " ".join(capsys.readouterr().out.split())

    def test_what_a_killed_run_has_left_is_removed_and_collected_again(self, exchange, directory, run, work):
        submit(exchange, "anna", "hers")
        run()
        (directory / ".collecting-x").mkdir()
        (directory / "anna" / LAB).rename(directory / ".collecting-x" / "old")
        run()
        assert work("anna") == "hers"
        assert not list(directory.glob(".collecting-*"))

    def test_a_full_disk_leaves_what_was_collected_and_a_sentence(self, exchange, directory, run, work):
        submit(exchange, "anna", "first", TIMESTAMPS[1])
        run()
        submit(exchange, "anna", bytes(100_000), TIMESTAMPS[2])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # as if no more went on the disk
        try:
            with pytest.raises(CourseError, match="cannot be written"):
                run()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert work("anna") == "first" and not list(directory.glob(".collecting-*"))
        assert run() == 0 and len(work("anna")) == 100_000

    def test_a_class_that_is_being_graded_is_left_alone(self, exchange, directory, run, work):
        submit(exchange, "anna", "first", TIMESTAMPS[1])
        run()
        submit(exchange, "anna", "second", TIMESTAMPS[2])
        results = directory.with_name("class-graded")
        results.mkdir()
        with (results / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(CourseError, match=r"is grading .*: wait until it has ended"):
                run()
        assert work("anna") == "first"
        run()
        assert work("anna") == "second"

    def test_the_receipt_is_none_of_the_class_to_be_graded(self, exchange, directory, run):
        submit(exchange, "anna")
        run(deadline=from_now(hours=1), extend=[f"ben={from_now(hours=2)}"])
        entry = json.loads((directory / receipt.FILE).read_text())["collected"]["anna"][LAB]
        assert (entry["secret"], entry["timestamp"], entry["notebooks"]) == (exchanges.SECRET, TIMESTAMPS[0], [NAME])
        assert {one.learner for one in submissions.find(directory, {NAME: TINY}, {})} == {"anna"}
        known = receipt.read(directory)
        assert known.deadline(LAB).of("ben") > known.deadline(LAB).of("anna") > known.entry("anna", LAB).collected

    def test_a_damaged_receipt_is_a_sentence(self, exchange, directory, run):
        directory.mkdir()
        (directory / receipt.FILE).write_text("{}")
        with pytest.raises(CourseError, match=r"cannot be read: move .* away and collect again"):
            run()


def test_without_an_exchange_and_in_a_learners_lab_a_sentence_says_so(tmp_path, exchange, directory):
    with pytest.raises(CourseError) as refused:
        collect.collect(None, directory, tmp_path / "none")
    assert str(refused.value) == (
        f"There is no exchange at {tmp_path}/none: this command is for an instructor's lab on the hub; "
        "--exchange names another folder."
    )
    submit(exchange, "anna")
    shutil.rmtree(exchange / "inbound" / "ben")
    (exchange / "inbound" / "anna").rename(tmp_path / "inbound")
    shutil.rmtree(exchange / "inbound")
    (tmp_path / "inbound").rename(exchange / "inbound")
    with pytest.raises(CourseError, match="is one learner's: this command is for an instructor's lab"):
        collect.collect(None, directory, exchange)


def test_an_unknown_lab_is_named_with_those_that_there_are(run):
    with pytest.raises(CourseError, match="There is no lab '9': name one of lab0"):
        run("9")
