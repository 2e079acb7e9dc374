"""Files, health and metadata: by the package's Filesystem, and by plain requests where it says less."""

import email.utils
import os
import stat
import threading
from urllib.parse import quote

import pytest
import requests
from conftest import BASE, PATIENCE, ROOT, either, rest
from k8s_agent_sandbox.exceptions import SandboxRequestError


def at(path):
    return "/files/" + quote(path, safe="")


def refused(r, status, code):
    assert (r.status_code, r.headers["Content-Type"]) == (status, "application/json"), r.text
    assert r.json()["code"] == code and r.json()["message"], r.text


# What the package has.


@pytest.mark.parametrize("path", ["a.txt", "deep/er/b.txt", "with space.txt", "näme ☃.txt", "100%/a+b&c=d#e?f", ".hidden"])
def test_write_read_list_exists_delete(files, name, path):
    path = f"{name}/{path}"
    assert not files.exists(path)
    files.write(path, b"\x00bytes\xff")
    assert files.read(path) == b"\x00bytes\xff" and files.exists(path)
    files.write(path, "text ☃")
    assert files.read(path).decode() == "text ☃"
    parent, base = os.path.split(path)
    (entry,) = files.list(parent)
    assert (entry.name, entry.size, entry.type) == (base, len("text ☃".encode()), "file")
    files.delete(path)
    assert not files.exists(path) and files.list(parent) == []


def test_large_files_by_streams(files, name, tmp_path):
    content = os.urandom(1 << 20) * 24
    (tmp_path / "up").write_bytes(content)
    with open(tmp_path / "up", "rb") as up:
        files.write(f"{name}/large", up)
    assert files.read(f"{name}/large") == content


def test_the_package_reports_what_fails(files, name):
    with pytest.raises(SandboxRequestError):
        files.read(f"{name}/none")
    with pytest.raises(SandboxRequestError):
        files.delete(f"{name}/none")
    with pytest.raises(Exception):
        files.read("../../etc/passwd")


# Health, metadata, and what the mux decides.


def test_health_and_metadata():
    health = rest("GET", "/health")
    assert health.headers["Content-Type"] == "application/json"
    assert health.json()["status"] == "ok" and isinstance(health.json()["uptime_seconds"], int)
    env = rest("GET", "/metadata").json()["env"]
    assert env == {"SANDBOX_SHOWN": "yes"}


@pytest.mark.parametrize(
    "method, path, status",
    [("GET", "/none", 404), ("POST", "/files/a", 405), ("POST", "/health", 405), ("GET", "/files", 307), ("GET", "/files/a/../b", 307)],
)
def test_what_the_mux_answers(method, path, status):
    with requests.Session() as s:  # requests would clean the path
        r = requests.Request(method, BASE).prepare()
        r.url = BASE + path
        r = s.send(r, timeout=PATIENCE, allow_redirects=False)
    assert r.status_code == status
    if status == 405:
        assert r.headers["Allow"] == ("DELETE, GET, HEAD, PUT" if "files" in path else "GET, HEAD")


# Reading.


def test_reading_a_file(name):
    assert rest("PUT", at(f"{name}/f"), data=b"hello").status_code == 204
    r = rest("GET", at(f"{name}/f"))
    assert (r.status_code, r.content, r.headers["Content-Type"]) == (200, b"hello", "application/octet-stream")
    assert (r.headers["Content-Length"], r.headers["Accept-Ranges"]) == ("5", "bytes")
    changed = r.headers["Last-Modified"]
    assert email.utils.parsedate_to_datetime(changed).timestamp() == int(os.stat(f"{ROOT}/{name}/f").st_mtime)
    head = rest("HEAD", at(f"{name}/f"))
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, "5", b"")
    part = rest("GET", f"/files/{name}/f", headers={"Range": "bytes=1-2"})
    assert (part.status_code, part.content, part.headers["Content-Range"]) == (206, b"el", "bytes 1-2/5")
    assert rest("GET", at(f"{name}/f"), headers={"Range": "bytes=9-"}).status_code == 416
    assert rest("GET", at(f"{name}/f"), headers={"If-Modified-Since": changed}).status_code == 304
    assert rest("GET", at(f"{name}/f"), headers={"If-Range": changed, "Range": "bytes=0-0"}).status_code == 206
    assert ("ETag" in r.headers) == either(True, False)


