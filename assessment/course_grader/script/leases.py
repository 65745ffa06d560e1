"""Lease the cores of an assessment from the hub, whose labs share this host.

COURSE_SLOTS is the address of the hub's service (see containers/hub/slots.py for its answers). A lab that repeats its
request keeps its place in the queue, and later its cores; a lab that stops loses them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from course_lib.system.errors import CourseError

LEASE_S = 1800.0  # the longest lease of the hub's service
INTERVAL_S = 3.0  # between two questions
ANSWER_LIMIT_S = 10.0
PATIENCE_S = 120.0  # without an answer: a hub that is started again takes less
_NO_ANSWER = (OSError, ValueError, http.client.HTTPException)


@contextlib.contextmanager
def lease(
    address: str, on_wait: Callable[[str], None] | None = None, stopping: threading.Event | None = None
) -> Iterator[list[int]]:
    """Wait until the hub gives this lab cores; yield their numbers; give them back.

    Args:
        address: of the hub's service.
        on_wait: called with a sentence that names the reason of the wait, whenever it changes.
        stopping: set this event to end the wait. This function sets it if the hub takes the cores back, because the
            assessment can't be judged then.

    Raises:
        CourseError: (code 2) if the hub refuses, does not answer, or takes the cores back during the block;
            (code 130) if `stopping` ended the wait.
    """
    hub = _Hub(address, on_wait, stopping or threading.Event())
    try:
        hub.answer("DELETE")  # what a killed assessment of this lab may still have
        while "cores" not in (granted := hub.answer("POST")):
            hub.say(_place(granted["ahead"]))
            hub.pause()
        with hub.keep(granted):
            yield granted["cores"]
    finally:
        with contextlib.suppress(CourseError, *_NO_ANSWER):
            hub.request("DELETE")


def _place(ahead: int) -> str:
    if not ahead:
        return "You are next: an assessment uses the cores."
    return f"{ahead} learner{'s are' if ahead > 1 else ' is'} ahead of you."


class _Hub:
    """The hub's service, as one assessment asks it."""

    def __init__(self, address: str, on_wait: Callable[[str], None] | None, stopping: threading.Event) -> None:
        self._address, self._on_wait, self._stopping = address, on_wait, stopping
        self._sentence = ""
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def request(self, method: str) -> dict[str, Any]:
        """Return the answer. Raises CourseError (code 2) if this lab is refused, else one of `_NO_ANSWER`."""
        headers = {"Authorization": f"token {os.environ.get('JUPYTERHUB_API_TOKEN', '')}"}
        request = urllib.request.Request(self._address, method=method, headers=headers)
        try:
            with self._opener.open(request, timeout=ANSWER_LIMIT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != http.client.FORBIDDEN:
                raise
        raise CourseError(
            "The hub does not know this lab: choose File → Hub Control Panel, stop the server and start it again.",
            code=2,
        )

    def answer(self, method: str) -> dict[str, Any]:
        """Return the answer, if need be of a later request. Raises CourseError (code 2), also after PATIENCE_S."""
        began = time.monotonic()
        while True:
            try:
                return self.request(method)
            except _NO_ANSWER:
                if time.monotonic() - began > PATIENCE_S:
                    raise CourseError(
                        f"The hub has not answered for {PATIENCE_S:g} seconds: tell your instructor, and assess the "
                        "script again later.",
                        code=2,
                    ) from None
            self.say("The hub does not answer: asking it again.")
            self.pause()

    def say(self, sentence: str) -> None:
        """Report the reason of the wait, if it has changed."""
        if self._on_wait and sentence != self._sentence:
            self._on_wait(sentence)
        self._sentence = sentence

    def pause(self) -> None:
        """Wait until the next question. Raises CourseError (code 130) if the assessment is stopped."""
        if self._stopping.wait(INTERVAL_S):
            raise CourseError("Stopped.", code=130)

    @contextlib.contextmanager
    def keep(self, granted: dict[str, Any]) -> Iterator[None]:
        """Keep asking while the block runs. Raises CourseError (code 2) if the hub then has another answer."""
        lost, ended = threading.Event(), threading.Event()

        def ask() -> None:
            # A hub that does not answer has not taken anything back.
            with contextlib.suppress(CourseError, *_NO_ANSWER):
                if self.request("POST").get("lease") != granted["lease"]:
                    lost.set()
                    self._stopping.set()

        def ask_again() -> None:
            while not (lost.is_set() or ended.wait(INTERVAL_S)):
                ask()

        thread = threading.Thread(target=ask_again, daemon=True)
        thread.start()
        try:
            yield
            ask()
        except CourseError:  # the work was stopped, or failed on other cores
            if not lost.is_set():
                raise
        finally:
            ended.set()
            thread.join()
        if lost.is_set():
            raise CourseError(
                f"The hub has taken back the cores of this assessment, after {granted['seconds'] / 60:.0f} minutes or "
                "because it was started again: assess the script again.",
                code=2,
            )
