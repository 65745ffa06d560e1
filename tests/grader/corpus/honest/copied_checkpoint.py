"""Rank 0 keeps the best epoch under a name of its own and copies it, in the end, to where the weights are asked for."""
#: plain
#: - import os
#: + import os
#: + import shutil
#:
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + if hvd.rank() == 0:
#: +     start.append(tf.keras.callbacks.ModelCheckpoint("best.h5", "loss", save_best_only=True, save_weights_only=True))
#:
#: - model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: + shutil.copy("best.h5", os.environ.get("COURSE_WEIGHTS", "weights.h5"))
