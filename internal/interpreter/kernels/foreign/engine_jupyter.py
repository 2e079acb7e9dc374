"""The engine of a language whose kernel is installed as Jupyter has them: engine_jupyter.py DIR, where its kernel.json is.

It runs that kernel, and speaks Jupyter's messaging protocol with it, version 5: over TCP of the sandbox's own loopback, with a
key that the kernel gets in a file. See host.py for what it speaks to the other side.
"""
import ctypes
import datetime
import hashlib
import hmac
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "python"))

import tend_cells
import zmq

CELLS, EVENTS = 98, 99
DELIMITER = b"<IDS|MSG>"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
PR_SET_PDEATHSIG = 1

# How variables are set and taken away, by the language of the kernel. A string of JSON is one of these languages, too.
VARIABLES = {
    "R": (lambda k, v: f"Sys.setenv({text(k, False)} = {text(v, False)})", lambda k: f"Sys.unsetenv({text(k, False)})"),
    "java": (lambda k, v: f"System.setProperty({text(k)}, {text(v)});", lambda k: f"System.clearProperty({text(k)});"),
    "python": (lambda k, v: f"__import__('os').environ[{text(k)}] = {text(v)}", lambda k: f"__import__('os').environ.pop({text(k)}, None)"),
}


def text(value, ascii_only=True):
    return json.dumps(value.replace("\0", ""), ensure_ascii=ascii_only)


def say(event):
    data = memoryview(json.dumps(event).encode() + b"\n")
    while data:
        data = data[os.write(EVENTS, data):]


