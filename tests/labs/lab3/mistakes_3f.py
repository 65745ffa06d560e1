"""Mistakes in the exercises of notebook 3f."""

import numpy as np

STEP = "step = epsilon * v / np.linalg.norm(v)"
PRODUCT = "change * np.linalg.norm(v) / (2 * epsilon)"
ONE_SIDED = {"gradient(w - step)": "gradient(w)"}
UNIT = "turned / np.linalg.norm(turned)"
VALUE = "float(v @ product(v))"
STEP_OF_SIGNS = "epsilon * np.sign(gradients)"
MOVED = f"np.clip(images + {STEP_OF_SIGNS}, 0, 255)"
TURNED = "scale * product(scale * v)"


def smallest(product, v, steps):
    values, vectors = np.linalg.eigh(np.array([product(e) for e in np.eye(len(v))]))
    return float(values[0]), vectors[:, 0]


MISTAKES = {
    "hessian_vector": {
        "the 2 forgotten": ({"2 * epsilon": "epsilon"}, "twice H v"),
        "one-sided, but divided by two": (ONE_SIDED, "half of H v"),
        "one-sided": ({**ONE_SIDED, "2 * epsilon": "epsilon"}, "one on each side"),
        "the other way round":
            ({"gradient(w + step) - gradient(w - step)": "gradient(w - step) - gradient(w + step)"}, "−H v"),
        "not divided": ({PRODUCT: "change"}, "almost 0"),
        "the length of v lost": ({PRODUCT: "change / (2 * epsilon)"}, "v has its own length"),
        "a step as long as v": ({STEP: "step = epsilon * v", PRODUCT: "change / (2 * epsilon)"}, "v of length"),
        "divided by the length":
            ({PRODUCT: "change / (2 * epsilon * np.linalg.norm(v))"}, "multiply by the length of v"),
        "along w": ({STEP: f"v = w; {STEP}"}, "not along w"),
        "v changed": ({STEP: f"v *= 1 + 1e-12; {STEP}"}, "changed in place"),
    },
    "power_iteration": {
        "the smallest eigenvalue": (smallest, "smallest"),
        "never brought back": ({UNIT: "turned"}, "bring v back to length 1"),
        "the length for the value": ({VALUE: "float(np.linalg.norm(product(v)))"}, "a length has no sign"),
        "the new v times the last product":
            ({"return float(v @ product(v)), v": "return float(v @ turned), v"}, "a length has no sign"),
        "the largest number becomes 1": ({UNIT: "turned / np.abs(turned).max()"}, "the vector has length"),
        "v is not replaced": ({f"v = {UNIT}": f"_ = {UNIT}"}, "of the first v"),
        "the square": ({VALUE: "float(product(v) @ product(v))"}, "the square"),
        "two products a step": ({UNIT: "product(v) / np.linalg.norm(product(v))"}, "keep H v in a variable"),
        "the vector forgotten": ({f"{VALUE}, v": VALUE}, "2 values are expected"),
        "the given vector changed":
            ({"turned = product(v)": "v /= np.linalg.norm(v); turned = product(v)"}, "changed in place"),
        "nothing returned by the iteration": ({f"return {VALUE}, v": "pass"}, "returns nothing"),
    },
    "relative_product": {
        "only v is scaled": ({TURNED: "product(scale * v)"}, "only v is scaled"),
        "only the product is scaled": ({TURNED: "scale * product(v)"}, "only the product"),
        "divided by the scale": ({TURNED: "product(v / scale) / scale"}, "divides by s"),
        "the root of the scale": ({TURNED: "np.sqrt(scale) * product(np.sqrt(scale) * v)"}, "√s stands on both sides"),
        "both scales in front": ({TURNED: "scale**2 * product(v)"}, "s² stands in front"),
        "scales that cancel": ({TURNED: "scale * product(v / scale)"}, "cancel"),
        "no scale": ({TURNED: "product(v)"}, "no effect"),
        "a product in place of a function": ({f"lambda v: {TURNED}": "scale * product(scale)"}, "return a function"),
    },
    "fool": {
        "the loss falls": ({STEP_OF_SIGNS: f"-{STEP_OF_SIGNS}"}, "direction of training"),
        "as long as the gradient": ({STEP_OF_SIGNS: "epsilon * gradients"}, "the whole of what a pixel"),
        "a step of length ε":
            ({STEP_OF_SIGNS: "epsilon * gradients / np.sqrt((gradients**2).sum(axis=(1, 2, 3), keepdims=True))"},
             "step of *length* ε"),
        "by the largest slope":
            ({STEP_OF_SIGNS: "epsilon * gradients / np.abs(gradients).max(axis=(1, 2, 3), keepdims=True)"},
             "keeps the others"),
        "the gradient cut off": ({STEP_OF_SIGNS: "np.clip(gradients, -epsilon, epsilon)"}, "is cut off at ε"),
        "all pixels brighter": ({STEP_OF_SIGNS: "epsilon"}, "the wrong way"),
        "only brighter pixels":
            ({STEP_OF_SIGNS: "np.where(gradients > 0, epsilon, 0)"}, "a darker pixel raises the loss"),
        "ε of the whole range": ({STEP_OF_SIGNS: f"255 * {STEP_OF_SIGNS}"}, "units of the pixels"),
        "the step alone": ({MOVED: STEP_OF_SIGNS}, "the step alone"),
        "beyond the range": ({MOVED: "images + epsilon * np.sign(gradients)"}, "leave 0 to 255"),
        "a step of 8 bits":
            ({STEP_OF_SIGNS: "(epsilon * np.sign(gradients)).astype(int).astype(images.dtype)"}, "at the other end"),
        "wrapped around": ({MOVED: "(images + epsilon * np.sign(gradients)) % 256"}, "wrap around"),
        "clipped at one": ({MOVED: "np.clip(images + epsilon * np.sign(gradients), 0, 1)"}, "not to 1"),
        "images changed": ({f"return {MOVED}": f"images[0, 0, 0, 0] += 1; return {MOVED}"}, "changed in place"),
    },
}  # fmt: skip

RIGHT = {
    "hessian_vector": {
        "a factor instead of a step":
            {STEP: "h = epsilon / np.linalg.norm(v)", "gradient(w + step) - gradient(w - step)":
             "gradient(w + h * v) - gradient(w - h * v)", PRODUCT: "change / (2 * h)"},
    },
    "power_iteration": {
        "the value before the last turn":
            {"turned = product(v)": "v = v / np.linalg.norm(v); turned = product(v); value = v @ turned",
             "float(v @ product(v))": "value"},
        "the vector turned round": {"return float(v @ product(v)), v": "return float(v @ product(v)), -v"},
    },
    "relative_product": {"diagonal matrices": {TURNED: "np.diag(scale) @ product(np.diag(scale) @ v)"}},
    "fool": {
        "the sign carried over": {STEP_OF_SIGNS: "np.copysign(epsilon, gradients)"},
        "the nearer end of the range":
            {MOVED:
             "np.where(gradients > 0, np.minimum(images + 1.0 * epsilon, 255), np.maximum(images - 1.0 * epsilon, 0))"},
    },
}  # fmt: skip
