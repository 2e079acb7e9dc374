"""Processes: by the package's CommandExecutor, which has Execute alone, and by the package's stubs for the rest."""

import os
import subprocess
import time

import grpc
import pytest
from conftest import GRPC, ORIGINAL, PATIENCE, ROOT, either, until
from google.protobuf.empty_pb2 import Empty
from k8s_agent_sandbox.commands._process_stubs import process_pb2 as pb
from k8s_agent_sandbox.commands._process_stubs import process_pb2_grpc as stubs

ours = pytest.mark.skipif(ORIGINAL, reason="an addition of tend")


@pytest.fixture(scope="session")
def process():
    with grpc.insecure_channel(f"127.0.0.1:{GRPC}") as channel:
        yield stubs.ProcessServiceStub(channel)


class Started:
    """A process, with what its stream has brought."""

    def __init__(self, process, *argv, pty=None, timeout=PATIENCE, metadata=None, **config):
        request = pb.StartRequest(config=pb.ProcessConfig(command=argv, **config), pty=pty)
        self.process, self.stream = process, process.Start(request, timeout=timeout, metadata=metadata)
        self.stdout, self.stderr, self.exit, self.sizes = b"", b"", None, []
        init = next(self.stream)
        assert init.WhichOneof("event") == "init"
        self.id, self.init = init.init.process_id, init.init

    def take(self):
        """Takes one event, and says which it was."""
        event = next(self.stream)
        kind = event.WhichOneof("event")
        if kind == "exit":
            self.exit = event.exit.exit_code
        else:
            self.sizes.append(len(getattr(event, kind)))
            setattr(self, kind, getattr(self, kind) + getattr(event, kind))
        return kind

    def until(self, text):
        while text not in self.stdout:
            self.take()
        return self

    def end(self):
        while self.take() != "exit":
            pass
        assert list(self.stream) == []
        return self.exit

    def write(self, data=b"", eof=False, timeout=PATIENCE):
        payload = {"eof": Empty()} if eof else {"input": data}
        self.process.WriteStdin(pb.WriteStdinRequest(process_id=self.id, **payload), timeout=timeout)

    def signal(self, number):
        self.process.SendSignal(pb.SendSignalRequest(process_id=self.id, signal=number), timeout=PATIENCE)

    def resize(self, cols, rows):
        self.process.ResizeTTY(pb.ResizeTTYRequest(process_id=self.id, cols=cols, rows=rows), timeout=PATIENCE)


@pytest.fixture
def start(process):
    started = []

    def begin(*argv, **more):
        started.append(Started(process, *argv, **more))
        return started[-1]

    yield begin
    for s in started:
        s.stream.cancel()


@pytest.fixture
def execute(process):
    def run(*argv, timeout=PATIENCE, **config):
        return process.Execute(pb.ExecuteRequest(config=pb.ProcessConfig(command=argv, **config)), timeout=timeout)

    return run


def code(call, *args, **more):
    with pytest.raises(grpc.RpcError) as e:
        call(*args, **more)
    return e.value.code().name


