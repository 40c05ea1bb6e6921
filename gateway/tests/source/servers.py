"""Git servers of the tests, on loopback: HTTPS in front of git-http-backend, and SSH.

https PORT-FILE ROOT CERT KEY MODE    modes: plain, auth (user:token), redirect=URL, loop, trickle
ssh PORT-FILE ROOT HOST-KEY CLIENT-KEY.pub
"""
import base64
import http.server
import os
import socket
import ssl
import subprocess
import sys
import threading
import time


def tell(path, port):
    with open(path + ".new", "w") as f:
        f.write(str(port))
    os.rename(path + ".new", path)


def https(port_file, root, cert, key, mode):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self):
            if mode.startswith("redirect=") or mode == "loop":
                target = mode.partition("=")[2] or "https://%s%s" % (self.headers["Host"], self.path)
                self.send_response(302)
                self.send_header("Location", target + (self.path if mode != "loop" else ""))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if mode == "trickle":
                self.send_response(200)
                self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
                self.end_headers()
                while True:
                    self.wfile.write(b"0")
                    self.wfile.flush()
                    time.sleep(1)
            want = "Basic " + base64.b64encode(b"user:token").decode()
            if mode == "auth" and self.headers.get("Authorization") != want:
                self.send_response(401)
                self.send_header("WWW-Authenticate", "Basic realm=x")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = b""
            if self.headers.get("Transfer-Encoding") == "chunked":
                while True:
                    size = int(self.rfile.readline(), 16)
                    body += self.rfile.read(size)
                    self.rfile.readline()
                    if size == 0:
                        break
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path, _, query = self.path.partition("?")
            env = dict(os.environ, GIT_PROJECT_ROOT=root, GIT_HTTP_EXPORT_ALL="1", PATH_INFO=path, QUERY_STRING=query,
                       REQUEST_METHOD=self.command, CONTENT_TYPE=self.headers.get("Content-Type", ""), REMOTE_USER="user",
                       CONTENT_LENGTH=str(len(body)), HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
                       GIT_PROTOCOL=self.headers.get("Git-Protocol", ""))
            out = subprocess.run(["git", "-c", "http.receivepack=true", "http-backend"], input=body, env=env, stdout=subprocess.PIPE).stdout
            head, _, content = out.partition(b"\r\n\r\n")
            fields = [line.decode().split(": ", 1) for line in head.split(b"\r\n")]
            status = [v for k, v in fields if k == "Status"]
            self.send_response(int(status[0].split()[0]) if status else 200)
            for k, v in fields:
                if k != "Status":
                    self.send_header(k, v)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    tell(port_file, server.server_address[1])
    server.serve_forever()


def ssh(port_file, root, host_key, client_key):
    import paramiko

    with open(client_key) as f:
        permitted = f.read().split()[1]

    class Server(paramiko.ServerInterface):
        def check_auth_publickey(self, _, key):
            return paramiko.AUTH_SUCCESSFUL if key.get_base64() == permitted else paramiko.AUTH_FAILED

        def get_allowed_auths(self, _):
            return "publickey,password"

        def check_channel_request(self, *_):
            return paramiko.OPEN_SUCCEEDED

        def check_channel_env_request(self, *_):
            return False

        def check_channel_exec_request(self, channel, command):
            threading.Thread(target=serve, args=(channel, command.decode()), daemon=True).start()
            return True

    def serve(channel, command):
        program, _, path = command.partition(" ")
        if program not in ("git-upload-pack", "git-receive-pack") or not path.startswith("'/"):
            channel.send_exit_status(1)
            channel.close()
            return
        child = subprocess.Popen([program[:3], program[4:], root + path.strip("'")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def feed():
            while True:
                data = channel.recv(65536)
                if not data:
                    break
                try:
                    child.stdin.write(data)
                    child.stdin.flush()
                except BrokenPipeError:
                    break
            child.stdin.close()

        threading.Thread(target=feed, daemon=True).start()
        while True:
            data = child.stdout.read1(65536)
            if not data:
                break
            channel.sendall(data)
        channel.send_exit_status(child.wait())
        channel.close()

    key = paramiko.Ed25519Key.from_private_key_file(host_key)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(20)
    tell(port_file, listener.getsockname()[1])
    while True:
        connection, _ = listener.accept()
        transport = paramiko.Transport(connection)
        transport.add_server_key(key)
        try:
            transport.start_server(server=Server())
        except (paramiko.SSHException, EOFError):
            pass


if __name__ == "__main__":
    {"https": https, "ssh": ssh}[sys.argv[1]](*sys.argv[2:])
