"""A Python kernel: it runs the cells of one context, in order, in an IPython shell."""
import builtins
import gc
import getpass
import importlib.abc
import importlib.util
import io
import os
import signal
import sys
import threading
import time

os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
if os.access(sys.prefix, os.W_OK):  # the list of fonts comes with the template
    os.environ.setdefault("MPLCONFIGDIR", os.path.join(sys.prefix, "matplotlib"))

import tend_formats as formats
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from tend_cells import MOST_STUBBORN, PATIENCE, PIECE, Cells, unread
from traitlets import Type
from traitlets.config import Config


class StdinNotImplementedError(RuntimeError):
    pass


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, **_):
        KERNEL.result(data, False)

    def clear_output(self, wait=False):
        pass


class Hook(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        KERNEL.result(format_dict, True)

    def finish_displayhook(self):
        pass


class Shell(InteractiveShell):
    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)

    def _showtraceback(self, etype, evalue, stb):
        try:
            value = str(evalue)
        except Exception as e:  # of the cell's own class
            value = f"<its text cannot be made: {type(e).__name__}>"
        KERNEL.event({"type": "error", "name": etype.__name__, "value": value, "traceback": "".join(stb)})

    def ask_exit(self):
        KERNEL.over = True

    def enable_gui(self, gui=None):
        pass


class Output(io.TextIOBase):
    """sys.stdout or sys.stderr: what is written within PATIENCE becomes one event."""
    encoding, errors, newlines, mode = "utf-8", "replace", None, "w"

    def __init__(self, kind, fd):
        self.kind, self.fd, self.name = kind, fd, f"<{kind}>"
        self.lock, self.parts, self.size = threading.RLock(), [], 0
        self.buffer = Bytes(self)

    def writable(self):
        return True

    def fileno(self):
        return self.fd

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if any(unread(fd) for fd in KERNEL.pipes.values()):  # of programs that have written before
            KERNEL.pass_on()
        with KERNEL, self.lock:
            self.parts.append(text)
            self.size += len(text)
            if self.size > PIECE:
                self.flush()
            elif len(self.parts) == 1:
                KERNEL.unflushed.set()
        return len(text)

    def flush(self):
        with KERNEL, self.lock:
            text, self.parts, self.size = "".join(self.parts), [], 0
            for i in range(0, len(text), PIECE):
                KERNEL.output(self.kind, text[i:i + PIECE])


class Bytes(io.RawIOBase):
    def __init__(self, text):
        self.text = text

    def writable(self):
        return True

    def write(self, data):
        self.text.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def flush(self):
        self.text.flush()


class Kernel(Cells):
    def __init__(self, shell, control, events, connection):
        super().__init__(control, events)
        self.shell, self.connection = shell, connection
        self.interruptible, self.stopped, self.heard = False, None, False
        self.over, self.warm = False, False
        self.critical, self.pending = 0, False
        self.unflushed = threading.Event()

    def __enter__(self):
        if threading.get_ident() == MAIN:
            self.critical += 1

    def __exit__(self, *_):
        if threading.get_ident() == MAIN:
            self.critical -= 1
            if self.pending and not self.critical:
                self.interrupted()

    def flush(self):
        for stream in self.streams:
            stream.flush()

    def result(self, bundle, main):
        encoded, left_out = formats.result(bundle, main)
        self.flush()
        if left_out:
            self.output("stderr", left_out)
        self.line(self.cell, encoded)

    def flusher(self):
        while True:
            self.unflushed.wait()
            time.sleep(PATIENCE)
            self.unflushed.clear()
            self.flush()

    def interrupt(self, left):
        first = self.stopped != self.running
        if first:
            self.stopped, self.heard = self.running, False  # it may not have begun to run
        if not self.heard or left == MOST_STUBBORN // 2:  # what the cell does about the first one may take a while
            signal.pthread_kill(MAIN, signal.SIGINT)
        for child in group() if first else ():
            try:
                os.kill(child, signal.SIGINT)
            except OSError:
                pass

    # Cells.

    def interrupted(self, *_):
        self.heard = self.interruptible
        self.pending = self.interruptible and self.critical > 0
        if self.interruptible and not self.critical:
            raise KeyboardInterrupt

    def execute(self, code):
        try:
            try:
                self.interruptible = True
                if self.stopped == self.cell:
                    raise KeyboardInterrupt
                self.shell.run_cell(code, store_history=True)
            finally:
                self.interruptible = False
        except KeyboardInterrupt:  # outside of the code itself
            self.interruptible = False
            self.event({"type": "error", "name": "KeyboardInterrupt", "value": "", "traceback": "KeyboardInterrupt"})

    def serve(self):
        while not self.over:
            c = self.next()
            if self.warm:  # the variables of the sandbox are known now
                os.environ.update(c.get("base") or {})
                complete_environment()
                self.warm = False
            self.begin(self.shell.execution_count)
            before = {k: os.environ.get(k) for k in c.get("env") or {}}
            os.environ.update(c.get("env") or {})
            self.execute(c["code"])
            for k, v in before.items():
                if v is None:
                    os.environ.pop(k, None)
                else:
                    os.environ[k] = v
            self.end()

    def forked(self):
        """In a process that a cell has forked: its output goes the way of other programs."""
        sys.stdout, sys.stderr = open(1, "w", buffering=1, closefd=False), open(2, "w", buffering=1, closefd=False)
        for fd in (self.control, self.events, self.connection.fileno()):
            os.close(fd)

    def start(self):
        self.take_outputs()
        self.streams = sys.stdout, sys.stderr = Output("stdout", 1), Output("stderr", 2)
        sys.stdin = open(0, closefd=False)
        signal.signal(signal.SIGINT, self.interrupted)
        os.register_at_fork(after_in_child=self.forked)
        self.start_threads(lambda: self.commands(self.connection), self.flusher)
        self.ready()
        self.serve()


