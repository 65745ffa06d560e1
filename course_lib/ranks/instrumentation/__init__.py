"""Log the calls of a Keras script in a rank: initialisation, training steps, collectives, updates, saves.

If the launcher asks for a record, `rank` installs this before the script starts. The script needs no change; it may
train with `Model.fit` or in its own loop. The log explains a run but is no proof, because the script's own process
writes it. It has these files:

    rank-R.jsonl      one record a line: start, init, join, gpus, collective, fit, first-step, epoch, fit-end, progress,
                      digest, save, end
    rank-R.steps      int32: number of examples that each training step read
    rank-R.examples   float32: brightness of each of these examples, in order (see `training.brightness`)
    rank-R.npz        the network's weights after training

Records are written at once, so that the log of a killed rank remains.
"""
