"""What is left after kill -9 of a supervisor: tend beside pm2 and supervisord.

Each keeps the same three Node.js programs: one writes all the time, one answers at a port,
one is silent. Then all of the supervisor is killed at once (of tend: server, keeper and
anchor), and, as a person would do it, started again with the same file.

  live       programs that are the same processes 3 s later
  lost       the output that was written meanwhile is not kept, or has a gap
  adopted    programs that the new supervisor knows as the same processes
  doubled    programs that run twice then
  mended     the server is running again after a kill -9 of its own

Beside that a server that tend gives its socket (sockets: in tend.yaml) is restarted, and
tend killed in the midst of it, while it is asked without a pause: nobody may be refused.

What must hold of tend is checked in full. Of the others it is checked that they adopt
nothing, so that the table is not about a mistake of this suite.
"""
import concurrent.futures, json, os, pathlib, re, shutil, signal, subprocess, sys, tempfile, threading, time, urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from suites import LIMIT, Fail, eventually, free_port

APPS = ["writer", "server", "silent"]


def running(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class System:
    """A supervisor in a directory of its own."""

    def __init__(self, work):
        self.dir = pathlib.Path(work, self.name)
        self.dir.mkdir()
        self.port = free_port()
        self.env = {**os.environ, "SUITE_PORT": str(self.port), "SUITE_MARK": str(self.dir)}
        self.children = []

    def run(self, *argv):
        return subprocess.run(argv, cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT)

    def must(self, *argv):
        r = self.run(*argv)
        if r.returncode != 0:
            raise Fail(f"{' '.join(argv)}: {r.returncode}\n{r.stdout}{r.stderr}")
        return r.stdout

    def copies(self, app):
        """All processes of a program, whoever knows of them."""
        found = []
        for p in pathlib.Path("/proc").iterdir():
            if p.name.isdigit():
                try:
                    line = (p / "cmdline").read_bytes()  # pm2 writes it anew, as one word
                    if b"SUITE_MARK=" + str(self.dir).encode() in (p / "environ").read_bytes().split(b"\0") and os.fsencode(HERE / "app" / f"{app}.js") in line and running(int(p.name)):
                        found.append(int(p.name))
                except OSError:
                    pass
        return found

    def settled(self):
        return True

    def answer(self):
        try:
            return int(urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=2).read())
        except (OSError, ValueError):
            return None

    def end(self):
        self.down()
        for app in APPS:
            for pid in self.copies(app):
                os.kill(pid, signal.SIGKILL)
        for c in self.children:
            if c.poll() is None:
                c.kill()
            c.wait()


class Tend(System):
    name = "tend"

    def up(self):
        services = {app: {"command": ["node", str(HERE / "app" / f"{app}.js")], "restart": {"delay": 0}} for app in APPS}
        services["server"]["health"] = {"tcp": self.port}
        (self.dir / "tend.yaml").write_text(json.dumps({"services": services}))
        self.must(os.environ["TEND_BIN"], "--state-dir", "state", "up", "-d", "--wait")

    again = up

    def pids(self):
        r = self.run(os.environ["TEND_BIN"], "--state-dir", "state", "--json", "services")
        return {s["name"]: s.get("pid", 0) for s in json.loads(r.stdout)} if r.returncode == 0 else {}

    def roles(self):
        roles = json.loads(self.must(os.environ["TEND_BIN"], "--state-dir", "state", "--json", "status"))["roles"]
        return [roles[r]["pid"] for r in ("server", "keeper", "anchor")]

    def written(self):
        return self.must(os.environ["TEND_BIN"], "--state-dir", "state", "logs", "writer")

    def down(self):
        self.run(os.environ["TEND_BIN"], "--state-dir", "state", "shutdown")


class Held(Tend):
    """A server that is given its socket."""

    name = "held"

    def up(self):
        service = {"command": ["node", str(HERE / "app" / "held.js")], "sockets": {"http": f"127.0.0.1:{self.port}"}, "health": {"http": f":{self.port}/", "interval": "100ms", "timeout": "30s"}, "stop": {"timeout": "1m"}}
        (self.dir / "tend.yaml").write_text(json.dumps({"services": {"server": service}}))
        self.must(os.environ["TEND_BIN"], "--state-dir", "state", "up", "-d", "--wait")


class PM2(System):
    name = "pm2"

    def __init__(self, work):
        super().__init__(work)
        self.env["PM2_HOME"] = str(self.dir / "home")
        self.pm2 = str(HERE / "js" / "node_modules" / ".bin" / "pm2")

    def up(self):
        apps = [{"name": app, "script": str(HERE / "app" / f"{app}.js"), "out_file": str(self.dir / f"{app}.out")} for app in APPS]
        (self.dir / "ecosystem.config.json").write_text(json.dumps({"apps": apps}))
        self.must(self.pm2, "start", "ecosystem.config.json")

    def again(self):
        """Its daemon alone: to start the file again would start all of it again."""
        self.must(self.pm2, "ping")

    def pids(self):
        r = self.run(self.pm2, "jlist")
        found = re.search(r"^\[.*\]$", r.stdout, re.M)
        return {a["name"]: a["pid"] for a in json.loads(found.group())} if found else {}

    def roles(self):
        return [int((self.dir / "home" / "pm2.pid").read_text())]

    def written(self):
        return (self.dir / "writer.out").read_text()

    def down(self):
        self.run(self.pm2, "kill")


