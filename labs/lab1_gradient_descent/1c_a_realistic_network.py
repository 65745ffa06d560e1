# %% [markdown]
# # 1c A realistic network
#
# A line has two weights. This notebook trains networks with tens of thousands of weights on real images. The update
# stays $w \leftarrow w - \eta \nabla L$; the loss surface and the cost of a step change.
#
# **You will be able to** measure a training run with Keras callbacks, compare batch sizes by the time *to a target*,
# tell underfitting from overfitting, draw a slice of a loss surface fairly, and say what skip connections do to it.
#
# **Time:** 70 minutes. The runs take about 150 seconds on 2 CPU cores; the first one estimates how long they will take
# on this machine.
#
# **Needs:** Python, a little Keras (`compile`, `fit`), 1a and 1b (gradient, mini-batch, learning rate).

# %%
import time

import numpy as np
import pandas as pd
from IPython.display import Image
from tensorflow import keras

from course_lib import data, models
from course_lib.models import landscape
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from labs.lab1_gradient_descent.lessons import figures_1c as training
from labs.lab1_gradient_descent.lessons import figures_surfaces as surfaces
from labs.lab1_gradient_descent.lessons import timed_fit as fitting
from labs.lab1_gradient_descent.lessons.checks_1c import check, points

fashion = data.load("fashion_mnist")
shape, classes = fashion.x_train.shape[1:], len(fashion.classes)
held_back = min(2_000, len(fashion.x_train) // 5)
x, y = fashion.x_train[:-held_back][:6_400], fashion.y_train[:-held_back][:6_400]
x_val, y_val = fashion.x_train[-held_back:], fashion.y_train[-held_back:]
print(f"{fashion.name} (from: {fashion.source}): {len(x):,} images to train on, {len(x_val):,} for validation")

# %% [markdown]
# To save time, we train on 6,400 of the 60,000 images. The last 2,000 training images are held back for **validation**:
# batch size, learning rate and the moment to stop are chosen on them. The test images are not used: after a choice on
# them, the test is no longer independent.

# %%
training.examples(x, y, fashion.classes, caption=f"{fashion.name}, the first three training images of each class")

# %% [markdown]
# ## From the line to a network
#
# Softmax regression (`linear` below) has a weight for each pixel and class, and is still a linear model. `small_cnn`
# puts three convolutions before it, each with batch norm and ReLU. `wide_resnet` has many more convolutions, and *skip
# connections*: each block adds its result to its input, $x + f(x)$.
#
# Two numbers describe the size of a network: its parameters, which must be stored (and exchanged in lab 2), and its
# multiply-adds for one image, which must be computed. They differ, because a convolution uses each of its weights at
# every position of the image.


# %%
def multiply_adds(model):
    """Multiplications in the convolutions and dense layers for one image, forward only; the rest is small."""
    total = 0
    for layer in model.layers:
        if isinstance(layer, keras.layers.Conv2D):
            total += layer.kernel.shape.num_elements() * np.prod(layer.output_shape[1:3])
        elif isinstance(layer, keras.layers.Dense):
            total += layer.kernel.shape.num_elements()
    return int(total)


networks = {
    "linear": models.linear(shape, classes),
    "small_cnn": models.small_cnn(shape, classes),
    "wide_resnet": models.wide_resnet(shape, classes),
    "wide_resnet, no skips": models.wide_resnet(shape, classes, skip=False),
}
rows = {
    name: {"parameters": network.count_params(), "multiply-adds for an image": multiply_adds(network)}
    for name, network in networks.items()
}
pd.DataFrame(rows).T.map("{:,}".format)

# %% [markdown]
# The two Wide ResNets have the same weights; one lacks only the additions. Most other runs use `small_cnn`.
#
# ## Three instruments
#
# Keras calls the methods of a **callback** at fixed moments of `fit`:
#
#     on_train_begin
#         on_epoch_begin
#             on_train_batch_begin, on_train_batch_end      for every batch
#             on_test_begin, on_test_end                    around the validation, if there is one
#         on_epoch_end                                      after the validation
#     on_train_end
#
# You write three callbacks. For time, use `time.perf_counter()`: the difference of two readings is a duration.
#
# ### EpochTimer
#
# How long does an epoch take, and how much of that is validation? `on_train_begin` is given.
#
# <details><summary>Hint</summary>Keep readings of the clock in attributes of <code>self</code>. An epoch without
# validation calls neither <code>on_test_begin</code> nor <code>on_test_end</code>: let every epoch begin with 0 seconds
# of validation, and append to both lists only at its end.</details>


# %% exercise="epoch_timer"
class EpochTimer(keras.callbacks.Callback):
    """The seconds of each epoch.

    After `fit`, two lists with one number for each epoch:
    seconds: from the epoch's begin to its end, validation included.
    validation: the part of it that the validation took; 0.0 in an epoch without one.
    """

    def on_train_begin(self, logs=None):
        self.seconds, self.validation = [], []

    def on_epoch_begin(self, epoch, logs=None):
        ### BEGIN SOLUTION
        self.epoch_began = time.perf_counter()
        self.validated = 0.0
        ### END SOLUTION

    def on_test_begin(self, logs=None):
        ### BEGIN SOLUTION
        self.test_began = time.perf_counter()
        ### END SOLUTION

    def on_test_end(self, logs=None):
        ### BEGIN SOLUTION
        self.validated = time.perf_counter() - self.test_began
        ### END SOLUTION

    def on_epoch_end(self, epoch, logs=None):
        ### BEGIN SOLUTION
        self.seconds.append(time.perf_counter() - self.epoch_began)
        self.validation.append(self.validated)
        ### END SOLUTION


# %%
check(EpochTimer)

# %% hidden="epoch_timer" points=2
### BEGIN HIDDEN TESTS
points(EpochTimer, 2)
### END HIDDEN TESTS


# %% [markdown]
# ### Predict
#
# Your timer measures four epochs of the small CNN. How many times as long as the last epoch does the first one take?
#
# (`fitting.batches` shuffles the images in each epoch and cuts them into batches, as `fit` does with arrays.)

# %% editable=true
predict("first epoch, compared with the last", None)


# %%
def new_model(rate, seed=1, network=models.small_cnn, **settings):
    """A compiled network; the seed fixes its first weights and the order of the images."""
    keras.utils.set_random_seed(seed)
    model = network(shape, classes)
    optimizer = keras.optimizers.SGD(rate, momentum=0.9, **settings)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


validation = fitting.batches(x_val, y_val, 500, shuffle=False)


def time_epochs(epochs=4):
    timer = EpochTimer()
    new_model(0.02).fit(
        fitting.batches(x, y, 64), epochs=epochs, validation_data=validation, callbacks=[timer], verbose=0
    )
    caption = plots.provenance(f"{fashion.name}, {len(x):,} images, small_cnn, B = 64")
    print(fitting.expected(epochs * len(x) / sum(timer.seconds)))
    measured(
        "first epoch, compared with the last",
        timer.seconds[0] / timer.seconds[-1],
        "The first epoch includes what happens only once: TensorFlow turns your model into a graph.",
    )
    return training.epoch_times(timer.seconds, timer.validation, caption=caption)


time_epochs()

# %% [markdown]
# ### Throughput
#
# Measure images a second without start-up and validation: in each epoch, start the clock when the *first* batch is
# done, and stop it when the last batch is done. Then the images of the first batch don't count either. The last batch
# is often smaller (6,400 images in batches of 1,024 end with one of 256), so count images, not batches.
#
# <details><summary>Hint</summary><code>on_train_batch_end</code> gets the number of the batch, 0 for the first
# in every epoch. It doesn't know which batch is the last: let each batch overwrite the reading of the one before.
# </details>


# %% exercise="throughput"
class Throughput(keras.callbacks.Callback):
    """Images a second in each epoch, from the end of the first batch to the end of the last.

    images: how many there are to train on. batch_size: in a batch; the last one may be smaller.
    After `fit`, images_per_second is a list with one number for each epoch. An epoch has at least two batches.
    """

    def __init__(self, images, batch_size):
        super().__init__()
        self.images, self.batch_size = images, batch_size

    def on_train_begin(self, logs=None):
        self.images_per_second = []

    def on_train_batch_end(self, batch, logs=None):
        ### BEGIN SOLUTION
        self.last_ended = time.perf_counter()
        if batch == 0:
            self.first_ended = self.last_ended
        ### END SOLUTION

    def on_epoch_end(self, epoch, logs=None):
        ### BEGIN SOLUTION
        images = self.images - self.batch_size
        self.images_per_second.append(images / (self.last_ended - self.first_ended))
        ### END SOLUTION


# %%
check(Throughput)

# %% hidden="throughput" points=3
### BEGIN HIDDEN TESTS
points(Throughput, 3)
### END HIDDEN TESTS

# %% [markdown]
# ### TimeToTarget
#
# Images a second are not the aim. The aim is to reach a validation accuracy that was fixed beforehand; DAWNBench and
# MLPerf score training in this way. Stop as soon as the target is reached, and record how long it took.
#
# <details><summary>Hint</summary><code>logs</code> has the epoch's metrics, by the names that <code>fit</code> prints:
# <code>loss</code>, <code>accuracy</code>, and those of the validation with <code>val_</code> in front. Training ends
# after an epoch in which <code>self.model.stop_training</code> was set to <code>True</code>. The first epoch has number
# 0.</details>


# %% exercise="time_to_target"
class TimeToTarget(keras.callbacks.Callback):
    """Ends training with the first epoch whose validation accuracy is at least `target`.

    After `fit`, seconds (since training began) and epochs (1, 2, …) until then; None where it was not reached.
    The same callback may be used for several runs, each judged alone.
    """

    def __init__(self, target):
        super().__init__()
        self.target = target

    def on_train_begin(self, logs=None):
        ### BEGIN SOLUTION
        self.seconds = self.epochs = None
        self.began = time.perf_counter()
        ### END SOLUTION

    def on_epoch_end(self, epoch, logs=None):
        ### BEGIN SOLUTION
        if logs["val_accuracy"] >= self.target:
            self.seconds = time.perf_counter() - self.began
            self.epochs = epoch + 1
            self.model.stop_training = True
        ### END SOLUTION


# %%
check(TimeToTarget)

# %% hidden="time_to_target" points=3
### BEGIN HIDDEN TESTS
points(TimeToTarget, 3)
### END HIDDEN TESTS

# %% [markdown]
# (A noisy epoch can reach the target by chance; a stricter rule asks for two in a row.)
#
# ## How fast is a step? Throughput by batch size
#
# ### Predict
#
# How many times more images a second will `small_cnn` train on with batches of 1,024 than with batches of 8?

# %% editable=true
predict("images a second, B = 1,024 over B = 8", None)


# %%
batch_sizes = [8, 16, 32, 64, 128, 256, 512, 1024]


def throughput_by_batch_size(planned):
    """batch size → images a second in each of two epochs; the figure fills as they come in."""
    speeds, model = {}, new_model(0.005)
    caption = plots.provenance(f"{fashion.name}, small_cnn, two epochs each")
    with Filling("throughput") as chart:
        for number, size in enumerate(planned):
            chart.at(number / len(planned), f"B = {size:,}")
            images = min(len(x), max(100 * size // 8, 3 * size, 1_000))
            meter = Throughput(images, size)
            model.fit(fitting.batches(x[:images], y[:images], size), epochs=2, callbacks=[meter], verbose=0)
            speeds[size] = meter.images_per_second
            chart.show(training.throughput(speeds, planned=planned, caption=caption))
    return speeds


def compare_throughput():
    planned = [size for size in batch_sizes if size < len(x)]
    speeds = throughput_by_batch_size(planned)
    factor = np.median(speeds[planned[-1]]) / np.median(speeds[planned[0]])
    measured(
        "images a second, B = 1,024 over B = 8",
        factor,
        "A factor of 128 would mean that a step takes as long with 1,024 images as with 8; a factor of 1, that a step "
        "has no fixed part.",
    )


compare_throughput()

# %% [markdown]
# *What you should see*: left, images a second grow quickly at first, then hardly any more. Right are the same numbers
# as milliseconds for one step; on the dashed line the time is in proportion to the batch. A step has a part that
# doesn't depend on the batch: Python, starting each operation, updating 48,000 weights. With 8 images it is most of the
# step; with 100 it is small compared with the arithmetic. (If the curve falls or jumps, another program was using the
# processor: run the cell again.)
#
# A GPU has thousands of cores, so its curve flattens at much larger batches. That is why many GPUs need large batches.
#
# ## How soon at 85 %? Time to target by batch size
#
# A larger batch means more images a second, but fewer updates: 6,400 images are 400 updates with batches of 16 and
# seven with batches of 1,024.
#
# ### Predict
#
# Which batch size is the first at 85 % validation accuracy: 16, 64, 256 or 1,024? And which one needs the fewest
# updates?

# %% editable=true
predict("batch size that is first at 85 %", None)
predict("batch size that needs the fewest updates", None)

# %% [markdown]
# Every batch size needs its own learning rate, otherwise we would compare rates, not batches. The rates come from the
# recorded experiment below: for each batch size the best of the same five. All runs start from the same weights, and
# end after 15 epochs at the latest.

# %%
target = 0.85
recorded = pd.read_csv("recorded/batch_size.csv", comment="#")
results = recorded[recorded["use"] == "result"].groupby("batch size")
best_rates = results["learning rate"].first().loc[[16, 64, 256, 1024]].to_dict()


def race(rates, most=15):
    """Train with each batch size until the target: seconds and accuracy after each epoch, seconds to the target."""
    curves, arrived = {}, {}
    caption = plots.provenance(f"{fashion.name}, {len(x):,} images, small_cnn, one seed")
    with Filling("time to target") as chart:
        for number, (size, rate) in enumerate(rates.items()):

            def tell(epoch, logs, number=number, size=size):
                chart.at(
                    (number + (epoch + 1) / most) / len(rates), f"B = {size:,}, epoch {epoch + 1} of at most {most}"
                )

            timer, goal = EpochTimer(), TimeToTarget(target)
            watchers = [timer, goal, keras.callbacks.LambdaCallback(on_epoch_end=tell)]
            past = new_model(rate).fit(
                fitting.batches(x, y, size), epochs=most, validation_data=validation, callbacks=watchers, verbose=0
            )
            curves[size] = pd.DataFrame(
                {"seconds": np.cumsum(timer.seconds), "val_accuracy": past.history["val_accuracy"]}
            )
            arrived[size] = goal.seconds
            chart.show(training.race(curves, target=target, planned=list(rates), caption=caption))
    return curves, arrived


def run_race():
    curves, arrived = race(best_rates)
    there = [size for size in arrived if arrived[size]]
    measured(
        "batch size that is first at 85 %",
        min(there, key=arrived.get) if there else "none",
        "One run each: look below how far apart five seeds are.",
    )
    measured(
        "batch size that needs the fewest updates",
        min(there, key=lambda size: len(curves[size]) * -(-len(x) // size)) if there else "none",
        "A larger batch has a less noisy gradient, so a step makes more progress. But it also takes longer.",
    )
    rows = {
        f"B = {size:,}": {
            "learning rate": best_rates[size],
            "epochs": len(curve),
            "updates": len(curve) * -(-len(x) // size),
            "accuracy at the end": round(curve["val_accuracy"].iloc[-1], 3),
            "seconds to target": f"{arrived[size]:.1f}" if arrived[size] else "not reached",
        }
        for size, curve in curves.items()
    }
    return pd.DataFrame(rows).T


run_race()

# %% [markdown]
# One run each shows little: an epoch more or less decides. Here is the same experiment with seven batch sizes and five
# seeds, recorded on a quiet machine (`course reproduce batch_size`).

# %%
Image("recorded/batch_size.png", width=plots.WIDTH)

# %%
pd.DataFrame(
    {
        "learning rate": results["learning rate"].first(),
        "runs": results.size(),
        "arrived": results["reached"].sum(),
        "median epochs": results["epochs"].median(),
        "median steps": results["steps"].median(),
        "median seconds": results["seconds"].median(),
        "fastest": results["seconds"].min(),
        "slowest": results["seconds"].max(),
    }
)

# %% [markdown]
# - *Epochs* (left): small batches need three or four passes over the images. Large batches need more, because a pass
#   has fewer updates.
# - *Steps* (middle): on the dashed line, twice the batch needs half the steps. Up to 128 the medians stay near it; from
#   512 to 1,024 the steps only fall from 78 to 63. A less noisy gradient then helps little. Shallue et al. (2018) found
#   the same three ranges, perfect scaling, diminishing returns and a floor, for every network and data set that they
#   tried.
# - *Seconds* (right): steps times the seconds for a step. The median is lowest at 128, with 3.9 s, but the minimum is
#   flat and the seeds overlap. The median of 1,024, 10.7 s, is well above the others; yet even there the fastest run
#   (8.7 s) beat the slowest with 16 (11.0 s) and with 32 (9.6 s). So chance helped to decide which came first in *your*
#   run.
#
# More processors shorten the step of a large batch. They move the minimum to the right, up to where the steps stop
# falling. That is the limit of data parallelism, and the subject of this course.

# %% [markdown] tags=["further"]
# ## Underfitting and overfitting

# %% [markdown]
# How *well* does a network do on new images? Two things can go wrong:
#
# - **Underfitting:** the network can't even describe the training images. Training and validation accuracy are low
#   and close to each other. More images don't help; a larger network or longer training does.
# - **Overfitting:** the network knows the training images by heart, and does less well on new ones. A gap opens between
#   the curves, and the validation *loss* rises again: the network becomes more and more certain, even where it is
#   wrong. More images help. A smaller network may help, but a much *larger* one often does better (*double descent*:
#   Nakkiran et al. 2019).
#
# In the next cell `linear` underfits with 25,600 images and `small_cnn` overfits with 250. Two remedies for overfitting
# follow: *weight decay*, which shrinks all weights a little in each step,
# $w \leftarrow w - \eta \nabla L - \eta \lambda w$; and 6,400 images, for about as many updates.
#
# ### Predict
#
# Which validation accuracy will the CNN reach with 250 images? With 6,400? And which is better on new images: the CNN
# that overfits, or `linear`, with a hundred times the images?

# %% editable=true
predict("accuracy of the CNN with 250 images, from 0 to 1", None)
predict("accuracy of the CNN with 6,400 images, from 0 to 1", None)
predict("better on new images: linear or CNN with 250 images", None)
weight_decay = 0.1  # λ


# %%
def learn(network, images, updates, **settings):
    """Train on the first `images` images for about `updates` steps; a row for every validation on the way."""
    steps = -(-images // 50)
    epochs = max(2, round(updates / steps))
    every = max(1, epochs // 13)
    model = new_model(0.002 if network is models.linear else 0.02, network=network, **settings)
    dataset = fitting.batches(fashion.x_train[:images], fashion.y_train[:images], 50)
    past = model.fit(dataset, epochs=epochs, validation_data=validation, validation_freq=every, verbose=0).history
    at = np.arange(every, epochs + 1, every)
    return pd.DataFrame(
        {
            "updates": at * steps,
            "loss": np.array(past["loss"])[at - 1],
            "accuracy": np.array(past["accuracy"])[at - 1],
            "val_loss": past["val_loss"],
            "val_accuracy": past["val_accuracy"],
        }
    )


few, more, many = (min(images, len(fashion.x_train) - held_back) for images in (250, 6_400, 25_600))
runs = {
    f"linear, {many:,} images:\nunderfits": lambda: learn(models.linear, many, 2_560),
    f"small_cnn, {few:,} images:\noverfits": lambda: learn(models.small_cnn, few, 400),
    f"small_cnn, {few:,} images,\nweight decay": lambda: learn(models.small_cnn, few, 400, weight_decay=weight_decay),
    f"small_cnn,\n{more:,} images": lambda: learn(models.small_cnn, more, 400),
}
histories = {}
caption = plots.provenance(f"{fashion.name}, {len(x_val):,} validation images, one seed, B = 50")
with Filling("four runs") as chart:
    for number, (title, run) in enumerate(runs.items()):
        chart.at(number / len(runs), title.replace("\n", " "))
        histories[title] = run()
        chart.show(training.fits(histories, caption=caption))

linear, overfitted, _, fitted = (history["val_accuracy"].iloc[-1] for history in histories.values())
measured(
    "accuracy of the CNN with 250 images, from 0 to 1",
    overfitted,
    "A network that learns by heart still learns something: 250 images are enough to tell most classes apart.",
)
measured(
    "accuracy of the CNN with 6,400 images, from 0 to 1",
    fitted,
    "25 times the images remove a good part of the errors.",
)
measured(
    "better on new images: linear or CNN with 250 images",
    "linear" if linear > overfitted else "CNN",
    "Overfitting and underfitting alone do not tell which model is better: the number of images matters, too.",
)
pd.DataFrame(
    {
        title.replace("\n", " "): {
            "training accuracy": history["accuracy"].iloc[-1],
            "validation accuracy": history["val_accuracy"].iloc[-1],
            "validation loss, lowest": history["val_loss"].min(),
            "validation loss, at the end": history["val_loss"].iloc[-1],
        }
        for title, history in histories.items()
    }
).T.round(3)

# %% [markdown]
# *What you should see.* `linear` ends with training and validation accuracy close together. The CNN soon knows its 250
# images by heart (training accuracy 1), while its validation loss turns at the black triangle and rises. To stop there
# is another remedy: *early stopping*. Weight decay keeps the loss from rising; in accuracy it gains a point or two,
# hardly more than chance with 2,000 validation images. With 6,400 images the CNN does much better: more images are the
# best remedy.
#
# Try `weight_decay` 0.001 and 1. The first changes hardly anything; with the second the network underfits.

# %% [markdown] tags=["further"]
# ## The shape of the loss

# %% [markdown]
# The loss in 1a depended on two weights, so you could draw it. `wide_resnet` has over half a million. What does *its*
# loss surface look like, and how do skip connections change it?
#
# We train it at depth 40, with 18 blocks, once as it is and once without the additions, for three epochs. Everything
# else is the same.
#
# ### Predict
#
# With skip connections the network will get some 85 to 88 % of the validation images right. What will it be without
# them?

# %% editable=true
predict("accuracy without skip connections, from 0 to 1", None)

# %%
passes, batch = 3, 64
n = min(12_800, len(fashion.x_train) - held_back)
rng = np.random.default_rng(1)
order = np.concatenate([rng.permutation(n) for _ in range(passes)])


def train_resnet(skip, at):
    keras.utils.set_random_seed(1)  # the same first weights for both
    network = models.wide_resnet(shape, classes, depth=40, skip=skip)
    steps = -(-len(order) // batch)
    decay = keras.optimizers.schedules.CosineDecay(0.03, steps)
    network.compile(keras.optimizers.SGD(decay, momentum=0.9), "sparse_categorical_crossentropy", ["accuracy"])
    tell = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: at((step + 1) / steps))
    dataset = fitting.batches(fashion.x_train[order], fashion.y_train[order], batch, shuffle=False)
    network.fit(dataset, callbacks=[tell], verbose=0)
    return network


resnets = {}
with Filling("two Wide ResNets") as chart:
    for number, (title, skip) in enumerate({"with skip connections": True, "without skip connections": False}.items()):
        resnets[title] = train_resnet(
            skip, lambda done, number=number, title=title: chart.at((number + done) / 2, title)
        )

plain_table = pd.DataFrame(
    {
        title: dict(zip(("validation loss", "validation accuracy"), network.evaluate(validation, verbose=0)))
        for title, network in resnets.items()
    }
).T.round(3)
measured(
    "accuracy without skip connections, from 0 to 1",
    plain_table["validation accuracy"].iloc[1],
    "Both networks have equally many weights. Without the additions, good ones are much harder to find.",
)
plain_table

# %% [markdown]
# *What you should see.* On Fashion-MNIST about 0.86 with skip connections, and more than ten points less without: 0.74
# when this was written.
#
# ### A slice through half a million dimensions
#
# We can't draw $L$ over all weights. But we can start at the trained weights $w$, choose random directions $d_1$ and
# $d_2$, and draw
#
# $$L(w + a\, d_1 + b\, d_2)$$
#
# over the two steps $a$ and $b$. There is one trap. In front of a batch norm, a filter $f$ and its double $2f$ compute
# the same, because the batch norm divides by the standard deviation. But the same step $d$ changes $2f$ half as much,
# relative to its length, so the surface around $2f$ looks flatter. (With skip connections this holds for the first
# convolution of each block only.)
#
# ### Exercise: a fair direction
#
# Rescale a random direction so that the picture is the same for a filter and for any multiple of it.
#
# <details><summary>Hint</summary>If a filter is c times as large, the direction must move it c times as far. So which
# property of the filter should set the length of the direction's filter? <code>np.sum(…, axis=(0, 1, 2))</code> sums
# over the first three axes; how many axes there are depends on the array.</details>


# %% exercise="filter_normalised"
def filter_normalised(direction, weights):
    """The direction, rescaled filter by filter: a step of 1 then means the same for networks that compute the same.

    direction, weights: lists of arrays of the same shapes. The last axis of a kernel counts its filters (in a dense
    layer, its columns). Arrays with a single axis are biases and batch norm's numbers; these shall not move at all.
    Returns a list of new arrays.
    """
    ### BEGIN SOLUTION
    scaled = []
    for d, w in zip(direction, weights):
        axes = tuple(range(w.ndim - 1))
        wanted, given = np.sqrt(np.sum(w**2, axis=axes)), np.sqrt(np.sum(d**2, axis=axes))
        scaled.append(d * wanted / given if w.ndim > 1 else np.zeros_like(d))
    return scaled
    ### END SOLUTION


# %%
check(filter_normalised)

# %% hidden="filter_normalised" points=3
### BEGIN HIDDEN TESTS
points(filter_normalised, 3)
### END HIDDEN TESTS

# %% [markdown]
# This is **filter normalisation** (Li et al. 2018): a step of 1 changes every filter by its own length.
#
# `landscape.along` gives the loss of 500 training images as a function of the steps.
#
# ### Predict
#
# How large can a step be, in lengths of a filter, before the network is no better than guessing? (A network that gives
# each of ten classes a probability of 0.1 has a loss of $\ln 10 \approx 2.3$.)

# %% editable=true
predict("largest step with skip connections", None)
predict("largest step without skip connections", None)

# %%
steps = np.linspace(-1, 1, 11)
sliced = slice(0, min(500, n))
slices, walks = {}, {}
with Filling("two slices of 11 × 11 points") as chart:
    for number, (title, network) in enumerate(resnets.items()):
        rng = np.random.default_rng(0)
        weights = [variable.numpy() for variable in network.trainable_variables]
        walks[title] = [
            filter_normalised([rng.standard_normal(w.shape).astype(w.dtype) for w in weights], weights)
            for _ in range(2)
        ]
        with landscape.along(network, walks[title], fashion.x_train[sliced], fashion.y_train[sliced]) as loss:
            slices[title] = landscape.grid(
                loss,
                steps,
                steps,
                lambda done, total, number=number, title=title: chart.at((number + done / total) / 2, title),
            )

slice_caption = plots.provenance(f"{fashion.name}, depth 40, {passes} epochs of {n:,} images, one seed")
guessing = np.log(10)
area = {title: np.sum(losses < guessing) * (steps[1] - steps[0]) ** 2 for title, losses in slices.items()}
for title, size in area.items():
    measured(
        f"largest step {title}",
        float(np.sqrt(size / np.pi)),
        "A step of 1 adds to every filter, in 37 layers, a random filter of the same length.",
    )
surfaces.contours(
    steps, steps, slices, limit=100, mark=(guessing, "as good as guessing: L = ln 10"), caption=slice_caption
)

# %% [markdown]
# The white cross is the trained network. From one contour to the next the loss grows by the factor 1.5. The measured
# step is the radius of a disc with the area inside the thick line.
#
# Here are the same two slices as surfaces, with the loss on a logarithmic axis. Turn them.

# %%
bottom = min(losses.min() for losses in slices.values())


def draw_surface(network, turn, tilt):
    return surfaces.turned(
        steps, steps, slices[network], turn=turn, tilt=tilt, names=("step along d₁", "step along d₂"),
        limit=100, lowest=bottom, log=True, title=f"Wide ResNet of depth 40, {network}", caption=slice_caption,
    )  # fmt: skip


widgets.explore(
    draw_surface,
    network=widgets.choice("network", list(slices)),
    turn=widgets.slider("turn (degrees)", -180, 180, -60),
    tilt=widgets.slider("tilt (degrees)", 0, 80, 35),
)

# %% [markdown]
# ### The same, finer, and with a control
#
# The recorded slices have 41 × 41 points, after five epochs. Each network is trained with the same four learning rates;
# the one with the best validation accuracy is drawn. The control is depth 16, where a network trains well without skip
# connections, too. (`course reproduce landscape`, eleven minutes.)

# %%
Image("recorded/landscape.png", width=plots.WIDTH)

# %%
recorded = pd.read_csv("recorded/landscape_networks.csv", comment="#").query("directions == 0")
recorded["network"] = [
    f"depth {depth}, {'with' if skip else 'no'} skips" for depth, skip in zip(recorded["depth"], recorded["skip"])
]
recorded["highest loss"] = recorded["highest loss"].map("{:,.0f}".format)
measures = ["validation accuracy", "share below guessing", "highest loss"]
recorded.pivot(index="network", columns="rate", values=measures).T

# %% [markdown]
# The lower row compares two learning rates as well as two networks: 0.3 with skip connections, 0.01 without. (Both best
# rates lie at the edge of the grid: a wider search could move them.) So here are the slices at *equal* rates:

# %%
training.slices_by_rate(
    pd.read_csv("recorded/landscape_networks.csv", comment="#").query("directions == 0"),
    caption="recorded; one seed, the same pair of directions, 5 epochs of 12,800 images",
)

# %% [markdown]
# ### What differs
#
# - **At depth 16, hardly anything.** Both networks train, and both surfaces are bowls.
# - **At depth 40, much.** Without skip connections the same number of updates ends at a higher loss (0.45 instead of
#   0.16), and the surface around it is steep: in the corners the loss is in the millions, with skip connections it is
#   26 at most.
# - **The learning rate explains part of that.** With skip connections, larger rates end in wider valleys, and 0.03
#   gives a better accuracy than 0.01 (the further steps, half a point each, are no more than chance). Without them,
#   larger rates end in narrower valleys and at lower accuracies. At the smallest rate the valleys of both are about
#   equally wide (0.168 and 0.158 of the square), though the highest losses differ by a factor of over a hundred. So the
#   main effect of skip connections here is that large learning rates work.
#
# ### Why
#
# Without additions, the data pass through all 37 convolutions, one after the other. If each changes, the changes
# multiply. A block with a skip connection computes $x + f(x)$: however $f$ changes, its input is passed on unchanged.
# Measure it: how many times larger does the output of the last convolution become after a step of 1 along $d_1$?


# %%
def growth(network, direction):
    last = [layer for layer in network.layers if isinstance(layer, keras.layers.Conv2D)][-1]
    inside = keras.Model(network.input, last.output)
    images, labels = fashion.x_train[sliced].astype("float32"), fashion.y_train[sliced]
    spread = {}
    with landscape.along(network, [direction], images, labels) as loss:
        for step in (0.0, 1.0):
            loss(step)  # moves the weights
            spread[step] = float(np.std(inside(images)))
    return spread[1.0] / spread[0.0]


for title, network in resnets.items():
    print(f"{title}: {growth(network, walks[title][0]):,.0f} times")

# %% [markdown]
# When this was written it was 3 to 40 times with skip connections and 240 to 1,800 times without. Gradients pass
# through the same layers in the other direction.
#
# ### What such slices can't show
#
# - They are two directions out of half a million. Other random pairs give similar pictures (share below guessing at
#   depth 40: 0.52 to 0.61 with, 0.08 to 0.16 without skip connections), but random directions almost surely miss the
#   few in which the surface is steepest.
# - They show the loss in inference mode. In training mode, with the statistics of each batch, the surface is another
#   one.
# - They have one seed and five epochs. Li et al. found many hills and hollows around networks of depth 56 and 110
#   without skip connections, trained on CIFAR-10 for 300 epochs; ours are narrow bowls.

# %% [markdown]
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - To measure training, leave out the start-up, keep the validation apart, and stop the clock at a target.
# - As the batch grows, images a second grow until the processors are busy, and the steps to the target fall ever more
#   slowly. Time to target is steps times seconds for a step, and is lowest in between.
# - Against underfitting use a larger network, against overfitting more images; weight decay and early stopping help a
#   little.
# - Slices of two loss surfaces can be compared only if a step means the same for networks that compute the same.
# - Skip connections change the surface, not the number of weights: at depth 40 larger learning rates worked only with
#   them, and the best accuracy rose from 81 to 89 % (one seed).
#
# - H. Li et al.: *Visualizing the Loss Landscape of Neural Nets.* arXiv:1712.09913
# - P. Nakkiran et al.: *Deep Double Descent: Where Bigger Models and More Data Hurt.* arXiv:1912.02292
# - S. Zagoruyko, N. Komodakis: *Wide Residual Networks.* arXiv:1605.07146
# - K. He et al.: *Deep Residual Learning for Image Recognition.* arXiv:1512.03385
# - C. J. Shallue et al.: *Measuring the Effects of Data Parallelism on Neural Network Training.* arXiv:1811.03600
# - H. Xiao, K. Rasul, R. Vollgraf: *Fashion-MNIST: a Novel Image Dataset.* arXiv:1708.07747
