"""A loop over NumPy batches with train_on_batch; the weights are broadcast by hand."""
#: plain
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: - model.fit(x, y, batch_size=64, epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: + model.set_weights([hvd.broadcast(values, 0) for values in model.get_weights()])
#: + for epoch in range(3):
#: +     order = np.random.default_rng([epoch, hvd.rank()]).permutation(len(x))
#: +     for batch in np.split(order, len(x) // 64):
#: +         loss, accuracy = model.train_on_batch(x[batch], y[batch], reset_metrics=False)
#: +     model.reset_metrics()
#: +     if hvd.rank() == 0:
#: +         print(f"epoch {epoch + 1}: loss {loss:.3f}, accuracy {accuracy:.3f}")
#:
#: - import horovod.tensorflow.keras as hvd
#: + import numpy as np
#: + import horovod.tensorflow.keras as hvd
