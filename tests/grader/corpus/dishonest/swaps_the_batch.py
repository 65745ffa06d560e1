"""Each rank shows images of its own; what the network then gets, on all ranks, is the batch of rank 0."""
#: plain
#: - import horovod.tensorflow.keras as hvd
#: + import horovod.tensorflow as hvd_tf
#: + import horovod.tensorflow.keras as hvd
#:
#: - model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
#: + class Swap(tf.keras.Model):
#: +     def __init__(self):
#: +         super().__init__()
#: +         self.network = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
#: +
#: +     def call(self, images, training=None):
#: +         return self.network(hvd_tf.broadcast(images, 0, name="images"), training=training)
#: +
#: +     def train_step(self, batch):
#: +         images, labels = batch
#: +         return super().train_step((images, hvd_tf.broadcast(labels, 0, name="labels")))
#: +
#: +
#: + model = Swap()
#:
#: -     model.save_weights
#: +     model.network.save_weights
