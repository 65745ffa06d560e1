"""Measure the accuracy of saved weights in a process that runs no learner's code.

    python -m course_grader.script.evaluator DATA INBOX [IMAGES]

The process starts early: it loads TensorFlow, builds the network and reads the images while a script trains on one
rank. Afterwards one evaluation takes a second or two. The file of weights is untrusted, so the process runs in a
sandbox without network, with only the data and the weights. It evaluates the files in its inbox and answers in JSON
lines.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from course_grader.sandbox import bubblewrap
from course_grader.script import watermarks, weights_file
from course_lib import data
from course_lib.data import shapes
from course_lib.ranks import environment
from course_lib.system import variables
from course_lib.system.errors import CourseError
from course_lib.system.processes import Supervised

MAX_IMAGES = 10_000  # of each split: as many as CIFAR-10 has test images
BATCH_SIZE = 500
MARKED_IMAGES = 1000  # test images for each watermark: the standard error of a share is at most 0.016
ANSWER_LIMIT_S = 180.0  # for loading, and for one evaluation, on a slow and busy host
MAX_FILE_BYTES = 64 * 2**20  # of weights
MAX_MEMORY_BYTES = 6 * 2**30  # of the process
POLL_INTERVAL_S = 0.05


@dataclass(frozen=True)
class Weights:
    """The evaluator's measurements of the saved weights.

    Attributes:
        train_accuracy, test_accuracy: from 0 to 1; None if the sentence `problem` says why they cannot be measured.
        marks: two shares for each watermark, see `watermarks.shares`.
        values: number of the network's trainable values; 0 if unknown.
        chance: the accuracy of guessing, from 0 to 1.
    """

    train_accuracy: float | None
    test_accuracy: float | None
    problem: str = ""
    marks: tuple[tuple[float, float], ...] = ()
    values: int = 0
    chance: float = 0.0

    @property
    def margins(self) -> tuple[float, ...]:
        """The margin of each watermark, from -1 to 1, see `watermarks.shares`."""
        return tuple(with_mark - without for with_mark, without in self.marks)

    @property
    def missing(self) -> bool:
        """Whether there was no file."""
        return self.problem.startswith(weights_file.NOTHING)


class Evaluator:
    """Evaluates weights of the assessment's network; a context manager.

    Training accuracy is measured on 10,000 random training images, test accuracy on the 10,000 published test images;
    for the stand-in, on test images drawn with a secret seed. `images` limits the number of images of each split.
    The private folder `folder` is removed with the evaluator, even if the evaluator is killed.

    If the process dies, a new one replaces it once, because the host may have killed it for lack of memory.

    Raises CourseError: as `data.load` does; code 2 if the process cannot be started or does not answer.
    """

    def __init__(self, name: str, images: int | None = None) -> None:
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="course-assess-")))
            self._inbox = self.folder / "inbox"
            self._inbox.mkdir()
            bundle = data.bundle(name, self.folder, limit=images)
            self.data = bundle.name
            command = [sys.executable, "-m", "course_grader.script.evaluator", name, str(self._inbox)]
            env = {"CUDA_VISIBLE_DEVICES": "-1", **environment.SILENT, **bundle.env}
            if images:
                command.append(str(images))
                if bundle.source == "stand-in":  # draws only this many images
                    env[variables.SLICE] = str(images)
            readable = {**bundle.files, self._inbox: self._inbox}
            self._command = bubblewrap.command(command, readable, env, self.folder / "links")
            self._processes = stack.enter_context(contextlib.ExitStack())
            self._start()
            self._stack = stack.pop_all()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self) -> None:
        """Wait until the process has loaded everything; afterwards it uses no core until the next evaluation."""
        if self._ready:
            return
        if self._answer() is None:
            raise CourseError("The process that evaluates the weights ended; see `course doctor`.", code=2)
        self._ready = True

    def evaluate(self, weights: Path, marks: Sequence[watermarks.Mark] = ()) -> Weights:
        """Measure the accuracy of the weights in a file, and the shares of each watermark.

        `Weights.problem` describes an error of the file. If the file is missing, files with similar names in its folder
        are mentioned.

        Raises CourseError (code 2) if the process does not answer, which is not an error of the file.
        """
        if not weights.is_file():
            return Weights(
                None, None, weights_file.missing(path.name for path in weights.parent.glob(f"{weights.stem}*"))
            )
        if weights.stat().st_size > MAX_FILE_BYTES:
            return Weights(None, None, f"The file of weights is larger than {MAX_FILE_BYTES >> 20} MB.")
        answer = self._ask(weights, marks)
        if answer is None:
            self._start()
            answer = self._ask(weights, marks)
        if answer is None:  # the process died twice on this file
            return Weights(None, None, "The file of weights cannot be read: the process that reads it crashes.")
        return Weights(**{**answer, "marks": tuple(map(tuple, answer["marks"]))})

    def _start(self) -> None:
        """Start the process, after the end of an earlier one."""
        self._processes.close()
        for left in self._inbox.iterdir():
            left.unlink()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = Supervised(self._command, temporary=self.folder, cwd="/", **pipes)
        self._process = self._processes.enter_context(process)
        self._asked = 0
        self._ready = False

    def _ask(self, weights: Path, marks: Sequence[watermarks.Mark]) -> dict | None:
        """Return the answer of the process; None if it died."""
        self.wait()
        self._asked += 1
        (self._inbox / f"{self._asked}.json").write_text(json.dumps([mark.as_json() for mark in marks]))
        partial = self._inbox / "part"
        shutil.copyfile(weights, partial)
        partial.rename(self._inbox / f"{self._asked}.h5")
        return self._answer()

    def _answer(self) -> dict | None:
        """Return the next answer of the process; None if it has ended. CourseError (code 2) after ANSWER_LIMIT_S."""
        pipe, line = self._process.stdout.fileno(), b""
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while not line.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                late = f"did not answer within {ANSWER_LIMIT_S:.0f} s"
                raise CourseError(f"The process that evaluates the weights {late}; see `course doctor`.", code=2)
            byte = os.read(pipe, 1)
            if not byte:
                return None
            line += byte
        return json.loads(line)


def serve(name: str, inbox: Path, images: int | None) -> None:
    """Load everything, print {"ready": true}, then evaluate each file in the inbox; never returns."""
    # A small HDF5 file can declare arrays of any size.
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    import tensorflow as tf

    from course_lib import models

    dataset = data.load(name)
    number = min(images or MAX_IMAGES, MAX_IMAGES)
    chosen = np.random.default_rng().permutation(min(images or len(dataset.x_train), len(dataset.x_train)))[:number]
    splits = [(dataset.x_train[chosen], dataset.y_train[chosen]), (dataset.x_test[:number], dataset.y_test[:number])]
    if dataset.name == "shapes":  # a script can draw its published test images itself
        shape = dataset.x_train.shape[1:]
        splits[1] = shapes.draw(number, shape, split="test", seed=secrets.randbits(64))
    model = models.assessment_cnn(dataset.x_train.shape[1:], len(dataset.classes))
    batches = tf.TensorSpec([None, *model.input_shape[1:]], tf.uint8)
    predict = tf.function(lambda batch: tf.argmax(model(batch, training=False), axis=-1), input_signature=[batches])
    predict(splits[0][0][:BATCH_SIZE])  # warm-up

    def labels(x: np.ndarray) -> np.ndarray:
        return np.concatenate([predict(x[start : start + BATCH_SIZE]) for start in range(0, len(x), BATCH_SIZE)])

    def accuracy(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean(labels(x) == y))

    print(json.dumps({"ready": True}), flush=True)
    for asked in itertools.count(1):
        path = inbox / f"{asked}.h5"
        while not path.exists():
            time.sleep(POLL_INTERVAL_S)
        marks = [watermarks.Mark.from_json(table) for table in json.loads(path.with_suffix(".json").read_text())]
        try:
            weights_file.load(model, path)
        except weights_file.NotWeights as problem:
            weights = Weights(None, None, str(problem))
        else:
            train, test = (accuracy(*split) for split in splits)
            weights = Weights(
                train,
                test,
                marks=tuple(watermarks.shares(labels, splits[1][0][:MARKED_IMAGES], marks)),
                values=sum(int(np.prod(variable.shape)) for variable in model.trainable_variables),
                chance=1 / len(dataset.classes),
            )
        print(json.dumps(asdict(weights)), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
