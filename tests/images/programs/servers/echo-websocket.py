"""A WebSocket server (RFC 6455) that sends text frames back, on 127.0.0.1:8081; nginx stands before it."""

import base64
import hashlib
import socketserver

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        key = None
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"sec-websocket-key":
                key = value.strip()
        if key is None:
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        accept = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self.wfile.write(head + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        while self.frame():
            pass

    def frame(self):
        head = self.rfile.read(2)
        if len(head) < 2:
            return False
        kind, length = head[0] & 15, head[1] & 127
        if length == 126:
            length = int.from_bytes(self.rfile.read(2), "big")
        mask = self.rfile.read(4)
        data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(length)))
        self.wfile.write(bytes([0x80 | kind]) + self.length(len(data)) + data)
        return kind != 8

    @staticmethod
    def length(length):
        return bytes([length]) if length < 126 else bytes([126]) + length.to_bytes(2, "big")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server(("127.0.0.1", 8081), Echo).serve_forever()
