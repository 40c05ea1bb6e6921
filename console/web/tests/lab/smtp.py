"""A mail server for tests (aiosmtpd): STARTTLS and sign-in are required. One line of JSON on its output for each message.

usage: smtp.py PORT CERTIFICATE KEY USER PASSWORD; ends when its input does.
"""

import json
import ssl
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

port, certificate, key, user, password = sys.argv[1:]


class Taken:
    async def handle_DATA(self, server, session, envelope):
        print(json.dumps({
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "tls": session.ssl is not None,
            "user": session.auth_data,
            "text": envelope.content.decode(),
        }), flush=True)
        return "250 taken"


def signed_in(server, session, envelope, mechanism, data):
    good = data.login == user.encode() and data.password == password.encode()
    return AuthResult(success=good, handled=good, auth_data=user)


tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(certificate, key)
server = Controller(Taken(), hostname="127.0.0.1", port=int(port), tls_context=tls, require_starttls=True,
                    authenticator=signed_in, auth_required=True)
server.start()
print(json.dumps({"ready": True}), flush=True)
sys.stdin.read()
server.stop()
