"""Asks a console everything that its own description allows, and much that it does not (schemathesis): nothing is answered
5xx (but that no gateway runs beside this console), and nothing in a way that the description does not know.

usage: conform.py SALLYPORT; run by `./dev api` with the Python of a virtual environment. Same seed, same requests.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
SEED = "20260115"
# requests of one caller in a second; the console stops those who ask more
RATE = "45/s"
SECONDS = 140
CHECKS = "no_fault,status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance"
# what ends the access of whoever asks, and the stream that never ends
NOT_ASKED = {
    "session_end", "device_end", "device_end_all", "password_change", "user_change", "event_follow",
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Console:
    """One on a temporary folder."""

    def __init__(self, binary, folder):
        self.url = f"http://127.0.0.1:{free_port()}"
        management = free_port()
        config = folder / "config.yml"
        config.write_text(
            f"gateway: {{ state_dir: {folder}/gateway, run_dir: {folder}/run }}\n"
            f"console: {{ listen: \"{self.url[7:]}\", management: {{ listen: \"127.0.0.1:{management}\" }}, state_dir: {folder}/state }}\n"
            "mail: { server: \"127.0.0.1:9\", from: \"sallyport@example.com\", tls: none }\n")
        config.chmod(0o600)
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([binary, "console", "--config", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.cookie = ""
        owner = self.wait(r"#owner=(\S+)")
        body = {"link": owner, "email": "ada@example.com", "name": "Ada", "password": "correct horse battery"}
        self.ask("POST", "/api/v1/owner", body)

    def wait(self, pattern):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = re.search(pattern, self.log.read_text(errors="replace"))
            if found:
                return found.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit(f"the console does not start:\n{self.log.read_text(errors='replace')}")

    def ask(self, method, path, body=None):
        headers = {"content-type": "application/json", "cookie": self.cookie}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                self.cookie = (answer.headers.get("set-cookie") or self.cookie).split(";")[0]
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            sys.exit(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}")


def things(console):
    """Something of every kind that a path can name."""
    workspace = console.ask("POST", "/api/v1/workspaces", {"name": "W"})["id"]
    base = f"/api/v1/workspaces/{workspace}"
    spec = {"image": "example/image:1", "command": ["true"]}
    job = console.ask("POST", f"{base}/jobs", {"name": "j", "spec": spec})["id"]
    there = {
        "workspace": workspace,
        "job": job,
        "run": console.ask("POST", f"{base}/jobs/{job}/runs", {})["id"],
        "secret": console.ask("POST", f"{base}/secrets", {"name": "S", "value": "v", "hosts": ["example.com"]})["id"],
        "notification": console.ask("POST", f"{base}/notifications",
                                    {"name": "n", "kind": "email", "address": "ops@example.com", "topics": ["run.failed"]})["id"],
        "user": console.ask("GET", "/api/v1/session")["id"],
    }
    return there


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="sallyport-api-") as folder:
        console = Console(binary, Path(folder))
        try:
            there = things(console)
            described = console.ask("GET", "/api/v1/openapi.json")
            known = {operation.get("operationId") for path in described["paths"].values() for operation in path.values() if isinstance(operation, dict)}
            missing = NOT_ASKED - known
            if missing:
                sys.exit(f"no operation is called {', '.join(sorted(missing))}")
            command = [
                str(Path(sys.executable).parent / "schemathesis"), "run", f"{console.url}/api/v1/openapi.json",
                "--header", f"Cookie: {console.cookie}", "--seed", SEED, "--rate-limit", RATE, "--checks", CHECKS,
                "--phases", "examples,coverage,fuzzing", "--max-examples", os.environ.get("API_EXAMPLES", "12"), "--continue-on-failure",
                "--request-timeout", "20", "--suppress-health-check", "all", "--warnings", "off",
                "--generation-database", "none", "--no-color",
            ]
            for name in sorted(NOT_ASKED):
                command += ["--exclude-operation-id", name]
            environment = os.environ | {"SALLYPORT_THERE": json.dumps(there), "SCHEMATHESIS_HOOKS": "things", "PYTHONPATH": str(HERE)}
            begun = time.monotonic()
            done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, timeout=600)
            print(f"asked for {time.monotonic() - begun:.0f} s", flush=True)
            if console.process.poll() is not None:
                sys.exit("the console has ended")
            if done.returncode:
                print(console.log.read_text(errors="replace")[-3000:])
                sys.exit(done.returncode)
        finally:
            console.process.terminate()
            console.process.wait(timeout=30)


main()
