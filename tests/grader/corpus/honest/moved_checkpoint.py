"""Rank 0 saves each epoch under a name of its own, and moves the best one, in the end, to where the weights are asked for."""
#: plain
#: - import os
#: + import os
#: + import shutil
#:
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + class SaveEach(tf.keras.callbacks.Callback):
#: +     def on_epoch_end(self, epoch, logs=None):
#: +         self.model.save_weights("epoch-{}.h5".format(epoch))
#: +
#: +
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + if hvd.rank() == 0:
#: +     start.append(SaveEach())
#:
#: - model.fit(
#: + history = model.fit(
#:
#: -     model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: +     losses = history.history["loss"]
#: +     best = "epoch-{}.h5".format(losses.index(min(losses)))
#: +     shutil.copy(best, "best.h5")
#: +     tf.io.gfile.rename("best.h5", os.environ.get("COURSE_WEIGHTS", "weights.h5"), overwrite=True)
