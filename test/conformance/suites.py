"""What the suites in Python that run programs by the command line share."""
import random
import socket
import time

LIMIT = 300  # seconds until what must happen has happened; it only ends what fails, on a machine that is busy with other things


class Fail(Exception):
    pass


def free_port():
    """A port that nobody has now, below those that the kernel gives to whoever wants any: it may be used only later.
    It is no other suite's as long as this program runs, which a name of an abstract socket says."""
    while True:
        port = random.randrange(10000, 32768)
        mine = socket.socket(socket.AF_UNIX)
        with socket.socket() as s:
            try:
                mine.bind(f"\0tend-suite-port-{port}")
                s.bind(("127.0.0.1", port))
            except OSError:
                mine.close()
                continue
        held.append(mine)
        return port


held = []


def eventually(what, ok, every=0.1):
    """Waits until ok() is truthy, and returns what it gave. An ok that runs a program is asked less often: each answer takes CPU of what is waited for."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        found = ok()
        if found:
            return found
        time.sleep(every)
    raise Fail(f"not within {LIMIT} s: {what}")
