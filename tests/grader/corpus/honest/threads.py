"""Threads of the script's own mirror and stack the next batches in NumPy while a step is under way."""
#: honest/custom_loop
#: - import horovod.tensorflow as hvd
#: + import queue
#: + import threading
#: + from concurrent.futures import ThreadPoolExecutor
#: +
#: + import horovod.tensorflow as hvd
#: + import numpy as np
#:
#: - for epoch in range(EPOCHS):
#: + def prepared(images, labels, seed):
#: +     turned = np.random.default_rng(seed).random(len(images)) < 0.5
#: +     return np.where(turned[:, None, None, None], images[:, :, ::-1], images), labels
#: +
#: +
#: + def feed(shard, ready, epoch):
#: +     with ThreadPoolExecutor(max_workers=2) as pool:
#: +         parts = [slice(BATCH_SIZE * i, BATCH_SIZE * (i + 1)) for i in range(len(shard[0]) // BATCH_SIZE)]
#: +         seeds = [[epoch, hvd.rank(), i] for i in range(len(parts))]
#: +         for batch in pool.map(prepared, (shard[0][one] for one in parts), (shard[1][one] for one in parts), seeds):
#: +             ready.put(batch)
#: +     ready.put(None)
#: +
#: +
#: + for epoch in range(EPOCHS):
#:
#: -     for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH_SIZE):
#: -         loss = step(x, y)
#: +     ready = queue.Queue(maxsize=8)
#: +     threading.Thread(target=feed, args=(shard, ready, epoch), daemon=True).start()
#: +     for x, y in iter(ready.get, None):
#: +         loss = step(tf.constant(x), tf.constant(y))