def alive(mark):
    """Whether a process has this word in its command line."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if mark.encode() in f.read().split(b"\0"):
                    return True
        except OSError:
            pass
    return False


def seconds():
    """A time for sleep(1) that no other process has."""
    return f"{1000 + os.getpid()}.{time.monotonic_ns() % 10**9}"


# What the package has.


def test_run(commands, name):
    r = commands.run("echo out; echo err >&2; exit 3")
    assert (r.stdout, r.stderr, r.exit_code) == ("out\n", "err\n", 3)
    assert commands.run("echo $X-$PWD", env={"X": "a b"}, cwd=name).stdout == f"a b-{ROOT}/{name}\n"


def test_run_with_a_time_limit(commands):
    r = commands.run("exec sleep 100", command_timeout=1)
    assert r.exit_code == 124 and r.timed_out


# Execute.


def test_execute_exit_codes(execute):
    for status in (0, 1, 7, 255):
        assert execute("sh", "-c", f"exit {status}").exit_code == status
    assert execute("sh", "-c", "kill -9 $$").exit_code == -1
    r = execute("cat")
    assert (r.exit_code, r.stdout) == (0, b"")


@ours
def test_the_signal_is_a_trailer(process):
    request = pb.ExecuteRequest(config=pb.ProcessConfig(command=["sh", "-c", "kill -15 $$"]))
    _, call = process.Execute.with_call(request, timeout=PATIENCE)
    assert ("tend-exit-signal", "15") in [(k, v) for k, v in call.trailing_metadata()]


def test_execute_output(execute):
    data = bytes(range(256)) * 4096
    with open(f"{ROOT}/bytes", "wb") as f:
        f.write(data)
    r = execute("sh", "-c", "cat bytes; cat bytes >&2")
    assert r.stdout == data and r.stderr == data


def test_output_beyond_what_the_client_takes(execute, process):
    assert code(execute, "head", "-c", str(5 << 20), "/dev/zero") == "RESOURCE_EXHAUSTED"
    with grpc.insecure_channel(f"127.0.0.1:{GRPC}", options=[("grpc.max_receive_message_length", -1)]) as wide:
        request = pb.ExecuteRequest(config=pb.ProcessConfig(command=["head", "-c", str(20 << 20), "/dev/zero"]))
        assert len(stubs.ProcessServiceStub(wide).Execute(request, timeout=PATIENCE).stdout) == 20 << 20


@ours
def test_output_beyond_the_limit_is_kept(process):
    with grpc.insecure_channel(f"127.0.0.1:{GRPC}", options=[("grpc.max_receive_message_length", -1)]) as wide:
        request = pb.ExecuteRequest(config=pb.ProcessConfig(command=["sh", "-c", f"head -c {65 << 20} /dev/zero; echo end >&2"]))
        with pytest.raises(grpc.RpcError) as e:
            stubs.ProcessServiceStub(wide).Execute(request, timeout=PATIENCE)
    assert e.value.code().name == "RESOURCE_EXHAUSTED" and str(64 << 20) in e.value.details()
    logs = e.value.details().split("tend ")[-1].split()
    assert len(subprocess.run([os.environ["TEND_BIN"], *logs], capture_output=True, timeout=PATIENCE).stdout) >= 65 << 20


def test_what_cannot_be_started(execute, name):
    open(f"{ROOT}/{name}/f", "w").close()
    os.symlink("/etc", f"{ROOT}/{name}/out")
    assert code(execute) == "INVALID_ARGUMENT"
    assert code(execute, "no-such-program") == "NOT_FOUND"
    assert code(execute, "/no/such/program") == "NOT_FOUND"
    assert code(execute, f"{ROOT}/{name}/f") == "PERMISSION_DENIED"
    assert code(execute, "pwd", cwd=f"{name}/none") == "NOT_FOUND"
    assert code(execute, "pwd", cwd="/etc") == "NOT_FOUND"
    for cwd in ("..", "../x", f"{name}/out", f"{name}/out/none"):
        assert code(execute, "pwd", cwd=cwd) == "PERMISSION_DENIED"
    assert code(execute, "pwd", cwd=f"{name}/f") == "INTERNAL"
    assert code(execute, "x" * 300) == "NOT_FOUND"
    assert code(execute, "echo", "x" * (200 << 10)) == either("INVALID_ARGUMENT", "INTERNAL")


def test_a_program_that_is_no_program(execute, name):
    path = f"{ROOT}/{name}/f"
    with open(path, "w") as f:
        f.write("not a program\n")
    os.chmod(path, 0o755)
    assert code(execute, path) == "INTERNAL"


def test_working_directories(execute, name):
    assert execute("pwd").stdout.decode() == ROOT + "\n"
    for cwd in (name, "/" + name, f"{ROOT}/{name}", f"{name}/../{name}/."):
        assert execute("pwd", cwd=cwd).stdout.decode() == f"{ROOT}/{name}\n"
    os.symlink(f"{ROOT}/{name}", f"{ROOT}/{name}/self")
    assert execute("/bin/pwd", cwd=f"{name}/self").stdout.decode() == f"{ROOT}/{name}\n"


def test_environment(execute):
    env = dict(line.split("=", 1) for line in execute("env", env_vars={"A": "b=c", "SANDBOX_SHOWN": "other"}).stdout.decode().splitlines())
    assert (env["A"], env["SANDBOX_SHOWN"], env["SANDBOX_API_KEY"]) == ("b=c", "other", "no")
    assert env["PATH"] == os.environ["PATH"]


@ours
@pytest.mark.parametrize("names", [{"X=Y": "b"}, {"": "b"}, {"X\0": "b"}, {"X": "\0"}])
def test_bad_environments(execute, names):
    assert code(execute, "true", env_vars=names) == "INVALID_ARGUMENT"


def test_a_descendant_that_holds_the_output(execute):
    began = time.monotonic()
    mark = seconds()
    r = execute("sh", "-c", f"echo a; sleep {mark} & exit 4")
    assert (r.exit_code, r.stdout) == (4, b"a\n") and time.monotonic() - began >= 5
    assert alive(mark)  # it is nobody's to end
    subprocess.run(["pkill", "-f", mark], check=True)


@ours
def test_a_descendant_that_holds_the_output_of_a_success(execute):
    """The original answers INTERNAL, and drops the output."""
    mark = seconds()
    r = execute("sh", "-c", f"echo a; sleep {mark} & exit 0")
    assert (r.exit_code, r.stdout) == (0, b"a\n")
    subprocess.run(["pkill", "-f", mark], check=True)


def test_a_deadline_kills(execute):
    mark = seconds()
    assert code(execute, "sleep", mark, timeout=1) == "DEADLINE_EXCEEDED"
    until("the process is gone", lambda: not alive(mark))


@ours
def test_a_deadline_kills_the_tree(execute):
    mark = seconds()
    assert code(execute, "sh", "-c", f"setsid sleep {mark} & wait", timeout=1) == "DEADLINE_EXCEEDED"
    until("the descendant is gone", lambda: not alive(mark))


def test_many_at_once(process):
    calls = [process.Execute.future(pb.ExecuteRequest(config=pb.ProcessConfig(command=["sh", "-c", f"echo {i}; exit {i}"])), timeout=PATIENCE)
             for i in range(60)]  # fmt: skip
    assert [(c.result().exit_code, c.result().stdout) for c in calls] == [(i, f"{i}\n".encode()) for i in range(60)]


# Start.


def test_start(start):
    s = start("sh", "-c", "echo a; echo b >&2; exit 7")
    assert s.end() == 7 and (s.stdout, s.stderr) == (b"a\n", b"b\n")
    assert s.stream.code() == grpc.StatusCode.OK
    assert start("sh", "-c", "kill -9 $$").end() == -1


def test_numbers_begin_at_one_and_count(start):
    first, second = start("true"), start("true")
    assert 1 <= first.id < second.id < 10_000
    for s in (first, second):
        s.end()
        until("the number is forgotten", lambda: gone(s))


def gone(s):
    try:
        s.signal(15)
        return False
    except grpc.RpcError as e:
        return e.code().name == "NOT_FOUND"


def test_output_of_many_megabytes_in_pieces(start):
    s = start("sh", "-c", "head -c 8000000 /dev/zero; head -c 1000 /dev/zero >&2")
    assert s.end() == 0 and (len(s.stdout), len(s.stderr)) == (8_000_000, 1000)
    assert max(s.sizes) <= 4096


def test_a_slow_client_loses_nothing(start):
    s = start("sh", "-c", "seq 200000")
    time.sleep(1)
    assert s.end() == 0 and s.stdout == "".join(f"{i}\n" for i in range(1, 200001)).encode()


def test_stdin(start):
    s = start("cat")
    s.write(b"one\n")
    s.until(b"one\n")
    s.write(b"\x00\xfftwo")
    s.process.WriteStdin(pb.WriteStdinRequest(process_id=s.id))  # neither: nothing happens
    s.write(b"")
    s.write(eof=True)
    assert s.end() == 0 and s.stdout == b"one\n\x00\xfftwo"


def test_eof_twice_and_input_after_it(start):
    s = start("sleep", "100")
    s.write(eof=True)
    if either(True, False):
        s.write(eof=True)
    assert code(s.write, b"x") == "INTERNAL"
    s.signal(9)
    assert s.end() == -1


def test_input_for_a_process_that_does_not_read(start):
    s = start("sleep", "100")
    data = b"x" * (512 << 10)
    if either(True, False):
        s.write(data)  # it is accepted
    else:
        assert code(s.write, data, timeout=2) == "DEADLINE_EXCEEDED"


def test_a_message_that_is_too_large(start):
    s = start("cat")
    assert code(s.write, b"x" * (5 << 20)) == "RESOURCE_EXHAUSTED"
    s.write(b"x" * (3 << 20))
    s.write(eof=True)
    assert s.end() == 0 and len(s.stdout) == 3 << 20


def test_signals(start):
    s = start("sh", "-c", "trap 'echo int' INT; trap 'echo term; exit 9' TERM; echo ready; while :; do sleep 0.1; done")
    s.until(b"ready\n")
    s.signal(2)
    s.until(b"int\n")
    for bad in (0, 1, 99):
        assert code(s.signal, bad) == "INVALID_ARGUMENT"
    s.signal(15)
    assert s.end() == 9 and s.stdout.endswith(b"term\n")


def test_signals_reach_the_group(start):
    mark = seconds()
    s = start("sh", "-c", f"sleep {mark} & echo ready; wait")
    s.until(b"ready\n")
    until("the child runs", lambda: alive(mark))
    s.signal(9)
    assert s.end() == -1
    until("the child is gone", lambda: not alive(mark))


def test_unknown_numbers(process):
    for number in (0, -1, 2**31 - 1):
        for call, request in ((process.WriteStdin, pb.WriteStdinRequest), (process.SendSignal, pb.SendSignalRequest), (process.ResizeTTY, pb.ResizeTTYRequest)):
            assert code(call, request(process_id=number), timeout=PATIENCE) == "NOT_FOUND"


def test_terminal(start):
    s = start("sh", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size; read x; echo got:$x; stty size; echo err >&2; read y; exit 5", pty=pb.PTY(cols=100, rows=30))
    if either(True, False):  # the original sets the size after the start
        s.until(b"30 100\r\n")
    s.resize(90, 20)
    s.write(b"q\n")
    s.until(b"got:q\r\n20 90\r\nerr\r\n")
    s.write(b"\n")
    assert s.end() == 5 and s.stderr == b""


def test_a_terminal_without_a_size(start):
    s = start("sh", "-c", "stty size; read x", pty=pb.PTY())
    s.until(b"0 0\r\n").write(b"\n")
    assert s.end() == 0


@ours
def test_the_last_output_of_a_terminal(start):
    """The original closes the terminal when the process has ended, and may lose what it wrote last."""
    for _ in range(20):
        s = start("sh", "-c", "echo a; seq 3000; exit 1", pty=pb.PTY(cols=80, rows=24))
        assert s.end() == 1 and s.stdout.endswith(b"\r\n3000\r\n")


def test_the_end_of_input_of_a_terminal(start):
    s = start("cat", pty=pb.PTY(cols=80, rows=24), timeout=either(PATIENCE, 3))
    s.write(b"line\n")
    s.until(b"line\r\nline\r\n")
    s.write(eof=True)
    if either(True, False):
        assert s.end() == 0
    else:
        assert code(s.end) == "DEADLINE_EXCEEDED"


def test_resizing_what_cannot_be(start):
    s = start("sleep", "100")
    assert code(s.resize, 80, 24) == "FAILED_PRECONDITION"
    t = start("sleep", "100", pty=pb.PTY(cols=80, rows=24))
    if either(True, False):  # the original takes it modulo 65536
        assert code(t.resize, 65536, 24) == "INVALID_ARGUMENT"


def test_a_client_that_leaves_ends_the_process(start):
    mark = seconds()
    s = start("sh", "-c", f"echo ready; exec sleep {mark}")
    s.until(b"ready\n")
    s.stream.cancel()
    until("the process is gone", lambda: not alive(mark))
    until("the number is forgotten", lambda: gone(s))


@ours
def test_a_client_that_leaves_ends_the_tree(start):
    mark = seconds()
    s = start("sh", "-c", f"setsid sleep {mark} & echo ready; wait")
    s.until(b"ready\n")
    until("the child runs", lambda: alive(mark))
    s.stream.cancel()
    until("the descendant is gone", lambda: not alive(mark))


def test_a_process_that_has_ended_leaves_its_descendants(start):
    mark = seconds()
    s = start("sh", "-c", f"sleep {mark} >/dev/null 2>&1 & exit 3")
    assert s.end() == 3
    s.stream.cancel()
    assert alive(mark)
    subprocess.run(["pkill", "-f", mark], check=True)


def test_output_after_the_exit(start):
    s = start("sh", "-c", "echo a; (sleep 1; echo late) & exit 2")
    assert s.end() == 2 and s.stdout == b"a\nlate\n"


# What tend has beside.


@ours
def test_output_and_exit_outlive_a_client_that_left(start):
    s = start("sh", "-c", "echo before; exec sleep 1000")
    s.until(b"before\n")
    tend_id = next(v for n, v in fields(s.init.SerializeToString()) if n == 100).decode()
    s.stream.cancel()
    until("it has ended", lambda: gone(s))
    logs = subprocess.run([os.environ["TEND_BIN"], "logs", tend_id], capture_output=True, check=True, timeout=PATIENCE)
    assert b"before" in logs.stdout


def fields(data):
    """The fields of a message, by number: the package's stubs do not know them all."""
    def varint(i):
        value = shift = 0
        while True:
            b = data[i]
            value, shift, i = value | (b & 127) << shift, shift + 7, i + 1
            if b < 128:
                return value, i

    i = 0
    while i < len(data):
        key, i = varint(i)
        value, i = varint(i)
        if key & 7 == 2:
            value, i = data[i : i + value], i + value
        yield key >> 3, value


