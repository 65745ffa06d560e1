"""Who reads what."""

from __future__ import annotations

import numpy as np

from course_lib.notebook import plots


def test_each_image_has_its_rank_several_or_none():
    functions = {
        "every other": lambda images, rank, size, epoch: np.arange(rank, images, size),
        "all": lambda images, rank, size, epoch: np.arange(images),
        "nothing": lambda images, rank, size, epoch: np.arange(0),
    }
    figure = plots.partition(functions, images=6, ranks=2, epochs=2)
    owners = {axis.get_title("left"): np.asarray(axis.collections[0].get_array()).ravel() for axis in figure.axes}
    blank_row = [0, 0]
    two_epochs = [1, 2, 1, 2, 1, 2, *blank_row, 1, 2, 1, 2, 1, 2]
    assert owners["every other"].tolist() == two_epochs
    assert owners["all"].tolist() == [3 * (owner > 0) for owner in two_epochs]
    assert not owners["nothing"].any()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["epoch 0", "epoch 1"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["rank 0", "rank 1", "several ranks"]
