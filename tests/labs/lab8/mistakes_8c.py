"""Mistakes in the exercises of notebook 8c."""

from functools import partial

from labs.lab8_honest_benchmarks.lessons import reports_8c
from tests.labs import notebooks

REDUCED = "me.all_reduce(np.stack([right, count]).astype(float))"
ASIDE = "max(training / (ranks - 1), evaluation)"


REPORTS = reports_8c.reports()
truth = partial(notebooks.changed, {letter: (one.mistake, one.accuracy) for letter, one in REPORTS.items()})

MISTAKES = {
    "evaluated": {
        "own share": ({REDUCED: "(right, count)"}, "this rank's own share"),
        "mean of means": (
            {"return right.sum() / count.sum(), np.mean(right[there] / count[there])":
              """
              mine = np.mean((labels == predicted)[real]) if real.any() else 0.0
              both = me.all_reduce(np.array([mine, float(real.any())]))
              return both[0] / both[1], np.mean(right[there] / count[there])
              """},
            "mean of the ranks' means: a rank with few",
        ),
        "mean of means over all": (
            {"return right.sum() / count.sum(), np.mean(right[there] / count[there])":
              """
              mine = np.mean((labels == predicted)[real]) if real.any() else 0.0
              return me.all_reduce(np.array(mine)) / me.size, np.mean(right[there] / count[there])
              """},
            "without images counts as 0 % right",
        ),
        "sum of accuracies": (
            {"return right.sum() / count.sum(), np.mean(right[there] / count[there])":
              """
              mine = np.mean((labels == predicted)[real]) if real.any() else 0.0
              return me.all_reduce(np.array(mine)), np.mean(right[there] / count[there])
              """},
            "`all_reduce` adds up",
        ),
        "filling counts":
            ({"real & (labels == predicted)": "labels == predicted", "labels[real]": "labels"},
             "`real` says which don't"),
        "filling divides": ({"labels[real]": "labels"}, "are still divided by"),
        "0 divided by 0":
            ({"right, count = " + REDUCED: "share = me.all_reduce(right / count) / me.size",
              "right.sum() / count.sum()": "share.mean()"},
             "something is divided by 0"),
        "a rank without images stays out":
            ({"right, count = " + REDUCED: "if real.any():\n    right, count = " + REDUCED}, "must call it, too"),
        "absent classes count as 0":
            ({"np.mean(right[there] / count[there])": "np.sum(right[there] / count[there]) / 10"},
             "classes that nobody has count as 0"),
        "the plain one twice":
            ({"np.mean(right[there] / count[there])": "right.sum() / count.sum()"},
             "in the balanced one each class counts alike"),
        "only one":
            ({"return right.sum() / count.sum(), np.mean(right[there] / count[there])":
               "return right.sum() / count.sum()"},
             "2 values are expected"),
        "the plain one second":
            ({"return right.sum() / count.sum(), np.mean(right[there] / count[there])":
               "return np.mean(right[there] / count[there]), right.sum() / count.sum()"},
             "return the plain one first"),
        "percent": ({"right.sum() / count.sum()": "100 * right.sum() / count.sum()"}, "not percent"),
        "by how often a class was named":
            ({"there = count > 0":
               "count = me.all_reduce(np.bincount(predicted[real], minlength=10))\nthere = count > 0"},
             "how often a class was named"),
        "a class's share averaged over the ranks": (
            {"there = count > 0":
              """
              mine = np.bincount(labels[real], minlength=10)
              hits = np.bincount(labels[real & (labels == predicted)], minlength=10)
              shares = me.all_reduce(np.where(mine > 0, hits / np.maximum(mine, 1), 0))
              there = count > 0
              right = shares / np.maximum(me.all_reduce(1.0 * (mine > 0)), 1) * count
              """},
            "has a single image of the class",
        ),
        "in place": ({"there = count > 0": "there = count > 0\nlabels[:1] = 0\nlabels[1:] = 1"}, "changed in place"),
    },
    "epoch_seconds": {
        "rank 0's evaluation shared out":
            ({"training / ranks + evaluation": "(training + evaluation) / ranks"}, "only rank 0"),
        "training not shared out": ({"training / ranks + evaluation": "training + evaluation"}, "among all ranks"),
        "rank 0 beside the training":
            ({"training / ranks + evaluation": "max(training / ranks, evaluation)"}, "nothing runs beside it"),
        "aside adds up": ({ASIDE: "training / (ranks - 1) + evaluation"}, "not their sum"),
        "all ranks train": ({ASIDE: "max(training / ranks, evaluation)"}, "N − 1 are left"),
        "the shorter decides": ({ASIDE: "min(training / (ranks - 1), evaluation)"}, "until the next epoch is trained"),
        "N − 1 for all ways":
            ({"return (training + evaluation) / ranks":
               "return {'all ranks': (training + evaluation) / ranks}.get(way, training / (ranks - 1))"},
             "'all ranks' with 1 rank divides by 0"),
        "training alone shared, the wrong way round":
            ({"training / ranks + evaluation": "training + evaluation / ranks"}, "other way round"),
        "aside never waits": ({ASIDE: "training / (ranks - 1)"}, "has to wait for it"),
        "all ranks, evaluation not shared out":
            ({"(training + evaluation) / ranks": "training / ranks + evaluation"}, "evaluation is shared out as well"),
        "all ranks at the same time":
            ({"(training + evaluation) / ranks": "max(training, evaluation) / ranks"}, "add up"),
    },
    "within_budget": {
        "all weights into width": ({"weights ** 0.5": "weights"}, "twice the width is four times the weights"),
        "width from the work":
            ({"width = weights ** 0.5": "width = multiply_adds ** 0.5"}, "resolution changes no weight"),
        "pixels for side": ({"(multiply_adds / weights) ** 0.5": "multiply_adds / weights"}, "four times the pixels"),
        "work of the width forgotten": ({"(multiply_adds / weights) ** 0.5": "multiply_adds ** 0.5"}, "used part of"),
        "the square of the weights":
            ({"(multiply_adds / weights) ** 0.5": "multiply_adds ** 0.5 / weights"}, "not the square of that"),
        "work grows with the width": ({"multiply_adds / weights": "multiply_adds / width"}, "the square of the width"),
        "turned round":
            ({"return width, (multiply_adds / weights) ** 0.5": "return (multiply_adds / weights) ** 0.5, width"},
             "return the width first"),
    },
    "same_memory": {
        "unchanged": ({"decay ** (batch / base)": "decay"}, "are many more images"),
        "in proportion": ({"decay ** (batch / base)": "1 - batch / base * (1 - decay)"}, "as long as it is small"),
        "turned round": ({"batch / base": "base / batch"}, "forget more, not less"),
        "divided": ({"decay ** (batch / base)": "decay / (batch / base)"}, "nearly everything"),
        "turned round in proportion":
            ({"decay ** (batch / base)": "1 - (1 - decay) * base / batch"}, "a matter of powers"),
        "without brackets": ({"decay ** (batch / base)": "decay**batch / base"}, "in brackets"),
        "what is forgotten": ({"decay ** (batch / base)": "(1 - decay) ** (batch / base)"}, "ask what is kept"),
        "whole numbers": ({"batch / base": "batch // base"}, "need not be a whole number"),
        "the root": ({"batch / base": "(batch / base) ** 0.5"}, "the root of the ratio?"),
    },
    "diagnoses": {
        "fault where there is none": (truth(B=("mean of means", 50.0)), "a large spread between ranks is no fault"),
        "none where there is one": (truth(A=("none", 50.0)), "how many images stand behind each"),
        "filling for divisor": (truth(C=("filling", 50.0)), "which among those divided by?"),
        "one rank unseen": (truth(F=("none", 40.5)), "accuracy of each rank by itself"),
        "same share unseen": (truth(D=("none", None)), "compare the rows"),
        "same share, and a number": (truth(D=("same share", 45.0)), "return None"),
        "the reported one": (truth(F=("one rank", 90.0)), "is not what the ranks' counts give"),
        "no number": (truth(E=("filling", None)), "every image of the test set is in it"),
        "an unknown word": (truth(A=("padding", 45.0)), "is none of"),
        "no pair": (truth(A="none"), "(mistake, accuracy) is expected"),
        "a report left out": (truth(C=None), "the keys A, B, C"),
        "a share in place of percent":
            (truth(B=("none", REPORTS["B"].accuracy / 100)), "in percent, please"),
    },
}  # fmt: skip
