"""Compare the assessment's reference solution with the same training in PyTorch DistributedDataParallel over Gloo.

    python3.11 -m venv /tmp/torch && /tmp/torch/bin/pip install torch==2.13.0 numpy   # the CPU wheel is enough
    COURSE_DATA_DIR=... python benchmarks/ddp.py --torch /tmp/torch/bin/python

Both train the assessment's network on CIFAR-10 on two ranks. Each rank has one core and one thread, with the same
scheduling. The runs alternate on the same cores, each with different initial weights. Writes results/ddp.csv: seconds
of training, seconds of the whole run with start-up, images per second of training, and the final accuracy on the test
images. The PyTorch contenders use both memory layouts for images, and `torch.compile`, which compiles the network
during training; in bfloat16, if the processor has it, they use PyTorch's autocast. A contender that takes more than 1.5
times as long as the fastest one in its precision runs only once. Each ratio compares with the contender that trains
fastest.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib import bfloat16, data
from course_lib.authoring import conversions
from course_lib.notebook import experiments
from course_lib.ranks import launch

HERE = Path(__file__).parent
RANKS = 2
PRECISION = "bfloat16.instructions()"  # the reference's condition
FLOAT32 = {
    "horovod": None,
    "torch channels_last": [],
    "torch contiguous_format": ["--layout", "contiguous_format"],
    "torch compiled": ["--compile"],
}
BFLOAT16 = {
    "horovod bfloat16": None,
    "torch autocast": ["--bfloat16"],
    "torch autocast compiled": ["--bfloat16", "--compile"],
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--torch", required=True, help="a Python that has torch")
    arguments.add_argument("--repeats", type=int, default=3)
    chosen = arguments.parse_args()
    reference = conversions.ASSESSMENT / "reference" / conversions.script(conversions.ASSESSMENT).name
    recipe = constants(reference)
    cifar = data.load("cifar10")
    if cifar.source == "stand-in":
        raise SystemExit("The benchmark needs CIFAR-10 itself: set COURSE_DATA_DIR to the folder that holds it.")
    step = RANKS * recipe["BATCH_SIZE"]
    images = recipe["EPOCHS"] * (len(cifar.x_train) * 9 // 10 // step * step)  # a tenth is held out
    began, rows = time.time(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            np.save(Path(folder) / f"{name}.npy", getattr(cifar, name))
        os.environ["COURSE_WEIGHTS"] = f"{folder}/weights.h5"
        in_float32 = Path(folder) / "float32.py"
        in_float32.write_text(reference.read_text().replace(PRECISION, "False"))
        contenders = FLOAT32 | (BFLOAT16 if bfloat16.instructions() else {})
        for repeat in range(chosen.repeats):
            if repeat == 1:
                seconds = pd.DataFrame(rows).set_index("framework").seconds
                contenders = {name: way for name, way in contenders.items() if not beaten(name, seconds)}
            for framework in list(contenders)[:: 1 if repeat % 2 == 0 else -1]:
                if framework.startswith("horovod"):
                    row = horovod(in_float32 if framework == "horovod" else reference)
                    row["test_accuracy"] = test_accuracy()
                else:
                    row = torch(chosen.torch, folder, recipe, contenders[framework])
                row["images_per_second"] = images / row["seconds"]
                rows.append({"framework": framework, "repeat": repeat, **row})
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    middle = table.groupby("framework").median(numeric_only=True)
    ratios = "; ".join(ratio(middle, rivals) for rivals in (FLOAT32, BFLOAT16) if {*rivals} <= {*middle.index})
    print(middle.round(3), ratios, sep="\n")
    experiments.write_table(
        HERE / "results" / "ddp.csv",
        table.round(4),
        command=f"python benchmarks/ddp.py --torch PYTHON --repeats {chosen.repeats}",
        data=f"cifar10, {len(cifar.x_train):,} training images, a tenth of them held out",
        seeds="other first weights in each run",
        seconds=round(time.time() - began),
        recipe=", ".join(f"{name} {value}" for name, value in recipe.items()),
        ratio=f"medians of seconds: {ratios}",
        bfloat16=bfloat16.instructions() or "no instructions for it",
        torch=output([chosen.torch, "-c", "import torch; print(torch.__version__)"]).strip(),
    )


def beaten(framework: str, seconds: pd.Series) -> bool:
    """Return whether a rival takes more than 1.5 times as long as the fastest rival in its precision."""
    rivals = [name for name in (FLOAT32 if framework in FLOAT32 else BFLOAT16) if not name.startswith("horovod")]
    return framework in rivals and seconds[framework] > 1.5 * seconds[rivals].min()


def ratio(middle: pd.DataFrame, contenders: dict[str, list[str] | None]) -> str:
    """Return the ratio of the median times of the fastest rival to those of the first contender, as text."""
    own, *rivals = contenders
    best = middle.loc[rivals].seconds.idxmin()
    times = middle.loc[best] / middle.loc[own]
    return f"{best} / {own}: training {times.seconds:.2f}, with start-up {times.whole:.2f}"


def constants(script: Path) -> dict[str, float]:
    """Return the script's EPOCHS, BATCH_SIZE and RATE."""
    assigned = [node for node in ast.parse(script.read_text("utf-8")).body if isinstance(node, ast.Assign)]
    values = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
    return {name: ast.literal_eval(values[name]) for name in ("EPOCHS", "BATCH_SIZE", "RATE")}


def horovod(reference: Path) -> dict[str, float]:
    began = time.time()
    cores = tuple(sorted(os.sched_getaffinity(0))[:RANKS])
    run = launch.start(reference, ranks=RANKS, env=launch.ONE_THREAD, options=launch.Options(cores=cores))
    lines = [event.data["text"] for event in run if event.kind == "output"]
    if run.wait().code:
        raise SystemExit(f"{reference} failed:\n" + "\n".join(lines[-20:]))
    whole = time.time() - began
    return {"seconds": float(re.search(r"epochs in ([\d.]+) s", "\n".join(lines)).group(1)), "whole": whole}


def torch(python: str, folder: str, recipe: dict[str, float], way: list[str]) -> dict[str, float]:
    options = ["--epochs", "EPOCHS", "--batch-size", "BATCH_SIZE", "--rate", "RATE", *way]
    options = [str(recipe.get(option, option)) for option in options]
    launcher = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    began = time.time()
    measured = json.loads(output([*launcher, str(HERE / "ddp_torch.py"), folder, *options]).strip().splitlines()[-1])
    whole = time.time() - began - measured.pop("testing")
    return {**measured, "whole": whole}


def output(command: list[str]) -> str:
    env = {**os.environ, **launch.ONE_THREAD, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(command, capture_output=True, text=True, env=env)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return ended.stdout


def test_accuracy() -> float:
    """Evaluate the saved weights, in another process: TensorFlow keeps its threads and memory until it exits."""
    code = (
        "import os; from course_lib import data, models; cifar = data.load('cifar10');"
        "model = models.assessment_cnn((32, 32, 3), 10); model.load_weights(os.environ['COURSE_WEIGHTS']);"
        "found = model.predict(cifar.x_test, batch_size=500, verbose=0).argmax(1);"
        "print((found == cifar.y_test).mean())"
    )
    return float(output([sys.executable, "-c", code]).splitlines()[-1])


if __name__ == "__main__":
    main()
