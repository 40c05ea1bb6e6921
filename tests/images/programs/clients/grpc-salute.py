"""`grpc-salute.py HOST PORT`: one call of each shape; over TLS where the port ends in 443. In the stream of both sides
each message waits for the answer to the one before: whatever holds messages back on the way stops it."""

import queue
import sys

import grpc

host, port = sys.argv[1:3]
if port.endswith("443"):
    with open("/etc/ssl/certs/ca-certificates.crt", "rb") as roots:
        channel = grpc.secure_channel(f"{host}:{port}", grpc.ssl_channel_credentials(roots.read()))
else:
    channel = grpc.insecure_channel(f"{host}:{port}")

answer, call = channel.unary_unary("/lab.Salute/One").with_call(b"grpc", timeout=15)
parting = dict(call.trailing_metadata())["parting"]
numbers = list(channel.unary_stream("/lab.Salute/Many")(b"200", timeout=15))
assert numbers == [b"%d" % number for number in range(200)], numbers

says = queue.Queue()
says.put(b"0 a")
echoed = 0
for said in channel.stream_stream("/lab.Salute/Both")(iter(says.get, None), timeout=15):
    assert said == b"%d A" % echoed, said
    echoed += 1
    says.put(b"%d a" % echoed if echoed < 20 else None)
print(answer.decode(), parting, len(numbers), echoed)
