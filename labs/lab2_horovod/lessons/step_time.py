"""How fast ranks train: the seconds and the bytes of a training step, measured on real Horovod ranks.

Every rank trains on one thread (or on its GPU), on drawn images: what is in them does not change the speed. What
other programs of this machine compute meanwhile is measured too, for it makes every step longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from course_lib.ranks import launch

MAX_OTHER_CORES = 0.2  # that other programs may use in a block that counts as undisturbed
MAX_REPEATS = 3  # times as many blocks are measured, at most, for enough undisturbed ones
IMAGE, CLASSES = (28, 28, 1), 10


@dataclass(frozen=True)
class Setting:
    """How a rank makes a step.

    Attributes:
        batch: images of a rank and step.
        exchange: False leaves Horovod out: each rank trains a copy of its own.
        fp16: compress the gradients to 16 bits for the way.
        passes: `backward_passes_per_step`.
    """

    batch: int
    exchange: bool = True
    fp16: bool = False
    passes: int = 1


def measure(
    settings: Mapping[str, Setting],
    ranks: int,
    *,
    depth: int = 16,
    blocks: int = 6,
    steps: int = 8,
    env: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Train a Wide ResNet in one launch, in turns under each of the settings; a row for each setting and block.

    It goes on until each setting has had `blocks` undisturbed blocks, or MAX_REPEATS times as many. All are in the
    table.

    Columns: setting, ranks, batch, block; seconds (a step of the slowest rank); bytes (sent by a rank in a step: what
    went through this machine's loopback interface, divided by ranks and steps, so also what others sent there);
    others (cores that other programs used); tensors and elements of the gradient; startup (seconds from the launch
    to the end of the first step, of the first setting, with compiling; the same in all rows).

    Args:
        depth: of `models.wide_resnet`.
        blocks: for each setting.
        steps: in a block.
        env: added to the ranks' environment, as HOROVOD_CYCLE_TIME.

    Raises CourseError where the ranks cannot be started.
    """
    chosen = dict(settings)
    began = time.time()

    def train() -> list[dict]:
        return _train(chosen, depth, blocks, steps, began)

    return combine(launch.call(train, ranks, env={**launch.ONE_THREAD, **(env or {})}))


def configured(choice: Mapping, batch: int) -> tuple[dict[str, str], Setting]:
    """The ranks' environment and setting for {"fusion_mb": MiB, "cycle_ms": ms, "compression": "none" or "fp16"}."""
    env = {
        "HOROVOD_FUSION_THRESHOLD": str(int(2**20 * choice["fusion_mb"])),
        "HOROVOD_CYCLE_TIME": str(choice["cycle_ms"]),
    }
    return env, Setting(batch, fp16=choice["compression"] == "fp16")


def in_turns(choices: Mapping[str, Mapping], batch: int, *, turns: int, **how: int) -> pd.DataFrame:
    """Two ranks train as each of the choices says (see `configured`), launched in turns; as from `measure`.

    What Horovod reads when it starts cannot be changed in a launch. `how` is for `measure`.
    """
    tables = []
    for _ in range(turns):
        for name, choice in choices.items():
            env, setting = configured(choice, batch)
            tables.append(measure({name: setting}, 2, env=env, **how))
    return pd.concat(tables, ignore_index=True)


def combine(by_rank: list[list[dict]]) -> pd.DataFrame:
    """What the ranks measured → what `measure` returns."""
    rows = []
    for readings in zip(*by_rank):
        first = readings[0]
        steps = first.pop("steps")
        seconds = max(reading["seconds"] for reading in readings)
        own = sum(reading["own"] for reading in readings)
        rows.append(
            {
                **{name: first[name] for name in ("setting", "ranks", "batch", "block")},
                "seconds": seconds / steps,
                "bytes": first["bytes"] / len(readings) / steps,
                "others": max(0.0, (first["busy"] - own) / seconds),
                **{name: first[name] for name in ("tensors", "elements", "startup")},
            }
        )
    return pd.DataFrame(rows)


def quiet(table: pd.DataFrame) -> pd.DataFrame:
    """The undisturbed blocks; of a setting that has fewer than three, all."""
    undisturbed = table["others"] <= MAX_OTHER_CORES
    groups = [table[column] for column in ("setting", "ranks") if column in table]
    return table[undisturbed | (undisturbed.groupby(groups).transform("sum") < 3)]


