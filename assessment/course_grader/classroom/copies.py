"""Find scripts that were handed in twice: pairs of assessment.py that are too similar, for the instructor to read.

copydetect compares fingerprints: all sequences of `LENGTH` characters of the code, in which each name is V and each
string is S. So names, comments, blank lines and the order of functions do not count. The starter and what the course
teaches are left out; between learners, so are the published reference and what many scripts of the class share.
Exercises in notebooks are not compared, because right answers of a few lines are alike. No mark depends on this.
docs/copies.md has the measurements behind the numbers below.
"""

from __future__ import annotations

import copy
import io
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from course_grader.display import similar
from course_grader.display.similar import Pair, Side
from course_lib.authoring import conversions
from course_lib.system.errors import CourseError
from course_lib.system.files import write as write_file

if TYPE_CHECKING:
    from copydetect import CodeFingerprint

SCRIPT = "assessment.py"
TABLE, PAGE = "similar.csv", "similar.html"
DEPTH = 4  # of folders in which an earlier class's scripts are searched for

LENGTH = 25  # characters of a fingerprint
THRESHOLD = 0.5  # least similarity of a listed pair
MIN_MATCH = 100  # characters that must match: shorter matches occur by chance
SHARED = (3, 0.2)  # code in more scripts than this number, and than this share of the class, is common code
ONE_SOURCE = 0.8  # scripts of this similarity count once for SHARED, so that copies in a group are still found
MAX_BYTES = 100_000  # a larger script is not compared
# Steps of the reference that lab 2 does not teach in the same words: they show that code is from the reference.
REFERENCE_ALONE = ("rate", "metrics")


@dataclass(frozen=True)
class Comparison:
    """The pairs, most similar first, and the scripts that were not compared: name → reason."""

    pairs: list[Pair]
    left_out: dict[str, str]


def write(results: Path, scripts: Mapping[str, bytes], against: Mapping[str, bytes]) -> list[Pair]:
    """Compare the scripts of a class with each other, with those of earlier classes, and with the reference.

    Writes similar.csv and similar.html into `results`.

    Args:
        scripts: learner → assessment.py.
        against: the same for earlier classes, from `collect`.

    Returns:
        The pairs, most similar first.
    """
    folder = conversions.ASSESSMENT
    recipe = {name: edits for name, edits in conversions.steps(folder).items() if name not in REFERENCE_ALONE}
    comparison = compare(
        scripts,
        against,
        starter=conversions.script(folder).read_bytes(),
        reference={f"reference/{path.name}": path.read_bytes() for path in sorted(folder.glob("reference/*.py"))},
        taught=[
            conversions.converted(recipe, folder),
            *(edit["new"] for edits in recipe.values() for edit in edits),
        ],
    )
    write_file(results / TABLE, similar.to_csv(comparison.pairs).encode("utf-8", "backslashreplace"))
    page = similar.page(comparison.pairs, comparison.left_out, len(scripts), len(against), THRESHOLD)
    write_file(results / PAGE, page.encode("utf-8", "backslashreplace"))
    return comparison.pairs


def collect(directory: Path) -> dict[str, bytes]:
    """Return the scripts of an earlier class: CLASS/LEARNER → assessment.py.

    `directory` has a folder for each learner. Raises CourseError (code 2) if it has no script, or one that cannot be
    read.
    """
    scripts = {}
    for parent, folders, files in os.walk(directory):
        parts = Path(parent).relative_to(directory).parts
        folders[:] = [] if len(parts) == DEPTH else sorted(name for name in folders if not name.startswith("."))
        path = Path(parent, SCRIPT)
        if parts and SCRIPT in files and not path.is_symlink():
            try:
                with path.open("rb") as file:
                    scripts["/".join((directory.resolve().name, *parts))] = file.read(MAX_BYTES + 1)
            except OSError as error:
                raise CourseError(f"{path} can't be read ({error.strerror}): fix its permissions.", code=2) from None
    if not scripts:
        advice = "give the folder of a class, which holds one folder for each learner."
        raise CourseError(f"{directory} has no {SCRIPT} to compare with: {advice}", code=2)
    return scripts


