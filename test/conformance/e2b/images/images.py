"""Templates from images, by the PyPI package. images_linux_test.go runs it."""

import os
import tempfile

from e2b import Sandbox, Template
from e2b.exceptions import BuildException

name = f"py-{os.getpid()}"


def said(template, command):
    sbx = Sandbox.create(template, timeout=300)
    try:
        return sbx.commands.run(command).stdout
    finally:
        sbx.kill()


def refused(template, text):
    try:
        Template.build(template, f"{name}-refused")
    except BuildException as e:
        assert text in str(e), e
    else:
        raise AssertionError(f"it is built; wanted {text}")


with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "copied.txt"), "w") as f:
        f.write("of the builder\n")
    steps = (
        Template(file_context_path=folder)
        .from_image("ubuntu:22.04")
        .copy("copied.txt", "copied.txt")
        .run_cmd("echo $(id -u) $(pwd) $OF_IMAGE > made")
        .run_cmd("sudo mkdir /by-sudo")
    )
    Template.build(steps, f"{name}-steps")
    got = said(f"{name}-steps", "cat made copied.txt /etc/image; sudo id -u; sudo -u user id -u; stat -c %u /by-sudo")
    assert got == "1000 /home/user yes\nof the builder\nsmall\n0\n1000\n0\n", got

    file = 'FROM ubuntu:22.04\nENV COLOUR=blue\nENV AT=/app PATH=/opt/$COLOUR:$PATH\nWORKDIR $AT\nCOPY copied.txt ./\nRUN echo $COLOUR $PATH > built\nUSER root\n'
    Template.build(Template(file_context_path=folder).from_dockerfile(file), f"{name}-file")
    got = said(f"{name}-file", "cat /app/built /app/copied.txt; id -u")
    assert got == "blue /opt/blue:/usr/bin:/bin\nof the builder\n0\n", got

private = os.environ["PRIVATE"]
refused(Template().from_image(private), "access denied")
Template.build(Template().from_image(private, username="me", password="secret-word"), f"{name}-private")
got = said(f"{name}-private", "cat /etc/image")
assert got == "small\n", got
refused(Template().from_image(private), "access denied")
refused(Template().from_image(os.environ["OWN"]), "no address that a sandbox may reach")
print("all of it")
