"""Pairs of similar scripts, as CSV and as an HTML page: a list, then each pair side by side."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

COLUMNS = ("first", "second", "similarity", "similarity_of_first", "similarity_of_second", "lines")
SHOWN = 50  # pairs side by side; the others are in the list only
MAX_LINE = 200  # characters of a line that are shown


@dataclass(frozen=True)
class Side:
    """One script of a pair.

    Attributes:
        similarity: fraction of the script's own code that also occurs in the other script, from 0 to 1.
        lines: number of each matching line, counted from 1 → number of the matching line in the other script.
    """

    name: str
    text: str = field(repr=False)
    similarity: float
    lines: Mapping[int, int] = field(repr=False)


@dataclass(frozen=True)
class Pair:
    """Two similar scripts. `second` may be one of an earlier class or of the reference."""

    first: Side
    second: Side

    @property
    def similarity(self) -> float:
        """The larger similarity of both sides, because a copy may be longer or shorter."""
        return max(self.first.similarity, self.second.similarity)


def to_csv(pairs: Iterable[Pair]) -> str:
    """Return the pairs as CSV; `lines` is the number of matching lines of the first script."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for pair in pairs:
        sides = pair.first, pair.second
        numbers = pair.similarity, *(side.similarity for side in sides)
        writer.writerow([*(side.name for side in sides), *(f"{part:.2f}" for part in numbers), len(pair.first.lines)])
    return text.getvalue()


def page(pairs: Sequence[Pair], left_out: Mapping[str, str], scripts: int, earlier: int, threshold: float) -> str:
    """Return the HTML page.

    Args:
        pairs: most similar first.
        left_out: script → why it was not compared.
        scripts, earlier: number of scripts of the class, and of earlier classes.
        threshold: least similarity of a listed pair.
    """
    before = f", with {earlier} of earlier classes" if earlier else ""
    reasons = "".join(f"<dt>{_e(name)}</dt><dd>{_e(why)}</dd>" for name, why in sorted(left_out.items()))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Similar scripts</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>\n<h1>Similar scripts</h1>\n"
        "<p><strong>Similarity does not prove copying, and it changes no mark.</strong></p>\n"
        f"<p>The {scripts} scripts <code>assessment.py</code> of this class were compared with each other{before}, "
        f"and with the published reference. Pairs of {threshold:.2f} or more are listed. Names, comments, layout and "
        "the order of functions don’t count. The starter, what the course teaches and what many scripts of the class "
        "share are left out. Exercises in notebooks are not compared.</p>\n"
        + (_table(pairs) if pairs else "<p>No two scripts are that similar.</p>\n")
        + (f"<h2>Not compared</h2>\n<dl>{reasons}</dl>\n" if reasons else "")
        + "".join(_side_by_side(number, pair) for number, pair in enumerate(pairs[:SHOWN], 1))
        + "</body></html>\n"
    )


def _table(pairs: Sequence[Pair]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{_link(number, f"{pair.first.name} and {pair.second.name}")}</th>'
        f"<td>{pair.similarity:.2f}</td><td>{pair.first.similarity:.2f}</td><td>{pair.second.similarity:.2f}</td>"
        f"<td>{len(pair.first.lines)}</td></tr>\n"
        for number, pair in enumerate(pairs, 1)
    )
    names = ("pair", "similarity", "part of the first", "part of the second", "matching lines")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    more = f"<p>The first {SHOWN} pairs are shown below.</p>\n" if len(pairs) > SHOWN else ""
    what = "Each part is the share of a script’s own code that the other one also has; similarity is the larger part."
    table = f"<caption>{what}</caption><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody>"
    return f'<table class="pairs">{table}</table>\n{more}'


def _link(number: int, text: str) -> str:
    return f'<a href="#pair-{number}">{_e(text)}</a>' if number <= SHOWN else _e(text)


def _side_by_side(number: int, pair: Pair) -> str:
    title = f"{number}. {pair.first.name} and {pair.second.name}: {pair.similarity:.2f}"
    left = _code(pair.first, pair.second, f"{number}a", f"{number}b")
    right = _code(pair.second, pair.first, f"{number}b", f"{number}a")
    return f'<h2 id="pair-{number}">{_e(title)}</h2>\n<div class="both">{left}{right}</div>\n'


def _code(side: Side, other: Side, here: str, there: str) -> str:
    rows = []
    for number, line in enumerate(side.text.rstrip("\n").split("\n"), 1):
        sign, kind = "", ""
        if partner := side.lines.get(number):
            sign = f'<a href="#{there}-{partner}" title="matches line {partner} of the other script">= {partner}</a>'
            kind = ' class="match"'
        shown = line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} … ({len(line):,} characters)"
        rows.append(f'<tr{kind} id="{here}-{number}"><td>{number}</td><td>{sign}</td><td>{_e(shown)}</td></tr>')
    caption = f"{side.name}: {side.similarity:.0%} of its own code is in {other.name} ({len(side.lines)} lines)"
    head = '<thead><tr><th scope="col">line</th><th scope="col">same as</th><th scope="col">code</th></tr></thead>'
    return f'<table class="code"><caption>{_e(caption)}</caption>{head}<tbody>\n' + "\n".join(rows) + "</tbody></table>"


def _e(text: str) -> str:
    return html.escape(text)


_STYLE = """
body { margin: 24px; color: #222; background: #fff; font: 15px/1.5 sans-serif; }
body > p, dl { max-width: 50em; }
h1 { font-size: 24px; margin: 0; }
h2 { font-size: 18px; margin: 36px 0 8px; }
a { color: #0b4f8a; }
dt { font-weight: 600; }
table { border-collapse: collapse; }
caption { padding: 4px 0; text-align: left; }
.pairs :is(td, thead th) { text-align: right; }
.pairs :is(th, td) { padding: 4px 16px 4px 0; border-bottom: 1px solid #ccc; }
.pairs :is(tbody th, thead th:first-child) { font-weight: 600; text-align: left; }
.both { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; align-items: start; }
.code { width: 100%; font: 12px/1.5 monospace; }
.code caption { font: 600 14px/1.5 sans-serif; }
.code th { color: #555; font: 12px sans-serif; text-align: left; }
.code :is(td, th) { padding: 0 6px; border-left: 4px solid transparent; vertical-align: top; white-space: nowrap; }
.code td + td, .code th + th { border: 0; }
.code td:last-child { width: 100%; white-space: pre-wrap; overflow-wrap: anywhere; }
.code td:first-child { color: #555; text-align: right; }
.code .match td { background: #fff1c2; }
.code .match td:first-child { border-color: #a85b00; }
.code .match td:last-child { font-weight: 600; }
.code tr:target td { outline: 2px solid #0b4f8a; }
@media (max-width: 900px) { .both { grid-template-columns: 1fr; } }
"""