def test_listing_a_directory(name):
    d = f"{ROOT}/{name}"
    os.mkdir(f"{d}/sub", 0o750)
    for base, mode in (("z", 0o600), ("a", 0o755)):
        with open(f"{d}/{base}", "wb") as f:
            f.write(b"123")
        os.chmod(f"{d}/{base}", mode)
    os.mkfifo(f"{d}/pipe", 0o644)
    os.symlink("a", f"{d}/link")
    os.symlink("none", f"{d}/dead")
    os.symlink("/etc", f"{d}/out")
    listed = rest("GET", at(name)).json()
    assert listed["path"] == "/" + name
    got = [(e["name"], e["type"], e["mode"], e["size"] if e["type"] == "file" else None) for e in listed["entries"]]
    assert got == [
        ("a", "file", "0755", 3), ("link", "file", "0755", 3), ("pipe", "file", "0644", 0), ("sub", "directory", "0750", None), ("z", "file", "0600", 3),
    ]  # fmt: skip
    assert all(e["modified_at"].endswith("Z") and len(e["modified_at"]) == len("2026-01-02T15:04:05Z") for e in listed["entries"])
    assert rest("GET", at(f"{name}/sub")).json() == {"path": f"/{name}/sub", "entries": []}
    assert rest("HEAD", at(name)).status_code == 200
    assert any(e["name"] == name for e in rest("GET", "/files/").json()["entries"])


def test_a_pipe_is_not_waited_for(name):
    os.mkfifo(f"{ROOT}/{name}/pipe")
    if either(True, False):  # the original waits for a writer
        refused(rest("GET", at(f"{name}/pipe")), 400, "INVALID_ARGUMENT")


# Writing.


def test_writing_replaces_atomically_with_its_mode(name):
    path = f"{ROOT}/{name}/f"
    assert rest("PUT", at(f"{name}/f"), data=b"one").status_code == 204
    before = os.stat(path)
    assert stat.S_IMODE(before.st_mode) == 0o644
    with open(path, "rb") as old:
        assert rest("PUT", at(f"{name}/f") + "?mode=0400", data=b"two").status_code == 204
        assert old.read() == b"one"
    after = os.stat(path)
    assert stat.S_IMODE(after.st_mode) == 0o400 and after.st_ino != before.st_ino
    assert rest("PUT", at(f"{name}/f"), data=b"").status_code == 204
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644 and os.listdir(f"{ROOT}/{name}") == ["f"]


def test_missing_parents_are_made(name):
    assert rest("PUT", at(f"{name}/x/y/z"), data=b"1").status_code == 204
    assert stat.S_IMODE(os.stat(f"{ROOT}/{name}/x/y").st_mode) == 0o755


