"""Train the assessment's network on CIFAR-10, on one device.  -> now on all!

python assessment.py
"""
# ---------------------------------------------------------------------------
#   v1: fit on every rank, no averaging  -> both ranks did the same work
#   v2: DistributedOptimizer + broadcast -> right, but accuracy went down (batch twice as big)
#   v3: warm-up + higher rate            -> ok
# ---------------------------------------------------------------------------

import os
import time

# Horovod has to be imported for keras, not plain tensorflow, because of the callbacks
import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS = 4
BATCH_SIZE = 64  # images in one step of one rank (was 128: too few updates)
RATE = 0.05      # learning rate of ONE rank

# ---------------------------------------------------------------------------
# horovod + one GPU per process
# ---------------------------------------------------------------------------
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

# ---------------------------------------------------------------------------
# data
# ---------------------------------------------------------------------------


def batches(images, labels):
    """The examples in a new order each epoch, in full batches, half of them mirrored."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shard(num_shards=hvd.size(), index=hvd.rank())   # !! before the shuffle
    dataset = dataset.shuffle(len(images), seed=1)
    dataset = dataset.repeat()                                         # then no rank runs out of images
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    dataset = dataset.map(mirrored).map(brighter).prefetch(2)
    # TensorFlow's tuning of the pipeline holds up the end of each epoch, for seconds in a long one.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def mirrored(images, labels):
    return tf.image.random_flip_left_right(images), labels


def brighter(images, labels):
    images = tf.image.random_brightness(tf.cast(images, tf.float32), 16.0)
    return tf.clip_by_value(images, 0.0, 255.0), labels


# ---------------------------------------------------------------------------
# learning rate
# ---------------------------------------------------------------------------


@tf.keras.saving.register_keras_serializable()   # DistributedOptimizer copies the optimizer
class LinearWarmupThenDrop(tf.keras.optimizers.schedules.LearningRateSchedule):
    """ramps up from RATE to RATE * hvd.size() over `ramp` steps, later one drop"""

    def __init__(self, ramp, drop_step):
        super().__init__()
        self.ramp = ramp
        self.drop_step = drop_step

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        up = 1.0 + (hvd.size() - 1.0) * tf.minimum(step / self.ramp, 1.0)
        down = tf.where(step < self.drop_step, 1.0, 0.1)
        return RATE * up * down

    def get_config(self):
        return {"ramp": self.ramp, "drop_step": self.drop_step}


cifar = data.load("cifar10", test=False)
held_out = len(cifar.x_train) // 10  # the last images: never trained on
x_train, y_train = cifar.x_train[:-held_out], cifar.y_train[:-held_out]
x_valid, y_valid = cifar.x_train[-held_out:], cifar.y_train[-held_out:]

training = batches(x_train, y_train)
steps = len(x_train) // BATCH_SIZE // hvd.size()  # in one epoch
rate = LinearWarmupThenDrop(ramp=steps, drop_step=int(0.6 * EPOCHS * steps))
optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True)
optimizer = hvd.DistributedOptimizer(optimizer)

model = models.assessment_cnn(x_train.shape[1:], len(cifar.classes))
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = []
callbacks.append(hvd.callbacks.BroadcastGlobalVariablesCallback(0))   # everybody starts from rank 0's weights
callbacks.append(hvd.callbacks.MetricAverageCallback())               # means over ranks, otherwise it is rank 0 only
callbacks.append(tf.keras.callbacks.TerminateOnNaN())

if hvd.rank() == 0:
    out_level = 2
    print(f"Training on {len(x_train):,} images of {cifar.name}, {BATCH_SIZE} a step, {hvd.size()} ranks")
else:
    out_level = 0
start = time.time()
model.fit(training, epochs=EPOCHS, steps_per_epoch=steps, callbacks=callbacks, verbose=out_level)
print(f"rank {hvd.rank()}: {EPOCHS} epochs in {time.time() - start:.1f} s")

# ---------------------------------------------------------------------------
# rank 0 writes and checks
# ---------------------------------------------------------------------------
if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))

    _, accuracy = model.evaluate(x_valid, y_valid, batch_size=500, verbose=0)
    print(f"Accuracy on {held_out:,} held-out images: {accuracy:.3f}")
