"""Train a small convolutional network on Fashion-MNIST, on one device.

python fashion_mnist.py --epochs 3
"""

import argparse
import time

import tensorflow as tf

from course_lib import data

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=64, help="images in one step")
parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
parser.add_argument("--seed", type=int, default=1, help="of the first weights; 0: another one at every start")
parser.add_argument("--checkpoint", default="fashion_mnist.keras", help="where the trained network goes")
args = parser.parse_args()

if args.seed:
    tf.keras.utils.set_random_seed(args.seed)


def batches(images, labels, batch_size):
    """The examples in a new order each epoch, in full batches."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(len(images), seed=1)
    dataset = dataset.batch(batch_size, drop_remainder=True)
    return dataset.prefetch(2)


fashion = data.load("fashion_mnist")
held_back = min(10_000, len(fashion.x_train) // 5)  # for validation; the test images stay closed
x, x_val = fashion.x_train[:-held_back], fashion.x_train[-held_back:]
y, y_val = fashion.y_train[:-held_back], fashion.y_train[-held_back:]
training = batches(x, y, args.batch_size)
validation = batches(x_val, y_val, args.batch_size)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Rescaling(1 / 255, input_shape=x.shape[1:]),
        tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
optimizer = tf.keras.optimizers.SGD(args.lr, momentum=0.9)
model.compile(
    optimizer=optimizer,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)

callbacks = []
checkpoint = tf.keras.callbacks.ModelCheckpoint(args.checkpoint)
callbacks.append(checkpoint)

print(f"Training on {len(x):,} images of {fashion.name}, {args.batch_size} a step")
start = time.time()
history = model.fit(training, validation_data=validation, epochs=args.epochs, callbacks=callbacks, verbose=2)
accuracy = history.history["val_accuracy"][-1]
print(f"{args.epochs} epochs in {time.time() - start:.1f} s, validation accuracy {accuracy:.3f}")
