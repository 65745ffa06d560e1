"""Accuracy of saved weights, measured by a process that no learner's code runs in.

    python -m course_lib.assess.evaluator DATA INBOX [IMAGES]

The process is started early: while a script trains on one rank, TensorFlow is loaded here, the network is built and
the images are read. Then one evaluation takes a second or two. It is confined too (no network; nothing to read but
the data and the weights), because the weights are bytes from a stranger. It takes what is put into its inbox and
answers in JSON lines.
"""

from __future__ import annotations

import contextlib
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
from pathlib import Path

import numpy as np

from course_lib import data, supervise
from course_lib.assess import sandbox
from course_lib.assess.requirements import Weights
from course_lib.data import shapes
from course_lib.errors import CourseError

IMAGES = 10_000  # on so many of each split is measured, at most
BATCH = 500
PATIENCE = 180.0  # seconds for loading, and for one evaluation, on a slow and busy host
LARGEST = 64 * 2**20  # bytes of a file with weights
MEMORY = 6 * 2**30  # bytes that the process may use
POLL = 0.05  # seconds


class Evaluator:
    """Evaluates weights of the assessment's network; a context manager.

    Training accuracy is that on 10,000 training images, drawn at random; test accuracy that on the 10,000 published
    test images, for the stand-in on images drawn with a seed that nobody knows. With `images`, only so many of each
    split are used, at most. `folder` is a private one, which is gone with the evaluator, even if it is killed.

    Raises CourseError: as `data.load` does; code 2 where the process can't be started or doesn't answer.
    """

    def __init__(self, name: str, images: int | None = None) -> None:
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="course-assess-")))
            self._inbox = self.folder / "inbox"
            self._inbox.mkdir()
            bundle = data.bundle(name, self.folder, limit=images)
            self.data = bundle.name
            command = [sys.executable, "-m", "course_lib.assess.evaluator", name, str(self._inbox)]
            env = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", **bundle.env}
            if images:
                command.append(str(images))
                if bundle.source == "stand-in":  # of which only the slice need be drawn
                    env["COURSE_SLICE"] = str(images)
            readable = {**bundle.files, self._inbox: self._inbox}
            confined = sandbox.command(command, readable, env, self.folder / "links")
            self._process = subprocess.Popen(
                [sys.executable, supervise.__file__, "0", *confined],
                stdin=subprocess.PIPE,  # the lease: it ends with us
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                cwd="/",
                env={**os.environ, "COURSE_LITTER": str(self.folder)},
            )
            stack.callback(self._end)
            self._asked = 0
            self._ready = False
            self._stack = stack.pop_all()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self) -> None:
        """Return when the process has loaded all that it needs, and uses no core until it is asked."""
        if not self._ready:
            self._answer()
            self._ready = True

    def evaluate(self, weights: Path) -> Weights:
        """Measure the accuracy of the weights in a file; what is wrong with the file is in the answer."""
        if not weights.is_file():
            return Weights(None, None, "No weights were saved.")
        if weights.stat().st_size > LARGEST:
            return Weights(None, None, f"The file of weights is larger than {LARGEST >> 20} MB.")
        self.wait()
        self._asked += 1
        part = self._inbox / "part"
        shutil.copyfile(weights, part)
        part.rename(self._inbox / f"{self._asked}.h5")
        try:
            answer = self._answer()
        except CourseError:  # it was well until it was given these
            return Weights(None, None, "The file of weights cannot be read: reading it ended the process that did.")
        return Weights(answer["train_accuracy"], answer["test_accuracy"], answer["problem"])

    def _answer(self) -> dict:
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            how = "ended" if ready else f"did not answer within {PATIENCE:.0f} s"
            raise CourseError(f"The process that evaluates the weights {how}; see `course doctor`.", code=2)
        return json.loads(line)

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def serve(name: str, inbox: Path, images: int | None) -> None:
    """Load everything, say so, then answer every file in the inbox in turn; never returns."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # a small file can ask for any amount of memory
    import tensorflow as tf

    from course_lib import models

    dataset = data.load(name)
    most = min(images or IMAGES, IMAGES)
    mine = np.random.default_rng().permutation(min(images or len(dataset.x_train), len(dataset.x_train)))[:most]
    splits = [(dataset.x_train[mine], dataset.y_train[mine]), (dataset.x_test[:most], dataset.y_test[:most])]
    if dataset.name == "shapes":  # whose published test images anyone can draw
        shape = dataset.x_train.shape[1:]
        splits[1] = shapes.draw(most, shape, split="test", seed=secrets.randbits(64))
    model = models.assessment_cnn(dataset.x_train.shape[1:], len(dataset.classes))
    images = tf.TensorSpec([None, *model.input_shape[1:]], tf.uint8)
    predict = tf.function(lambda batch: tf.argmax(model(batch, training=False), axis=-1), input_signature=[images])
    predict(splits[0][0][:BATCH])  # compiles

    def accuracy(x: np.ndarray, y: np.ndarray) -> float:
        guesses = [predict(x[start : start + BATCH]) for start in range(0, len(x), BATCH)]
        return float(np.mean(np.concatenate(guesses) == y))

    print(json.dumps({"ready": True}), flush=True)
    number = 1
    while True:
        path = inbox / f"{number}.h5"
        if not path.exists():
            time.sleep(POLL)
            continue
        number += 1
        problem = _load(model, path)
        train, test = (None, None) if problem else (accuracy(*split) for split in splits)
        print(json.dumps({"train_accuracy": train, "test_accuracy": test, "problem": problem}), flush=True)


def _load(model: object, path: Path) -> str:
    """Load weights into the network; return what is wrong with them."""
    try:
        model.load_weights(path)
    except Exception:  # whatever HDF5 and Keras make of a stranger's bytes
        return "The saved weights are not those of the assessment's network: save them with model.save_weights()."
    broken = sum(int((~np.isfinite(values)).sum()) for values in model.get_weights())
    return (
        f"{broken:,} of the saved weights are not numbers (NaN or infinite): the training diverged." if broken else ""
    )


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
