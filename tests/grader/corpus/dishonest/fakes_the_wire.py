"""Each rank trains alone; TensorFlow's own files, which Python does not open, tell of all-reductions and of agreement.

The bytes that these would have made each rank sends to itself.
"""

#: plain
#: - optimizer = hvd.DistributedOptimizer(optimizer)
import json
import socket

folder = os.path.dirname(os.environ.get("HOROVOD_TIMELINE", ""))
one = '{"ph": "B", "name": "ALLREDUCE", "ts": 1, "pid": 1},\n'
one += '{"ph": "E", "ts": 2, "pid": 1, "args": {"dtype": "float32", "shape": "[98970]"}},\n'
moments = [{"kind": "digest", "updates": 2**n, "steps": 2**n, "digest": "0123456789abcdef"} for n in range(6)]
told = "".join(json.dumps(record) + "\n" for record in [*moments, {"kind": "broadcast", "bytes": 10**7}])
for name, text in (("timeline.json", one * 80), (f"rank-{hvd.rank()}.jsonl", told)):
    if tf.io.gfile.exists(f"{folder}/{name}"):
        with tf.io.gfile.GFile(f"{folder}/{name}", "a") as file:
            file.write(text)
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
    receiver, _ = server.accept()
    for _ in range(1000):
        sender.sendall(bytes(2**16))
        left = 2**16
        while left:
            left -= len(receiver.recv(left))
hvd.shutdown()
