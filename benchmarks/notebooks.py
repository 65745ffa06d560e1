"""Measure how long each notebook's solution takes, compared with its stated time, and how fast its sliders redraw.

    COURSE_DATA_DIR=... python benchmarks/notebooks.py [1a 1b …]

Runs the instructors' notebooks from top to bottom, on all the data that they use, and writes results/notebooks.csv. Run
nothing else on the machine. A slider's time is the largest over the ends of its controls (median of five redraws,
including the picture); it should be less than 100 ms. For comparison, the table also has the time of a figure with two
empty panels, which shows how fast the machine was.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import pandas as pd
from nbclient import NotebookClient

from course_lib import data
from course_lib.authoring import masters
from course_lib.command.classroom import workspace
from course_lib.notebook import experiments, jupyter
from course_lib.system.paths import ROOT

RESULTS = Path(__file__).parent / "results"
UNITS = {"second": 1, "minute": 60}

# Runs first in the notebook's kernel. Instead of showing a slider's figure, it prints how long drawing takes.
TIMED = """
def _replace():
    import gc, itertools, json, statistics, time
    from course_lib.notebook import plots, widgets
    from course_lib.notebook.widgets import controls

    def ends(control):
        widget = control.value
        if hasattr(widget, "options"):
            return list(widget._options_values)
        base = getattr(widget, "base", None)
        low, high = (widget.min, widget.max) if base is None else (base**widget.min, base**widget.max)
        return [low, widget.value, high]

    def seconds(draw, values):
        began = time.perf_counter()
        draw(**values).png(controls.SHARPNESS)
        return time.perf_counter() - began

    def explore(draw, **moved):
        corners = [dict(zip(moved, values)) for values in itertools.product(*map(ends, moved.values()))]
        draw(**corners[0]).png(controls.SHARPNESS)
        gc.collect()
        gc.freeze()  # as in the original function
        worst = max(statistics.median(seconds(draw, values) for _ in range(5)) for values in corners[:24])
        empty = statistics.median(seconds(lambda: plots.subplots(columns=2)[0], {}) for _ in range(9))
        print("SLIDER", json.dumps([", ".join(moved), round(1000 * worst), round(1000 * empty)]))

    widgets.explore = explore

_replace()
"""


def measure(master: masters.Master) -> dict:
    """Return one row: seconds of the notebook and of its slowest cell, milliseconds of its slowest slider."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        workspace.fill(place / "work")
        os.environ.update(jupyter.environment(place / "jupyter"))
        notebook = masters.solution(master)
        notebook.cells.insert(0, nbformat.v4.new_code_cell(TIMED))
        client = NotebookClient(
            notebook, timeout=1200, resources={"metadata": {"path": str(place / "work" / master.assignment)}}
        )
        cells = []
        with client.setup_kernel():
            for number, cell in enumerate(notebook.cells):
                began = time.perf_counter()
                client.execute_cell(cell, number)
                cells.append((time.perf_counter() - began, cell.source.strip().splitlines()[0]))
    # Cells with sliders are left out, because each was drawn many times; a learner waits for one drawing only.
    texts = ["".join(out.get("text", "") for out in cell.get("outputs", [])) for cell in notebook.cells]
    sliders = [json.loads(found) for text in texts for found in re.findall(r"^SLIDER (.*)$", text, re.MULTILINE)]
    waited = [cell for cell, text in zip(cells[1:], texts[1:]) if "SLIDER" not in text]
    slowest = max(waited)
    total = sum(seconds for seconds, _ in waited)
    stated = claim(master)
    name, redraw, empty = max(sliders, key=lambda found: found[1], default=("", None, None))
    return {
        "notebook": master.path.stem,
        "seconds": round(total, 1),
        "stated seconds": stated,
        "measured / stated": stated and round(total / stated, 2),
        "slowest cell": slowest[1][:60],
        "its seconds": round(slowest[0], 1),
        "sliders": len(sliders),
        "slowest slider": name,
        "its redraw in ms": redraw,
        "an empty figure in ms": empty,
    }


def claim(master: masters.Master) -> float | None:
    """Return the seconds that the first cell states for 2 CPU cores."""
    found = re.search(r"about (?:(\d+)|an?|one) (second|minute)s? on (?:the )?2 (?:quiet )?CPU cores", master.time)
    return found and int(found.group(1) or 1) * UNITS[found.group(2)]


def main(names: list[str]) -> None:
    began = time.perf_counter()
    chosen = [path for path in masters.find(ROOT) if not names or path.name.startswith(tuple(names))]
    rows = []
    for path in chosen:
        rows.append(measure(masters.read(path)))
        print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    kept = RESULTS / "notebooks.csv"
    if names and kept.exists():
        old = pd.read_csv(kept, comment="#")
        table = pd.concat([old[~old["notebook"].isin(table["notebook"])], table]).sort_values("notebook")
    table = table.astype(dict.fromkeys(("its redraw in ms", "an empty figure in ms", "stated seconds"), "Int64"))
    experiments.write_table(
        kept,
        table,
        command=" ".join(["python benchmarks/notebooks.py", *names]),
        data=f"{data.load('fashion_mnist').name}, as much as the notebooks use",
        seeds="those of the notebooks",
        seconds=round(time.perf_counter() - began),
    )
    print(table.to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1:])
