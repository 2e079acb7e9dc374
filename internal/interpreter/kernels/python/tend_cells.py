"""What kernels of all languages have in common: the queue of cells, the lines that go to tend, and the output of programs.

It reads lines of JSON, and writes lines "CELL JSON", where JSON is an event of the protocol:

    {"cell": ID, "code": …, "env": {…}}   run this
    {"cancel": ID}                        interrupt it, or forget it if it has not begun

The first line, of the cell "-", says that the kernel is ready; others of "-" have the code of the cell that begins. Any line is whole or, if the kernel was killed, not ended.
"""
import codecs
import collections
import datetime
import fcntl
import json
import os
import selectors
import signal
import struct
import termios
import threading
import time

PIECE = 64 << 10     # bytes of one event of output
PATIENCE = 0.01      # seconds that output waits for more
MOST_WAITING = 1000  # cells
SHOWN = 16 << 10  # letters of a cell's code that readers of the whole context are shown
MOST_PIECES = 1000   # of one pipe, while a cell waits for them
MOST_STUBBORN = 10   # whole seconds that an interrupted cell may go on; then its kernel is killed
LIMIT = 32 << 20     # bytes of one result as JSON


class Cells:
    def __init__(self, control, events):
        self.control, self.events = control, events
        self.lock = threading.Lock()        # of events
        self.cell = "-"                     # that events are of: the one that runs, or was the last
        self.running = None                 # guarded by state
        self.waiting = collections.deque()  # guarded by state
        self.state = threading.Condition()
        self.piped, self.pipes, self.decoders = threading.Lock(), {}, {}

    def __enter__(self):
        """No interrupt comes in between: a line would be torn, or lost."""

    def __exit__(self, *_):
        pass

    # Events.

    def line(self, cell, text):
        data = memoryview(f"{cell} {text}\n".encode("utf-8", "backslashreplace"))
        with self, self.lock:
            while data:
                data = data[os.write(self.events, data):]

    def flush(self):
        """Writes what the cell has printed, before what follows it."""

    def event(self, event):
        self.flush()
        self.line(self.cell, json.dumps(event))

    def output(self, kind, text):
        at = datetime.datetime.now(datetime.timezone.utc).isoformat()
        self.line(self.cell, json.dumps({"type": kind, "text": text, "timestamp": at}))

    def ready(self):
        self.line("-", json.dumps({"type": "ready", "pid": os.getpid()}))

    def begin(self, count):
        self.line("-", json.dumps({"type": "code", "cell": self.cell, "code": self.code[:SHOWN]}))
        self.line(self.cell, json.dumps({"type": "number_of_executions", "execution_count": count}))

    def end(self):
        self.pass_on()  # what the cell's programs have written comes before its end
        with self.state:
            self.running = None
        self.event({"type": "end_of_execution"})

    # The output of programs that cells start: file descriptors 1 and 2 are pipes.

    def take_outputs(self):
        for kind, fd in (("stdout", 1), ("stderr", 2)):
            self.pipes[kind], w = os.pipe()  # w stays open, whatever cells close
            os.dup2(w, fd)
            self.decoders[kind] = codecs.getincrementaldecoder("utf-8")("replace")
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

    def children(self):
        wait = selectors.DefaultSelector()
        for fd in self.pipes.values():
            wait.register(fd, selectors.EVENT_READ)
        while True:
            wait.select()
            if not any(unread(fd) >= PIECE // 2 for fd in self.pipes.values()):
                time.sleep(PATIENCE)  # lines that are written together are one event
            self.pass_on()

    def pass_on(self):
        """Passes on what the pipes hold, after what the cell itself has written before."""
        with self, self.piped:
            for kind, fd in self.pipes.items():
                for _ in range(MOST_PIECES):
                    if not unread(fd):
                        break
                    self.flush()
                    if text := self.decoders[kind].decode(os.read(fd, PIECE)):
                        self.output(kind, text)

    # Commands.

    def commands(self, connection=None):
        """Reads what this kernel shall do, also while a cell runs. It ends with the process that tend started, whose
        end of connection is closed then."""
        wait = selectors.DefaultSelector()
        wait.register(self.control, selectors.EVENT_READ)
        if connection:
            wait.register(connection, selectors.EVENT_READ)
        held = b""
        while True:
            for key, _ in wait.select():
                if key.fileobj is connection:
                    self.die()
                data = os.read(self.control, 1 << 20)
                if not data:
                    wait.unregister(self.control)
                *lines, held = (held + data).split(b"\n")
                for line in lines:
                    try:
                        self.command(json.loads(line))
                    except ValueError:  # it is empty, or was torn when its writer was killed
                        pass

    def command(self, c):
        with self.state:
            if "cell" in c:
                if len(self.waiting) < MOST_WAITING:
                    self.waiting.append(c)
                    self.state.notify()
                    return
                self.abort(c["cell"], f"{MOST_WAITING} cells wait in this context already")
                return
            for waiting in self.waiting:
                if waiting["cell"] == c["cancel"]:
                    self.waiting.remove(waiting)
                    self.abort(c["cancel"], "the client left before the cell began")
                    return
            if self.running == c["cancel"]:
                self.interrupt(MOST_STUBBORN)
                self.insist(c["cancel"], MOST_STUBBORN - 1)

    def abort(self, cell, why):
        self.line(cell, json.dumps({"type": "error", "name": "ExecutionAborted", "value": why, "traceback": ""}))
        self.line(cell, '{"type": "end_of_execution"}')

    def insist(self, cell, left):
        """Interrupts again each second: a program loses a signal that comes before its exec, and Python sees one that
        comes right before a call that waits only after that call. In the end the kernel is killed: the cells after
        this one would wait without end."""
        again = threading.Timer(1, self.interrupt_again, [cell, left])
        again.daemon = True
        again.start()

    def interrupt_again(self, cell, left):
        with self.state:
            if self.running != cell:
                return
            if not left:
                self.die()
            self.interrupt(left)
        self.insist(cell, left - 1)

    def next(self):
        with self.state:
            while not self.waiting:
                self.state.wait()
            c = self.waiting.popleft()
            self.running = self.cell = c["cell"]
            self.code = c["code"]
            return c

    def start_threads(self, *targets):
        for target in (self.children, *targets):
            threading.Thread(target=target, daemon=True).start()

    def interrupt(self, left):
        """Interrupts the cell that runs, and the programs that it waits for, as by Ctrl-C. left: the seconds until the
        kernel is killed. self.state is held."""
        raise NotImplementedError

    def die(self):
        """Ends the kernel and the programs that it has started."""
        os.killpg(0, signal.SIGKILL)


def unread(fd):
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]


FIELDS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png",
    "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json",
    "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart",
}


def named(bundle, main):
    """The event of a bundle of MIME types, by the names of the protocol."""
    event, extra = {"type": "result"}, {}
    for mime, value in bundle.items():
        if value is None:
            continue
        if mime in FIELDS:
            event[FIELDS[mime]] = value
        else:
            extra[mime] = value
    text = event.get("text")
    if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        event["text"] = text[1:-1]
    return {**event, "extra": extra, "is_main_result": main}
