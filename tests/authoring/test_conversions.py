"""The assessment's starter and its conversion, step by step. (Lab 2's are tested with its checks.)"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.authoring import conversions

STARTER = conversions.script(conversions.ASSESSMENT)


def test_every_stage_is_python_and_each_step_can_be_left_out() -> None:
    names = list(conversions.steps(conversions.ASSESSMENT))
    stages = [conversions.converted(names[:k], conversions.ASSESSMENT) for k in range(len(names) + 1)]
    without = [conversions.converted([n for n in names if n != left_out], conversions.ASSESSMENT) for left_out in names]
    for text in stages + without:
        compile(text, STARTER.name, "exec")
    assert len(set(stages + without)) == 2 * len(names)  # without the last step = the last stage but one
    assert stages[0] == STARTER.read_text("utf-8") and "hvd" not in stages[0]


def test_the_reference_is_the_starter_with_all_steps() -> None:
    reference = conversions.ASSESSMENT / "reference" / STARTER.name
    assert reference.read_text("utf-8") == conversions.converted(folder=conversions.ASSESSMENT)
    assert (reference, reference.read_text("utf-8")) in conversions.references()


@pytest.mark.slow
def test_the_starter_trains_without_arguments_and_saves_its_weights(tmp_path: Path) -> None:
    """On a slice of the stand-in or of CIFAR-10: the saved weights fit the network and beat chance by far."""
    weights = tmp_path / "given.h5"
    env = {**os.environ, "COURSE_SLICE": "2560", "COURSE_WEIGHTS": str(weights), "PYTHONPATH": str(conversions.ROOT)}
    done = subprocess.run([sys.executable, str(STARTER)], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Training on 2,304 images" in done.stdout and "Accuracy on 256 held-out images: 0." in done.stdout
    assert weights.stat().st_size < 1.5e6 and list(tmp_path.iterdir()) == [weights]

    from course_lib import data, models

    images = data.load("cifar10")
    model = models.assessment_cnn((32, 32, 3), 10)
    model.load_weights(weights)
    found = model.predict(images.x_test[:2000], batch_size=500, verbose=0).argmax(1)
    assert (found == images.y_test[:2000]).mean() > 0.2
