"""What a rank records and how it is read: signed, in order, whole; and what a script does that it need not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from course_lib.ranks import environment, run_record
from course_lib.ranks.instrumentation.recorder import Recorder
from course_lib.ranks.launch import Result

KEY = "a secret"


@pytest.fixture
def recorded(tmp_path):
    """A folder with the records of rank 0, signed, of 20 steps and updates."""
    (tmp_path / "rank-0.key").write_text(KEY)
    recorder = Recorder(tmp_path)
    recorder.note("init", rank=0, size=1)
    for number in range(20):
        recorder.append([np.arange(4.0)], [(number, 7, number + 1, 0)])
        recorder.progress(steps=number + 1, images=4, updates=number + 1, values=1)
    recorder.note("end")
    assert not (tmp_path / "rank-0.key").exists()
    return tmp_path


def read(folder: Path, key: str = KEY) -> evidence.RankEvidence:
    return run_record.read(folder, 1, Result(0, 1.0), keys=[key]).ranks[0]


def test_what_is_recorded_is_read(recorded):
    found = read(recorded)
    assert found.genuine
    assert (len(found.examples), found.number("progress", "updates")) == (20, 20)
    assert found.updates.tolist() == [[n, 7, n + 1, 0] for n in range(20)]


def lines(folder: Path) -> list[str]:
    return (folder / "rank-0.jsonl").read_text().splitlines(keepends=True)


def without_one(folder):
    kept = lines(folder)
    return "".join(kept[:3] + kept[4:])


def with_one_more(folder):
    return "".join(lines(folder)) + json.dumps({"kind": "progress", "updates": 99}) + "\n"


def one_twice(folder):
    kept = lines(folder)
    return "".join([*kept, kept[-1]])


def one_changed(folder):
    return "".join(lines(folder)).replace('"steps": 20', '"steps": 21')


@pytest.mark.parametrize("change", [without_one, with_one_more, one_twice, one_changed])
def test_a_record_that_is_left_out_added_repeated_or_changed_is_noticed(recorded, change):
    (recorded / "rank-0.jsonl").write_text(change(recorded))
    assert not read(recorded).genuine


def test_another_key_is_noticed(recorded):
    assert not read(recorded, "another").genuine


@pytest.mark.parametrize("name", ["steps", "examples", "updates"])
def test_numbers_that_are_changed_are_noticed_later_ones_may_follow(recorded, name):
    path = recorded / f"rank-0.{name}"
    content = path.read_bytes()
    path.write_bytes(content + b"more than the last record tells of")
    assert read(recorded).genuine
    path.write_bytes(b"\1" + content[1:])
    assert not read(recorded).genuine


@pytest.mark.parametrize("told", [{"bytes": {"other": 1}}, {"bytes": {"steps": "1"}}, {"bytes": 1}, {"sums": []}])
def test_sums_that_make_no_sense_raise_nothing(tmp_path, told):
    (tmp_path / "rank-0.key").write_text(KEY)
    Recorder(tmp_path).note("progress", **told)
    assert read(tmp_path).genuine is ("bytes" not in told or told["bytes"] == 1)


def test_a_last_record_that_a_kill_cut_short_is_no_forgery(recorded):
    (recorded / "rank-0.jsonl").write_text("".join(lines(recorded))[:-30])
    assert read(recorded).genuine


def write_updates(folder, rank, rows, variables=0):
    """Rows of [before, applied, after], or of these and a number for the variables."""
    rows = [row if len(row) == 4 else [*row, variables] for row in rows]
    (folder / f"rank-{rank}.updates").write_bytes(np.array(rows, "<i8").tobytes())


def test_updates_of_two_ranks_are_compared(tmp_path):
    for rank, applied in enumerate(([7, 7, 7], [7, 8, 7])):
        rows = [[n, one, n + 1] for n, one in enumerate(applied)]
        write_updates(tmp_path, rank, rows)
    found = run_record.read(tmp_path, 2, Result(0, 1.0))
    assert (found.applied_apart(), found.changed_between()) == (2, 0.0)


def test_weights_that_the_same_gradients_make_different_are_noticed(tmp_path):
    for rank in range(2):
        rows = [[rank, 7, rank + 5], [9, 7, 10], [10, 7, 11 + rank], [12 + rank, 7, 14]]
        write_updates(tmp_path, rank, rows)
    assert run_record.read(tmp_path, 2, Result(0, 1.0)).applied_apart() == 3


def test_weights_that_were_pushed_apart_between_two_updates_are_noticed(tmp_path):
    for rank in range(2):
        rows = [[rank, 7, 9], [9, 7, 10], [10 + rank, 7, 12 + rank], [12 + rank, 7, 14 + rank]]
        write_updates(tmp_path, rank, rows)
    assert run_record.read(tmp_path, 2, Result(0, 1.0)).applied_apart() == 3


def test_weights_are_read_with_those_of_not_long_before(tmp_path):
    now, before = np.arange(3, dtype="<f4"), np.ones(3, "<f4")
    Recorder(tmp_path).save_weights([now], [True], [before])
    (rank,) = run_record.read(tmp_path, 1, Result(0, 1.0)).ranks
    assert [w.tolist() for w in rank.weights] == [[0, 1, 2]] and [w.tolist() for w in rank.kept] == [[1, 1, 1]]


def test_weights_that_change_between_updates_are_counted_after_the_broadcast(tmp_path):
    rows = [[0, 7, 1], [5, 7, 6], [9, 7, 10], [11, 7, 12], [12, 7, 13]]
    write_updates(tmp_path, 0, rows)
    found = run_record.read(tmp_path, 1, Result(0, 1.0))
    assert (found.applied_apart(), found.changed_between()) == (None, 2 / 3)


def test_each_of_two_optimizers_is_compared_with_itself(tmp_path):
    rows = [[n if one == 5 else n + 100, 7, n + 1 if one == 5 else n + 101, one] for n in range(20) for one in (5, 6)]
    write_updates(tmp_path, 0, rows)
    assert run_record.read(tmp_path, 1, Result(0, 1.0)).changed_between() == 0.0


def test_ever_other_variables_do_not_hide_what_changes_in_between(tmp_path):
    write_updates(tmp_path, 0, [[10 * n, 7, 10 * n + 1, n % 10] for n in range(20)])
    assert run_record.read(tmp_path, 1, Result(0, 1.0)).changed_between() == 1.0


@pytest.mark.parametrize(("equal", "first"), [("4", 5), ("", None)])
def test_ranks_that_are_apart_at_each_update_must_have_started_so(tmp_path, equal, first):
    """Who makes the weights equal where a digest is due, and different before the update, is not believed."""
    for rank in range(2):
        write_updates(tmp_path, rank, [[10 * n + rank, 7, 10 * n + 5 + rank] for n in range(8)])
        digests = [{"kind": "digest", "updates": n, "steps": n, "digest": str(n) if str(n) == equal else f"{n}{rank}"}
                   for n in (1, 2, 4)]  # fmt: skip
        (tmp_path / f"rank-{rank}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in digests))
    assert run_record.read(tmp_path, 2, Result(0, 1.0)).applied_apart() == first


def test_weights_that_the_probe_has_not_written_are_not_read(tmp_path):
    (tmp_path / "rank-0.key").write_text(KEY)
    Recorder(tmp_path).save_weights([np.arange(3, dtype="<f4")], [True])
    assert len(read(tmp_path).weights) == 1
    (tmp_path / "rank-0.weights").write_bytes(np.ones(3, "<f4").tobytes())
    assert read(tmp_path).weights == ()


def test_who_goes_on_after_its_end_needs_a_look(recorded):
    assert run_record.read(recorded, 1, Result(0, 1.0)).looks() == ()
    with (recorded / "rank-0.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "progress", "steps": 30}) + "\n")
    assert run_record.read(recorded, 1, Result(0, 1.0)).looks() == ("goes on after its end",)


def test_nobody_puts_another_method_into_a_recorder(tmp_path):
    with pytest.raises(AttributeError):
        Recorder(tmp_path).note = print


@pytest.mark.parametrize("shape", ["1 2", "9" * 5000, ", ".join("9" * 20)])
def test_a_timeline_that_horovod_has_not_written_is_passed_over(recorded, shape):
    def reduced(shape):
        lines = (
            '{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "g"}},',
            '{"ph": "B", "name": "ALLREDUCE", "ts": 1, "pid": 1},',
            '{"ph": "E", "ts": 2, "pid": 1, "args": {"dtype": "float32", "shape": "[SHAPE]"}},'.replace("SHAPE", shape),
        )
        (recorded / "timeline.json").write_text("[\n" + "\n".join(lines))
        return run_record.read(recorded, 1, Result(0, 1.0), keys=[KEY]).collectives.elements

    assert reduced("3, 4") == {"ALLREDUCE": 12}
    assert not reduced(shape)


def test_weights_of_a_shape_that_no_array_has_are_none(recorded):
    record = {"shapes": [[2**31, 2**31, 2**31, 0]], "types": ["<f4"], "trainable": [True]}
    assert evidence._read_weights(b"", record) == ((), ())


SCRIPT = """
import collections, logging, os, sys, tempfile, threading
Point = collections.namedtuple("Point", "x")
logging.getLogger("x").warning("said")
open("/dev/null").close()
with tempfile.TemporaryFile() as file: file.write(b"x")
{}
"""


@pytest.mark.parametrize(
    "statement, told",
    [
        ("", []),
        ("import numpy; numpy.zeros(3)", []),
        ("import subprocess; subprocess.run(['true'])", ["starts a program", "starts a process"]),
        ("os.system('true')", ["starts a program"]),
        ("os.fork() or os._exit(0)", ["starts a process"]),
        ("import gc; gc.get_objects()", ["searches the interpreter's objects"]),
        (
            "import gc, numpy; numpy.fromfunction(lambda _: gc.get_objects(), (1,))",
            ["searches the interpreter's objects"],
        ),
        ("import gc, psutil; psutil._common.memoize(gc.get_objects)()", ["searches the interpreter's objects"]),
        ("t = threading.Thread(target=os.system, args=('true',)); t.start(); t.join()", ["starts a program"]),
        ("sys._getframe()", ["looks at the frames of functions"]),
        ("open('/proc/self/maps').close()", ["opens /proc/self/maps"]),
        ("import ctypes; ctypes.CDLL(None)", ["calls machine code"]),
        ("(lambda: 0).__code__", ["looks into a function or a frame"]),
        ("import socket; s = socket.socket(); s.bind(('127.0.0.1', 0))", ["opens a connection"]),
        ("exec('import gc; gc.get_objects()')", ["searches the interpreter's objects"]),
        ("os.kill(os.getpid(), 0)", ["sends a signal"]),
        ("import psutil; psutil.Process().send_signal(0)", ["sends a signal"]),
        ("open('/dev/full').close()", ["opens /dev/full"]),
    ],
)
def test_what_training_does_not_need_is_told_with_its_line(tmp_path, statement, told):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(statement))
    program = (
        "import runpy, sys\nfrom pathlib import Path\nfrom course_lib.ranks.instrumentation import listening\n"
        "from course_lib.ranks.instrumentation.recorder import Recorder\n"
        f"listening.watch(Recorder(Path({str(tmp_path)!r})), {str(script)!r})\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    env = {**os.environ, environment.MARKS: "/dev/full"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "rank-0.jsonl").read_text().splitlines()]
    assert {record["what"] for record in records} <= set(told)
    assert bool(records) == bool(told)
    assert {record["line"] for record in records} <= {0, 1, 7}