def compare(
    scripts: Mapping[str, bytes],
    against: Mapping[str, bytes],
    starter: bytes,
    reference: Mapping[str, bytes],
    taught: Sequence[str],
) -> Comparison:
    """Compare scripts with each other, with those of `against`, and with the reference.

    Args:
        scripts, against, reference: name → content.
        starter: the script with which all learners began.
        taught: pieces of code from the course.
    """
    start = _text(starter)
    class_texts, earlier_texts, reference_texts = (
        {name: _text(raw) for name, raw in group.items()} for group in (scripts, against, reference)
    )
    left_out = {
        name: reason for name, text in class_texts.items() if (reason := _unfit(text, len(scripts[name]), start))
    }
    class_texts = {name: text for name, text in class_texts.items() if name not in left_out}
    earlier_texts = {name: text for name, text in earlier_texts.items() if not _unfit(text, len(against[name]), start)}

    course = _hashes([_fingerprint(text) for text in (start, *taught)]) | _long_strings()
    references = {name: _without(_fingerprint(text), course) for name, text in reference_texts.items()}
    with_reference = {name: _without(_fingerprint(text), course) for name, text in class_texts.items()}
    common = _hashes(references.values())
    own = {name: _without(fingerprint, common) for name, fingerprint in with_reference.items()}
    shared = _shared(list(own.values()))
    own = {name: _without(fingerprint, shared) for name, fingerprint in own.items()}
    earlier = {name: _without(_fingerprint(text), course | common | shared) for name, text in earlier_texts.items()}

    candidates = [
        *(((a, with_reference[a]), other) for a, other in itertools.product(class_texts, references.items())),
        *itertools.combinations(own.items(), 2),
        *itertools.product(own.items(), earlier.items()),
    ]
    pairs = [pair for first, second in candidates if (pair := _pair(*first, *second))]
    paired = {side.name for pair in pairs for side in (pair.first, pair.second)}
    for name, fingerprint in own.items():
        if fingerprint.token_coverage < MIN_MATCH and name not in paired:
            left_out[name] = "Apart from the starter and the course's code, it has too little code to compare."
    return Comparison(sorted(pairs, key=lambda pair: -pair.similarity), left_out)


def _text(raw: bytes) -> str:
    """Return a script's text; bytes that are not UTF-8 are replaced."""
    text = raw[: MAX_BYTES + 1].decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    # pygments takes a minute for 80 KB of lines that have a tab only.
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _unfit(text: str, size: int, starter: str) -> str:
    """Return a sentence that says why a script is not compared; "" if it is."""
    if size > MAX_BYTES:
        return f"It is larger than {MAX_BYTES // 1000} KB."
    if not text.strip():
        return "It is empty."
    return "It is the starter, unchanged." if text.strip() == starter.strip() else ""


def _fingerprint(text: str) -> CodeFingerprint:
    """Return all fingerprints of a text."""
    # This import loads matplotlib, which takes a second.
    from copydetect import CodeFingerprint

    # A window of 1 selects every fingerprint. A larger window selects those with the smallest hashes, which Python
    # randomises for each process.
    return CodeFingerprint(SCRIPT, LENGTH, 1, language="python", fp=io.StringIO(text))


def _without(one: CodeFingerprint, hashes: set[int]) -> CodeFingerprint:
    """Return the same script without these fingerprints.

    copydetect's own option for boilerplate also drops what a script repeats, see docs/copies.md.
    """
    from copydetect.utils import get_token_coverage

    rest = copy.copy(one)
    rest.hash_idx = {value: places for value, places in one.hash_idx.items() if value not in hashes}
    rest.hashes = set(rest.hash_idx)
    rest.token_coverage = get_token_coverage(rest.hash_idx, LENGTH, len(rest.filtered_code))
    return rest


def _hashes(some: Iterable[CodeFingerprint]) -> set[int]:
    return set().union(*(one.hashes for one in some))


