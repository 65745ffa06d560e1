"""The progress of an assessment in a terminal, for `course assess` and `course grade`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console

from course_lib.ranks.launch import Event

MAX_IMAGES = 10**12  # larger reports are ignored, because the script's process can report any number


@contextlib.contextmanager
def stages() -> Iterator[Callable[[Event], None]]:
    """Show an assessment's stage, its time and its limit in one line on standard error; yield its event handler."""
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
