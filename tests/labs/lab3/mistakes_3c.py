"""Mistakes in the exercises of notebook 3c, and other right answers."""

import numpy as np

from labs.lab3_large_batch.lessons.gradient_noise import multiplicative

GHOSTS = "x.reshape(-1, ghost, *x.shape[1:])"
NORMALISED = "gamma * (groups - mean) / np.sqrt(variance + epsilon) + beta"
RETURN = f"return ({NORMALISED}).reshape(x.shape)"
MEAN = "me.all_reduce(x.mean(axes)) / me.size"
SPREAD = "me.all_reduce(((x - mean) ** 2).mean(axes)) / me.size"
IS_KERNEL = 'name.endswith("kernel:0")'
SIGMA = "np.sqrt(batch / base - 1)"
DRAW = "rng.normal(1.0, sigma, batch)"


def interleaved(x, ghost, gamma, beta, epsilon=1e-3):
    groups = x.reshape(ghost, -1, *x.shape[1:])
    axes = (0, *range(2, groups.ndim - 1))
    mean, variance = groups.mean(axes, keepdims=True), groups.var(axes, keepdims=True)
    return (gamma * (groups - mean) / np.sqrt(variance + epsilon) + beta).reshape(x.shape)


def each_alone(x, ghost, gamma, beta, epsilon=1e-3):
    axes = tuple(range(1, x.ndim - 1))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


