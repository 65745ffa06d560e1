"""Holds images back; after each epoch the ranks average what they measure on them, and stop together when it gets no better.

The best weights so far are saved as training goes on.
"""
#: honest/custom_loop
#: - for epoch in range(3):
#: + held_back, least, bad = len(cifar.x_train) // 10, float("inf"), 0
#: + valid = slice(len(cifar.x_train) - held_back + hvd.rank(), None, hvd.size())
#: + for epoch in range(5):
#:
#: -     shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=64, epoch=epoch)
#: +     own = cifar.x_train[:-held_back], cifar.y_train[:-held_back]
#: +     shard = data.shard(own, hvd.rank(), hvd.size(), batch_size=64, epoch=epoch)
#:
#: -     if hvd.rank() == 0:
#: -         print(f"epoch {epoch + 1}: loss {loss:.3f}")
#: -
#: - if hvd.rank() == 0:
#: -     model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: +     measured = float(hvd.allreduce(loss_of(cifar.y_train[valid], model(cifar.x_train[valid], training=False))))
#: +     bad = bad + 1 if measured > least else 0
#: +     if hvd.rank() == 0:
#: +         print(f"epoch {epoch + 1}: loss {loss:.3f}, on images held back {measured:.3f}")
#: +         if measured <= least:
#: +             model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: +     least = min(least, measured)
#: +     if bad == 2:
#: +         break
