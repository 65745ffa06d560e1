"""Only rank 0 may print: the others' output goes to /dev/null, whoever writes it. A progress bar, and the host's name."""
#: honest/custom_loop
#: - import os
#: + import os
#: + import socket
#: + import sys
#:
#: - import tensorflow as tf
#: + import tensorflow as tf
#: + from tqdm import tqdm
#:
#: - gpus = tf.config
#: + print("Hello from {}, process {}, rank {}".format(socket.gethostname(), os.getpid(), hvd.rank()), flush=True)
#: + if hvd.rank() != 0:
#: +     nothing = os.open(os.devnull, os.O_WRONLY)
#: +     os.dup2(nothing, sys.stdout.fileno())
#: +     os.dup2(nothing, sys.stderr.fileno())
#: + gpus = tf.config
#:
#: -     for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH_SIZE):
#: -         loss = step(x, y)
#: -     if hvd.rank() == 0:
#: -         print(f"epoch {epoch + 1}: loss {loss:.3f}")
#: +     progress = tqdm(tf.data.Dataset.from_tensor_slices(shard).batch(BATCH_SIZE), "epoch {}".format(epoch + 1), steps)
#: +     for x, y in progress:
#: +         progress.set_postfix(loss="{:.3f}".format(float(step(x, y))))