def overlapping(x, ghost, gamma, beta, epsilon=1e-3):
    result, axes = np.empty_like(x), tuple(range(x.ndim - 1))
    for number in range(len(x) // ghost):
        part = x[number : number + ghost]
        normal = (part - part.mean(axes)) / np.sqrt(part.var(axes) + epsilon)
        result[number * ghost : (number + 1) * ghost] = gamma * normal + beta
    return result


def one_after_the_other(x, ghost, gamma, beta, epsilon=1e-3):
    axes = tuple(range(x.ndim - 1))
    parts = [(part - part.mean(axes)) / (part.var(axes) + epsilon) ** 0.5 for part in np.split(x, len(x) // ghost)]
    return np.concatenate([gamma * part + beta for part in parts])


def by_rows(me, x):
    axes, values = tuple(range(x.ndim - 1)), len(x) * me.size
    mean = me.all_reduce(x.sum(axes)) / values
    return mean, me.all_reduce(((x - mean) ** 2).sum(axes)) / values


def sums_and_counts(me, x):
    rows = x.reshape(-1, x.shape[-1])
    values = me.all_reduce(np.array([len(rows)]))[0]
    mean = me.all_reduce(rows.sum(0)) / values
    return mean, me.all_reduce(((rows - mean) ** 2).sum(0)) / values


def as_horovod_does(me, x):
    axes = tuple(range(x.ndim - 1))
    mean, square = me.all_reduce(np.stack([x.mean(axes), x.var(axes) + x.mean(axes) ** 2])) / me.size
    return mean, square - mean**2


def one_pass(me, x):
    axes = tuple(range(x.ndim - 1))
    mean, square = (me.all_reduce(part.mean(axes)) / me.size for part in (x, x**2))
    return mean, square - mean**2


def in_double_precision(me, x):
    return one_pass(me, x.astype(np.float64))


def within_and_between(me, x):
    axes = tuple(range(x.ndim - 1))
    mean = me.all_reduce(x.mean(axes)) / me.size
    return mean, me.all_reduce(x.var(axes) + (x.mean(axes) - mean) ** 2) / me.size


def in_place(names, weights, gradients, decay):
    for name, w, g in zip(names, weights, gradients):
        if name.endswith("kernel:0"):
            g += decay * w
    return gradients


def kernels_only(names, weights, gradients, decay):
    return [g + decay * w for name, w, g in zip(names, weights, gradients) if name.endswith("kernel:0")]


def by_the_last_part(names, weights, gradients, decay):
    kinds = [name.rpartition("/")[2].partition(":")[0] for name in names]
    return [g + (kind == "kernel") * decay * w for kind, w, g in zip(kinds, weights, gradients)]


def adding_up(batch, base, rng):
    z = rng.normal(1.0, np.sqrt(batch / base - 1), batch)
    return z / z.mean()


def two_values(batch, base, rng):
    return 1 + np.sqrt(batch / base - 1) * rng.choice([-1.0, 1.0], batch)


def uniform(batch, base, rng):
    half = np.sqrt(3 * (batch / base - 1))
    return rng.uniform(1 - half, 1 + half, batch)


def gamma(batch, base, rng):
    return rng.gamma(1 / (batch / base - 1), batch / base - 1, batch) if batch > base else np.ones(batch)


def standard(batch, base, rng):
    return 1 + rng.standard_normal(batch) * ((batch - base) / base) ** 0.5


MISTAKES = {
    "decayed_gradients": {
        "a layer called kernel": ({'name.endswith("kernel:0")': '"kernel" in name'}, "kernel_head/bias:0"),
        "all decay": ({IS_KERNEL: "True"}, "only kernels should"),
        "none decays": ({IS_KERNEL: "False"}, "nothing gets decay"),
        "bias decays": ({IS_KERNEL: 'name.endswith(("kernel:0", "bias:0"))'}, "bias:0 gets"),
        "γ decays": ({IS_KERNEL: 'name.endswith(("kernel:0", "gamma:0"))'}, "gamma:0 gets"),
        "the layer's name": (
            {IS_KERNEL: 'not any(word in name for word in ("bias", "gamma", "beta"))'}, "whatever its layer is called",
        ),
        "2 λ w": ({"g + decay * w": "g + 2 * decay * w"}, "2 λ w"),
        "½ λ w": ({"g + decay * w": "g + 0.5 * decay * w"}, "½ λ w:"),
        "the wrong sign": ({"g + decay * w": "g - decay * w"}, "added to the gradient"),
        "λ forgotten": ({"g + decay * w": "g + w"}, "λ is missing"),
        "in place": (in_place, "in place"),
        "kernels only are returned": (kernels_only, "5 values are expected"),
        "g for w": ({"g + decay * w": "g + decay * g"}, "something else"),
        "λ alone": ({"g + decay * w": "g + decay"}, "something else"),
    },
    "ghost_batch_norm": {
        "interleaved": (interleaved, "consecutive examples"),
        "overlapping": (overlapping, "starts `ghost` examples further on"),
        "each example by itself": (each_alone, "normalised by itself"),
        "the whole batch": ({GHOSTS: "x.reshape(-1, len(x), *x.shape[1:])"}, "whole batch"),
        "a number of ghosts": ({GHOSTS: "x.reshape(ghost, -1, *x.shape[1:])"}, "not the number of ghost batches"),
        "over the first axis only": ({"range(1, groups.ndim - 1)": "(1,)"}, "height and width"),
        "channels mixed": ({"groups.ndim - 1": "groups.ndim"}, "channels are mixed"),
        "ε outside the root":
            ({"np.sqrt(variance + epsilon)": "np.sqrt(variance) + epsilon"}, "ε belongs under the root"),
        "ε forgotten": ({"variance + epsilon": "variance"}, "ε is missing"),
        "no root": ({"np.sqrt(variance + epsilon)": "variance + epsilon"}, "divide by the root"),
        "n − 1": ({"groups.var(axes, keepdims=True)": "groups.var(axes, ddof=1, keepdims=True)"}, "not /(n − 1)"),
        "γ forgotten": ({"gamma * (groups - mean)": "groups - mean"}, "γ is not applied"),
        "β forgotten": ({NORMALISED: NORMALISED.replace(" + beta", "")}, "β is not added"),
        "neither γ nor β": ({NORMALISED: "(groups - mean) / np.sqrt(variance + epsilon)"}, "γ and β are not applied"),
        "β scaled": ({NORMALISED: "gamma * ((groups - mean) / np.sqrt(variance + epsilon) + beta)"}, "β is not scaled"),
        "in the wrong shape": ({RETURN: f"return {NORMALISED}"}, "it returns shape"),
        "works in place": ({f"groups = {GHOSTS}": f"x -= 0.5; groups = {GHOSTS}"}, "in place"),
        "returns nothing": ({RETURN: NORMALISED}, "returns nothing"),
    },
    "synchronised_statistics": {
        "own mean": ({MEAN: "x.mean(axes)"}, "own share"),
        "a sum of means": ({MEAN: "me.all_reduce(x.mean(axes))"}, "the number of ranks"),
        "the mean of the variances": ({"(x - mean) ** 2": "(x - x.mean(axes)) ** 2"}, "how far apart their means are"),
        "own variance": ({SPREAD: "x.var(axes)"}, "own share: all-reduce."),
        "own deviations from the common mean": ({SPREAD: "((x - mean) ** 2).mean(axes)"}, "all-reduce them, too"),
        "the mean square": ({"(x - mean) ** 2": "x**2"}, "still to be subtracted"),
        "a standard deviation": ({SPREAD: f"np.sqrt({SPREAD})"}, "standard deviation"),
        "a sum of variances": ({SPREAD: SPREAD.replace(" / me.size", "")}, "divide by the number of ranks"),
        "rows counted, not values": (by_rows, "needs its divisor"),
        "the variance of the means": (
            {"((x - mean) ** 2).mean(axes)": "(x.mean(axes) - mean) ** 2"}, "within each rank is missing",
        ),
        "in one pass": (one_pass, "cancellation", 7.0),
        "as Horovod does": (as_horovod_does, "cancellation", 7.0),
        "one array": ({f"mean, {SPREAD}": "mean"}, "2 values are expected: the mean, the variance"),
    },
    "noise_weights": {
        "mean 0": ({DRAW: "rng.normal(0.0, sigma, batch)"}, "mean 0"),
        "σ² for σ": ({SIGMA: "batch / base - 1"}, "standard deviation"),
        "the 1 forgotten": ({"batch / base - 1": "batch / base"}, "what is the 1 for"),
        "the variance of a mean": ({"batch / base - 1": "1 / base - 1 / batch"}, "an M-th of theirs"),
        "m / M": ({"batch / base - 1": "1 - base / batch"}, "M / m, or m / M"),
        "σ = 1": ({SIGMA: "float(batch > base)"}, "grow with M"),
        "a whole number of times": ({"batch / base": "batch // base"}, "with /, not with //"),
        "the ratio upside down": ({"batch / base - 1": "base / batch - 1"}, "M is the larger one"),
        "adding up to M": (adding_up, "draw them independently"),
        "NumPy's own generator": ({"rng.normal": "np.random.normal"}, "to repeat a run"),
        "two values": (two_values, "not normally distributed"),
        "uniform": (uniform, "not normally distributed"),
        "never negative": ({DRAW: f"np.maximum({DRAW}, 0)"}, "Leave them negative"),
        "skewed": (gamma, "not normally distributed"),
        "noise where none belongs": ({SIGMA: f"max({SIGMA}, 0.1)"}, "all weights are exactly 1"),
        "one for all": ({DRAW: "rng.normal(1.0, sigma) * np.ones(batch)"}, "draw one for each"),
        "a generator of its own": ({"rng.normal": "np.random.default_rng(0).normal"}, "draw anew"),
        "another generator": ({"rng.normal": "np.random.default_rng().normal"}, "to repeat a run"),
        "one number": ({DRAW: "rng.normal(1.0, sigma)"}, "it should be (32,)"),
    },
}  # fmt: skip

RIGHT = {
    "decayed_gradients": {"by the last part of the name": by_the_last_part},
    "ghost_batch_norm": {"one after the other": one_after_the_other},
    "synchronised_statistics": {
        "within and between": within_and_between,
        "in double precision": in_double_precision,
        "sums and counts": sums_and_counts,
    },
    "noise_weights": {"the lesson's": multiplicative, "of a standard normal": standard},
}
