"""What `course run` and `course assess` show in a terminal while they run."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from course_lib.ranks.launch import STOPPED, Event, Run

MAX_IMAGES = 10**12  # images that a rank may claim to have trained on: what it tells is the script's own word
RANK_STYLES = ("cyan", "yellow", "green", "magenta", "blue", "red")


def follow(run: Run) -> int:
    """Print the run's output as it comes, each line behind its rank; Ctrl-C ends the run. Return its exit code."""
    out, err = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)
    try:
        with run:
            for event in run:
                if event.kind == "output":
                    console = out if event.data["stream"] == "stdout" else err
                    console.print(_prefixed(event.rank, event.data["text"]))
            result = run.wait()
    except KeyboardInterrupt:
        err.print("course: stopped; nothing is left running.")
        return STOPPED
    if result.code:
        err.print(f"course: {result.message}", style="bold red", markup=False, highlight=False)
        shown_beside_others = result.failed_rank is not None and result.tail
        if shown_beside_others:
            err.print(f"Last lines of rank {result.failed_rank}:", highlight=False)
            for line in result.tail:
                err.print(_prefixed(result.failed_rank, line))
    sys.stdout.flush()
    return result.code


@contextlib.contextmanager
def stages() -> Iterator[Callable[[Event], None]]:
    """One line on standard error that tells an assessment's stage, the time and what is left of its limit."""
    err = Console(stderr=True)
    began, stage, images = time.monotonic(), Event("stage", None, 0.0, {"text": "Starting", "limit": None}), {}

    with err.status("Starting") as status:

        def follow(event: Event) -> None:
            nonlocal began, stage
            if event.kind == "stage":
                began, stage = time.monotonic(), event
                images.clear()
                if not err.is_terminal:
                    err.print(event.data["text"], markup=False, highlight=False)
            elif isinstance(number := event.data.get("images"), int) and 0 <= number < MAX_IMAGES:
                images[event.rank] = number
            seconds, limit = time.monotonic() - began, stage.data["limit"]
            text = f"{stage.data['text']}: {seconds:.0f} s" + (f" of {limit:.0f} s" if limit else "")
            status.update(text + (f", {sum(images.values()):,} images" if images else ""))

        yield follow


def _prefixed(rank: int, line: str) -> Text:
    return Text.assemble((f"rank {rank} │ ", RANK_STYLES[rank % len(RANK_STYLES)]), line)
