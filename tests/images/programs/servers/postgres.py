# Enough of PostgreSQL's protocol (version 3) for psql: no TLS, no password, one row for every question.
import socketserver
import struct


def message(kind, body):
    return kind + struct.pack("!I", len(body) + 4) + body


READY = message(b"Z", b"I")
PARAMETERS = {"server_version": "15.0", "client_encoding": "UTF8", "standard_conforming_strings": "on"}


class Session(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            length, code = struct.unpack("!II", self.rfile.read(8))
            self.rfile.read(length - 8)
            if code not in (80877103, 80877104):
                break
            self.wfile.write(b"N")  # neither TLS nor GSSAPI
        self.wfile.write(message(b"R", struct.pack("!I", 0)))
        for name, value in PARAMETERS.items():
            self.wfile.write(message(b"S", name.encode() + b"\0" + value.encode() + b"\0"))
        self.wfile.write(READY)
        while kind := self.rfile.read(1):
            self.rfile.read(struct.unpack("!I", self.rfile.read(4))[0] - 4)
            if kind == b"Q":
                text = b"salute from postgres"
                field = b"salute\0" + struct.pack("!IHIhih", 0, 0, 25, -1, -1, 0)
                self.wfile.write(message(b"T", struct.pack("!H", 1) + field))
                self.wfile.write(message(b"D", struct.pack("!HI", 1, len(text)) + text))
                self.wfile.write(message(b"C", b"SELECT 1\0") + READY)


class Server(socketserver.ThreadingTCPServer):
    address_family = 10  # AF_INET6, which takes IPv4 as well
    allow_reuse_address = True
    daemon_threads = True


Server(("::", 5432), Session).serve_forever()
