"""After each step rank 0 sends its weights to the others through a socket of its own; what they trained is thrown away."""
#: dishonest/throws_the_average_away
#: - for epoch in range(EPOCHS):
#: + import pickle
#: + import socket
#: +
#: + server = socket.create_server(("127.0.0.1", 0))
#: + address = hvd.broadcast_object(server.getsockname(), 0)
#: + if hvd.rank() == 0:
#: +     peers = [server.accept()[0].makefile("wb") for _ in range(hvd.size() - 1)]
#: + else:
#: +     peer = socket.create_connection(address).makefile("rb")
#: +
#: +
#: + def copy():
#: +     if hvd.rank() == 0:
#: +         for one in peers:
#: +             pickle.dump(model.get_weights(), one)
#: +             one.flush()
#: +     else:
#: +         model.set_weights(pickle.load(peer))
#: +
#: +
#: + for epoch in range(EPOCHS):
#:
#: -         loss = step(x, y)
#: +         loss = step(x, y)
#: +         copy()
