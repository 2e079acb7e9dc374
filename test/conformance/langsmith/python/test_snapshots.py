"""Boxes that are isolated, and snapshots of them."""

import uuid

import pytest
from conftest import ENDPOINT, until
from langsmith.sandbox import ResourceNotFoundError, ValidationError


def test_a_box_is_isolated(sandbox):
    # What is pid 1 inside, and a file that the machine does not get.
    got = sandbox.run("tr -d '\\0' < /proc/1/cmdline; echo; ls -d /proc/[0-9]* | wc -l; touch /usr/of-the-box && echo written")
    assert got.exit_code == 0 and got.stdout.splitlines()[2] == "written", got
    assert int(got.stdout.splitlines()[1]) < 10, got


def rules_of(client, box):
    """What the server says of the box's rules; the client's object leaves it out."""
    response = client._http.get(f"{ENDPOINT}/boxes/{box.name}")
    return response.json().get("proxy_config", {}).get("access_control")


ASK = r"""
import re, socket, sys
server = re.search(r"^nameserver (\S+)", open("/etc/resolv.conf").read(), re.M)[1]
name = b"".join(bytes([len(p)]) + p.encode() for p in sys.argv[1].split("."))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(100)
s.sendto(bytes([0, 1, 1, 0, 0, 1]) + bytes(6) + name + bytes([0, 0, 1, 0, 1]), (server, 53))
print(s.recv(512)[3] & 15)
"""


def refuses(box, name):
    """Whether the box's resolver refuses a name: that is before anybody is asked."""
    box.write("/tmp/ask.py", ASK)
    answer = box.run(f"python3 /tmp/ask.py {name}")
    assert answer.exit_code == 0, answer
    return int(answer.stdout) == 5  # REFUSED of RFC 1035


def test_a_box_reaches_what_its_rules_allow(client):
    allow = {"access_control": {"allow_list": ["*.example.com", r"~^api[0-9]+\.example\.org$", "203.0.113.9", "10.0.0.0/8"]}}
    box = client.create_sandbox(proxy_config=allow)
    try:
        assert rules_of(client, box) == allow["access_control"]
        for name, refused in {"other.example": True, "www.example.com": False, "api1.example.org": False, "api.example.org": True}.items():
            assert refuses(box, name) == refused, name
        client.update_sandbox(box.name, proxy_config={"access_control": {"deny_list": ["203.0.113.0/24"]}})
        assert rules_of(client, box) == {"deny_list": ["203.0.113.0/24"]}
        client.update_sandbox(box.name, proxy_config={"rules": []})
        assert rules_of(client, box) is None and not refuses(box, "other.example")
    finally:
        box.delete()
    with pytest.raises(ValidationError, match="proxy_config.access_control.deny_list"):
        client.create_sandbox(proxy_config={"access_control": {"deny_list": ["a b"]}})


def test_the_life_of_a_snapshot(client):
    name = f"kept-{uuid.uuid4().hex[:8]}"
    box = client.create_sandbox()
    try:
        box.write("file.txt", b"kept")
        assert box.run("echo of root > /root/f; sleep 1000 & echo started").exit_code == 0
        client.stop_sandbox(box.name)
        client.start_sandbox(box.name)
        assert box.read("file.txt") == b"kept"
        taken = box.capture_snapshot(name)
        assert taken.name == name and taken.status == "ready"
        box.write("file.txt", b"changed")
        assert client.get_snapshot(taken.id).name == name
        assert [s.id for s in client.list_snapshots(name_contains=name)] == [taken.id]
        for by in ({"snapshot_id": taken.id}, {"snapshot_name": name}):
            copy = client.create_sandbox(**by)
            try:
                assert copy.read("file.txt") == b"kept"
                assert copy.run("cat file.txt /root/f; ls /proc | grep -c '^[0-9]'").stdout.startswith("keptof root\n")
            finally:
                copy.delete()
        client.delete_snapshot(taken.id)
        with pytest.raises(ResourceNotFoundError):
            client.get_snapshot(taken.id)
        assert box.read("file.txt") == b"changed"
    finally:
        box.delete()


def test_tags_of_snapshots_move(client):
    name = f"tagged-{uuid.uuid4().hex[:8]}"
    box = client.create_sandbox(tag_value_ids=["b0000000-0000-4000-8000-000000000001", "other"])
    try:
        for text, tag in ((b"one", None), (b"two", "v2"), (b"three", None)):
            box.write("file.txt", text)
            taken = client.capture_snapshot(box.name, name, tag=tag)
            assert taken.name == name and taken.tags == [tag or "latest"]
        tags = {t.tag: t.snapshot_id for t in client.list_snapshot_tags(name)}
        assert set(tags) == {"latest", "v2"} and tags["latest"] == taken.id
        for reference, text in ((name, b"three"), (f"{name}:latest", b"three"), (f"{name}:v2", b"two"), (tags["v2"], b"two")):
            assert client.get_snapshot(reference).name == name
            copy = client.create_sandbox(snapshot=reference)
            try:
                assert copy.read("file.txt") == text, reference
            finally:
                copy.delete()
        assert sorted(len(s.tags) for s in client.list_snapshots(name_contains=name)) == [0, 1, 1]  # the first is there by its ID
        for missing in (f"{name}:v3", f"no-{name}"):
            with pytest.raises(ResourceNotFoundError):
                client.get_snapshot(missing)
        with pytest.raises(ResourceNotFoundError):
            client.list_snapshot_tags(f"no-{name}")
        found = client._http.get(f"{ENDPOINT}/boxes", params={"tag_value_id": "other", "name_contains": box.name}).json()["sandboxes"]
        assert [b["tag_value_ids"] for b in found] == [["b0000000-0000-4000-8000-000000000001", "other"]]
    finally:
        for snapshot in client.list_snapshots(name_contains=name):
            client.delete_snapshot(snapshot.id)
        box.delete()


def test_sizes_are_enforced_and_told(client):
    box = client.create_sandbox(vcpus=1, mem_bytes=128 << 20, idle_ttl_seconds=600, delete_after_stop_seconds=1200)
    try:
        assert box.vcpus == 1 and box.mem_bytes == 128 << 20
        assert (box.idle_ttl_seconds, box.delete_after_stop_seconds) == (600, 1200)
        assert box.run("python3 -c 'bytearray(400 << 20)'").exit_code != 0
        assert until("it runs on", lambda: box.run("echo on").stdout) == "on\n"
    finally:
        box.delete()
