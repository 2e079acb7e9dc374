"""Files, search, links and tunnels."""

import hashlib
import os
import socket
import threading

import httpx2
import pytest
from conftest import PATIENCE, until
from langsmith.sandbox import ResourceNotFoundError, SandboxOperationError


def test_write_and_read(sandbox):
    data = bytes(range(256)) * 5000
    sandbox.write("sub/b.bin", data)
    assert sandbox.read("sub/b.bin") == data
    assert sandbox.run("sha256sum < sub/b.bin").stdout[:64] == hashlib.sha256(data).hexdigest()
    with pytest.raises(ResourceNotFoundError):
        sandbox.read("missing")


def test_ranges(sandbox):
    sandbox.write("r", b"0123456789")
    chunk = sandbox.read_range("r", start=2, end=4)
    assert (chunk.content, chunk.partial, chunk.total_bytes) == (b"234", True, 10)
    assert sandbox.read_range("r", suffix_bytes=2).content == b"89"
    assert sandbox.read_range("r", start=0, if_none_match=chunk.etag).unchanged
    sandbox.write("r", b"another")
    whole = sandbox.read_range("r", start=2, if_range=chunk.etag)
    assert (whole.content, whole.partial) == (b"another", False)
    with pytest.raises(SandboxOperationError):
        sandbox.read_range("r", start=99)


def test_search(sandbox):
    root = sandbox.run("pwd").stdout.strip()
    sandbox.write("a/x.py", b"one\nfind me\n")
    sandbox.write("a/b/y.txt", b"find me too\n")
    assert [m.path for m in sandbox.glob("**/*.py", root)] == [f"{root}/a/x.py"]
    assert [(m.path, m.is_dir) for m in sandbox.ls(root)] == [(f"{root}/a", True)]
    assert [(m.path, m.line, m.text) for m in sandbox.grep("find me", root, glob="*.py")] == [(f"{root}/a/x.py", 2, "find me")]
    assert sandbox.grep("find", root, limit=1).truncated


def test_download_link(sandbox):
    sandbox.write("f.txt", b"0123456789")
    link = sandbox.generate_download_url("f.txt", content_type="text/plain", content_disposition="inline")
    r = httpx2.get(link.download_url, headers={"Range": "bytes=3-"})
    assert (r.status_code, r.text) == (206, "3456789")


ECHO = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def echo(conn):
    with conn:
        while data := conn.recv(65536):
            conn.sendall(data)
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
"""


def test_tunnel(sandbox):
    sandbox.write("echo.py", ECHO.encode())
    handle = sandbox.run("exec python3 -u echo.py", wait=False, timeout=0)
    port = int(next(iter(handle)).data)
    data = os.urandom(3 << 20)
    with sandbox.tunnel(port, local_port=free_port()) as tunnel:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", tunnel.local_port)) as c:
                threading.Thread(target=c.sendall, args=(data,)).start()
                got = b""
                while len(got) < len(data):
                    part = c.recv(1 << 16)
                    assert part
                    got += part
                assert got == data


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def test_service(sandbox):
    port = free_port()
    sandbox.write("index.html", b"inside")
    handle = sandbox.run(f"exec python3 -m http.server {port} --bind 127.0.0.1", wait=False, timeout=0)
    service = sandbox.service(port)
    until("the service answers", lambda: service.get("/index.html", timeout=PATIENCE).status_code == 200)
    assert service.get("/index.html", timeout=PATIENCE).text == "inside"
    handle.kill()
