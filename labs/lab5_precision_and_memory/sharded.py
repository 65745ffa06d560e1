"""Adam with its state divided among the ranks (ZeRO, stage 1), with Keras and Horovod.

horovodrun -np 2 python sharded.py
"""

import argparse
from collections.abc import Sequence

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


class Sharded:
    """A Keras optimizer that updates a share of the network on each rank, and keeps the state of that share only.

    For optimizers that treat each number by itself, as SGD and Adam do. LARS and LAMB take norms of whole layers: given
    a share, they would take the norms of its pieces, and raise no error.

    Stage 2 is one `Sharded` for each layer, called as soon as the layer's gradient is there.
    """

    def __init__(self, optimizer: tf.keras.optimizers.Optimizer, variables: Sequence[tf.Variable]) -> None:
        self.optimizer, self.variables = optimizer, variables
        self.sizes = [variable.shape.num_elements() for variable in variables]
        mine = np.array_split(np.arange(sum(self.sizes)), hvd.size())[hvd.rank()]  # as reducescatter cuts
        self.share = tf.Variable(tf.gather(self.flat(variables), mine))
        optimizer.build([self.share])

    def apply_gradients(self, gradients: Sequence[tf.Tensor]) -> None:
        """One step of all ranks together, from the gradients of each rank's own examples."""
        average = hvd.reducescatter(self.flat(gradients), op=hvd.Average, name="gradients")
        self.optimizer.apply_gradients([(average, self.share)])
        whole = hvd.allgather(self.share, name="weights")
        for variable, numbers in zip(self.variables, tf.split(whole, self.sizes)):
            variable.assign(tf.reshape(numbers, variable.shape))

    @staticmethod
    def flat(arrays: Sequence[tf.Tensor]) -> tf.Tensor:
        """All numbers in one vector."""
        return tf.concat([tf.reshape(array, [-1]) for array in arrays], axis=0)

    @property
    def state_bytes(self) -> int:
        """Of the optimizer's state on this rank."""
        return sum(variable.dtype.size * variable.shape.num_elements() for variable in self.optimizer.variables[1:])


def main() -> None:
    """Train, and print what each rank holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--units", type=int, default=256, help="of each hidden layer")
    args = parser.parse_args()

    hvd.init()
    if gpus := tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    tf.keras.utils.set_random_seed(1)  # equal weights on all ranks
    dense = tf.keras.layers.Dense
    model = tf.keras.Sequential([tf.keras.Input((64,)), *(dense(args.units, "relu") for _ in range(3)), dense(10)])
    adam = tf.keras.optimizers.Adam(0.001, jit_compile=False)
    sharded = Sharded(adam, model.trainable_variables)
    print(f"rank {hvd.rank()}: {model.count_params():,} weights, {sharded.state_bytes:,} bytes of state", flush=True)

    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    y = np.argmax(x[:, :10], axis=1)
    mine = slice(hvd.rank(), None, hvd.size())
    for step in range(args.steps):
        with tf.GradientTape() as tape:
            losses = tf.keras.losses.sparse_categorical_crossentropy(y[mine], model(x[mine]), from_logits=True)
            loss = tf.reduce_mean(losses)
        sharded.apply_gradients(tape.gradient(loss, model.trainable_variables))
        mean = hvd.allreduce(loss, name="loss")
        if hvd.rank() == 0 and step % 5 == 4:
            print(f"step {step + 1}: loss {mean:.4f}", flush=True)


if __name__ == "__main__":
    main()