def _long_strings() -> set[int]:
    """The fingerprint of a string with many escapes, such as weights in bytes: S for each of them."""
    return _fingerprint('"' + r"\0" * 2 * LENGTH + '"').hashes


def _shared(scripts: Sequence[CodeFingerprint]) -> set[int]:
    """Return the fingerprints that many scripts of a class share. Scripts from one source count once."""
    from copydetect import compare_files
    from scipy.sparse.csgraph import connected_components

    alike = np.zeros((len(scripts), len(scripts)))
    for (i, first), (j, second) in itertools.combinations(enumerate(scripts), 2):
        alike[i, j] = max(compare_files(first, second)[1]) >= ONE_SOURCE
    sources = connected_components(alike, directed=False)[1] if scripts else []
    by_source: dict[int, set[int]] = {}
    for source, one in zip(sources, scripts):
        by_source.setdefault(source, set()).update(one.hashes)
    counts = Counter(itertools.chain.from_iterable(by_source.values()))
    least, part = SHARED
    return {value for value, number in counts.items() if number > max(least, part * len(scripts))}


def _pair(first: str, one: CodeFingerprint, second: str, other: CodeFingerprint) -> Pair | None:
    """Return two scripts as a pair; None if they are not similar enough, or if the match is too short."""
    from copydetect import compare_files

    same = one.raw_code.strip() == other.raw_code.strip()
    overlap, similarities, _ = compare_files(one, other)
    if not same and (overlap < MIN_MATCH or max(similarities) < THRESHOLD):
        return None
    if same:
        similarities = 1.0, 1.0
        lines = [number for number, line in enumerate(one.raw_code.strip().split("\n"), 1) if line.strip()]
        starts = [_first_line(script.raw_code) for script in (one, other)]
        both = [{a + number: b + number for number in lines} for a, b in (starts, starts[::-1])]
    else:
        both = _matching_lines(one, other), _matching_lines(other, one)
    sides = zip((first, second), (one, other), similarities, both)
    return Pair(*(Side(name, script.raw_code, float(part), lines) for name, script, part, lines in sides))


def _first_line(text: str) -> int:
    """Return the number of empty lines at the start, which pygments drops."""
    return len(text) - len(text.lstrip("\n"))


def _matching_lines(one: CodeFingerprint, other: CodeFingerprint) -> dict[int, int]:
    """Return the lines of `one` of which at least half matches → the line of `other` that they match best."""
    lines, theirs = _line_of_each(one), _line_of_each(other)
    starts = np.array(
        [
            places
            for value in one.hashes & other.hashes
            for places in zip(one.hash_idx[value], itertools.cycle(other.hash_idx[value]))
        ]
    )
    here, there = (starts[:, :, None] + np.arange(LENGTH)).transpose(1, 0, 2).reshape(2, -1)
    # Each matching character is a vote for a pair of lines, which is encoded as one number.
    base = theirs.max() + 1
    votes, counts = np.unique(lines[here] * base + theirs[there], return_counts=True)
    best = dict(divmod(int(vote), base) for vote in votes[np.argsort(counts)])  # the last one of a line stays
    matching = np.bincount(lines[np.unique(here)], minlength=lines.max() + 1) * 2 >= np.bincount(lines)
    return {line: best[line] for line in sorted(best) if matching[line]}


def _line_of_each(one: CodeFingerprint) -> np.ndarray:
    """Return for each character of the filtered code the number of its line in the script."""
    # copydetect stores a wrong, smaller offset after the name of a class.
    places, offsets = one.offsets[:, 0], np.maximum.accumulate(one.offsets[:, 1])
    filtered = np.arange(len(one.filtered_code))
    indices = np.searchsorted(places, filtered).clip(max=len(places) - 1)
    empty = _first_line(one.raw_code)
    breaks = [place for place, character in enumerate(one.raw_code[empty:]) if character == "\n"]
    return empty + 1 + np.searchsorted(breaks, filtered + offsets[indices])