KERNEL = None
MAIN = threading.main_thread().ident


def group():
    """The other processes of the kernel's process group."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.getpgid(int(name)) == os.getpid():
                    yield int(name)
            except OSError:
                pass


def refuse_input(*_, **__):
    raise StdinNotImplementedError("raw_input was called, but this frontend does not support input requests.")


def saves_and_shows(save):
    """Image.save also shows the image, as in the original."""
    def saved(self, fp, *args, **kwargs):
        done = save(self, fp, *args, **kwargs)
        if isinstance(fp, (str, os.PathLike)) and KERNEL and KERNEL.interruptible:
            from IPython.display import display

            display(self)
        return done

    return saved


def after_import(name, do):
    """Calls do with a module once it is imported, by whomever."""
    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, wanted, path, target=None):
            if wanted != name:
                return None
            sys.meta_path.remove(self)
            if (spec := importlib.util.find_spec(name)) and spec.loader:
                load = spec.loader.exec_module
                spec.loader.exec_module = lambda module: (load(module), do(module))
            return spec

    sys.meta_path.insert(0, Finder())


def with_charts(module):
    module.Figure._repr_e2b_chart_ = formats.chart  # its formatters are taken away when a format of figures is chosen


def with_shown_images(module):
    module.Image.save = saves_and_shows(module.Image.save)


# Not pandas and e2b_charts: they would take a third of the memory of all these, in each sandbox; cells that need them import them.
OFTEN = ("numpy", "PIL.Image", "matplotlib.figure", "matplotlib.pyplot", "matplotlib_inline.backend_inline", "orjson")


def prepare():
    """Makes the shell."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.history_load_length = 0
    shell = Shell.instance(config=config)
    shell.confirm_exit = False
    formats.register(shell.display_formatter.formatters)
    builtins.input = getpass.getpass = refuse_input
    after_import("matplotlib.figure", with_charts)
    after_import("PIL.Image", with_shown_images)
    return shell


def imports():
    """Imports what cells often need, one at each step; what is not installed is left out."""
    for name in OFTEN:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
        gc.collect()
        gc.freeze()  # pages stay shared with the kernels
        yield


def complete_environment():
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    own = os.path.dirname(sys.executable)
    if own not in os.environ.get("PATH", "").split(":"):  # !pip is that of this Python
        os.environ["PATH"] = f"{own}:{os.environ.get('PATH', os.defpath)}"


def run(shell, fds, connection, start):
    """Becomes a kernel, in a fork of the zygote."""
    global KERNEL
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update({k: v for k, v in start["env"].items() if k and "=" not in k})
    complete_environment()
    os.chdir(start["cwd"])
    for fd in (*fds, connection.fileno()):
        os.set_inheritable(fd, False)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    KERNEL = Kernel(shell, *fds, connection)
    if start.get("warm"):
        KERNEL.warm = True
        shell.run_cell("pass", silent=True)  # the pages that a cell writes are its own then
    KERNEL.start()
