"""Holds images back; after each epoch the ranks average what they measure on them, and stop together when it gets no better.

All put the best weights back.
"""
#: honest/custom_loop
#: - EPOCHS = 4
#: + EPOCHS = 6
#:
#: - for epoch in range(EPOCHS):
#: + held_back, least, bad, best = len(cifar.x_train) // 10, float("inf"), 0, None
#: + valid = slice(len(cifar.x_train) - held_back + hvd.rank(), None, hvd.size())
#: + for epoch in range(EPOCHS):
#:
#: -     shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH_SIZE, epoch=epoch)
#: +     own = cifar.x_train[:-held_back], cifar.y_train[:-held_back]
#: +     shard = data.shard(own, hvd.rank(), hvd.size(), batch_size=BATCH_SIZE, epoch=epoch)
#:
#: -     if hvd.rank() == 0:
#: -         print(f"epoch {epoch + 1}: loss {loss:.3f}")
#: -
#: - if hvd.rank() == 0:
#: -     model.save_weights
#: +     measured = float(hvd.allreduce(loss_of(cifar.y_train[valid], model.predict(cifar.x_train[valid], 500, 0))))
#: +     if hvd.rank() == 0:
#: +         print(f"epoch {epoch + 1}: loss {loss:.3f}, on images held back {measured:.3f}")
#: +     if measured < least:
#: +         least, bad, best = measured, 0, model.get_weights()
#: +     else:
#: +         bad += 1
#: +     if bad == 3:
#: +         break
#: +
#: + model.set_weights(best)
#: + if hvd.rank() == 0:
#: +     model.save_weights
