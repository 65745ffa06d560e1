"""One script handed in twice is listed; independent scripts are not; nothing that is handed in breaks the page."""

from __future__ import annotations

import ast
import csv
import io
import itertools
import re

import pytest

from benchmarks import copies as benchmark
from course_grader.classroom import copies
from course_grader.display import similar
from course_lib.authoring import conversions
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

TEN = {name: text.encode() for name, text in benchmark.independent().items()}
STARTER = conversions.script(conversions.ASSESSMENT).read_bytes()
SNIPPET = b"""

def rotated(images, labels, turns, generator):
    chosen = generator.uniform([len(images)], 0, 1) < turns[0]
    quarter = tf.reverse(tf.transpose(images, [0, 2, 1, 3]), axis=[1 if turns[1] else 2])
    images = tf.where(chosen[:, None, None, None], quarter, images)
    smooth = tf.one_hot(labels, 10) * (1 - turns[2]) + turns[2] / 10
    if turns[3] is not None and len(turns) > 4:
        images = tf.clip_by_value(images + generator.normal(images.shape) * turns[3], 0, 255)
        smooth = smooth / tf.reduce_sum(smooth, axis=-1, keepdims=True)
    weights = {"first": turns[0], "second": turns[1:], "rest": [turn ** 2 for turn in turns]}
    while weights["first"] > 1.0 or not all(weights["rest"]):
        weights["first"] -= min(weights["rest"]) or 0.5
        weights["rest"] = [rest + 1e-3 for rest in weights["rest"] if rest > weights["first"]]
    return images, smooth, lambda x: x @ weights["second"] + sum(weights["rest"][::2])
"""


def listed(folder, scripts, against=None):
    pairs = copies.write(folder, scripts, against or {})
    return {(pair.first.name, pair.second.name) for pair in pairs}


def changed(name, change):
    return change(TEN[name].decode()).encode()


def test_the_ten_scripts_are_scripts():
    assert len(TEN) == 10
    assert all(b"horovod" in text and b"assessment_cnn" in text for text in TEN.values())


