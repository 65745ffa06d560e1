"""What notebook 3d says of the optimizers' recorded cost is what the table says."""

from __future__ import annotations

from tests.labs.notebooks import recorded, text

TEXT = text("3d")


def test_what_an_update_costs_against_keras_s():
    table = recorded("optimizer_cost")
    ratios = table.groupby("optimizer")["ratio"]
    low, high = ratios.min(), ratios.max()
    assert high["LARS"] < 1 and "LARS is no dearer than Keras's SGD" in TEXT
    assert low["LAMB"] >= 1.05 and high["LAMB"] <= 1.15 and "LAMB keeps two arrays like Adam and takes a tenth" in TEXT
    assert low["NovoGrad"] >= 0.4 and high["NovoGrad"] <= 0.6 and "takes half of Adam's time" in TEXT
