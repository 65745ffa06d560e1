"""Train the assessment's network on CIFAR-10 on several devices.

`data.shard` deals out new images to the ranks before every epoch, and fit runs one epoch at a time.
"""

import os
import time

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS = 5
BATCH_SIZE = 64  # images in one step
RATE = 0.001  # learning rate of Adam

hvd.init()
rank, size = hvd.rank(), hvd.size()


def say(*words):
    if rank == 0:
        print(*words, flush=True)


gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
held_out = len(cifar.x_train) // 10  # the last images: never trained on
train = cifar.x_train[:-held_out], cifar.y_train[:-held_out]
x_valid, y_valid = cifar.x_train[-held_out:], cifar.y_train[-held_out:]

optimizer = tf.keras.optimizers.Adam(RATE, beta_2=0.99)
model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
model.compile(
    optimizer=hvd.DistributedOptimizer(optimizer), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
)

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]

say(f"Training on {len(train[0]):,} images of {cifar.name}, {BATCH_SIZE} a step and rank")
start = time.time()
for epoch in range(EPOCHS):
    x, y = data.shard(train, rank, size, batch_size=BATCH_SIZE, epoch=epoch, seed=42)
    if epoch % 2:
        x = x[:, :, ::-1]  # every second epoch sees the mirror image
    model.optimizer.learning_rate.assign(RATE * size * (1.0, 2.0, 1.5, 0.7, 0.2)[epoch])
    record = model.fit(x, y, batch_size=BATCH_SIZE, epochs=1, verbose=0, callbacks=callbacks if epoch == 0 else [])
    loss = hvd.allreduce(record.history["loss"][0], name=f"loss{epoch}")
    say(f"epoch {epoch + 1} of {EPOCHS}: loss {float(loss):.3f} after {time.time() - start:.1f} s")

if rank == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))

_, accuracy = model.evaluate(x_valid[rank::size], y_valid[rank::size], batch_size=500, verbose=0)
accuracy = hvd.allreduce(accuracy)
say(f"Accuracy on {held_out:,} held-out images: {accuracy:.3f}")