@pytest.mark.slow
def test_the_rates_are_those_of_the_docs():
    text = (ROOT / "docs" / "copies.md").read_text(encoding="utf-8")
    stated = {row[0]: (int(row[1]), int(row[2])) for row in re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \|", text, re.M)}
    rows = benchmark.measure()
    assert {row.kind for row in rows} == stated.keys()
    for row in rows:
        pairs, found = stated[row.kind]
        assert len(row.pairs) == pairs
        assert row.listed >= found if row.kind.startswith("cop") else row.listed <= found, row.kind


@pytest.mark.parametrize("disguise", benchmark.DISGUISES.values(), ids=lambda disguise: disguise.__name__)
def test_the_disguises_disguise(disguise):
    for text in benchmark.independent().values():
        copy = disguise(text)
        ast.parse(copy)
        assert copy != text or disguise is benchmark.reordered


def test_six_names_changed(tmp_path):
    copy = changed("tape_loop", lambda text: benchmark.renamed(text, 6))
    [pair] = copies.write(tmp_path, {**TEN, "again": copy}, {})
    assert (pair.first.name, pair.second.name) == ("tape_loop", "again")
    assert pair.similarity > 0.95
    assert all(line == partner for line, partner in pair.first.lines.items())
    assert len(pair.first.lines) > 70


def test_lines_of_moved_functions_match_where_they_are_now(tmp_path):
    copy = changed("own_model", benchmark.reordered)
    [pair] = copies.write(tmp_path, {"one": TEN["own_model"], "two": copy}, {})
    one, two = pair.first.text.split("\n"), pair.second.text.split("\n")
    moved = {line: partner for line, partner in pair.first.lines.items() if line != partner}
    right = [one[line - 1] == two[partner - 1] for line, partner in moved.items()]
    assert len(moved) > 20
    assert sum(right) >= 0.9 * len(right)


def test_lines_are_those_of_the_file(tmp_path):
    """Though pygments drops empty lines at the start, and copydetect's offsets are wrong behind a class's name."""
    first = b"\n\n\n" + TEN["trainer_class"]
    second = changed("trainer_class", benchmark.renamed).replace(b"\n", b"\r\n")
    [pair] = copies.write(tmp_path, {"one": first, "two": second}, {})
    lines = pair.first.text.split("\n")
    matching = [lines[number - 1] for number in pair.first.lines]
    assert "class Trainer:" in matching
    assert "" not in matching
    assert all(line == partner + 3 for line, partner in pair.first.lines.items())


def test_a_longer_script_with_a_copy_in_it(tmp_path):
    both = TEN["notebook_style"] + TEN["keras_sequence"]
    [pair] = copies.write(tmp_path, {"part": TEN["notebook_style"], "more": both}, {})
    assert pair.first.similarity > 0.9
    assert pair.second.similarity < 0.6
    assert pair.similarity == pair.first.similarity


def test_what_many_share_is_nobodys_own(tmp_path):
    given = dict(itertools.islice(TEN.items(), 6))
    short = {name: b"\n".join(text.split(b"\n")[:40]) for name, text in given.items()}
    with_snippet = {name: text + SNIPPET for name, text in short.items()}
    assert listed(tmp_path, with_snippet) == set()
    two = dict(itertools.islice(with_snippet.items(), 2))
    assert listed(tmp_path, two) == {tuple(two)}, "what only two have in common may be copied"


def test_a_copy_that_many_handed_in_is_still_found(tmp_path):
    ring = {f"copy {number}": changed("batch_by_batch", benchmark.renamed) for number in range(5)}
    names = ["batch_by_batch", *ring]
    assert listed(tmp_path, {**TEN, **ring}) == set(itertools.combinations(names, 2))


def test_earlier_classes_are_compared_with_this_one_only(tmp_path):
    earlier = {"spring/a": changed("best_epoch", benchmark.disguised), "spring/b": TEN["best_epoch"]}
    assert listed(tmp_path, {"best": TEN["best_epoch"], "other": TEN["own_model"]}, earlier) == {
        ("best", "spring/a"),
        ("best", "spring/b"),
    }


@pytest.mark.parametrize("name", ["assessment", "large"])
def test_the_reference_is_recognised(tmp_path, name):
    text = (ROOT / "assessment" / "reference" / f"{name}.py").read_text(encoding="utf-8")
    found = listed(tmp_path, {**TEN, "learner": benchmark.disguised(text).encode()})
    assert found == {("learner", f"reference/{name}.py")}


def test_who_changes_little_is_not_judged(tmp_path):
    scripts = {name: text.encode() for name, text in benchmark.by_the_recipe().items()}
    assert listed(tmp_path, scripts) == set()
    assert "too little code to compare" in (tmp_path / "similar.html").read_text()


def test_the_same_file_twice_is_listed_however_little_it_changes(tmp_path):
    text = benchmark.by_the_recipe()["plain"].encode()
    [pair] = copies.write(tmp_path, {"one": text, "two": text + b"\n"}, {})
    assert pair.similarity == 1
    assert len(pair.first.lines) > 50


def test_the_starter_is_no_copy(tmp_path):
    assert listed(tmp_path, {"one": STARTER, "two": STARTER}) == set()
    assert (tmp_path / "similar.html").read_text().count("It is the starter, unchanged.") == 2


ODD = {
    "empty": b"",
    "blank": b" \n\t\n\r\n",
    "syntax": b"def (:\n  x = = 3\n'''",
    "binary": bytes(range(256)) * 40,
    "latin-1": "# naïve\nprint('é')\n".encode("latin-1"),
    "utf-16": "print(1)\n".encode("utf-16"),
    "unknown coding": b"# coding: nonsense\nprint(1)\n",
    "no text coding": b"# coding: hex\nprint(1)\n",
    "large": b"x = 1\n" * 20_000,
    "repeats": b"x = 1\n" * 3_000,
    "tabs": b"x = 1\n" + b"\t\n" * 40_000 + b"y = 1\n",
    "byte order mark": b"\xef\xbb\xbf" + TEN["own_model"],
    "base64": b"W = '" + b"QUJD" * 4096 + b"'\n",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_files_break_nothing(tmp_path, name):
    scripts = {"odd": ODD[name], "odd with a line": ODD[name] + b"\nprint()\n", "good": TEN["tape_loop"]}
    copies.write(tmp_path, scripts, {"spring/odd": ODD[name]})
    page = (tmp_path / "similar.html").read_text(encoding="utf-8")
    assert page.endswith("</html>\n")
    assert re.search("<dt>odd</dt>|>odd and spring/odd<", page), "either compared and listed, or left out with a reason"


def test_weights_do_not_hide_or_feign_a_copy(tmp_path):
    def with_weights(name, byte):
        return TEN[name] + b"\nWEIGHTS = b'" + (b"\\x%02x" % byte) * 3_000 + b"'\n"

    scripts = {"one": with_weights("own_model", 3), "two": with_weights("keras_sequence", 7)}
    assert listed(tmp_path, scripts) == set()
    assert listed(tmp_path, {**scripts, "three": TEN["own_model"]}) == {("one", "three")}


def test_the_table(tmp_path):
    copy = changed("own_model", benchmark.padded)
    [pair] = copies.write(tmp_path, {"anna, b": TEN["own_model"], "ben": copy}, {})
    head, row = csv.reader(io.StringIO((tmp_path / "similar.csv").read_text(encoding="utf-8")))
    assert head == ["first", "second", "similarity", "similarity_of_first", "similarity_of_second", "lines"]
    assert row[:2] == ["anna, b", "ben"]
    assert row[2] == f"{max(pair.first.similarity, pair.second.similarity):.2f}"
    assert row[3:5] == [f"{pair.first.similarity:.2f}", f"{pair.second.similarity:.2f}"]
    assert row[5] == str(len(pair.first.lines))


def test_the_page_is_complete_and_harmless(tmp_path):
    name = "<script>alert('1')</script>"
    evil = TEN["own_model"] + b"\n# <script>alert(2)</script> <img src=x onerror=alert(3)>\n"
    copies.write(tmp_path, {name: evil, "ben": TEN["own_model"]}, {})
    page = (tmp_path / "similar.html").read_text(encoding="utf-8")
    assert not re.search(r"<(script|img|link|iframe)\b|<[^>]*\s(on\w+|src)\s*=", page)
    assert "does not prove copying, and it changes no mark" in page
    assert "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt; and ben" in page


@pytest.mark.parametrize("scripts", [{"one": TEN["own_model"]}, {}])
def test_without_a_pair_the_page_says_so(tmp_path, scripts):
    assert copies.write(tmp_path, scripts, {}) == []
    page = (tmp_path / "similar.html").read_text(encoding="utf-8")
    assert "No two scripts are that similar." in page and ("The 0 scripts" in page) == (not scripts)
    assert (tmp_path / "similar.csv").read_text(encoding="utf-8").count("\n") == 1


def test_many_pairs_make_no_endless_page():
    side = similar.Side("a", "x = 1\n" * 100, 1.0, {1: 1})
    page = similar.page([similar.Pair(side, side)] * 500, {}, 40, 0, 0.5)
    assert page.count("<h2") == similar.SHOWN
    assert page.count('<th scope="row"') == 500


def test_scripts_of_an_earlier_class_are_collected(tmp_path):
    spring = tmp_path / "spring"
    for place in ("anna", "ben/assessment", "cem/a/b", "dana/a/b/c", "emil/.ipynb_checkpoints", "."):
        folder = spring / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "assessment.py").write_bytes(place.encode())
    (spring / "anna" / "other.py").write_bytes(b"")
    (spring / "fay").mkdir()
    (spring / "fay" / "assessment.py").symlink_to(spring / "anna" / "assessment.py")
    assert copies.collect(spring) == {
        "spring/anna": b"anna",
        "spring/ben/assessment": b"ben/assessment",
        "spring/cem/a/b": b"cem/a/b",
        "spring/dana/a/b/c": b"dana/a/b/c",
    }


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_scripts_is_refused(tmp_path, exists):
    folder = tmp_path / "spring"
    if exists:
        (folder / "anna").mkdir(parents=True)
    with pytest.raises(CourseError, match=r"spring has no assessment\.py to compare with: give the folder of a class"):
        copies.collect(folder)
