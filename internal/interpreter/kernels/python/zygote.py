"""The process of a sandbox from which Python kernels are forked, and the program that asks for one.

    zygote.py             the zygote: it imports what cells need, once, and forks a kernel for each connection
    zygote.py attach      a kernel: it gives its stdin and stdout to a fork of the zygote, and becomes cat; without a
                          zygote it ends with NO_ZYGOTE
    zygote.py attach wait the same, but it waits for the zygote
    zygote.py attach wait warm
                          the same, but it also waits until everything is imported

The kernel runs in the zygote's tree. What tend started is the cat: it lives for as long as the kernel, because it waits
for the end of their connection. If tend kills it, the kernel's end follows. If the zygote dies, its kernels stay.
"""
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time

SOCKET = f"/tmp/.tend-code-interpreter-{os.getuid()}"
NO_ZYGOTE = 3
PATIENCE = 60  # seconds that attach waits for the zygote: its first imports may come from a cold disk
HEAD = struct.Struct("!I")


def attach(patience, warm):
    kernel = connect(patience)
    start = json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "warm": warm}).encode()
    socket.send_fds(kernel, [HEAD.pack(len(start))], [0, 1])
    kernel.sendall(start)
    os.dup2(kernel.fileno(), 0)
    os.execvp("cat", ["code-interpreter-kernel"])


def connect(patience):
    end = time.monotonic() + patience
    while True:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            s.connect(SOCKET)
            return s
        except OSError as e:
            s.close()
            if time.monotonic() > end:
                print(f"no code interpreter answers at {SOCKET} within {patience} s: {e}", file=sys.stderr)
                sys.exit(NO_ZYGOTE)
            time.sleep(0.005)


def zygote():
    lock = os.open(SOCKET + ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # for as long as this process lives
    except OSError:
        return  # there is a zygote
    listener = listen()
    import tend_kernel as kernel  # this is what takes long

    sys.path[0] = ""  # what cells import is looked for where they work

    shell, imports = kernel.prepare(), kernel.imports()
    ended, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children = {}  # pid → connection
    wait = selectors.DefaultSelector()
    wait.register(listener, selectors.EVENT_READ)
    wait.register(ended, selectors.EVENT_READ)
    while True:
        # A kernel that is asked for early imports itself what has not been imported yet.
        ready = wait.select(0 if imports else None)
        if not ready and next(imports, "over") == "over":
            imports = None
        for key, _ in ready:
            if key.fileobj is listener:
                connection, _ = listener.accept()
                try:
                    fds, start = receive(connection)
                except (OSError, ValueError) as e:
                    print("a request for a kernel is not understood:", e, file=sys.stderr)
                    connection.close()
                    continue
                for _ in imports or () if start.get("warm") else ():
                    pass
                pid = os.fork()
                if pid == 0:
                    wait.close()
                    listener.close()
                    os.close(lock)
                    signal.set_wakeup_fd(-1)
                    os.close(wakeup)
                    os.close(ended)
                    for other in children.values():
                        other.close()
                    kernel.run(shell, fds, connection, start)
                    os._exit(0)
                for fd in fds:
                    os.close(fd)
                children[pid] = connection
                wait.register(connection, selectors.EVENT_READ, pid)
            elif key.data:  # the cat has ended
                if not key.fileobj.recv(1):
                    wait.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)
            else:
                os.read(ended, 4096)
        while children:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if connection := children.pop(pid, None):
                if connection.fileno() in wait.get_map():
                    wait.unregister(connection)
                # Descendants of the kernel may hold their end of it.
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                connection.close()


def listen():
    """The socket is there before the imports: a kernel that is asked for meanwhile waits."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new = f"{SOCKET}.{os.getpid()}"
    listener.bind(new)
    os.chmod(new, 0o600)
    listener.listen(512)
    os.rename(new, SOCKET)  # of a zygote that has died
    return listener


def receive(connection):
    connection.settimeout(10)
    head, fds, _, _ = socket.recv_fds(connection, HEAD.size, 2)
    if len(fds) != 2 or len(head) != HEAD.size:
        raise ValueError("two descriptors are needed")
    left, parts = HEAD.unpack(head)[0], []
    while left:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            raise ValueError("it ends early")
        parts.append(part)
        left -= len(part)
    connection.settimeout(None)
    return fds, json.loads(b"".join(parts))


if __name__ == "__main__":
    if sys.argv[1:2] == ["attach"]:
        attach(PATIENCE if "wait" in sys.argv[2:] else 0, "warm" in sys.argv[2:])
    zygote()