@ours
def test_a_process_may_outlive_its_stream(start, process):
    s = start("sh", "-c", "echo ready; read x; echo got:$x >kept; read y", metadata=[("tend-keep", "1")])
    s.until(b"ready\n")
    s.stream.cancel()
    s.write(b"later\n")
    until("it goes on", lambda: os.path.exists(f"{ROOT}/kept"))
    s.signal(9)
    until("it has ended", lambda: gone(s))


@ours
def test_a_server_that_is_replaced_ends_no_process(start, process):
    s = start("sh", "-c", "echo ready; read x; echo got:$x >replaced; read y")
    s.until(b"ready\n")
    subprocess.run([os.environ["TEND_BIN"], "upgrade"], check=True, capture_output=True, timeout=PATIENCE)
    with pytest.raises(grpc.RpcError) as e:
        s.end()
    assert e.value.code().name == "UNAVAILABLE"

    def write():
        try:
            s.write(b"later\n")
            return True
        except grpc.RpcError as e:
            assert e.code().name == "UNAVAILABLE"  # the connection of the former server

    until("the next server takes input", write)
    until("it goes on", lambda: os.path.exists(f"{ROOT}/replaced"))
    assert start("true").id > s.id
    s.signal(9)
    until("it has ended", lambda: gone(s))


@ours
def test_an_upgrade_while_execute_runs_ends_nothing(execute):
    """The client learns that it was cut; what ran goes on."""
    with open(f"{ROOT}/slow.sh", "w") as f:
        f.write("touch begun; while [ ! -e go ]; do sleep 0.05; done; touch whole; rm begun go")
    with grpc.insecure_channel(f"127.0.0.1:{GRPC}") as channel:
        request = pb.ExecuteRequest(config=pb.ProcessConfig(command=["sh", "slow.sh"]))
        call = stubs.ProcessServiceStub(channel).Execute.future(request, timeout=PATIENCE)
        until("it runs", lambda: os.path.exists(f"{ROOT}/begun"))
        subprocess.run([os.environ["TEND_BIN"], "upgrade"], check=True, capture_output=True, timeout=PATIENCE)
        assert call.exception().code().name == "UNAVAILABLE"
    open(f"{ROOT}/go", "w").close()
    until("it has done all", lambda: os.path.exists(f"{ROOT}/whole"))
