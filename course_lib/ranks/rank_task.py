"""What a rank is asked to do. It travels as one JSON object on the rank's command line, also to other hosts."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

RANK_PROGRAM = Path(__file__).with_name("rank.py")


@dataclass(frozen=True)
class RankTask:
    """What each rank of a run does.

    Attributes:
        script: path of the script that it runs.
        args: the script's arguments.
        folder: the folder that the script runs in.
        record: the folder for the record of its training (see `instrumentation`); None: there is none.
        training_events: whether it reports how its training goes on (see `events`), as it does for a `record`, too.
        cores: where all ranks are on this host, the core that each of them keeps to, by the number of the rank.
        fake_gpus: with a `record`, how many GPUs that do not exist the script sees, by the number of the rank, so that
            its choice of one can be checked on a host without. Both lists start again from the front for more ranks.
    """

    script: str
    args: tuple[str, ...] = ()
    folder: str = "."
    record: str | None = None
    training_events: bool = False
    cores: tuple[int, ...] = ()
    fake_gpus: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> RankTask:
        """The task that `command` has written."""
        return cls(**json.loads(text))

    def command(self) -> tuple[str, ...]:
        """What a rank runs. The task is one word, since horovodrun would take `--hosts` for an option of its own."""
        return sys.executable, str(RANK_PROGRAM), json.dumps(asdict(self))
