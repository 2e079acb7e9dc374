"""Times what the user of a client in Python waits for, by tend's and by E2B's, in turns: clients.py tend|e2b

Reads lines: "run N" and "output BYTES". Answers each with one line of JSON: milliseconds of each of N runs, or MiB/s.
It runs in the environment of either suite; the daemon is at TEND_URL, and E2B_SANDBOX_URL.
"""

import json
import sys
import time

# What E2B's SDK makes of a command, so that both start the same program.
LOGIN = ["/bin/bash", "-l", "-c"]
# What the shell reads there takes longer than all else, and is not meant.
ENV = {"HOME": "/nonexistent"}


def tend_client():
    import tend

    client = tend.Client.connect()

    def run():
        if client.run([*LOGIN, "true"], env=ENV).exit_code != 0:
            raise SystemExit("true failed")

    def output(command):
        with client.start([*LOGIN, command]).read() as events:
            return sum(len(e.data) for e in events if isinstance(e, tend.Output))

    return run, output


def e2b_client():
    from e2b import Sandbox

    sandbox = Sandbox.create()

    def run():
        if sandbox.commands.run("true", envs=ENV).exit_code != 0:
            raise SystemExit("true failed")

    def output(command):
        got = [0]

        def take(text):
            got[0] += len(text)

        # Its answer holds the output, too; nothing else tells of the end.
        sandbox.commands.run(command, on_stdout=take, timeout=0)
        return got[0]

    return run, output


run, output = {"tend": tend_client, "e2b": e2b_client}[sys.argv[1]]()
for line in sys.stdin:
    what, n = line.split()
    if what == "run":
        took = []
        for _ in range(int(n)):
            begin = time.perf_counter()
            run()
            took.append(1000 * (time.perf_counter() - begin))
        answer = took
    else:
        begin = time.perf_counter()
        got = output(f"yes 0123456789abcde | head -c {n}")
        if got != int(n):
            raise SystemExit(f"{got} bytes of {n} came")
        answer = int(n) / (1 << 20) / (time.perf_counter() - begin)
    print(json.dumps(answer), flush=True)
