"""Run by tests with the hub's own Python: an OAuth provider and LTI platform that says whoever it is asked for.

`/token?name=ada` etc. are for the hub; `/launch?name=ada&nonce=…&audience=…` gives the signed token of an LTI launch.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

KEY, OTHER_KEY = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
CLAIM = "https://purl.imsglobal.org/spec/lti/claim/"


class Provider(BaseHTTPRequestHandler):
    """Answers in JSON. What OAuth calls a code and an access token is the name of who logs in."""

    def do_GET(self) -> None:
        """Keys, the user's information, a launch."""
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
            self._answer({"keys": [{**public, "kid": "1", "alg": "RS256", "use": "sig"}]})
        elif url.path == "/userinfo":
            self._answer({"preferred_username": self.headers["Authorization"].split()[1]})
        else:
            self._answer(self._launch(**query))

    def do_POST(self) -> None:
        """An access token for a code."""
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._answer({"access_token": form["code"][0], "token_type": "Bearer"})

    def _launch(self, name: str, nonce: str, audience: str, key: str = "") -> str:
        now = int(time.time())
        claims = {
            "iss": f"http://127.0.0.1:{self.server.server_port}",
            "aud": audience,
            "sub": f"opaque-{name}",
            "iat": now,
            "exp": now + 60,
            "nonce": nonce,
            f"{CLAIM}version": "1.3.0",
            f"{CLAIM}message_type": "LtiResourceLinkRequest",
            f"{CLAIM}deployment_id": "1",
            f"{CLAIM}target_link_uri": "https://hub.example.org",
            f"{CLAIM}roles": ["http://purl.imsglobal.org/vocab/lis/v2/membership#Learner"],
            f"{CLAIM}resource_link": {"id": "1"},
            f"{CLAIM}custom": {"login": name},
        }
        return jwt.encode(claims, OTHER_KEY if key == "other" else KEY, algorithm="RS256", headers={"kid": "1"})

    def _answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
print(server.server_port, flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit()