def test_forms(name):
    form = {"x": ("n", b"1"), "file": ("other/name", b"DATA"), "y": ("n", b"2")}
    assert rest("PUT", at(f"{name}/f"), files=form).status_code == 204
    assert rest("GET", at(f"{name}/f")).content == b"DATA" and os.listdir(f"{ROOT}/{name}") == ["f"]
    refused(rest("PUT", at(f"{name}/g"), files={"x": ("n", b"1")}), 400, "INVALID_ARGUMENT")
    refused(rest("PUT", at(f"{name}/g"), data=b"", headers={"Content-Type": "multipart/form-data"}), 400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("mode", ["644", "1644", "0888", "00644", "rw", "-644", "+644", "0o44"])
def test_bad_modes(name, mode):
    refused(rest("PUT", at(f"{name}/f") + "?mode=" + quote(mode), data=b""), 400, "INVALID_ARGUMENT")
    assert os.listdir(f"{ROOT}/{name}") == []


def test_what_cannot_be_written(name):
    os.mkdir(f"{ROOT}/{name}/d")
    refused(rest("PUT", at(f"{name}/d"), data=b""), 400, "INVALID_ARGUMENT")
    open(f"{ROOT}/{name}/f", "w").close()
    refused(rest("PUT", at(f"{name}/f/x"), data=b""), either(400, 500), either("INVALID_ARGUMENT", "INTERNAL"))
    for path in (f"{name}/a%00b", f"{name}/" + "a" * 300):
        refused(rest("PUT", "/files/" + path.replace("/", "%2F"), data=b""), either(400, 500), either("INVALID_ARGUMENT", "INTERNAL"))


def test_an_upload_that_breaks_off_leaves_the_old_file(name):
    assert rest("PUT", at(f"{name}/f"), data=b"old").status_code == 204

    def broken():
        yield b"x" * (1 << 20)
        raise RuntimeError("broken off")

    with pytest.raises(RuntimeError):
        rest("PUT", at(f"{name}/f"), data=broken())
    assert rest("GET", at(f"{name}/f")).content == b"old"


def test_many_write_one_file(name):
    contents = [bytes([65 + i]) * 300_000 for i in range(6)]
    threads = [threading.Thread(target=rest, args=("PUT", at(f"{name}/f")), kwargs={"data": c}) for c in contents]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert rest("GET", at(f"{name}/f")).content in contents and os.listdir(f"{ROOT}/{name}") == ["f"]


def test_conditions_of_a_write(name):
    """An addition of tend."""
    if not either(True, False):
        return
    first = rest("PUT", at(f"{name}/f"), data=b"1", headers={"If-None-Match": "*"})
    assert first.status_code == 204
    refused(rest("PUT", at(f"{name}/f"), data=b"2", headers={"If-None-Match": "*"}), 412, "FAILED_PRECONDITION")
    tag = rest("HEAD", at(f"{name}/f")).headers["ETag"]
    assert tag == first.headers["ETag"]
    assert rest("PUT", at(f"{name}/f"), data=b"2", headers={"If-Match": tag}).status_code == 204
    refused(rest("PUT", at(f"{name}/f"), data=b"3", headers={"If-Match": tag}), 412, "FAILED_PRECONDITION")
    refused(rest("PUT", at(f"{name}/f"), data=b"3", headers={"If-Match": "W/x"}), 400, "INVALID_ARGUMENT")
    assert rest("GET", at(f"{name}/f")).content == b"2"


# Removing.


def test_removing(name):
    d = f"{ROOT}/{name}"
    os.makedirs(f"{d}/full/sub")
    open(f"{d}/f", "w").close()
    refused(rest("DELETE", at(f"{name}/none")), 404, "NOT_FOUND")
    refused(rest("DELETE", at(f"{name}/none") + "?recursive=true"), 404, "NOT_FOUND")
    refused(rest("DELETE", at(f"{name}/full")), 409, "CONFLICT")
    refused(rest("DELETE", at(f"{name}/full") + "?recursive=maybe"), 400, "INVALID_ARGUMENT")
    refused(rest("DELETE", "/files/"), 409, "CONFLICT")
    assert rest("DELETE", at(f"{name}/f")).status_code == 204
    assert rest("DELETE", at(f"{name}/full/sub")).status_code == 204
    os.makedirs(f"{d}/full/sub")
    assert rest("DELETE", at(f"{name}/full") + "?recursive=1").status_code == 204
    assert os.listdir(d) == []


def test_removing_a_link(name):
    d = f"{ROOT}/{name}"
    open(f"{d}/f", "w").close()
    os.symlink("f", f"{d}/link")
    os.symlink("/etc", f"{d}/out")
    assert rest("DELETE", at(f"{name}/link")).status_code == 204
    assert os.listdir(d).count("link") == either(0, 1) and os.path.exists(f"{d}/f") == either(True, False)
    r = rest("DELETE", at(f"{name}/out") + "?recursive=true")
    assert r.status_code == either(204, 403) and os.path.exists("/etc/passwd")


# Paths.


def test_paths_are_kept_to_the_root(name):
    d = f"{ROOT}/{name}"
    with open(f"{ROOT}-beside", "w") as f:
        f.write("secret")
    os.symlink("/etc/passwd", f"{d}/passwd")
    os.symlink("/etc", f"{d}/etc")
    os.symlink("../../" + os.path.basename(ROOT) + "-beside", f"{d}/beside")
    for path in ("..%2F..%2Fetc%2Fpasswd", f"{name}%2F..%2F..%2F..%2Fetc", f"{name}%2Fpasswd", f"{name}%2Fetc%2Fpasswd", f"{name}%2Fbeside",
                 f"{name}%2Fetc%2Fnone", f"{name}%2Fetc%2Fnone%2Fnone", "..%2F" + os.path.basename(ROOT) + "-beside"):  # fmt: skip
        refused(rest("GET", "/files/" + path), 403, "PERMISSION_DENIED")
        refused(rest("PUT", "/files/" + path, data=b"x"), 403, "PERMISSION_DENIED")
    with open(f"{ROOT}-beside") as f:
        assert f.read() == "secret"
    assert sorted(os.listdir(os.path.dirname(ROOT))).count(os.path.basename(ROOT)) == 1
    refused(rest("GET", "/files/%2Fetc%2Fpasswd"), 404, "NOT_FOUND")


def test_paths_below_the_root_may_be_absolute(name):
    rest("PUT", at(f"{name}/f"), data=b"1")
    assert rest("GET", at(f"{ROOT}/{name}/f")).content == b"1"
    assert rest("GET", at(f"/{name}/f")).content == b"1"
    assert rest("GET", at(f"{name}/./x/../f")).content == b"1"
    assert rest("GET", at(f"{name}/f/")).content == b"1"
    os.symlink(f"{ROOT}/{name}", f"{ROOT}/{name}/self")
    assert rest("GET", at(f"{name}/self/f")).content == b"1"


def test_a_write_over_a_link_replaces_its_target(name):
    d = f"{ROOT}/{name}"
    open(f"{d}/f", "w").close()
    os.symlink("f", f"{d}/link")
    assert rest("PUT", at(f"{name}/link"), data=b"new").status_code == 204
    with open(f"{d}/f", "rb") as f:
        assert os.path.islink(f"{d}/link") and f.read() == b"new"


def test_through_a_file(name):
    open(f"{ROOT}/{name}/f", "w").close()
    refused(rest("GET", at(f"{name}/f/x")), either(404, 500), either("NOT_FOUND", "INTERNAL"))


def test_pages_are_refused(name):
    """No client of the protocol is a web page."""
    r = rest("PUT", at(f"{name}/f"), data=b"x", headers={"Origin": "http://elsewhere.example"})
    assert r.status_code == either(403, 204)
