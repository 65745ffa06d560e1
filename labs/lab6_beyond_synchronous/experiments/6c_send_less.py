"""What accuracy costs how many bytes: the largest numbers, signs and low ranks, with and without what makes them work.

Two emulated ranks, whose arithmetic is that of real ones to the bit. A network of dense layers is trained for 500
updates, with momentum 0.9. *nothing kept* sends the largest numbers of each rank and forgets the others; *memory* keeps
them. Both add momentum to what arrives. Then one change after the other: *momentum before* adds up velocities in place
of gradients, *masking* sets the velocity of what was sent to 0, *clipping* shortens a gradient of more than 2/√2,
*warm-up* sends more in the first tenth of the updates. *signs* send one bit for each number, *low rank* sends two thin
matrices for each kernel; both keep the rest, and add momentum to what arrives, unless their name says otherwise.

Every way tries the same learning rates at every amount with the tuning seed, and validation data choose. Only the
result seeds use test data. Bytes are what a rank hands over in an update, averaged over the training.
"""

from __future__ import annotations

from course_lib.notebook import experiments, sweep
from labs.lab6_beyond_synchronous.lessons import figures_6c

RATIOS = (0.1, 0.01, 0.001)
RANKS_OF_MATRICES = (1, 2, 4)
KEPT = ("", ", nothing kept")
RATES = tuple(0.00625 * 2**power for power in range(9))
TUNING_SEED, SEEDS = 101, (1, 2, 3, 4, 5)


def settings() -> list[dict]:
    """All ways with their amounts."""
    from labs.lab6_beyond_synchronous.lessons import dense_training

    return [
        {"way": "dense", "amount": 1},
        *({"way": way, "amount": ratio} for ratio in RATIOS for way in dense_training.LADDER),
        *({"way": f"signs{before}{kept}", "amount": 1} for before in ("", ", momentum before") for kept in KEPT),
        {"way": "low rank, nothing kept", "amount": 1},
        *({"way": "low rank", "amount": rank} for rank in RANKS_OF_MATRICES),
    ]


def run(way: str, amount: float, rate: float, seed: int, use: str) -> dict:
    """One training."""
    from course_lib.compression import LocalCommunicator
    from labs.lab6_beyond_synchronous.lessons import dense_training

    wire = LocalCommunicator()
    done = dense_training.train(way, amount, rate, seed, dense_training.UPDATES, wire)
    row = {
        "bytes": round(wire.sent(dense_training.RANKS) / max(1, done.update)),
        "validation accuracy": done.accuracy(done.problem.validation),
    }
    return {**row, "test accuracy": done.accuracy(done.problem.test)} if use == "result" else row


def main() -> experiments.Recording:
    from labs.lab6_beyond_synchronous.lessons import dense_training

    tries = [{**setting, "rate": rate} for setting in settings() for rate in RATES]
    table = sweep.tune_then_score(run, tries, "rate", "validation accuracy", [TUNING_SEED], SEEDS)
    source = dense_training.fashion().name
    caption = f"{source} · 2 emulated ranks, {dense_training.UPDATES} updates, {len(SEEDS)} seeds"
    return experiments.Recording(
        table.round(4),
        {
            "send_less": figures_6c.by_bytes(table, caption=caption),
            "send_less_ladder": figures_6c.ladder(table, caption=caption),
        },
        data=f"{source}, first {dense_training.small_network.IMAGES:,} images of 14 × 14 pixels",
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
        ranks=f"{dense_training.RANKS} emulated, {dense_training.BATCH} images each",
    )
