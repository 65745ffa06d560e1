"""What a rank logs is read again; whatever else the files hold raises nothing."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib.ranks import run_record
from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.launch import Result
from course_lib.ranks.run_record import RankRecord, RunRecord

DONE = Result(0, 1.0)


def read(folder, ranks=2):
    return run_record.read(folder, ranks, DONE)


def test_what_a_rank_logs_is_read(tmp_path, monkeypatch):
    weights = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(4, np.float16)]
    for rank in range(2):
        monkeypatch.setenv("HOROVOD_RANK", str(rank))
        log = Log(tmp_path)
        log.note("init", rank=rank, size=2)
        log.note("epoch", epoch=0, first=0, steps=2)
        log.note("progress", steps=3, updates=3, values=18)
        log.note("digest", updates=1, digest=[1.0] * 5)
        log.note("digest", updates=2, digest=[1.0 + rank] * 5)
        log.append([np.arange(2.0), np.zeros(0)])
        log.append([np.array([7.0])])
        log.append([])
        log.save_weights(weights, [True, False])
        log.save_weights([weights[0] + rank, weights[1]], [True, False])  # what counts are the last ones
    record = run_record.read(tmp_path, 2, DONE, printed={1: ["hello"]})
    one = record.ranks[1]
    assert [step.tolist() for step in one.examples] == [[0, 1], [], [7]]
    assert (one.first("init"), one.last("none"), one.printed) == ({"rank": 1, "size": 2}, None, ("hello",))
    assert (one.number("progress", "values"), one.number("none", "values")) == (18, 0)
    assert (one.epochs, one.epoch_examples(0).tolist()) == ((2,), [0, 1, 7])
    assert {updates: digest.tolist() for updates, digest in one.digests.items()} == {1: [1.0] * 5, 2: [2.0] * 5}
    assert (one.values, one.weights[1].dtype, one.trainable) == (6, np.float16, (True, False))
    assert record.joined and record.trained and record.agreement() == [(2, False)]
    assert record.weights_differ() == 1.0
    assert not {path.name for path in tmp_path.iterdir()} - {
        f"rank-{rank}.{end}" for rank in range(2) for end in ("jsonl", "steps", "examples", "npz")
    }


def test_ranks_that_say_nonsense_have_not_joined():
    def joined(*inits):
        return RunRecord(DONE, tuple(RankRecord(rank, {"init": [init]}) for rank, init in enumerate(inits))).joined

    assert joined({"rank": 1, "size": 2}, {"rank": 0, "size": 2})
    assert not joined({"rank": 1, "size": 2}, {"rank": 1, "size": 2})
    assert not joined({"rank": [1], "size": 2}, {"rank": {}, "size": 2})
    assert not joined({"rank": 0, "size": "2"}, {})


def test_epochs_end_where_the_next_one_begins():
    records = {"epoch": [{"first": 0, "steps": 2}, {"first": 3, "steps": 1}]}
    rank = RankRecord(0, records, examples=tuple(np.full(1, n, np.float32) for n in range(5)))
    assert [rank.epoch_examples(epoch).tolist() for epoch in range(3)] == [[0, 1, 2], [3, 4], []]


def test_weights_are_compared_bit_for_bit():
    def differ(*weights):
        return RunRecord(DONE, tuple(RankRecord(i, weights=w) for i, w in enumerate(weights))).weights_differ()

    one, other, nan = np.array([1.0, 2.0]), np.array([1.0, np.nextafter(2.0, 3.0)]), np.array([np.nan, 2.0])
    assert differ((one,), (one.copy(),)) == differ((nan,), (nan.copy(),)) == 0.0
    assert differ((one,), (other,)) > 0.0
    assert differ((one,), ()) is None
    assert differ((one,), (one[:1],)) == differ((one,), (one, one)) == float("inf")
    assert differ((one,), (nan,)) > 1
    assert differ((one, one), (one, other)) == differ((one,), (other,))


def test_what_a_kill_cut_short_is_read_as_far_as_it_goes(tmp_path):
    (tmp_path / "rank-0.jsonl").write_bytes(
        b'{"kind": "init", "size": 2}\n' + b"[" * 50_000 + b'\n"x"\n{"kind": 3}\n{"size": 2}\n{"kind": "init", "si'
    )
    (tmp_path / "rank-0.steps").write_bytes(np.array([2, -5, 2**31 - 1, 1], "<i4").tobytes() + b"x")
    (tmp_path / "rank-0.examples").write_bytes(np.arange(3, dtype="<f4").tobytes() + b"x")
    (tmp_path / "rank-0.npz").mkdir()
    (tmp_path / "rank-1.jsonl").mkdir()
    record = read(tmp_path)
    assert record.ranks[0].records == {"init": [{"size": 2}]}
    assert [list(step) for step in record.ranks[0].examples] == [[0, 1], []]
    assert record.ranks[0].weights == () and record.ranks[1] == RankRecord(1)


def archive(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        archive(trainable=np.ones(1, bool), w0=np.array([{}, []], object)),
        archive(trainable=np.ones(1, bool), w0=np.array(["x"])),
        archive(trainable=np.ones(2, bool), w0=np.ones(3)),
        archive(w0=np.ones(3)),
        archive(trainable=np.ones(1, bool), w0=np.zeros(run_record.MAX_FILE_BYTES, np.uint8)),  # 64 KB that unpack so
        archive(trainable=np.ones(1, bool), w0=np.ones(3))[:-9],
        archive(trainable=np.ones((1, 2), bool), w0=np.ones(3)),
    ],
)
def test_weights_that_are_none_are_not_read(tmp_path, content):
    (tmp_path / "rank-0.npz").write_bytes(content)
    assert read(tmp_path, 1).ranks[0].weights == ()


def test_weights_of_which_any_byte_is_wrong_raise_nothing(tmp_path):
    whole = archive(trainable=np.ones(1, bool), w0=np.arange(9.0))
    for place in range(len(whole)):
        (tmp_path / "rank-0.npz").write_bytes(whole[:place] + bytes([whole[place] ^ 99]) + whole[place + 1 :])
        assert read(tmp_path, 1).size == 1


def test_a_file_is_not_read_beyond_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(run_record, "MAX_FILE_BYTES", 40)
    (tmp_path / "rank-0.jsonl").write_text('{"kind": "init", "n": 1}\n{"kind": "init", "n": 2}\n')
    assert read(tmp_path, 1).ranks[0].records == {"init": [{"n": 1}]}


ANYTHING = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, -1, 10**30, "", "a"]) | st.floats(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
RECORDS = {
    "init": {"rank": 0, "size": 2},
    "epoch": {"first": 0, "steps": 2},
    "progress": {"steps": 2, "updates": 2, "values": 4},
    "digest": {"updates": 2, "digest": [1.0] * 5},
    "collective": {"operation": "broadcast", "values": 4},
}


def spoilt(kind):
    """A record of which some entries hold anything."""
    return st.dictionaries(st.sampled_from([*RECORDS[kind], "kind"]), ANYTHING, max_size=1).map(
        lambda entries: json.dumps({"kind": kind, **RECORDS[kind], **entries}).encode()
    )


LINES = st.lists(
    st.one_of(*map(spoilt, RECORDS), ANYTHING.map(lambda value: json.dumps(value).encode()), st.binary(max_size=20)),
    max_size=6,
)
WEIGHTS = st.binary(max_size=50) | st.lists(
    st.lists(st.floats(width=32), max_size=3).map(lambda values: np.array(values, np.float32)), max_size=2
).map(lambda arrays: archive(trainable=np.ones(len(arrays), bool), **{f"w{i}": a for i, a in enumerate(arrays)}))


FILES = st.tuples(LINES.map(b"\n".join), st.binary(max_size=16), st.binary(max_size=16), WEIGHTS)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.tuples(FILES, FILES))
def test_whatever_the_files_hold_nothing_is_raised(tmp_path, files):
    for rank, contents in enumerate(files):
        for end, content in zip(("jsonl", "steps", "examples", "npz"), contents):
            (tmp_path / f"rank-{rank}.{end}").write_bytes(content)
    record = read(tmp_path)
    assert record.size == len(record.ranks)
    record.agreement(), record.weights_differ(), record.trained, record.joined
    for rank in record.ranks:
        rank.epochs, rank.digests, rank.values, rank.epoch_examples(0), rank.epoch_examples(10**20)
        rank.number("progress", "updates"), rank.total("collective", "values", operation="broadcast")
