"""E2B's quick start for commands and files, as E2B prints it, and what else of a sandbox has a name."""

import json
import urllib.error
import urllib.request

from e2b import CommandExitException, Sandbox


def answer(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as res:
            return res.status, res.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


with Sandbox.create(timeout=300, secure=True) as sandbox:
    sandbox.commands.run('echo "Hello from E2B Sandbox!" > /home/user/hello.txt')
    assert sandbox.files.read("/home/user/hello.txt") == "Hello from E2B Sandbox!\n"
    sandbox.files.write("/home/user/a", "by name")
    assert [e.name for e in sandbox.files.list("/home/user") if e.name == "a"] == ["a"]
    try:
        sandbox.commands.run("echo out; exit 3")
        raise AssertionError("exit 3 is no error")
    except CommandExitException as e:
        assert (e.exit_code, e.stdout) == (3, "out\n")
    # A signed link, and the same for another file.
    link = sandbox.download_url("/home/user/a")
    assert link.startswith("https://49983-"), link
    assert answer(link) == (200, "by name")
    assert answer(link.replace("user%2Fa", "user%2Fhello.txt").replace("user/a", "user/hello.txt"))[0] == 401
    # A port, before and after a program listens.
    host = sandbox.get_host(31187)
    code, text = answer(f"https://{host}/")
    assert code == 502 and json.loads(text)["message"] == "The sandbox is running but port is not open", text
    server = sandbox.commands.run("python3 -m http.server 31187", background=True)
    sandbox.commands.run("for i in $(seq 100); do python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 31187))' && exit; sleep 0.1; done; exit 1")
    assert answer(f"https://{host}/hello.txt") == (200, "Hello from E2B Sandbox!\n")
    server.kill()

with Sandbox.create(timeout=300, network={"allow_public_traffic": False}) as private:
    url = f"https://{private.get_host(31188)}/"
    assert answer(url)[0] == 403
    assert answer(url, **{"E2b-Traffic-Access-Token": "wrong"})[0] == 403
    assert answer(url, **{"E2b-Traffic-Access-Token": private.traffic_access_token})[0] == 502
print("the quick start works by domain")
