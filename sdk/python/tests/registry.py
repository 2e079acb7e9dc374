"""A registry with one image, of one file."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Registry(ThreadingHTTPServer):
    """It serves the image NAME:1 at `image`."""

    def __init__(self) -> None:
        self.text = os.urandom(16)  # a layer that nobody has
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            one = tarfile.TarInfo("srv/hello")
            one.size = len(self.text)
            tar.addfile(one, io.BytesIO(self.text))
        said = {"User": "33", "WorkingDir": "/srv", "Env": ["A=b"], "Entrypoint": ["/srv/run"], "Cmd": ["x"]}
        rootfs = {"type": "layers", "diff_ids": [self._digest(layer.getvalue())]}
        config = json.dumps({"os": "linux", "config": said, "rootfs": rootfs}).encode()
        packed = gzip.compress(layer.getvalue())
        kind = "application/vnd.oci.image."
        manifest = {
            "schemaVersion": 2,
            "mediaType": kind + "manifest.v1+json",
            "config": {"mediaType": kind + "config.v1+json", "digest": self._digest(config), "size": len(config)},
            "layers": [{"mediaType": kind + "layer.v1.tar+gzip", "digest": self._digest(packed), "size": len(packed)}],
        }
        text = json.dumps(manifest).encode()
        self.blobs = {self._digest(b): (t, b) for t, b in (("application/octet-stream", config), ("application/octet-stream", packed), (manifest["mediaType"], text))}
        self.blobs["1"] = self.blobs[self._digest(text)]
        super().__init__(("127.0.0.1", 0), _Handler)
        self.image = f"127.0.0.1:{self.server_port}/own/image:1"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @staticmethod
    def _digest(b: bytes) -> str:
        return "sha256:" + hashlib.sha256(b).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        kind, body = self.server.blobs.get(self.path.rpartition("/")[2], ("text/plain", b"")) if self.path != "/v2/" else ("text/plain", b"ok")
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", str(kind))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