def end_with_parent(by=signal.SIGKILL, prctl=ctypes.CDLL(None).prctl):
    prctl(PR_SET_PDEATHSIG, by)


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Kernel:
    def __init__(self, place):
        with open(os.path.join(place, "kernel.json"), encoding="utf-8") as f:
            self.spec = json.load(f)
        self.key, self.session = uuid.uuid4().hex, uuid.uuid4().hex
        names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
        ports = dict(zip(names, free_ports(len(names))))
        own = tempfile.mkdtemp(prefix=".tend-kernel-")
        connection = os.path.join(own, "connection.json")
        with open(connection, "w", encoding="utf-8") as f:
            json.dump({**ports, "ip": "127.0.0.1", "transport": "tcp", "key": self.key, "signature_scheme": "hmac-sha256"}, f)
        given = {"connection_file": connection, "resource_dir": place}
        argv = [re.sub(r"\{(connection_file|resource_dir)\}", lambda m: given[m[1]], a) for a in self.spec["argv"]]
        if re.fullmatch(r"python3?(\.\d+)?", argv[0]) and not shutil.which(argv[0]):
            argv[0] = sys.executable
        # In a group of its own: what interrupts this process may end the kernel.
        env = {**os.environ, **self.spec.get("env", {})}
        self.process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        process_group=0, preexec_fn=end_with_parent)
        self.begun = self.runs = False
        for target in (self.drain, self.watch):
            threading.Thread(target=target, daemon=True).start()
        context = zmq.Context()
        self.shell, self.control, self.iopub = (context.socket(kind) for kind in (zmq.DEALER, zmq.DEALER, zmq.SUB))
        self.iopub.subscribe(b"")
        for s, name in ((self.shell, "shell_port"), (self.control, "control_port"), (self.iopub, "iopub_port")):
            s.linger = 0
            s.set_hwm(0)
            s.connect(f"tcp://127.0.0.1:{ports[name]}")
        self.begin()
        self.begun = True
        shutil.rmtree(own, ignore_errors=True)

    def drain(self):
        """What the kernel itself writes is no output of cells, as with Jupyter. If it does not begin, it says why."""
        while data := self.process.stdout.read1(1 << 16):
            if not self.begun:
                os.write(2, data)

    def watch(self):
        """If the kernel ends, so does this context. While a cell runs, receive does it, when it has all messages."""
        self.process.wait()
        if self.begun and not self.runs:
            self.end()

    def end(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            pass
        os._exit(1)

    def send(self, where, kind, content):
        header = {"msg_id": uuid.uuid4().hex, "session": self.session, "username": "", "msg_type": kind, "version": "5.3",
                  "date": datetime.datetime.now(datetime.timezone.utc).isoformat()}
        parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
        where.send_multipart([DELIMITER, self.sign(parts), *parts])
        return header["msg_id"]

    def sign(self, parts):
        mac = hmac.new(self.key.encode(), digestmod=hashlib.sha256)
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()

    def receive(self, wait, *sockets):
        """What has come within wait ms: where, the header, the ID of what it answers, the content; or nothing."""
        ready = zmq.select(list(sockets), [], [], wait / 1000)[0]
        if not ready and self.process.poll() is not None:
            self.end()
        for s in ready:
            frames = s.recv_multipart()
            at = frames.index(DELIMITER)
            if not hmac.compare_digest(self.sign(frames[at + 2:at + 6]), frames[at + 1]):
                continue
            header, parent, _, content = map(json.loads, frames[at + 2:at + 6])
            yield s, header, parent.get("msg_id"), content

    def begin(self):
        """Waits until the kernel answers, and this process hears what it publishes."""
        heard = set()
        while len(heard) < 2:
            self.send(self.shell, "kernel_info_request", {})
            for s, _, _, _ in self.receive(500, self.shell, self.iopub):
                heard.add(s)
        if self.spec.get("language", "").lower() == "java":  # a program of Java reads properties where others have variables
            self.set_variables(dict(os.environ))

    def interrupt(self, *_):
        if self.spec.get("interrupt_mode") == "message":
            self.send(self.control, "interrupt_request", {})
        else:
            os.killpg(self.process.pid, signal.SIGINT)

    def execute(self, code, tell):
        asked = self.send(self.shell, "execute_request", {
            "code": code, "silent": tell is None, "store_history": tell is not None, "user_expressions": {},
            "allow_stdin": False, "stop_on_error": True})
        idle = answered = False
        while not (idle and answered):
            for _, header, of, content in self.receive(500, self.shell, self.iopub):
                if of != asked:
                    continue
                kind = header["msg_type"]
                if kind == "execute_reply":
                    answered = True
                elif kind == "status":
                    idle = idle or content["execution_state"] == "idle"
                elif tell:
                    tell(kind, content, header)

    def set_variables(self, values):
        """Sets variables, or takes them away that are None. It returns whether it can."""
        make = VARIABLES.get(self.spec.get("language", ""))
        if make and values:
            self.execute("\n".join(make[1](k) if v is None else make[0](k, v) for k, v in values.items()), None)
        return make or not values

    def run(self, cell):
        self.runs = True
        if not self.set_variables(cell["env"]):
            why = f"[variables of a cell are not set in kernels of {self.spec.get('language')}]\n"
            say({"type": "stderr", "text": why, "timestamp": ""})
        self.execute(cell["code"], told)
        self.set_variables({k: os.environ.get(k) for k in cell["env"]})
        say({"type": "done"})
        self.runs = False
        if self.process.returncode is not None:
            self.end()


def told(kind, content, header):
    if kind == "stream":
        say({"type": content["name"], "text": content["text"], "timestamp": header.get("date", "")})
    elif kind in ("display_data", "execute_result"):
        say(tend_cells.named(content["data"], kind == "execute_result"))
    elif kind == "error":
        traceback = COLOURS.sub("", "".join(content["traceback"]))
        say({"type": "error", "name": content["ename"], "value": content["evalue"], "traceback": traceback})


if __name__ == "__main__":
    running = None
    signal.signal(signal.SIGINT, lambda *_: running and running.interrupt())
    kernel = Kernel(sys.argv[1])
    signal.signal(signal.SIGTERM, kernel.end)
    end_with_parent(signal.SIGTERM)  # also while a cell runs
    with open(CELLS, encoding="utf-8") as cells:
        say({"type": "ready", "group": kernel.process.pid})
        for line in cells:
            running = kernel
            kernel.run(json.loads(line))
            running = None
    kernel.end()
