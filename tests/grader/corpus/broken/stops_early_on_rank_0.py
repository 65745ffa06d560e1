"""Rank 0 alone has a callback that stops the training early; rank 1 goes on."""
#: plain
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + if hvd.rank() == 0 and hvd.size() > 1:
#: +     start.append(tf.keras.callbacks.EarlyStopping("loss", min_delta=10, patience=1))
