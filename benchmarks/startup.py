"""Compare the start-up time of `course run` with that of plain `horovodrun` on this machine.

    python benchmarks/startup.py

The script initialises Horovod on two ranks and exits. Both commands run in turn. Prints both times and their ratio for
each pair.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from course_lib.notebook import experiments

PAIRS = 5
SCRIPT = "import horovod.tensorflow.keras as hvd\nhvd.init()\nprint(hvd.rank(), hvd.size())\n"


def seconds(command: list[str]) -> float:
    env = {
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=env)
    return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "hello.py"
        script.write_text(SCRIPT)
        bare = ["horovodrun", "--gloo", "-np", "2", sys.executable, str(script)]
        ours = ["course", "run", str(script), "-np", "2"]
        seconds(bare), seconds(ours)  # warm up
        pairs = [(seconds(ours), seconds(bare)) for _ in range(PAIRS)]
    print(experiments.machine())
    for a, b in pairs:
        print(f"course run {a:.2f} s, horovodrun {b:.2f} s, ratio {a / b:.2f}")
    print(f"median ratio {statistics.median(a / b for a, b in pairs):.2f}")


if __name__ == "__main__":
    main()
