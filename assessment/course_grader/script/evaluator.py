"""Accuracy of saved weights, measured by a process that no learner's code runs in.

    python -m course_grader.script.evaluator DATA INBOX [IMAGES]

The process is started early: while a script trains on one rank, TensorFlow is loaded here, the network is built and
the images are read. Then one evaluation takes a second or two. It is confined too (no network; nothing to read but
the data and the weights), because the weights are bytes from a stranger. It takes what is put into its inbox and
answers in JSON lines.
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

MAX_IMAGES = 10_000  # of each split, on which is measured
BATCH_SIZE = 500
MARKED_IMAGES = 1000  # test images on which each mark is asked about
ANSWER_LIMIT_S = 180.0  # for loading, and for one evaluation, on a slow and busy host
MAX_FILE_BYTES = 64 * 2**20  # of weights
MAX_MEMORY_BYTES = 6 * 2**30  # that the process may use
POLL_INTERVAL_S = 0.05


@dataclass(frozen=True)
class Weights:
    """What the evaluator found of the saved weights.

    Attributes:
        train_accuracy, test_accuracy: from 0 to 1; None where `problem`, a sentence, says why there are none.
        marks: for each watermark the shares of images that get its label: see `watermarks.shares`.
        values: how many numbers of the network are trained; 0 where that is not known.
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
        """How well the weights know each watermark: see `watermarks.unknown`."""
        return tuple(own - others for own, others in self.marks)

    @property
    def missing(self) -> bool:
        """Whether there was no file."""
        return self.problem.startswith(weights_file.NOTHING)


class Evaluator:
    """Evaluates weights of the assessment's network; a context manager.

    Training accuracy is that on 10,000 training images, drawn at random; test accuracy that on the 10,000 published
    test images, for the stand-in on images drawn with a seed that nobody knows. With `images`, only so many of each
    split are used, at most. `folder` is a private one, which is gone with the evaluator, even if it is killed.

    Where the process dies, a fresh one takes its place: the host may have killed it for the memory it had.

    Raises CourseError: as `data.load` does; code 2 where the process can't be started or doesn't answer.
    """

    def __init__(self, name: str, images: int | None = None) -> None:
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="course-assess-")))
            self._inbox = self.folder / "inbox"
            self._inbox.mkdir()
            bundle = data.bundle(name, self.folder, limit=images)
            self.data = bundle.name
            words = [sys.executable, "-m", "course_grader.script.evaluator", name, str(self._inbox)]
            env = {"CUDA_VISIBLE_DEVICES": "-1", **environment.SILENT, **bundle.env}
            if images:
                words.append(str(images))
                if bundle.source == "stand-in":  # of which only the slice need be drawn
                    env[variables.SLICE] = str(images)
            readable = {**bundle.files, self._inbox: self._inbox}
            self._command = bubblewrap.command(words, readable, env, self.folder / "links")
            self._processes = stack.enter_context(contextlib.ExitStack())
            self._start()
            self._stack = stack.pop_all()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self) -> None:
        """Return when the process has loaded all that it needs, and uses no core until it is asked."""
        if self._ready:
            return
        if self._answer() is None:
            raise CourseError("The process that evaluates the weights ended; see `course doctor`.", code=2)
        self._ready = True

    def evaluate(self, weights: Path, marks: Sequence[watermarks.Mark] = ()) -> Weights:
        """Measure the accuracy of the weights in a file, and how well they know each of the marks.

        What is wrong with the file is in the answer. Where there is none, names beside it that begin like its own show
        how else the script saved.

        Raises CourseError (code 2) where the process does not answer: that says nothing about the file.
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
        if answer is None:  # twice the process was well until it was given these
            return Weights(None, None, "The file of weights cannot be read: reading it ended the process that did.")
        return Weights(**{**answer, "marks": tuple(map(tuple, answer["marks"]))})

    def _start(self) -> None:
        """Start the process, in the place of the one before."""
        self._processes.close()
        for left in self._inbox.iterdir():
            left.unlink()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = Supervised(self._command, temporary=self.folder, cwd="/", **pipes)
        self._process = self._processes.enter_context(process)
        self._asked = 0
        self._ready = False

    def _ask(self, weights: Path, marks: Sequence[watermarks.Mark]) -> dict | None:
        """What the process says of the weights; None where they ended it."""
        self.wait()
        self._asked += 1
        (self._inbox / f"{self._asked}.json").write_text(json.dumps([mark.as_json() for mark in marks]))
        part = self._inbox / "part"
        shutil.copyfile(weights, part)
        part.rename(self._inbox / f"{self._asked}.h5")
        return self._answer()

    def _answer(self) -> dict | None:
        """What the process says next; None where it has ended. CourseError (code 2) where that takes long."""
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
    """Load everything, say so, then answer every file in the inbox in turn; never returns."""
    # A small file can ask for any amount of memory.
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    import tensorflow as tf

    from course_lib import models

    dataset = data.load(name)
    number = min(images or MAX_IMAGES, MAX_IMAGES)
    mine = np.random.default_rng().permutation(min(images or len(dataset.x_train), len(dataset.x_train)))[:number]
    splits = [(dataset.x_train[mine], dataset.y_train[mine]), (dataset.x_test[:number], dataset.y_test[:number])]
    if dataset.name == "shapes":  # whose published test images anyone can draw
        shape = dataset.x_train.shape[1:]
        splits[1] = shapes.draw(number, shape, split="test", seed=secrets.randbits(64))
    model = models.assessment_cnn(dataset.x_train.shape[1:], len(dataset.classes))
    images = tf.TensorSpec([None, *model.input_shape[1:]], tf.uint8)
    predict = tf.function(lambda batch: tf.argmax(model(batch, training=False), axis=-1), input_signature=[images])
    predict(splits[0][0][:BATCH_SIZE])  # compiles

    def labels(x: np.ndarray) -> np.ndarray:
        return np.concatenate([predict(x[start : start + BATCH_SIZE]) for start in range(0, len(x), BATCH_SIZE)])

    def accuracy(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean(labels(x) == y))

    print(json.dumps({"ready": True}), flush=True)
    for asked in itertools.count(1):
        path = inbox / f"{asked}.h5"
        while not path.exists():
            time.sleep(POLL_INTERVAL_S)
        marks = [watermarks.Mark.from_json(one) for one in json.loads(path.with_suffix(".json").read_text())]
        try:
            weights_file.load(model, path)
        except weights_file.NotWeights as why:
            found = Weights(None, None, str(why))
        else:
            train, test = (accuracy(*split) for split in splits)
            found = Weights(
                train,
                test,
                marks=tuple(watermarks.shares(labels, splits[1][0][:MARKED_IMAGES], marks)),
                values=sum(int(np.prod(variable.shape)) for variable in model.trainable_variables),
                chance=1 / len(dataset.classes),
            )
        print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
