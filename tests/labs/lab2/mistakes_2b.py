"""Mistakes in the exercises of notebook 2b; those in its script are in `tests/real_ranks/test_conversion.py`."""

from functools import partial

from tests.labs import notebooks

ONE_SHUFFLE = "np.random.default_rng(epoch)"
ORDER = f"{ONE_SHUFFLE}.permutation(images)"
PART = "order[rank * part : (rank + 1) * part]"
OWN_SHUFFLE = "np.random.default_rng([epoch, rank])"
BEGINNING = "order[: images // size]"


steps = partial(notebooks.changed, {"A": 5, "B": 8, "C": 4})

MISTAKES = {
    "option_1": {
        "unequal parts": ({PART: "order[rank::size]"}, "unequal parts end in a deadlock", 0),
        "each rank its own shuffle": ({ONE_SHUFFLE: OWN_SHUFFLE}, "read by two ranks", 5),
        "one shuffle for all epochs": ({ONE_SHUFFLE: "np.random.default_rng(0)"}, "shuffle anew in each epoch", 5),
        "cut before the shuffle":
            ({ORDER: f"{ONE_SHUFFLE}.permutation(images // size) + rank * (images // size)", PART: "order"},
             "shuffle before you cut", 5),
        "the first epoch in stored order":
            ({ORDER: f"{ORDER} if epoch else np.arange(images)"}, "stored order", 5),
        "the same images, shuffled within each part":
            ({ORDER: "np.arange(images)",
              PART: "np.random.default_rng(epoch).permutation(order[rank * part : (rank + 1) * part])"},
             "shuffle before you cut", 5),
        "no seed": ({ONE_SHUFFLE: "np.random.default_rng()"}, "answers differently", 0),
        "counted from 1": ({PART: f"{PART} + 1"}, "reads image 96; the first one is 0, but the last one is 95", 0),
        "one image less": ({PART: f"{PART}[1:]"}, "each rank reads 95 images in place of 96", 0),
        "one image": ({PART: "order[rank]"}, "a list of whole numbers", 0),
        "no return": ({f"return {PART}": "pass"}, "is a `return` missing?", 0),
    },
    "option_2": {
        "one shuffle for all ranks": ({OWN_SHUFFLE: ONE_SHUFFLE}, "same images in the same order", 5),
        "option 1":
            ({OWN_SHUFFLE: ONE_SHUFFLE, BEGINNING: "order[images // size * rank : images // size * (rank + 1)]"},
             "that is option 1", 5),
        "rank and epoch added up":
            ({OWN_SHUFFLE: "np.random.default_rng(rank + epoch)"}, "seed with both numbers, not their sum", 5),
        "the rank alone": ({OWN_SHUFFLE: "np.random.default_rng(rank)"}, "in each epoch", 5),
        "drawn with replacement":
            ({f"{OWN_SHUFFLE}.permutation(images)": f"{OWN_SHUFFLE}.integers(0, images, images)"},
             "without replacement", 0),
        "no seed": ({OWN_SHUFFLE: "np.random.default_rng()"}, "answers differently", 0),
        "the whole set": ({BEGINNING: "order"}, "each rank reads 96 images in place of 48", 0),
    },
    "diagnosis": {
        "no averages for no broadcast": (steps(A=4), "A's ranks differ after the first step already", 6.67),
        "no broadcast for no averages": (steps(C=5), "C's ranks are equal after the first step", 6.67),
        "the same images for no metrics": (steps(B=6), "B's ranks read different images, each its own part", 6.67),
        "the rate for no metrics": (steps(B=3), "one and the same network", 6.67),
        "all three by the accuracy": (steps(A=8, B=4, C=8), "both ranks report the same loss: it is averaged", 0),
        "a script left out": (steps(C=None), "C has no diagnosis", 6.67),
        "a text": (steps(A="5"), "A has '5'; write a number from 3 to 8", 6.67),
        "no such step": (steps(A=12), "A has 12; write a number from 3 to 8", 6.67),
        "a list": (lambda: ["broadcast"], "the number of a step for each", 0),
        "no return": (lambda: None, "is a `return` missing?", 0),
    },
}  # fmt: skip

SEEDED = "(__import__('random').Random(f'shuffle {epoch}').shuffle(order), order)[1]"

RIGHT = {
    "option_1": {
        "every size-th image of the shuffle": {PART: "order[: part * size][rank::size]"},
        "a list, by the random module":
            {ORDER: "list(range(images))", PART: f"{SEEDED}[rank * part : (rank + 1) * part]"},
    },
    "option_2": {
        "the end of the shuffle": {BEGINNING: "order[images - images // size :]"},
        "a choice":
            {f"{OWN_SHUFFLE}.permutation(images)": f"{OWN_SHUFFLE}.choice(images, images // size, replace=False)"},
    },
    "diagnosis": {"floats": steps(A=5.0, B=8.0, C=4.0)},
}  # fmt: skip
