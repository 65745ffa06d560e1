"""Stages of a pipeline on real ranks: equal to the serial network, and joined to nobody but their neighbours."""

from __future__ import annotations

import runpy

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments
from course_lib.parallel import pipeline, schedules
from course_lib.ranks import launch

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

SIZES, ENDS, RATE = (20, 16, 16, 12, 5), (1, 3), 0.1


def test_three_stages_are_the_serial_network(marked):
    random = np.random.default_rng(1)
    layers = pipeline.first_layers(SIZES, 2)
    images, labels = random.normal(size=(50, 20)).astype(np.float32), random.integers(5, size=50)
    tables = {"gpipe": schedules.gpipe(3, 4), "1f1b": schedules.one_forward_one_backward(3, 4)}
    inputs, answers = np.array_split(images, 4), np.array_split(labels, 4)

    def on_a_rank():
        import horovod.tensorflow as hvd

        hvd.init()
        me, found = hvd.rank(), {}
        wire = pipeline.connect()
        for name, table in tables.items():
            stage = pipeline.stages(layers, ENDS)[me]
            losses = []
            for _ in range(3):
                losses.append(pipeline.follow(table[me], stage, me, 3, wire, inputs, answers))
                stage.update(RATE)
            found[name] = losses, stage.layers, stage.most_kept
        neighbours = sorted(wire._connections)
        wire.close()
        return found, neighbours

    ranks = launch.call(on_a_rank, 3, env={**launch.ONE_THREAD, **marked}, timeout=120)
    assert [neighbours for _, neighbours in ranks] == [[1], [0, 2], [1]]
    serial = pipeline.Stage(layers, last=True)
    losses = []
    for _ in range(3):
        loss, slope = pipeline.cross_entropy(serial.forward(0, images), labels)
        serial.backward(0, slope)
        serial.update(RATE)
        losses.append(loss)
    for name, table in tables.items():
        stages = [found[name] for found, _ in ranks]
        np.testing.assert_allclose(stages[-1][0], losses, rtol=1e-6)
        assert [kept for *_, kept in stages] == schedules.kept(table)
        cut = [layer for _, part, _ in stages for layer in part]
        for one, other in zip(cut, serial.layers):
            for number in (0, 1):
                np.testing.assert_allclose(one[number], other[number], rtol=1e-6, atol=1e-6)


def test_the_bubble_is_measured_from_plan_to_figure(tmp_path, monkeypatch):
    """In small; the share of idle time says nothing on a busy machine but that it is one."""
    monkeypatch.setenv("COURSE_SLICE", "512")
    path = experiments.find()["bubble"]
    main = runpy.run_path(str(path))["main"]
    main.__globals__.update(BATCH=64, SIZES=(784, 16, 16, 10), END=1, STEPS=3, MICRO=(1, 3), NUMBERS=(100,))
    main().write(tmp_path, "bubble", seconds=1)
    assert {found.name for found in tmp_path.iterdir()} == {"bubble.csv", "bubble.png"}
    table, before = (
        pd.read_csv(folder / "bubble.csv", comment="#") for folder in (tmp_path, path.parent.parent / "recorded")
    )
    assert list(table) == list(before) and set(table["what"]) == set(before["what"])
    assert (table["seconds"] > 0).all() and table["idle"].dropna().between(0, 1).all()
