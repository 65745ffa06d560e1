"""Mistakes in the exercises of notebook 7b, and other right answers."""

import itertools

import numpy as np

from course_lib.parallel import pipeline, schedules
from labs.lab7_splitting_the_model.lessons import checks_7b

SCALED = "slope * (len(labels[i]) / images)"
IMAGES = "images, loss, slopes = sum(len(some) for some in labels), 0.0, {}"
SEND_BACK = 'if me > 0: wire.send(me - 1, "B", i, back)'
SEND_ON = 'wire.send(me + 1, "F", i, y)'
OTHERWISE = 'if me + 1 == size else wire.receive(me + 1, "B", i)'
SENT = 'wire.send(me - 1, "B", i, back)'
LOSS = "mean * len(labels[i]) / images"
STEP = "sum((micro - 1) * max(way) + sum(way) for way in (forward, backward))"
ROW = 'row += [("F", early + i)] * (early + i < micro) + [("B", i)]'
EARLY = "min(stages - 1 - stage, micro)"
LARGER = "max(best[c][0], sums[end] - sums[c])"
BEST = "best[layers][1]"
DELAYS = "[2 * count for count in after], after"


def up_to_the_mean(seconds, stages):
    ends, held = [], 0
    for layer, time in enumerate(seconds):
        left = len(seconds) - layer
        if layer and len(ends) < stages - 1 and (held >= sum(seconds) / stages or left == stages - 1 - len(ends)):
            ends.append(layer)
            held = 0
        held += time
    return ends


def all_plans(seconds, stages):
    assert len(seconds) <= 30, "not tried at a hundred layers, where it would never end"
    every = itertools.combinations(range(1, len(seconds)), stages - 1)
    return list(min(every, key=lambda plan: checks_7b.slowest(seconds, plan)))


def by_limits(seconds, stages):
    def filled(limit):
        ends, held = [], 0
        for layer, time in enumerate(seconds):
            if held + time > limit:
                ends.append(layer)
                held = 0
            held += time
        return ends

    sums = [0, *np.cumsum(seconds)]
    limits = sorted({b - a for a, b in itertools.combinations(sums, 2) if b - a >= max(seconds)})
    ends = next(plan for plan in map(filled, limits) if len(plan) < stages)
    spare = [layer for layer in range(1, len(seconds)) if layer not in ends]
    return sorted(ends + spare[: stages - 1 - len(ends)])


