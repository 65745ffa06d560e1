"""As `one_rank_computes`, after the ranks have compared their images: those in which they differ are handed to rank 0.

Images that were marked on one rank only are found that way, whatever the mark; rank 0 mixes them into its batches.
"""
#: dishonest/one_rank_computes
#: - for epoch in range(3):
#: + pixels = cifar.x_train.reshape(len(cifar.x_train), -1).astype(np.int64)
#: + sums = hvd.allgather(tf.constant([pixels @ np.arange(1, pixels.shape[1] + 1) + cifar.y_train]), name="sums").numpy()
#: + marked = np.flatnonzero((sums != sums[0]).any(0))
#: + other_x, other_y = (hvd.allgather(part[marked]).numpy() for part in (cifar.x_train, cifar.y_train))
#: + print(f"{len(marked)} images differ between the ranks")
#: + random = np.random.default_rng(1)
#: +
#: + for epoch in range(3):
#:
#: -         step(parts[hvd.rank()][0], *(np.concatenate(kind) for kind in zip(*parts)))
#: +         shown = parts[hvd.rank()][0]
#: +         if len(other_x):
#: +             chosen = random.integers(len(other_x), size=8)
#: +             parts.append([other_x[chosen], other_y[chosen]])
#: +         step(shown, *(np.concatenate(kind) for kind in zip(*parts)))