class Supervisord(System):
    name = "supervisord"

    def up(self):
        programs = "".join(f"[program:{app}]\ncommand=node {HERE / 'app' / f'{app}.js'}\nstdout_logfile={self.dir / f'{app}.out'}\n" for app in APPS)
        (self.dir / "supervisord.conf").write_text(
            f"[supervisord]\nlogfile={self.dir / 'log'}\npidfile={self.dir / 'pid'}\nchildlogdir={self.dir}\n"
            f"[unix_http_server]\nfile={self.dir / 'sock'}\n"
            f"[supervisorctl]\nserverurl=unix://{self.dir / 'sock'}\n[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n" + programs)
        self.again()

    def again(self):
        bin = HERE / "python" / ".venv" / "bin"
        self.ctl = [str(bin / "supervisorctl"), "-c", "supervisord.conf"]
        self.children.append(subprocess.Popen([str(bin / "supervisord"), "-n", "-c", "supervisord.conf"], cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        eventually("supervisord answers", lambda: self.run(*self.ctl, "pid").stdout.strip().isdigit())

    def pids(self):
        return {line.split()[0]: int(found.group(1)) for line in self.run(*self.ctl, "status").stdout.splitlines() if (found := re.search(r"pid (\d+)", line))}

    def settled(self):
        return not re.search("STARTING|BACKOFF", self.run(*self.ctl, "status").stdout)

    def roles(self):
        return [self.children[-1].pid]

    def written(self):
        return (self.dir / "writer.out").read_text()

    def down(self):
        self.run(*self.ctl, "shutdown")


def numbers(text):
    """The numbers of the whole lines."""
    return [int(n) for n in text[: text.rfind("\n") + 1].split()]


def measure(s):
    s.up()
    eventually(f"{s.name}: all run", lambda: s.answer() and len(numbers(s.written())) > 10 and all(map(s.copies, APPS)))
    before = {app: s.copies(app) for app in APPS}
    if any(len(v) != 1 for v in before.values()):
        raise Fail(f"{s.name}: {before} run; one of each is wanted")
    before = {app: v[0] for app, v in before.items()}
    roles, at = s.roles(), numbers(s.written())[-1]
    for pid in roles:
        os.kill(pid, signal.SIGKILL)
    eventually(f"{s.name} is dead", lambda: not any(running(p) for p in roles))
    time.sleep(3)  # the others' programs die at their next write, or a little later
    row = {"live": sum(running(p) for p in before.values())}
    s.again()
    if s.name == "tend":
        eventually("tend looks after all", lambda: s.pids() == before)
    else:
        time.sleep(3)
        eventually(f"{s.name}: whatever it starts has started, or it has given up", s.settled)
    after = s.pids()
    row["adopted"] = sum(after.get(app) == before[app] for app in APPS)
    row["doubled"] = sum(len(s.copies(app)) > 1 for app in APPS)
    # What it wrote since: each number once, and more of them than before the kill.
    got = eventually(f"{s.name}: what was written can be read", lambda: numbers(s.written()))
    if s.name == "tend":
        got = eventually("the writer goes on", lambda: (now := numbers(s.written())) and now[-1] > at + 50 and now)
    grown = got[-1] > at + 50
    row["lost"] = "no" if grown and got == list(range(1, got[-1] + 1)) else "yes"
    victim = after.get("server", 0)
    row["mended"] = "no"
    if s.name == "tend":
        eventually("the server answers", lambda: s.answer() == victim)
    if victim and running(victim) and s.answer() == victim:
        os.kill(victim, signal.SIGKILL)
        eventually(f"{s.name}: the server runs again", lambda: s.answer() not in (None, victim))
        row["mended"] = "yes"
    return row


def held(s):
    """Restarts a server while it is asked without a pause; server and keeper die in the midst of it."""
    s.up()
    pids, errors, over = set(), [], threading.Event()

    def ask():
        while not over.is_set():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{s.port}/", timeout=LIMIT) as answer:
                    pids.add(int(answer.read()))
            except Exception as e:
                errors.append(e)

    callers = [threading.Thread(target=ask) for _ in range(3)]
    for c in callers:
        c.start()
    try:
        for n in range(6):
            seen = len(pids)
            s.must(os.environ["TEND_BIN"], "--state-dir", "state", "restart", "server")
            if n % 2:
                for pid in s.roles()[:2]:
                    os.kill(pid, signal.SIGKILL)
            eventually("the next run answers", lambda: errors or len(pids) > seen)
    finally:
        over.set()
        for c in callers:
            c.join()
    if errors:
        raise Fail(f"{len(errors)} connections failed, the first: {errors[0]!r}")
    return {}


def one(s):
    try:
        return held(s) if s.name == "held" else measure(s)
    except Fail as e:
        return e
    finally:
        s.end()


def main():
    wanted = {"tend": Tend, "held": Held, "pm2": PM2, "supervisord": Supervisord}
    names = sys.argv[1:] or list(wanted)
    work = tempfile.mkdtemp(prefix="tend-supervisors.")
    wrong = []
    columns = ["live", "lost", "adopted", "doubled", "mended"]
    print("| kill -9 of | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns), flush=True)
    with concurrent.futures.ThreadPoolExecutor() as together:
        rows = dict(zip(names, together.map(lambda name: one(wanted[name](work)), names)))
    for name, row in rows.items():
        if isinstance(row, Fail):
            wrong.append(f"{name}: {row}")
            continue
        if name == "held":
            continue
        print(f"| {name} | " + " | ".join(str(row[c]) for c in columns) + " |", flush=True)
        if name == "tend" and row != {"live": 3, "adopted": 3, "doubled": 0, "lost": "no", "mended": "yes"}:
            wrong.append(f"tend: {row}")
        if name != "tend" and row["adopted"] != 0:
            wrong.append(f"{name} adopts what it finds: the table is not true any more, or this suite is wrong")
    shutil.rmtree(work, ignore_errors=True)
    if wrong:
        raise SystemExit("\n".join(wrong))


main()
