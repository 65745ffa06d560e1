"""`horovod.run` in a process of its own, so that its whole tree can be ended.

    python run_function.py FOLDER RANKS CONTROLLER [HOSTS]

FOLDER/function.pkl is called on every rank; FOLDER/results.pkl then holds what each returned, in the order of ranks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cloudpickle

if __name__ == "__main__":
    import horovod
    from horovod.runner import launch

    folder, ranks, controller, *hosts = sys.argv[1:]
    folder = Path(folder)
    # Horovod would import TensorFlow for four seconds to learn what `launch.controllers` knows.
    launch.gloo_built = launch.mpi_built = lambda verbose=False: True
    function = cloudpickle.loads((folder / "function.pkl").read_bytes())
    results = horovod.run(
        function, num_proc=int(ranks), hosts=hosts[0] if hosts else None, **{f"use_{controller}": True}
    )
    (folder / "results.pkl").write_bytes(cloudpickle.dumps(results))
