"""Updates to a validation accuracy of 0.8: by the number of updates between meetings, with springs, and with gossip.

Emulated ranks train a small network, each on batches of 16 images: drawn from all images, or, with classes of its own,
from one Nth of the images sorted by class. Ways:

- *local*: the ranks take their mean every `period` updates;
- *elastic*: every `period` updates springs pull the ranks and a centre together; `pull` is N α;
- *ring*, *fixed pairs*, *random pairs*: gossip after every update.

`rate` is η / (1 − β), so that all momenta β try the same rates. Every setting tries the same ones with the tuning
seeds. The one that needs the fewest updates is taken; where a run does not reach the target, its validation accuracy
after the last update counts. A run ends when it has reached the target, or after LIMITS updates.
"""

from __future__ import annotations

import pandas as pd

from course_lib.notebook import experiments, plots, sweep
from labs.lab6_beyond_synchronous.lessons import figures_6b, local_sgd

PERIODS = (1, 4, 16, 64)
SIZES = (4, local_sgd.RANKS, 32)  # ranks that gossip, or all average
RATES = tuple(0.025 * 2**power for power in range(7))
LIMITS = {2: 1_600, 4: 800, 16: 400, 32: 400}  # updates, by the number of ranks
TUNING_SEEDS, SEEDS = (101, 102), (1, 2, 3, 4, 5)


def settings() -> list[dict]:
    """All of them; with two ranks those that `meetings_wire` runs on real ones."""
    setting = figures_6b.setting
    found = [setting("local", period, ranks=2) for period in PERIODS]
    for own in (False, True):
        found += [setting("local", period, own=own) for period in PERIODS]
        found += [setting("elastic", 16, own=own, pull=local_sgd.PULL), setting("fixed pairs", 1, own=own)]
        found += [setting(way, 1, own=own, ranks=ranks) for ranks in SIZES for way in ("ring", "random pairs")]
        found += [setting("local", 1, own=own, ranks=ranks) for ranks in SIZES if ranks != local_sgd.RANKS]
    found += [setting("elastic", 1, pull=local_sgd.PULL), setting("elastic", 16, pull=0.3)]
    found += [setting("local", 16, momentum=0.9), setting("elastic", 16, momentum=0.9, pull=local_sgd.PULL)]
    return [dict(zip(figures_6b.BY, one)) for one in found]


def run(
    way: str, period: int, ranks: int, momentum: float, pull: float, rate: float, seed: int, use: str, **classes: bool
) -> dict:
    """One training: updates to the target (missing if never), the last validation accuracy, a score to tune by."""
    limit = LIMITS[ranks]
    training = local_sgd.Training(
        local_sgd.meeting(way, period, seed, ranks, pull),
        rate * (1 - momentum),
        seed,
        ranks=ranks,
        own_classes=classes["own classes"],
        momentum=momentum,
        updates=limit,
    )
    seen, distance = training.run(local_sgd.TARGET)
    update, accuracy = seen[-1] if seen else (0, 0.1)
    reached = accuracy >= local_sgd.TARGET
    score = 2 - update / limit if reached else accuracy
    if training.update < limit and not reached:
        score = 0.0  # it overflowed
    told = {"updates": update if reached else None, "validation accuracy": accuracy, "distance": distance}
    return {**told, "score": score}


def main() -> experiments.Recording:
    from labs.lab6_beyond_synchronous.lessons import small_network

    tries = [{**one, "rate": rate} for one in settings() for rate in RATES]
    table = sweep.tune_then_score(run, tries, "rate", "score", TUNING_SEEDS, SEEDS).round(4)
    source = small_network.fashion().name
    return experiments.Recording(
        table,
        draw(table, f"{source} · emulated ranks, {len(SEEDS)} seeds"),
        data=f"{source}, first {small_network.IMAGES:,} images of 14 × 14 pixels",
        seeds=sweep.describe_seeds(TUNING_SEEDS, SEEDS),
        ranks=f"emulated, {local_sgd.BATCH} images each",
    )


def draw(table: pd.DataFrame, caption: str) -> dict[str, plots.Figure]:
    """Updates to the target by period, and by the number of ranks that gossip."""
    return {
        "fewer_meetings": figures_6b.updates_to_target(table, caption=caption),
        "fewer_meetings_gossip": figures_6b.by_ranks(table, caption=caption),
    }
