"""Notebook 8c's family: its networks are those that are counted; training, averages and evaluation on ranks."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.cost import published
from labs.lab8_honest_benchmarks.lessons import evaluation, hour


@pytest.mark.slow
def test_the_keras_networks_have_the_arrays_that_are_counted():
    from labs.lab8_honest_benchmarks.lessons import family

    for size in family.SIZES.values():
        model = family.network(size)
        assert [np.prod(v.shape) for v in model.trainable_variables] == [tensor.elements for tensor in size.tensors]
        assert model(np.zeros((2, size.side, size.side, 3), np.float32)).shape == (2, 10)


@pytest.mark.slow
def test_b0_has_the_weights_of_keras():
    from tensorflow import keras

    from course_lib.cost.networks import EFFICIENTNET
    from labs.lab8_honest_benchmarks.lessons import family

    theirs = keras.applications.EfficientNetB0(weights=None)
    ours = family.network(family.Size(EFFICIENTNET, 224))
    sizes = [sorted(np.prod(v.shape) for v in model.trainable_variables) for model in (ours, theirs)]
    assert sizes[0] == sizes[1]


def test_each_size_is_a_step_of_compound_scaling():
    from labs.lab8_honest_benchmarks.lessons import family

    sides = [size.side for size in family.SIZES.values()]
    assert sides == [16, 18, 22]
    work = [sum(tensor.flops for tensor in size.tensors) for size in family.SIZES.values()]
    assert work[2] / work[0] == pytest.approx(5.3, rel=0.01)


@pytest.mark.slow
def test_the_average_forgets_how_training_began():
    import tensorflow as tf
    from tensorflow import keras

    from labs.lab8_honest_benchmarks.lessons import family

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    averaged, (weight,) = family.Averaged(model, 0.9), model.variables
    total = weights = 0.0
    for t in range(1, 31):
        weight.assign([[float(t % 7)]])
        averaged.follow(tf.constant(t))
        total, weights = 0.9 * total + t % 7, 0.9 * weights + 1
    expected = total / weights
    kept = weight.numpy().item()
    averaged.swap()
    assert weight.numpy().item() == pytest.approx(expected, rel=1e-5)
    averaged.swap()
    assert weight.numpy().item() == kept


def test_uneven_shares_hold_each_image_once_and_one_is_empty():
    labels = np.random.default_rng(0).integers(0, 10, 101)
    shares = evaluation.uneven(labels)
    assert sorted(np.concatenate(shares)) == list(range(101)) and len(shares[3]) == 0
    assert labels[shares[0]].max() <= labels[shares[2]].min()


def test_the_hour_from_its_inputs():
    epoch = {name: published.IMAGES / hour.step(name).images_per_second for name in ("B4", "B5")}
    for name, seconds in epoch.items():  # what is left of the model where nothing has to wait
        alone = published.IMAGES / (hour.rate(name) * hour.CORES)
        assert alone <= seconds == pytest.approx(alone, rel=1e-3)
    images = hour.B0_HOURS * 3600 * hour.rate("B0") * hour.V2 / hour.V3 * hour.B0_CORES
    assert images == pytest.approx(hour.EPOCHS * published.IMAGES)
    assert hour.evaluation_seconds("B5", 8) == pytest.approx(50_000 / 3 / 8 / hour.rate("B5"))


@pytest.mark.slow
@pytest.mark.ranks
def test_synchronised_batch_norm_on_two_ranks_is_batch_norm_over_the_batch():
    from course_lib.ranks import launch

    def on_a_rank():
        import itertools

        import horovod.tensorflow as hvd
        import tensorflow as tf
        from tensorflow import keras

        from labs.lab8_honest_benchmarks.lessons import family

        hvd.init()
        keras.backend.set_floatx("float64")  # or rounding grows from layer to layer until it can be seen
        random, number = np.random.default_rng(0), itertools.count()
        images, labels = random.integers(0, 256, (16, 16, 16, 3)), random.integers(0, 10, 16)

        def slopes(model, share, around=lambda tape: tape):
            with around(tf.GradientTape()) as tape:
                logits = model(images[share].astype(np.float64), training=True)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels[share], logits))
            found = tape.gradient(loss, model.trainable_variables)
            return np.concatenate([slope.numpy().ravel() for slope in found])

        def joint():
            return hvd.SyncBatchNormalization(momentum=0.8, name=f"synchronised_{next(number)}")

        made = []
        for normalise in (joint, lambda: keras.layers.BatchNormalization(momentum=0.8, fused=False)):
            keras.utils.set_random_seed(1)
            made.append(family.network(family.SIZES["S"], normalise))
        ranks, alone = made
        share = slice(8 * hvd.rank(), 8 * (hvd.rank() + 1))
        return slopes(ranks, share, hvd.DistributedGradientTape), slopes(alone, slice(None))

    for together, alone in launch.call(on_a_rank, 2, env=launch.ONE_THREAD):
        assert np.abs(alone).max() > 1e-3
        assert together == pytest.approx(alone, rel=1e-6, abs=1e-9)


@pytest.mark.slow
@pytest.mark.ranks
def test_real_ranks_with_uneven_shares_agree_with_one_process(answer, monkeypatch):
    from course_lib.ranks import launch

    monkeypatch.setenv("COURSE_SLICE", "2048")
    evaluated = answer("8c_evaluate_on_all_ranks", "evaluated")

    def on_a_rank():
        hvd, groups = evaluation.connect()
        trainee = evaluation.Trainee(hvd)
        rows = evaluation.times(trainee, groups, 1024, 64, epochs=1)
        trainee.agree()
        shares = evaluation.uneven(trainee.y_test[:300])
        part = trainee.part(shares[hvd.rank()], 2)
        right = trainee.predict(np.arange(300)) == trainee.y_test[:300]
        classes = [right[trainee.y_test[:300] == one].mean() for one in range(10)]
        return rows, evaluated(groups[4], *part), (right.mean(), np.mean(classes)), len(part.real), part.real.sum()

    by_rank = launch.call(on_a_rank, 4, env=launch.ONE_THREAD)
    for rows, found, truth, size, real in by_rank:
        assert found == pytest.approx(truth, abs=1e-9)
        assert size == 512
        assert bool(rows) == (real == 150)  # rank 0 has half of the images
    assert [int(real) for *_, real in by_rank] == [150, 90, 60, 0]
    assert len(by_rank[0][0]) == 6
    assert all(row["training_s"] > 0 and row["evaluation_s"] > 0 for row in by_rank[0][0])
