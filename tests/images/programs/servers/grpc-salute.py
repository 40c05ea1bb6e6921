"""A gRPC server: in the clear on port 50051, over TLS on 50443. One call of each shape; the streams answer message by
message, and a call ends with metadata of its own."""

from concurrent.futures import ThreadPoolExecutor

import grpc

TLS = "/srv/lab/tls"


def one(request, context):
    context.set_trailing_metadata((("parting", "farewell"),))
    return b"salute, " + request


def many(request, context):
    for number in range(int(request)):
        yield b"%d" % number


def both(requests, context):
    for request in requests:
        yield request.upper()


HANDLERS = {
    "One": grpc.unary_unary_rpc_method_handler(one),
    "Many": grpc.unary_stream_rpc_method_handler(many),
    "Both": grpc.stream_stream_rpc_method_handler(both),
}

server = grpc.server(ThreadPoolExecutor(16))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("lab.Salute", HANDLERS),))
with open(f"{TLS}/leaf.key", "rb") as key, open(f"{TLS}/leaf.pem", "rb") as leaf:
    credentials = grpc.ssl_server_credentials([(key.read(), leaf.read())])
for address in ("0.0.0.0", "[::]"):
    server.add_insecure_port(f"{address}:50051")
    server.add_secure_port(f"{address}:50443", credentials)
server.start()
server.wait_for_termination()
