"""Expected weights of the layer-wise optimizers, calculated in float64 from the papers' formulas.

Each optimizer makes three steps from the weights START, with GRADIENTS and a weight decay of 0.1.
"""

from __future__ import annotations

START, GRADIENTS = [3.0, 4.0], ([-0.8, 0.6], [0.5, 0.5], [0.1, -0.2])
# name → learning rate of each step, further arguments, weights after each step
CHECK_VALUES = {
    "LARS": ((1, 0.5, 0.5), {}, ((3.0016667, 3.9966667), (3.0015098, 3.9918038), (2.9999866, 3.9867392))),
    "LARC": (
        (1, 0.5, 0.5),
        {"trust_coefficient": 0.02},
        ((3.0333333, 3.9333333), (2.9820401, 3.8296131), (2.8813536, 3.7112136)),
    ),
    "LAMB": ((0.01, 0.01, 0.005), {}, ((3.0223607, 3.9552786), (3.0177626, 3.9057131), (3.0119583, 3.8817266))),
    "NovoGrad": ((0.01, 0.01, 0.005), {}, ((3.0050000, 3.9900000), (3.0017198, 3.9714848), (2.9981535, 3.9617191))),
}
