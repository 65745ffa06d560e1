"""What the log says of real trainings on two ranks, in many styles."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.notebook import training_rules
from course_lib.notebook.judging import Wrong
from course_lib.ranks import launch, run_record

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

SCRIPT = Path(__file__).with_name("styles.py")
STEPS, BATCH = 8, 16  # as in the script
UPDATES = {  # that each style makes, as far as the log can know
    "fit": STEPS,
    "accumulation": STEPS // 2,
    "mixed precision": STEPS,
    "own train_step": STEPS,
    "graph": STEPS,
    "eager": STEPS,
    "two optimizers": 2 * STEPS,
    "sharpness-aware": STEPS,
    "compiled": STEPS,
    "compiled updates": 0,  # in XLA nothing can be counted
    "apart": STEPS,
}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Style → the record of its training; all of them in one pair of processes."""
    folder = tmp_path_factory.mktemp("styles")
    with launch.start(SCRIPT, [folder], 2, timeout=300, env=launch.ONE_THREAD) as run:
        result = run.wait()
    assert result.code == 0, result
    return {style: run_record.read(folder / style, 2, result) for style in UPDATES}


@pytest.mark.parametrize("style", UPDATES)
def test_steps_updates_and_values_are_counted(records, style):
    record, updates = records[style], UPDATES[style]
    values = record.ranks[0].values
    for rank in record.ranks:
        assert [len(step) for step in rank.examples] == [BATCH] * STEPS
        assert rank.number("progress", "images") == BATCH * STEPS
        assert rank.number("progress", "updates") == updates
        changed = STEPS // 2 if style == "accumulation" else STEPS if updates else 0
        assert rank.number("progress", "values") == changed * values
    assert "own images, together 256 in 8 steps" in training_rules.own_images(record, 2 * BATCH * STEPS, 1.0)


@pytest.mark.parametrize("style", [one for one in UPDATES if one != "apart"])
def test_collectives_are_complete_and_ranks_agree(records, style):
    record, updates = records[style], UPDATES[style]
    assert training_rules.initialised(record) == "All 2 ranks found each other."
    assert training_rules.reductions(record).complete
    assert record.agreement() == [(n, True) for n in (2, 4, 8, 16) if n <= updates]
    assert record.weights_differ() <= (1e-6 if style == "sharpness-aware" else 0.0)
    assert training_rules.broadcasters(record) == [0, 1]
    if updates:
        training_rules.averaged(record)
        training_rules.broadcast(record)


def test_networks_that_are_trained_apart_are_seen(records):
    record = records["apart"]
    assert record.agreement() == [(2, False), (4, False), (8, False)]
    assert record.weights_differ() > 0
    with pytest.raises(Wrong, match="No gradients were all-reduced"):
        training_rules.averaged(record)