MISTAKES = {
    "work": {
        "means added": ({SCALED: "slope"}, "What does each mean count for"),
        "all count the same": ({SCALED: "slope / len(labels)"}, "with more images has to count for more"),
        "sums": ({SCALED: "slope * len(labels[i])"}, "asked for is the mean"),
        "divided by all images": ({SCALED: "slope / images"}, "multiply by those of the micro-batch"),
        "weighted on every stage":
            ({SCALED: "slope", "stage.backward(i, slope)": "stage.backward(i, slope * len(labels[i]) / images)"},
             "has that factor already"),
        "the last slope": ({f"slopes[i] {OTHERWISE}": f"slope {OTHERWISE}"}, "is it that of another micro-batch"),
        "nothing sent back": ({SEND_BACK: "pass"}, "stage 0 waits for the gradient B0 from stage 1"),
        "nothing sent on": ({SEND_ON: "None"}, "stage 1 waits for the activations F0 from stage 0"),
        "sent back by the first": ({"me > 0": "me > -1"}, "only neighbours are joined"),
        "sent to all": ({SEND_BACK: 'wire.send(0, "B", i, back) if me > 0 else None'}, "only neighbours are joined"),
        "the outputs come back": ({SENT: 'wire.send(me - 1, "B", i, x)'}, "is off by"),
        "sent twice": ({SENT: '[wire.send(me - 1, kind, i, back) for kind in ("F", "B")]'}, "nobody receives"),
        "another order": ({IMAGES: f"row = sorted(row)[::-1]; {IMAGES}"}, "it does F1, F0, B1, B0"),
        "back first": ({IMAGES: f"row = sorted(row); {IMAGES}"}, "raised KeyError"),
        "loss on all stages": ({"return loss": "return loss or 1.0"}, "only the last stage knows a loss"),
        "losses added": ({LOSS: "mean"}, "the sum of the micro-batches' means"),
        "losses averaged": ({LOSS: "mean / len(labels)"}, "counts small ones too much"),
        "no return": ({"return loss": "pass"}, "a `return` missing"),
    },
    "step_seconds": {
        "one after the other": ({STEP: "micro * (sum(forward) + sum(backward))"}, "at the pace of the slowest"),
        "all as slow as the slowest":
            ({STEP: "(micro + len(forward) - 1) * (max(forward) + max(backward))"}, "passes the fast stages fast"),
        "the mean stage": (
            {STEP: "(micro + len(forward) - 1) * (np.mean(forward) + np.mean(backward))"}, "the slowest sets the pace",
        ),
        "both passes together":
            ({STEP: "sum(forward) + sum(backward) + (micro - 1) * max(f + b for f, b in zip(forward, backward))"},
             "need not be the one that is slowest backward"),
        "the last stage queues": (
            {STEP: "sum(forward) + sum(backward) + (micro - 1) * (forward[-1] + backward[-1])"}, "need not be the last",
        ),
        "one too many": ({"micro - 1": "micro"}, "one micro-batch too many"),
        "forward only": ({"(forward, backward)": "(forward,)"}, "the backward passes are missing"),
        "the slowest computes": ({STEP: "micro * max(f + b for f, b in zip(forward, backward))"}, "it also waits"),
    },
    "schedule": {
        "GPipe": ({"return in_order": "return gpipe(stages, micro)"}, "Those are all"),
        "one at a time": ({EARLY: "0"}, "goes there and back alone"),
        "one too few": ({EARLY: "min(max(stages - 2 - stage, 0), micro)"}, "a stage waits that could"),
        "one too many early": ({EARLY: "min(stages - stage, micro)"}, "and may keep"),
        "counted from the front": ({EARLY: "min(stage, micro)"}, "Deadlock: stage 0 waits for the gradient"),
        "no end": ({"(early + i < micro)": "True"}, "with 8 micro-batches there are"),
        "backward first": ({ROW: 'row += [("B", i)] + [("F", early + i)] * (early + i < micro)'}, "before F0"),
        "a micro-batch forgotten": ({"range(micro)": "range(micro - 1)"}, "never does"),
        "a row too few": ({"range(stages)": "range(stages - 1)"}, "one for each stage"),
        "no numbers": ({"return in_order": 'return ["FB" for _ in range(stages)]'}, "list of tasks"),
    },
    "cuts": {
        "up to the mean": (up_to_the_mean, "leaves the rest to the last"),
        "all plans": (all_plans, "don't try them all", 7),
        "equally many layers":
            ({BEST: "[round(layers * s / stages) for s in range(1, stages)]"}, "not equally much time"),
        "only the first": ({BEST: "best[layers][1][:-1]"}, "it returns shape"),
        "with the ends": ({BEST: "[0, *best[layers][1]]"}, "it returns shape"),
        "empty stages": ({BEST: "[layers] * (stages - 1)"}, "so that every stage has a layer"),
        "sums of all": ({LARGER: "best[c][0] + sums[end] - sums[c]"}, "is possible"),
    },
    "delays": {
        "delays from the front": ({"stages - 1 - stage": "stage"}, "count from the other end"),
        "stages counted from 1": ({"stages - 1 - stage": "stages - stage"}, "with no update between them"),
        "one way": ({DELAYS: "after, after"}, "and comes back"),
        "ticks for both": ({DELAYS: "[2 * c for c in after], [2 * c for c in after]"}, "there are no ticks"),
        "all alike": ({DELAYS: "[2 * stages - 2] * stages, after"}, "not equally far"),
        "one list": ({DELAYS: "[2 * count for count in after]"}, "2 values are expected"),
    },
}  # fmt: skip

RIGHT = {
    "cuts": {"by limits": by_limits},
    "work": {"the library's": pipeline.follow},
    "schedule": {"the library's": schedules.one_forward_one_backward},
}
