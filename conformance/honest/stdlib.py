"""The service on Python's standard library. The kit's system tests check that the kit accepts it."""

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN_HASH = hashlib.sha256(os.environ["TOKEN"].encode()).digest()
USER, PASSWORD = os.environ["USER_PASSWORD"].split(":", 1)

todos = {}
last_id = 0
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Sends head and body together, because two small packets wait for each other's acknowledgment.
    wbufsize = -1

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.split("?")[0]
        if path == "/api/whoami" or path.startswith("/api/whoami/"):
            return self.whoami(path)
        if path == "/admin/" or path.startswith("/admin/"):
            return self.admin(path)
        with lock:
            if path == "/api/todos":
                return self.collection(body)
            match = re.fullmatch(r"/api/todos/([^/]+)", path)
            return self.todo(match[1], body) if match else self.send_json(404, {"error": "not found"})

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = do_HEAD = handle_request

    def collection(self, body):
        global last_id
        if self.command == "GET":
            return self.send_json(200, list(todos.values()))
        if self.command != "POST":
            return self.send_json(405, {"error": "method not allowed"})
        title = self.field(body, "title")
        if not isinstance(title, str):
            return self.send_json(400, {"error": "title must be a string"})
        messages = []
        if not title.strip():
            messages.append("must not be empty")
        if len(title) > 120:
            messages.append("must be at most 120 characters")
        if messages:
            return self.send_json(422, [{"field": "title", "message": message} for message in messages])
        last_id += 1
        todos[last_id] = {"id": last_id, "title": title.strip(), "done": False}
        self.send_json(201, todos[last_id])

    def todo(self, text, body):
        if not re.fullmatch("[0-9]+", text) or int(text) >= 2**64:
            return self.send_json(400, {"error": "invalid id"})
        todo = todos.get(int(text))
        if todo is None:
            return self.send_json(404, {"error": "no such to-do"})
        if self.command == "GET":
            return self.send_json(200, todo)
        if self.command == "DELETE":
            del todos[todo["id"]]
            return self.send(204, None, b"")
        if self.command != "PATCH":
            return self.send_json(405, {"error": "method not allowed"})
        done = self.field(body, "done")
        if not isinstance(done, bool):
            return self.send_json(400, {"error": "done must be a boolean"})
        todo["done"] = done
        self.send_json(200, todo)

    def whoami(self, path):
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        is_known = hmac.compare_digest(hashlib.sha256(token.encode()).digest(), TOKEN_HASH)
        if scheme.lower() != "bearer" or not is_known:
            return self.send(401, "text/plain", b"Unauthorized", {"WWW-Authenticate": "Bearer"})
        self.send(200 if path == "/api/whoami" else 404, "text/plain", b"alice")

    def admin(self, path):
        scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
        try:
            given = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            given = b""
        if scheme.lower() != "basic" or not hmac.compare_digest(given, f"{USER}:{PASSWORD}".encode()):
            return self.send(403, "text/plain", b"Forbidden")
        self.send(200 if path == "/admin/" else 404, "text/plain", f"Hello, {USER}".encode())

    @staticmethod
    def field(body, name):
        try:
            value = json.loads(body)
        except ValueError:
            return None
        return value.get(name) if isinstance(value, dict) else None

    def send_json(self, status, value):
        self.send(status, "application/json", json.dumps(value).encode())

    def send(self, status, content_type, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if content_type is not None:
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}, separators=(",", ":")), flush=True)
server.serve_forever()
