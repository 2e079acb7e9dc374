"""A kernel of a language other than Python: host.py LANGUAGE. Without one it ends with NO_KERNEL.

The cells run in an engine, a program of the language, one after the other. It gets each cell on descriptor 98, and
writes its events on descriptor 99, as lines of JSON; stdout and stderr are the cells'. A first event "ready" says that
it can run cells, and "done" that a cell is over. An engine that ends takes the kernel with it.
"""
import fcntl
import glob
import json
import os
import signal
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "python"))

import tend_cells
from tend_cells import unread

CELLS, EVENTS = 98, 99  # descriptors of an engine
NO_KERNEL = 4


def as_json(c):
    return json.dumps({"code": c["code"], "env": c.get("env") or {}}).encode() + b"\n"


def as_fields(c):
    """How many variables, their names and values, and the code; each ends with a NUL."""
    env = c.get("env") or {}
    fields = [str(len(env)), *(word for pair in env.items() for word in pair), c["code"]]
    return b"".join(field.replace("\0", "").encode("utf-8", "surrogateescape") + b"\0" for field in fields)


def node(language):
    own = os.path.join(os.path.dirname(sys.executable), "node")
    return [own if os.access(own, os.X_OK) else "node", "--expose-internals", "--disable-warning=ExperimentalWarning",
            "--disable-warning=internal/test/binding", os.path.join(HERE, "engine.cjs"), language]


ENGINES = {
    "javascript": (node("javascript"), as_json),
    "typescript": (node("typescript"), as_json),
    "bash": (["bash", "--noprofile", "--norc", os.path.join(HERE, "engine.sh")], as_fields),
}


def jupyter(language):
    """The engine of a kernel that is installed as Jupyter has them, if there is one. If not, it says which are."""
    own = os.path.dirname(os.path.dirname(sys.executable))
    places = [f"{root}/share/jupyter/kernels/*/kernel.json" for root in (os.path.expanduser("~/.local"), own, "/usr/local", "/usr")]
    places.append("/usr/lib/R/site-library/IRkernel/kernelspec/kernel.json")  # of Debian's package
    found = {}
    for place in (os.path.dirname(spec) for pattern in places for spec in glob.glob(pattern)):
        name = os.path.basename(place).lower()
        found.setdefault("r" if name in ("ir", "kernelspec") else name, place)
    if place := found.get("r" if language == "ir" else language):
        return [sys.executable, "-I", os.path.join(HERE, "engine_jupyter.py"), place], as_json
    print(*sorted(found), file=sys.stderr)
    sys.exit(NO_KERNEL)


class Host(tend_cells.Cells):
    def __init__(self, argv, encode):
        super().__init__(os.dup(0), os.dup(1))
        self.encode = encode
        given, self.cells = os.pipe()
        self.said, saying = os.pipe()
        given, saying = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200) for fd in (given, saying))
        self.group = None
        self.errors = os.dup(2)  # until the engine has begun
        self.take_outputs()
        env = {"PATH": os.defpath, **os.environ}
        own = os.path.dirname(sys.executable)
        if own not in env["PATH"].split(":"):
            env["PATH"] = f"{own}:{env['PATH']}"
        dup2 = os.POSIX_SPAWN_DUP2
        try:
            self.engine = os.posix_spawnp(argv[0], argv, env, setpgroup=0, file_actions=[(dup2, given, CELLS), (dup2, saying, EVENTS)])
        except OSError as e:
            os.write(self.errors, f"{argv[0]}: {e.strerror}\n".encode())
            sys.exit(1)
        os.close(given)
        os.close(saying)
        threading.Thread(target=self.watch, daemon=True).start()
        self.events_of_engine = open(self.said, "rb")
        self.group = self.heard().get("group")  # it is ready, and may have a group of processes beside its own
        os.close(self.errors)
        self.errors = None
        for fd in self.pipes.values():  # what engines say as they begin
            while unread(fd):
                os.read(fd, tend_cells.PIECE)

    def watch(self):
        """Programs of cells may hold the engine's descriptors: that these are closed is no sign of its end."""
        os.waitpid(self.engine, 0)
        if self.errors is None:
            self.pass_on()
        else:  # it has not begun: what it has said is why
            for fd in self.pipes.values():
                while unread(fd):
                    os.write(self.errors, os.read(fd, tend_cells.PIECE))
        self.die()

    def heard(self):
        line = self.events_of_engine.readline()
        if not line.endswith(b"\n"):
            threading.Event().wait()  # for watch
        return json.loads(line)

    def die(self):
        for group in filter(None, (self.engine, self.group)):
            try:
                os.killpg(group, signal.SIGKILL)
            except OSError:
                pass
        os._exit(1)

    def interrupt(self, left):
        try:
            os.killpg(self.engine, signal.SIGINT)
        except OSError:
            pass

    def serve(self):
        self.start_threads(self.commands)
        self.ready()
        count = 0
        while True:
            c = self.next()
            count += 1
            self.begin(count)
            data = memoryview(self.encode(c))
            while data:
                data = data[os.write(self.cells, data):]
            while (event := self.heard())["type"] != "done":
                self.pass_on()
                self.event(within(event, self))
            self.end()


def within(event, kernel):
    """The event, without the values of a result that are too large together."""
    size = len(json.dumps(event))
    if size <= tend_cells.LIMIT:
        return event
    kernel.output("stderr", f"an event of {size >> 20} MiB is left out; {tend_cells.LIMIT >> 20} MiB are the limit. Write it to a file.\n")
    kept = {k: v for k, v in event.items() if k in ("type", "is_main_result", "extra", "name", "value")}
    return {**kept, "text": f"<left out: {size} bytes>"} if event["type"] == "result" else {**kept, "traceback": ""}


if __name__ == "__main__":
    Host(*(ENGINES.get(sys.argv[1]) or jupyter(sys.argv[1]))).serve()