def disturbance(table: pd.DataFrame) -> str:
    """One sentence on what other programs did during these blocks."""
    share = (table["others"] <= MAX_OTHER_CORES).mean()
    used = f"Other programs used {table['others'].median():.1f} cores meanwhile; {share:.0%} of the blocks were quiet."
    return used if share > 0.5 else f"{used} Close them and measure again."


def _train(settings: Mapping[str, Setting], depth: int, blocks: int, steps: int, began: float) -> list[dict]:
    """Return this rank's readings of all blocks."""
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    hvd.init()
    if gpus := tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    images = {name: _images(setting.batch, seed=hvd.rank()) for name, setting in settings.items()}
    compiled: dict[tuple, tuple[Callable, list]] = {}
    startup = 0.0
    for name, setting in settings.items():
        kind = _kind(setting)
        compiled[kind] = compiled.get(kind) or _compile(setting, depth)
        step, _ = compiled[kind]
        for _ in range(max(2, setting.passes)):  # the first compiles
            step(images[name])
            startup = startup or time.time() - began
    readings = []
    undisturbed = dict.fromkeys(settings, 0)
    for block in range(MAX_REPEATS * blocks):
        for name in [name for name in settings if undisturbed[name] < blocks]:
            step, weights = compiled[_kind(settings[name])]
            reading, quiet_on_all = _time_block(step, images[name], steps)
            undisturbed[name] += quiet_on_all
            counts = {"tensors": len(weights), "elements": sum(weight.shape.num_elements() for weight in weights)}
            which = {"setting": name, "ranks": hvd.size(), "batch": settings[name].batch, "block": block}
            readings.append({**which, **reading, **counts, "startup": startup})
    return readings


def _kind(setting: Setting) -> tuple[bool, bool, int]:
    """Return what a training step is compiled for; one compiled step serves all batch sizes."""
    return setting.exchange, setting.fp16, setting.passes


def _compile(setting: Setting, depth: int) -> tuple[Callable, list]:
    """Return a training step and the weights that it updates."""
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    from course_lib import models

    model = models.wide_resnet(IMAGE, CLASSES, depth=depth)
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    if setting.exchange:
        compression = hvd.Compression.fp16 if setting.fp16 else hvd.Compression.none
        optimizer = hvd.DistributedOptimizer(
            optimizer, compression=compression, backward_passes_per_step=setting.passes
        )
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model.make_train_function(), model.trainable_variables


def _images(batch: int, seed: int) -> Iterator:
    """Return batches of drawn images and labels, without end."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (batch, *IMAGE)).astype(np.float32)
    endless = tf.data.Dataset.from_tensor_slices((x, rng.integers(0, CLASSES, batch))).repeat()
    options = tf.data.Options()
    options.autotune.enabled = False
    return iter(endless.batch(batch).with_options(options))


def _time_block(step: Callable, images: Iterator, steps: int) -> tuple[dict, bool]:
    """Time `steps` training steps; return this rank's reading, and whether no rank was disturbed.

    The disturbance is a mean over the ranks, so that all of them decide the same.
    """
    import horovod.tensorflow.keras as hvd
    import numpy as np

    def wait_for_all() -> None:
        hvd.allreduce(np.zeros(1, np.float32), name="together")

    wait_for_all()
    sent, busy, own = _bytes_sent(), _busy_seconds(), time.process_time()
    start = time.perf_counter()
    for _ in range(steps):
        step(images)
    seconds, own = time.perf_counter() - start, time.process_time() - own
    wait_for_all()
    sent, busy = _bytes_sent() - sent, _busy_seconds() - busy
    others, length = hvd.allreduce(np.array([busy / hvd.size() - own, seconds]), name="others").numpy()
    reading = {"steps": steps, "seconds": seconds, "bytes": sent, "busy": busy, "own": own}
    return reading, bool(hvd.size() * others <= MAX_OTHER_CORES * length)


def _bytes_sent() -> int:
    """Return the bytes that went through the loopback interface since the machine started."""
    import psutil

    counters = psutil.net_io_counters(pernic=True)
    return sum(counter.bytes_sent for name, counter in counters.items() if name.startswith("lo"))


def _busy_seconds() -> float:
    """Return the seconds that all programs of this machine have computed since it started."""
    import psutil

    times = psutil.cpu_times()
    return times.user + times.nice + times.system
