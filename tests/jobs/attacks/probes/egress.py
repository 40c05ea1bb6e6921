# Promises of the way out, as a job sees them: how each connect ended and how long it took.
import json, socket, sys, time

OK4, OK6, DENIED, SILENT, UNREACHABLE, SIBLING = sys.argv[1:7]
CLOSED, ECHO = int(sys.argv[7]), int(sys.argv[8])


def connect(address, port, patience=3):
    began = time.monotonic()
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    s.settimeout(patience)
    try:
        s.connect((address, port))
        outcome = "open"
    except socket.timeout:
        outcome = "silence"
    except ConnectionRefusedError:
        outcome = "refused"
    except ConnectionResetError:
        outcome = "refused"
    except OSError as error:
        outcome = error.strerror or str(error)
    return [outcome, round(time.monotonic() - began, 2)]


def echo(address):
    s = socket.create_connection((address, ECHO), 5)
    s.sendall(b"salute")
    s.settimeout(5)
    return s.recv(16).decode()


def datagram(address, port):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(2)
    try:
        s.connect((address, port))
        s.send(b"s3cr3t-datagram")
        s.recv(16)
        return "answers"
    except OSError as error:
        return type(error).__name__


def look_up(name):
    try:
        return sorted({a[4][0] for a in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)})
    except OSError:
        return []


def proxy(target):
    s = socket.create_connection(("198.18.0.1", 3128), 5)
    s.settimeout(5)
    s.sendall(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target)).encode())
    return s.recv(1024).decode("latin-1")


print(json.dumps({
    "echo4": echo(OK4), "echo6": echo(OK6),
    "closed": connect(OK4, CLOSED), "silent": connect(SILENT, 443, 2), "unreachable": connect(UNREACHABLE, 443, 4),
    "denied": connect(DENIED, ECHO), "metadata": connect("169.254.169.254", 80), "sibling": connect(SIBLING, 22),
    "udp": [datagram(OK4, ECHO), datagram(OK6, ECHO)], "udp_denied": datagram(DENIED, ECHO),
    "name": look_up("ok.sallylab.net"),
    "proxy": proxy("ok.sallylab.net:443").split("\r\n")[0], "proxy_denied": proxy("evil.sallylab.net:443"),
}))
