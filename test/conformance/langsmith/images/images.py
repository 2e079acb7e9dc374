"""Snapshots of images, by the PyPI package. images_linux_test.go runs it."""

import os

from langsmith.sandbox import SandboxClient

client = SandboxClient(api_endpoint=os.environ["URL"] + "/v2/sandboxes", api_key="any", timeout=120)


def said(snapshot):
    box = client.create_sandbox(snapshot_id=snapshot)
    try:
        got = box.run("echo $(id -u) $(pwd) $OF_IMAGE $MORE")
        assert got.exit_code == 0, got
        return got.stdout
    finally:
        box.delete()


def refused(text, *args, **options):
    try:
        client.create_snapshot(*args, **options)
    except Exception as e:
        assert text in str(e), e
    else:
        raise AssertionError(f"it is made; wanted {text}")


made = client.create_snapshot("slim", "python:3.12-slim", 1 << 30, timeout=120)
assert (made.name, made.status) == ("slim", "ready"), made
assert said(made.id) == "33 /srv yes\n", said(made.id)
assert said("slim:3.12-slim") == "33 /srv yes\n"
root = client.create_snapshot("slim", "python:3.12-slim", 1 << 30, tag="root", run_config={"user": "0", "env_vars": {"MORE": "more"}}, timeout=120)
assert said(root.id) == "0 /srv yes more\n", said(root.id)
refused("no address that a sandbox may reach", "own", os.environ["OWN"], 1 << 30)
refused("were asked for", "small", "python:3.12-slim", 1 << 10)
refused("registry_id is not supported", "closed", "python:3.12-slim", 1 << 30, registry_id="r")
client.delete_snapshot(made.id)

# The default snapshot of deepagents' command line, which it makes if there is none of that name.
assert not [s for s in client.list_snapshots() if s.name == "deepagents-code"]
made = client.create_snapshot(name="deepagents-code", docker_image="python:3", fs_capacity_bytes=16 * 1024**3, timeout=600)
assert [(s.id, s.status) for s in client.list_snapshots() if s.name == "deepagents-code"] == [(made.id, "ready")]
assert said(made.id) == "33 /srv yes\n", said(made.id)
print("all of it")
