"""Forward and backward pass are compiled; gradients are averaged in one group, by an optimizer without Horovod."""

import os
import time

import horovod.tensorflow as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS = 4
BATCH_SIZE = 128  # of one rank
RATE = 0.1

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def batches(images, labels, steps):
    """This rank's batches. All of them full: XLA compiles anew for each shape that it meets."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(len(images), seed=1)  # all ranks alike, another order each epoch
    dataset = dataset.shard(hvd.size(), hvd.rank())
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True).take(steps)
    dataset = dataset.map(lambda x, y: (tf.image.random_flip_left_right(tf.cast(x, tf.float32)), y))
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(2).with_options(options)


cifar = data.load("cifar10", test=False)
held_out = len(cifar.x_train) // 10
x_train, y_train = cifar.x_train[:-held_out], cifar.y_train[:-held_out]
x_valid, y_valid = cifar.x_train[-held_out:], cifar.y_train[-held_out:]

steps = len(x_train) // (BATCH_SIZE * hvd.size())
rate = tf.keras.optimizers.schedules.CosineDecay(
    RATE, (EPOCHS - 1) * steps, warmup_target=RATE * hvd.size(), warmup_steps=steps
)
optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True)
model = models.assessment_cnn(x_train.shape[1:], len(cifar.classes))
# For `evaluate` only; it is compiled, too.
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=True)

# All variables exist before the first step, so that they can be broadcast before it.
optimizer.build(model.trainable_variables)
hvd.broadcast_variables(model.variables, root_rank=0)
hvd.broadcast_variables(optimizer.variables, root_rank=0)


@tf.function(jit_compile=True)
def forward_backward(images, labels):
    with tf.GradientTape() as tape:
        probabilities = model(images, training=True)
        losses = tf.keras.losses.sparse_categorical_crossentropy(labels, probabilities)
        loss = tf.reduce_mean(losses)
    return loss, tape.gradient(loss, model.trainable_variables)


@tf.function
def update(images, labels):
    loss, gradients = forward_backward(images, labels)
    gradients = hvd.grouped_allreduce(gradients, op=hvd.Average)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


training = batches(x_train, y_train, steps)
start = time.time()
for epoch in range(EPOCHS):
    total = tf.constant(0.0)
    for images, labels in training:
        total += update(images, labels)
    mean = hvd.allreduce(total / steps, name="epoch_loss")
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}/{EPOCHS}: loss {float(mean):.3f}, {time.time() - start:.1f} s", flush=True)

if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))

mine = slice(hvd.rank(), None, hvd.size())
_, accuracy = model.evaluate(x_valid[mine], y_valid[mine], batch_size=500, verbose=0)
accuracy = hvd.allreduce(tf.constant(accuracy, tf.float32), name="accuracy")
if hvd.rank() == 0:
    print(f"Accuracy on {held_out:,} held-out images: {float(accuracy):.3f}")
