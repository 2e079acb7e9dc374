"""The end in good order: SIGTERM to a program of this test's own."""

import os
import signal
import subprocess
import threading
import time

import grpc
import requests
from conftest import ORIGINAL, PATIENCE, until
from k8s_agent_sandbox.commands._process_stubs import process_pb2 as pb
from k8s_agent_sandbox.commands._process_stubs import process_pb2_grpc as stubs


def test_sigterm(tmp_path):
    port, other = os.environ["SANDBOXD_SPARE"].split()
    program = [os.environ["SANDBOXD_BIN"]] if ORIGINAL else [os.environ["TEND_BIN"], "sandboxd", "--state-dir", str(tmp_path / "state")]
    root = tmp_path / "made" / "root"
    flags = ["--listen-host=127.0.0.1", f"--rest-port={port}", f"--grpc-port={other}", f"--root-dir={root}", "--stream-chunk-size=10"]
    with open(tmp_path / "log", "wb") as log:
        daemon = subprocess.Popen(program + flags, stderr=log)
    url = f"http://127.0.0.1:{port}/v1/health"

    def health():
        try:
            return requests.get(url, timeout=PATIENCE).status_code
        except requests.ConnectionError:
            return 0

    until("it serves", lambda: health() == 200)
    assert root.stat().st_mode & 0o777 == 0o755
    with grpc.insecure_channel(f"127.0.0.1:{other}") as channel:
        lines = 'trap "echo term" TERM; echo 0123456789abcdef; while :; do sleep 0.1; done'
        stream = stubs.ProcessServiceStub(channel).Start(pb.StartRequest(config=pb.ProcessConfig(command=["sh", "-c", lines])), timeout=PATIENCE)
        assert [next(stream).WhichOneof("event"), next(stream).stdout] == ["init", b"0123456789"]
        assert next(stream).stdout == b"abcdef\n"
        seen, over = set(), threading.Event()

        def watch():
            while not over.is_set():
                seen.add(health())
                time.sleep(0.02)

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        daemon.send_signal(signal.SIGTERM)
        events = list(stream)
        assert b"".join(e.stdout for e in events) == b"term\n"
        assert events[-1].exit.exit_code == -1 and stream.code() == grpc.StatusCode.OK
        assert daemon.wait(PATIENCE) == 0
        over.set()
        watching.join()
        assert 503 in seen
