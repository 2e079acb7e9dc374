// test/real.test.ts
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import fs2 from "node:fs";
import { createRequire } from "node:module";
import os2 from "node:os";
import path2 from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { test } from "node:test";
import { promisify } from "node:util";
import { Client, GapError, newID } from "@tend/client";

// ../daemon.ts
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
var bin = process.env.TEND_BIN ?? path.resolve("../../bin/tend");
var Daemon = class _Daemon {
  constructor(dir, child) {
    this.dir = dir;
    this.child = child;
  }
  dir;
  child;
  /** Starts one, with a socket and a port. */
  static async start(...flags) {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "tend-ts-"));
    const log = fs.openSync(path.join(dir, "log"), "a");
    const child = spawn(bin, ["serve", "--listen", "127.0.0.1:0", "--socket", path.join(dir, "s.sock"), "--state-dir", path.join(dir, "state"), "--port-file", path.join(dir, "url"), ...flags], {
      stdio: ["ignore", log, log]
    });
    fs.closeSync(log);
    const daemon2 = new _Daemon(dir, child);
    after(() => daemon2.stop());
    await until(() => fs.existsSync(path.join(dir, "url")) || child.exitCode !== null, "the daemon serves");
    if (child.exitCode !== null) throw new Error(fs.readFileSync(path.join(dir, "log"), "utf8"));
    return daemon2;
  }
  get socket() {
    return `unix://${this.dir}/s.sock`;
  }
  get url() {
    return fs.readFileSync(path.join(this.dir, "url"), "utf8").trim();
  }
  get stateDir() {
    return path.join(this.dir, "state");
  }
  /** The pids of anchor, keeper and server: descendants of the launcher, by their command lines. */
  roles() {
    const found = {};
    const visit = (pid) => {
      let children = [];
      try {
        for (const task of fs.readdirSync(`/proc/${pid}/task`)) children.push(...fs.readFileSync(`/proc/${pid}/task/${task}/children`, "utf8").split(" ").filter(Boolean));
      } catch {
        return;
      }
      for (const c of children.map(Number)) {
        try {
          const args = fs.readFileSync(`/proc/${c}/cmdline`, "utf8").split("\0");
          const exe = fs.readlinkSync(`/proc/${c}/exe`);
          for (const role of ["anchor", "keeper", "server"]) if (args.includes(role) && /tend/.test(exe)) found[role] = c;
        } catch {
          continue;
        }
        visit(c);
      }
    };
    visit(this.child.pid);
    return found;
  }
  /**
   * Kills roles with SIGKILL, one after the other, until the returned function is
   * called; that resolves to how many it were.
   */
  killing(every = 300, roles = ["server", "keeper", "anchor"]) {
    let stop = false;
    let killed = 0;
    const loop = (async () => {
      for (let i = 0; !stop; i++) {
        await sleep(every);
        const pid = this.roles()[roles[i % roles.length]];
        if (stop || !pid) continue;
        try {
          process.kill(pid, "SIGKILL");
          killed++;
        } catch {
        }
      }
    })();
    return async () => {
      stop = true;
      await loop;
      return killed;
    };
  }
  async stop() {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      const ended = new Promise((ok) => this.child.once("exit", ok));
      this.child.kill("SIGTERM");
      await ended;
    }
    fs.rmSync(this.dir, { recursive: true, force: true });
  }
};
async function until(cond, what, ms = 6e4) {
  const end = Date.now() + ms;
  for (; ; ) {
    const v = await cond();
    if (v) return v;
    if (Date.now() > end) throw new Error(`${what}: not within ${ms} ms`);
    await sleep(10);
  }
}

// test/real.test.ts
var daemon = await Daemon.start();
var client = await Client.connect({ url: daemon.socket });
var sha = (b) => createHash("sha256").update(b).digest("hex");
async function drain(readable) {
  const parts = [];
  for await (const part of readable) parts.push(part);
  return Buffer.concat(parts);
}
test("a command: output, exit status, input, environment, directory", async () => {
  for (const url of [daemon.socket, daemon.url]) {
    const c = await Client.connect({ url });
    const r = await c.run({ shell: 'cat; echo "$A" >&2; pwd; exit 3', env: { A: "x y", B: void 0 }, dir: "/usr" }, { input: "in " });
    assert.equal(r.stdout.toString(), "in /usr\n");
    assert.equal(r.stderr.toString(), "x y\n");
    assert.equal(r.exitCode, 3);
    assert.equal(r.success, false);
    assert.ok(c.server.version && c.server.instance);
    c.close();
  }
  assert.deepEqual(await client.list(), [], "what run started is forgotten");
});
test("a signal, a timeout and an abort", async () => {
  assert.equal((await client.run({ shell: "kill -SEGV $$" })).exitCode, 139);
  const late = await client.run({ shell: 'trap "" TERM; echo on; sleep 60 & wait; sleep 60', timeout: 300 });
  assert.equal(late.exitCode, 124);
  assert.equal(late.exit.cause, "timeout");
  assert.equal(late.stdout.toString(), "on\n");
  const stop = new AbortController();
  const run = client.run({ argv: ["sleep", "60"] }, { signal: stop.signal });
  await until(async () => (await client.list({ live: true })).length > 0, "it runs");
  stop.abort();
  assert.equal((await run).exit.cause, "killed");
});
test("the newest bytes are kept", async () => {
  const r = await client.run({ shell: "seq 1 10000" }, { maxOutput: 100 });
  assert.equal(r.stdout.length, 100);
  assert.ok(r.stdout.toString().endsWith("9999\n10000\n"));
  assert.equal(r.stdoutDropped, 48894 - 100);
});
test("one id starts once", async () => {
  const id = newID();
  const spec = { id, argv: ["sleep", "60"], labels: { mine: "yes" }, name: "napper" };
  const [a, b] = await Promise.all([client.start(spec), client.start(spec)]);
  assert.equal(a.pid, b.pid);
  await assert.rejects(client.start({ id, argv: ["sleep", "61"] }), { code: "exists" });
  assert.deepEqual((await client.list({ labels: { mine: "yes" } })).map((i) => i.id), [id]);
  assert.equal((await client.get({ name: "napper" })).id, id);
  assert.equal((await client.get({ pid: a.pid })).id, id);
  assert.deepEqual(await a.kill(), { killed: true, survivors: [] });
  assert.deepEqual(await b.kill(), { killed: false, survivors: [] });
  await a.remove();
  await assert.rejects(a.refresh(), { code: "not_found" });
});
test("what cannot be started says why", async () => {
  await assert.rejects(client.start({ argv: ["/no/such"] }), { code: "start", reason: "not_found", what: "/no/such" });
  await assert.rejects(client.start({ argv: ["true"], dir: "/no/such" }), { code: "start", reason: "bad_dir", what: "/no/such" });
  await assert.rejects(client.start({ argv: ["true"], shell: "true" }), { code: "invalid" });
});
test("a list of many pages", async () => {
  const label = { many: newID() };
  const big = "x".repeat(3e5);
  for (let i = 0; i < 20; i++) await client.start({ argv: ["true"], labels: { ...label, n: String(i), big }, retention: { ttl: 6e4 } });
  const all = await client.list({ labels: label });
  assert.deepEqual(all.map((i) => i.spec.labels.n), Array.from({ length: 20 }, (_, i) => String(i)));
});
test("waits: text, silence, a port, the end of the tree", async () => {
  const p = await client.start({ argv: [process.execPath, "-e", 'console.log("ready"); require("net").createServer().listen(0, "127.0.0.1", function () { console.log("on " + this.address().port); })'] });
  const ready = await p.wait({ match: /on (\d+)/ });
  assert.ok(ready.met && ready.stream === "stdout");
  const port = Number(ready.match.toString().split(" ")[1]);
  const on = await p.wait({ port });
  assert.deepEqual(on.listening.map((l) => l.pid), [p.pid]);
  assert.equal((await p.wait({ quiet: 50 })).met, true);
  await p.kill();
  const end = await p.wait();
  assert.equal(end.exit?.signal, 9);
  assert.equal((await p.wait({ match: "never" })).met, false);
});
test("a terminal", async () => {
  const p = await client.start({ shell: "stty size; read x; stty size", pty: { cols: 100, rows: 30 } });
  await p.wait({ match: "30 100" });
  await p.resize(50, 20);
  await p.write("\n");
  const text = (await drain(p.output("pty"))).toString();
  assert.match(text, /30 100\r\n/);
  assert.match(text, /20 50\r\n/);
});
test("a pipeline through a process, byte for byte", async () => {
  const bytes = randomBytes(20 << 20);
  const p = await client.start({ argv: ["cat"], stdin: "pipe" });
  const out = drain(p.output("stdout"));
  await pipeline(Readable.from((function* () {
    for (let i = 0; i < bytes.length; i += 100003) yield bytes.subarray(i, i + 100003);
  })()), p.input());
  assert.equal(sha(await out), sha(bytes));
  assert.deepEqual(sha(await drain(p.output("stdout", { from: { stdout: 5 } }))), sha(bytes.subarray(5)), "and again, from another place");
});
test("bytes that retention freed are a gap", async () => {
  const p = await client.start({ shell: "head -c 8000000 /dev/zero", retention: { limit: 1 << 20 } });
  await p.wait({ eof: true });
  await until(async () => (await p.refresh()).streams.some((s) => s.base > 0), "some is freed");
  await assert.rejects(drain(p.output("stdout")), GapError);
  const kinds = /* @__PURE__ */ new Set();
  for await (const e of p.read()) kinds.add(e.kind);
  assert.ok(kinds.has("gap") && kinds.has("output"));
});
test("input after the end is refused", async () => {
  const p = await client.start({ argv: ["true"], stdin: "pipe" });
  await p.wait();
  await assert.rejects(p.write("x"), { code: "exited" });
  const q = await client.start({ argv: ["sleep", "60"] });
  await assert.rejects(q.write("x"), { code: "stdin_closed" });
  await q.kill();
});
test("a wrong token is refused, before anything else", async () => {
  const file = path2.join(fs2.mkdtempSync(path2.join(os2.tmpdir(), "tend-ts-token-")), "token");
  fs2.writeFileSync(file, "right-token-0123456789", { mode: 384 });
  const guarded = await Daemon.start("--token-file", file);
  fs2.rmSync(path2.dirname(file), { recursive: true });
  await assert.rejects(Client.connect({ url: guarded.url, token: "wrong" }), { code: "permission" });
  const c = await Client.connect({ url: guarded.url, token: "right-token-0123456789" });
  assert.equal((await c.run({ argv: ["echo", "in"] })).stdout.toString(), "in\n");
  c.close();
});
async function follow(p) {
  const parts = [];
  const facts = [];
  let code;
  for await (const e of p.read({ drain: -1 })) {
    if (e.kind === "output") parts.push(e.data);
    else facts.push(e.kind);
    if (e.kind === "exited") code = e.exit.code;
  }
  return { out: Buffer.concat(parts), code, facts };
}
async function underWay(c, rounds) {
  const lines = 4e3;
  const count = 'i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo "line $i of process"; [ $((i % 400)) = 0 ] && sleep 0.1; done; exit 7';
  const want = Array.from({ length: lines }, (_, i) => `line ${i + 1} of process
`).join("");
  for (let round = 0; round < rounds; round++) {
    await Promise.all([
      ...[1, 2, 3].map(async () => {
        const p = await c.start({ shell: count });
        const { out, code, facts } = await follow(p);
        assert.equal(sha(out), sha(Buffer.from(want)), `${out.length} bytes of ${want.length}; ${facts.join()} ${JSON.stringify((await p.refresh()).exit)}`);
        assert.equal(code, 7);
        for (const kind of ["started", "exited"]) assert.equal(facts.filter((f) => f === kind).length, 1, kind);
        assert.equal((await p.wait()).exit?.code, 7);
        await p.remove();
      }),
      (async () => {
        const p = await c.start({ argv: ["cat"], stdin: "pipe" });
        const bytes = randomBytes(1 << 20);
        const out = drain(p.output("stdout"));
        const writes = [];
        for (let i = 0; i < bytes.length; i += 4099) writes.push(p.write(bytes.subarray(i, i + 4099)));
        await Promise.all(writes);
        await p.closeStdin();
        assert.equal(sha(await out), sha(bytes), "input comes in order, once");
        assert.equal((await p.wait()).exit?.code, 0);
      })(),
      (async () => {
        for (let i = 0; i < 10; i++) assert.equal((await c.run({ shell: `echo ${i}; exit ${i}` })).stdout.toString(), `${i}
`);
      })(),
      (async () => {
        const p = await c.start({ shell: "sleep 600 & sleep 600" });
        assert.deepEqual(await p.kill(), { killed: true, survivors: [] });
        assert.equal((await p.wait()).exit?.signal, 9);
      })()
    ]);
  }
}
test("while server, keeper and anchor are killed, nothing is lost or doubled", async () => {
  const c = await Client.connect({ url: daemon.socket });
  const stop = daemon.killing();
  try {
    await underWay(c, 4);
  } finally {
    assert.ok(await stop() > 5, "roles were killed");
  }
  c.close();
});
test("while the server is upgraded, nothing is lost or doubled", async () => {
  const c = await Client.connect({ url: daemon.url });
  let done = false;
  const upgrades = (async () => {
    let n = 0;
    for (; !done; n++) await promisify(execFile)(process.env.TEND_BIN ?? "../../bin/tend", ["upgrade"], { env: { ...process.env, TEND_URL: daemon.socket } });
    return n;
  })();
  await underWay(c, 2);
  done = true;
  assert.ok(await upgrades > 0);
  c.close();
});
test("the package works for import and require", () => {
  const cjs = createRequire(import.meta.url)("@tend/client");
  assert.equal(typeof cjs.Client.connect, "function");
  assert.notEqual(cjs.Client, Client);
});
test("the client ends with its connections, and keeps no program alive", async () => {
  const code = `import { Client } from '@tend/client'; const c = await Client.connect({ url: ${JSON.stringify(daemon.socket)} }); await c.run({ argv: ['true'] });`;
  await promisify(execFile)(process.execPath, ["--input-type=module", "-e", code], { timeout: 3e4 });
  client.close();
  await assert.rejects(client.list(), { code: "closed" });
});
//# sourceMappingURL=data:application/json;base64,ewogICJ2ZXJzaW9uIjogMywKICAic291cmNlcyI6IFsiLi4vdGVzdC9yZWFsLnRlc3QudHMiLCAiLi4vLi4vZGFlbW9uLnRzIl0sCiAgInNvdXJjZXNDb250ZW50IjogWyIvLyBUaGUgY2xpZW50IHdpdGggYSByZWFsIHRlbmQsIGFsc28gd2hpbGUgaXRzIHJvbGVzIGFyZSBraWxsZWQgYW5kIHVwZ3JhZGVkLlxuaW1wb3J0IGFzc2VydCBmcm9tICdub2RlOmFzc2VydC9zdHJpY3QnO1xuaW1wb3J0IHsgZXhlY0ZpbGUgfSBmcm9tICdub2RlOmNoaWxkX3Byb2Nlc3MnO1xuaW1wb3J0IHsgY3JlYXRlSGFzaCwgcmFuZG9tQnl0ZXMgfSBmcm9tICdub2RlOmNyeXB0byc7XG5pbXBvcnQgZnMgZnJvbSAnbm9kZTpmcyc7XG5pbXBvcnQgeyBjcmVhdGVSZXF1aXJlIH0gZnJvbSAnbm9kZTptb2R1bGUnO1xuaW1wb3J0IG9zIGZyb20gJ25vZGU6b3MnO1xuaW1wb3J0IHBhdGggZnJvbSAnbm9kZTpwYXRoJztcbmltcG9ydCB7IFJlYWRhYmxlIH0gZnJvbSAnbm9kZTpzdHJlYW0nO1xuaW1wb3J0IHsgcGlwZWxpbmUgfSBmcm9tICdub2RlOnN0cmVhbS9wcm9taXNlcyc7XG5pbXBvcnQgeyB0ZXN0IH0gZnJvbSAnbm9kZTp0ZXN0JztcbmltcG9ydCB7IHByb21pc2lmeSB9IGZyb20gJ25vZGU6dXRpbCc7XG5pbXBvcnQgeyBDbGllbnQsIEdhcEVycm9yLCBuZXdJRCwgdHlwZSBQcm9jZXNzLCB0eXBlIFByb2Nlc3NFdmVudCB9IGZyb20gJ0B0ZW5kL2NsaWVudCc7XG5pbXBvcnQgeyBEYWVtb24sIHVudGlsIH0gZnJvbSAnLi4vLi4vZGFlbW9uLmpzJztcblxuY29uc3QgZGFlbW9uID0gYXdhaXQgRGFlbW9uLnN0YXJ0KCk7XG5jb25zdCBjbGllbnQgPSBhd2FpdCBDbGllbnQuY29ubmVjdCh7IHVybDogZGFlbW9uLnNvY2tldCB9KTtcbmNvbnN0IHNoYSA9IChiOiBVaW50OEFycmF5KSA9PiBjcmVhdGVIYXNoKCdzaGEyNTYnKS51cGRhdGUoYikuZGlnZXN0KCdoZXgnKTtcblxuYXN5bmMgZnVuY3Rpb24gZHJhaW4ocmVhZGFibGU6IFJlYWRhYmxlKTogUHJvbWlzZTxCdWZmZXI+IHtcbiAgY29uc3QgcGFydHM6IEJ1ZmZlcltdID0gW107XG4gIGZvciBhd2FpdCAoY29uc3QgcGFydCBvZiByZWFkYWJsZSkgcGFydHMucHVzaChwYXJ0IGFzIEJ1ZmZlcik7XG4gIHJldHVybiBCdWZmZXIuY29uY2F0KHBhcnRzKTtcbn1cblxudGVzdCgnYSBjb21tYW5kOiBvdXRwdXQsIGV4aXQgc3RhdHVzLCBpbnB1dCwgZW52aXJvbm1lbnQsIGRpcmVjdG9yeScsIGFzeW5jICgpID0+IHtcbiAgZm9yIChjb25zdCB1cmwgb2YgW2RhZW1vbi5zb2NrZXQsIGRhZW1vbi51cmxdKSB7XG4gICAgY29uc3QgYyA9IGF3YWl0IENsaWVudC5jb25uZWN0KHsgdXJsIH0pO1xuICAgIGNvbnN0IHIgPSBhd2FpdCBjLnJ1bih7IHNoZWxsOiAnY2F0OyBlY2hvIFwiJEFcIiA+JjI7IHB3ZDsgZXhpdCAzJywgZW52OiB7IEE6ICd4IHknLCBCOiB1bmRlZmluZWQgfSwgZGlyOiAnL3VzcicgfSwgeyBpbnB1dDogJ2luICcgfSk7XG4gICAgYXNzZXJ0LmVxdWFsKHIuc3Rkb3V0LnRvU3RyaW5nKCksICdpbiAvdXNyXFxuJyk7XG4gICAgYXNzZXJ0LmVxdWFsKHIuc3RkZXJyLnRvU3RyaW5nKCksICd4IHlcXG4nKTtcbiAgICBhc3NlcnQuZXF1YWwoci5leGl0Q29kZSwgMyk7XG4gICAgYXNzZXJ0LmVxdWFsKHIuc3VjY2VzcywgZmFsc2UpO1xuICAgIGFzc2VydC5vayhjLnNlcnZlci52ZXJzaW9uICYmIGMuc2VydmVyLmluc3RhbmNlKTtcbiAgICBjLmNsb3NlKCk7XG4gIH1cbiAgYXNzZXJ0LmRlZXBFcXVhbChhd2FpdCBjbGllbnQubGlzdCgpLCBbXSwgJ3doYXQgcnVuIHN0YXJ0ZWQgaXMgZm9yZ290dGVuJyk7XG59KTtcblxudGVzdCgnYSBzaWduYWwsIGEgdGltZW91dCBhbmQgYW4gYWJvcnQnLCBhc3luYyAoKSA9PiB7XG4gIGFzc2VydC5lcXVhbCgoYXdhaXQgY2xpZW50LnJ1bih7IHNoZWxsOiAna2lsbCAtU0VHViAkJCcgfSkpLmV4aXRDb2RlLCAxMzkpO1xuICBjb25zdCBsYXRlID0gYXdhaXQgY2xpZW50LnJ1bih7IHNoZWxsOiAndHJhcCBcIlwiIFRFUk07IGVjaG8gb247IHNsZWVwIDYwICYgd2FpdDsgc2xlZXAgNjAnICwgdGltZW91dDogMzAwIH0pO1xuICBhc3NlcnQuZXF1YWwobGF0ZS5leGl0Q29kZSwgMTI0KTtcbiAgYXNzZXJ0LmVxdWFsKGxhdGUuZXhpdC5jYXVzZSwgJ3RpbWVvdXQnKTtcbiAgYXNzZXJ0LmVxdWFsKGxhdGUuc3Rkb3V0LnRvU3RyaW5nKCksICdvblxcbicpO1xuICBjb25zdCBzdG9wID0gbmV3IEFib3J0Q29udHJvbGxlcigpO1xuICBjb25zdCBydW4gPSBjbGllbnQucnVuKHsgYXJndjogWydzbGVlcCcsICc2MCddIH0sIHsgc2lnbmFsOiBzdG9wLnNpZ25hbCB9KTtcbiAgYXdhaXQgdW50aWwoYXN5bmMgKCkgPT4gKGF3YWl0IGNsaWVudC5saXN0KHsgbGl2ZTogdHJ1ZSB9KSkubGVuZ3RoID4gMCwgJ2l0IHJ1bnMnKTtcbiAgc3RvcC5hYm9ydCgpO1xuICBhc3NlcnQuZXF1YWwoKGF3YWl0IHJ1bikuZXhpdC5jYXVzZSwgJ2tpbGxlZCcpO1xufSk7XG5cbnRlc3QoJ3RoZSBuZXdlc3QgYnl0ZXMgYXJlIGtlcHQnLCBhc3luYyAoKSA9PiB7XG4gIGNvbnN0IHIgPSBhd2FpdCBjbGllbnQucnVuKHsgc2hlbGw6ICdzZXEgMSAxMDAwMCcgfSwgeyBtYXhPdXRwdXQ6IDEwMCB9KTtcbiAgYXNzZXJ0LmVxdWFsKHIuc3Rkb3V0Lmxlbmd0aCwgMTAwKTtcbiAgYXNzZXJ0Lm9rKHIuc3Rkb3V0LnRvU3RyaW5nKCkuZW5kc1dpdGgoJzk5OTlcXG4xMDAwMFxcbicpKTtcbiAgYXNzZXJ0LmVxdWFsKHIuc3Rkb3V0RHJvcHBlZCwgNDhfODk0IC0gMTAwKTtcbn0pO1xuXG50ZXN0KCdvbmUgaWQgc3RhcnRzIG9uY2UnLCBhc3luYyAoKSA9PiB7XG4gIGNvbnN0IGlkID0gbmV3SUQoKTtcbiAgY29uc3Qgc3BlYyA9IHsgaWQsIGFyZ3Y6IFsnc2xlZXAnLCAnNjAnXSwgbGFiZWxzOiB7IG1pbmU6ICd5ZXMnIH0sIG5hbWU6ICduYXBwZXInIH07XG4gIGNvbnN0IFthLCBiXSA9IGF3YWl0IFByb21pc2UuYWxsKFtjbGllbnQuc3RhcnQoc3BlYyksIGNsaWVudC5zdGFydChzcGVjKV0pO1xuICBhc3NlcnQuZXF1YWwoYS5waWQsIGIucGlkKTtcbiAgYXdhaXQgYXNzZXJ0LnJlamVjdHMoY2xpZW50LnN0YXJ0KHsgaWQsIGFyZ3Y6IFsnc2xlZXAnLCAnNjEnXSB9KSwgeyBjb2RlOiAnZXhpc3RzJyB9KTtcbiAgYXNzZXJ0LmRlZXBFcXVhbCgoYXdhaXQgY2xpZW50Lmxpc3QoeyBsYWJlbHM6IHsgbWluZTogJ3llcycgfSB9KSkubWFwKChpKSA9PiBpLmlkKSwgW2lkXSk7XG4gIGFzc2VydC5lcXVhbCgoYXdhaXQgY2xpZW50LmdldCh7IG5hbWU6ICduYXBwZXInIH0pKS5pZCwgaWQpO1xuICBhc3NlcnQuZXF1YWwoKGF3YWl0IGNsaWVudC5nZXQoeyBwaWQ6IGEucGlkIH0pKS5pZCwgaWQpO1xuICBhc3NlcnQuZGVlcEVxdWFsKGF3YWl0IGEua2lsbCgpLCB7IGtpbGxlZDogdHJ1ZSwgc3Vydml2b3JzOiBbXSB9KTtcbiAgYXNzZXJ0LmRlZXBFcXVhbChhd2FpdCBiLmtpbGwoKSwgeyBraWxsZWQ6IGZhbHNlLCBzdXJ2aXZvcnM6IFtdIH0pO1xuICBhd2FpdCBhLnJlbW92ZSgpO1xuICBhd2FpdCBhc3NlcnQucmVqZWN0cyhhLnJlZnJlc2goKSwgeyBjb2RlOiAnbm90X2ZvdW5kJyB9KTtcbn0pO1xuXG50ZXN0KCd3aGF0IGNhbm5vdCBiZSBzdGFydGVkIHNheXMgd2h5JywgYXN5bmMgKCkgPT4ge1xuICBhd2FpdCBhc3NlcnQucmVqZWN0cyhjbGllbnQuc3RhcnQoeyBhcmd2OiBbJy9uby9zdWNoJ10gfSksIHsgY29kZTogJ3N0YXJ0JywgcmVhc29uOiAnbm90X2ZvdW5kJywgd2hhdDogJy9uby9zdWNoJyB9KTtcbiAgYXdhaXQgYXNzZXJ0LnJlamVjdHMoY2xpZW50LnN0YXJ0KHsgYXJndjogWyd0cnVlJ10sIGRpcjogJy9uby9zdWNoJyB9KSwgeyBjb2RlOiAnc3RhcnQnLCByZWFzb246ICdiYWRfZGlyJywgd2hhdDogJy9uby9zdWNoJyB9KTtcbiAgYXdhaXQgYXNzZXJ0LnJlamVjdHMoY2xpZW50LnN0YXJ0KHsgYXJndjogWyd0cnVlJ10sIHNoZWxsOiAndHJ1ZScgfSksIHsgY29kZTogJ2ludmFsaWQnIH0pO1xufSk7XG5cbnRlc3QoJ2EgbGlzdCBvZiBtYW55IHBhZ2VzJywgYXN5bmMgKCkgPT4ge1xuICBjb25zdCBsYWJlbCA9IHsgbWFueTogbmV3SUQoKSB9O1xuICBjb25zdCBiaWcgPSAneCcucmVwZWF0KDMwMF8wMDApO1xuICBmb3IgKGxldCBpID0gMDsgaSA8IDIwOyBpKyspIGF3YWl0IGNsaWVudC5zdGFydCh7IGFyZ3Y6IFsndHJ1ZSddLCBsYWJlbHM6IHsgLi4ubGFiZWwsIG46IFN0cmluZyhpKSwgYmlnIH0sIHJldGVudGlvbjogeyB0dGw6IDYwXzAwMCB9IH0pO1xuICBjb25zdCBhbGwgPSBhd2FpdCBjbGllbnQubGlzdCh7IGxhYmVsczogbGFiZWwgfSk7XG4gIGFzc2VydC5kZWVwRXF1YWwoYWxsLm1hcCgoaSkgPT4gaS5zcGVjLmxhYmVscyEubiksIEFycmF5LmZyb20oeyBsZW5ndGg6IDIwIH0sIChfLCBpKSA9PiBTdHJpbmcoaSkpKTtcbn0pO1xuXG50ZXN0KCd3YWl0czogdGV4dCwgc2lsZW5jZSwgYSBwb3J0LCB0aGUgZW5kIG9mIHRoZSB0cmVlJywgYXN5bmMgKCkgPT4ge1xuICBjb25zdCBwID0gYXdhaXQgY2xpZW50LnN0YXJ0KHsgYXJndjogW3Byb2Nlc3MuZXhlY1BhdGgsICctZScsICdjb25zb2xlLmxvZyhcInJlYWR5XCIpOyByZXF1aXJlKFwibmV0XCIpLmNyZWF0ZVNlcnZlcigpLmxpc3RlbigwLCBcIjEyNy4wLjAuMVwiLCBmdW5jdGlvbiAoKSB7IGNvbnNvbGUubG9nKFwib24gXCIgKyB0aGlzLmFkZHJlc3MoKS5wb3J0KTsgfSknXSB9KTtcbiAgY29uc3QgcmVhZHkgPSBhd2FpdCBwLndhaXQoeyBtYXRjaDogL29uIChcXGQrKS8gfSk7XG4gIGFzc2VydC5vayhyZWFkeS5tZXQgJiYgcmVhZHkuc3RyZWFtID09PSAnc3Rkb3V0Jyk7XG4gIGNvbnN0IHBvcnQgPSBOdW1iZXIocmVhZHkubWF0Y2ghLnRvU3RyaW5nKCkuc3BsaXQoJyAnKVsxXSk7XG4gIGNvbnN0IG9uID0gYXdhaXQgcC53YWl0KHsgcG9ydCB9KTtcbiAgYXNzZXJ0LmRlZXBFcXVhbChvbi5saXN0ZW5pbmcubWFwKChsKSA9PiBsLnBpZCksIFtwLnBpZF0pO1xuICBhc3NlcnQuZXF1YWwoKGF3YWl0IHAud2FpdCh7IHF1aWV0OiA1MCB9KSkubWV0LCB0cnVlKTtcbiAgYXdhaXQgcC5raWxsKCk7XG4gIGNvbnN0IGVuZCA9IGF3YWl0IHAud2FpdCgpO1xuICBhc3NlcnQuZXF1YWwoZW5kLmV4aXQ/LnNpZ25hbCwgOSk7XG4gIGFzc2VydC5lcXVhbCgoYXdhaXQgcC53YWl0KHsgbWF0Y2g6ICduZXZlcicgfSkpLm1ldCwgZmFsc2UpO1xufSk7XG5cbnRlc3QoJ2EgdGVybWluYWwnLCBhc3luYyAoKSA9PiB7XG4gIGNvbnN0IHAgPSBhd2FpdCBjbGllbnQuc3RhcnQoeyBzaGVsbDogJ3N0dHkgc2l6ZTsgcmVhZCB4OyBzdHR5IHNpemUnLCBwdHk6IHsgY29sczogMTAwLCByb3dzOiAzMCB9IH0pO1xuICBhd2FpdCBwLndhaXQoeyBtYXRjaDogJzMwIDEwMCcgfSk7XG4gIGF3YWl0IHAucmVzaXplKDUwLCAyMCk7XG4gIGF3YWl0IHAud3JpdGUoJ1xcbicpO1xuICBjb25zdCB0ZXh0ID0gKGF3YWl0IGRyYWluKHAub3V0cHV0KCdwdHknKSkpLnRvU3RyaW5nKCk7XG4gIGFzc2VydC5tYXRjaCh0ZXh0LCAvMzAgMTAwXFxyXFxuLyk7XG4gIGFzc2VydC5tYXRjaCh0ZXh0LCAvMjAgNTBcXHJcXG4vKTtcbn0pO1xuXG50ZXN0KCdhIHBpcGVsaW5lIHRocm91Z2ggYSBwcm9jZXNzLCBieXRlIGZvciBieXRlJywgYXN5bmMgKCkgPT4ge1xuICBjb25zdCBieXRlcyA9IHJhbmRvbUJ5dGVzKDIwIDw8IDIwKTtcbiAgY29uc3QgcCA9IGF3YWl0IGNsaWVudC5zdGFydCh7IGFyZ3Y6IFsnY2F0J10sIHN0ZGluOiAncGlwZScgfSk7XG4gIGNvbnN0IG91dCA9IGRyYWluKHAub3V0cHV0KCdzdGRvdXQnKSk7XG4gIGF3YWl0IHBpcGVsaW5lKFJlYWRhYmxlLmZyb20oKGZ1bmN0aW9uKiAoKSB7IGZvciAobGV0IGkgPSAwOyBpIDwgYnl0ZXMubGVuZ3RoOyBpICs9IDEwMF8wMDMpIHlpZWxkIGJ5dGVzLnN1YmFycmF5KGksIGkgKyAxMDBfMDAzKTsgfSkoKSksIHAuaW5wdXQoKSk7XG4gIGFzc2VydC5lcXVhbChzaGEoYXdhaXQgb3V0KSwgc2hhKGJ5dGVzKSk7XG4gIGFzc2VydC5kZWVwRXF1YWwoc2hhKGF3YWl0IGRyYWluKHAub3V0cHV0KCdzdGRvdXQnLCB7IGZyb206IHsgc3Rkb3V0OiA1IH0gfSkpKSwgc2hhKGJ5dGVzLnN1YmFycmF5KDUpKSwgJ2FuZCBhZ2FpbiwgZnJvbSBhbm90aGVyIHBsYWNlJyk7XG59KTtcblxudGVzdCgnYnl0ZXMgdGhhdCByZXRlbnRpb24gZnJlZWQgYXJlIGEgZ2FwJywgYXN5bmMgKCkgPT4ge1xuICBjb25zdCBwID0gYXdhaXQgY2xpZW50LnN0YXJ0KHsgc2hlbGw6ICdoZWFkIC1jIDgwMDAwMDAgL2Rldi96ZXJvJywgcmV0ZW50aW9uOiB7IGxpbWl0OiAxIDw8IDIwIH0gfSk7XG4gIGF3YWl0IHAud2FpdCh7IGVvZjogdHJ1ZSB9KTtcbiAgYXdhaXQgdW50aWwoYXN5bmMgKCkgPT4gKGF3YWl0IHAucmVmcmVzaCgpKS5zdHJlYW1zLnNvbWUoKHMpID0+IHMuYmFzZSA+IDApLCAnc29tZSBpcyBmcmVlZCcpO1xuICBhd2FpdCBhc3NlcnQucmVqZWN0cyhkcmFpbihwLm91dHB1dCgnc3Rkb3V0JykpLCBHYXBFcnJvcik7XG4gIGNvbnN0IGtpbmRzID0gbmV3IFNldDxzdHJpbmc+KCk7XG4gIGZvciBhd2FpdCAoY29uc3QgZSBvZiBwLnJlYWQoKSkga2luZHMuYWRkKGUua2luZCk7XG4gIGFzc2VydC5vayhraW5kcy5oYXMoJ2dhcCcpICYmIGtpbmRzLmhhcygnb3V0cHV0JykpO1xufSk7XG5cbnRlc3QoJ2lucHV0IGFmdGVyIHRoZSBlbmQgaXMgcmVmdXNlZCcsIGFzeW5jICgpID0+IHtcbiAgY29uc3QgcCA9IGF3YWl0IGNsaWVudC5zdGFydCh7IGFyZ3Y6IFsndHJ1ZSddLCBzdGRpbjogJ3BpcGUnIH0pO1xuICBhd2FpdCBwLndhaXQoKTtcbiAgYXdhaXQgYXNzZXJ0LnJlamVjdHMocC53cml0ZSgneCcpLCB7IGNvZGU6ICdleGl0ZWQnIH0pO1xuICBjb25zdCBxID0gYXdhaXQgY2xpZW50LnN0YXJ0KHsgYXJndjogWydzbGVlcCcsICc2MCddIH0pO1xuICBhd2FpdCBhc3NlcnQucmVqZWN0cyhxLndyaXRlKCd4JyksIHsgY29kZTogJ3N0ZGluX2Nsb3NlZCcgfSk7XG4gIGF3YWl0IHEua2lsbCgpO1xufSk7XG5cbnRlc3QoJ2Egd3JvbmcgdG9rZW4gaXMgcmVmdXNlZCwgYmVmb3JlIGFueXRoaW5nIGVsc2UnLCBhc3luYyAoKSA9PiB7XG4gIGNvbnN0IGZpbGUgPSBwYXRoLmpvaW4oZnMubWtkdGVtcFN5bmMocGF0aC5qb2luKG9zLnRtcGRpcigpLCAndGVuZC10cy10b2tlbi0nKSksICd0b2tlbicpO1xuICBmcy53cml0ZUZpbGVTeW5jKGZpbGUsICdyaWdodC10b2tlbi0wMTIzNDU2Nzg5JywgeyBtb2RlOiAwbzYwMCB9KTtcbiAgY29uc3QgZ3VhcmRlZCA9IGF3YWl0IERhZW1vbi5zdGFydCgnLS10b2tlbi1maWxlJywgZmlsZSk7XG4gIGZzLnJtU3luYyhwYXRoLmRpcm5hbWUoZmlsZSksIHsgcmVjdXJzaXZlOiB0cnVlIH0pO1xuICBhd2FpdCBhc3NlcnQucmVqZWN0cyhDbGllbnQuY29ubmVjdCh7IHVybDogZ3VhcmRlZC51cmwsIHRva2VuOiAnd3JvbmcnIH0pLCB7IGNvZGU6ICdwZXJtaXNzaW9uJyB9KTtcbiAgY29uc3QgYyA9IGF3YWl0IENsaWVudC5jb25uZWN0KHsgdXJsOiBndWFyZGVkLnVybCwgdG9rZW46ICdyaWdodC10b2tlbi0wMTIzNDU2Nzg5JyB9KTtcbiAgYXNzZXJ0LmVxdWFsKChhd2FpdCBjLnJ1bih7IGFyZ3Y6IFsnZWNobycsICdpbiddIH0pKS5zdGRvdXQudG9TdHJpbmcoKSwgJ2luXFxuJyk7XG4gIGMuY2xvc2UoKTtcbn0pO1xuXG4vLyBXaGF0IGEgcHJvY2VzcyB3cm90ZSBhbmQgaG93IGl0IGVuZGVkLCBhcyBhIGNsaWVudCB0ZWxscyBvZiBpdC5cbmFzeW5jIGZ1bmN0aW9uIGZvbGxvdyhwOiBQcm9jZXNzKTogUHJvbWlzZTx7IG91dDogQnVmZmVyOyBjb2RlPzogbnVtYmVyOyBmYWN0czogc3RyaW5nW10gfT4ge1xuICBjb25zdCBwYXJ0czogQnVmZmVyW10gPSBbXTtcbiAgY29uc3QgZmFjdHM6IHN0cmluZ1tdID0gW107XG4gIGxldCBjb2RlOiBudW1iZXIgfCB1bmRlZmluZWQ7XG4gIGZvciBhd2FpdCAoY29uc3QgZSBvZiBwLnJlYWQoeyBkcmFpbjogLTEgfSkgYXMgQXN5bmNJdGVyYWJsZTxQcm9jZXNzRXZlbnQ+KSB7XG4gICAgaWYgKGUua2luZCA9PT0gJ291dHB1dCcpIHBhcnRzLnB1c2goZS5kYXRhKTtcbiAgICBlbHNlIGZhY3RzLnB1c2goZS5raW5kKTtcbiAgICBpZiAoZS5raW5kID09PSAnZXhpdGVkJykgY29kZSA9IGUuZXhpdC5jb2RlO1xuICB9XG4gIHJldHVybiB7IG91dDogQnVmZmVyLmNvbmNhdChwYXJ0cyksIGNvZGUsIGZhY3RzIH07XG59XG5cbmFzeW5jIGZ1bmN0aW9uIHVuZGVyV2F5KGM6IENsaWVudCwgcm91bmRzOiBudW1iZXIpOiBQcm9taXNlPHZvaWQ+IHtcbiAgY29uc3QgbGluZXMgPSA0MDAwO1xuICBjb25zdCBjb3VudCA9ICdpPTA7IHdoaWxlIFsgJGkgLWx0IDQwMDAgXTsgZG8gaT0kKChpKzEpKTsgZWNobyBcImxpbmUgJGkgb2YgcHJvY2Vzc1wiOyBbICQoKGkgJSA0MDApKSA9IDAgXSAmJiBzbGVlcCAwLjE7IGRvbmU7IGV4aXQgNyc7XG4gIGNvbnN0IHdhbnQgPSBBcnJheS5mcm9tKHsgbGVuZ3RoOiBsaW5lcyB9LCAoXywgaSkgPT4gYGxpbmUgJHtpICsgMX0gb2YgcHJvY2Vzc1xcbmApLmpvaW4oJycpO1xuICBmb3IgKGxldCByb3VuZCA9IDA7IHJvdW5kIDwgcm91bmRzOyByb3VuZCsrKSB7XG4gICAgYXdhaXQgUHJvbWlzZS5hbGwoW1xuICAgICAgLi4uWzEsIDIsIDNdLm1hcChhc3luYyAoKSA9PiB7XG4gICAgICAgIGNvbnN0IHAgPSBhd2FpdCBjLnN0YXJ0KHsgc2hlbGw6IGNvdW50IH0pO1xuICAgICAgICBjb25zdCB7IG91dCwgY29kZSwgZmFjdHMgfSA9IGF3YWl0IGZvbGxvdyhwKTtcbiAgICAgICAgYXNzZXJ0LmVxdWFsKHNoYShvdXQpLCBzaGEoQnVmZmVyLmZyb20od2FudCkpLCBgJHtvdXQubGVuZ3RofSBieXRlcyBvZiAke3dhbnQubGVuZ3RofTsgJHtmYWN0cy5qb2luKCl9ICR7SlNPTi5zdHJpbmdpZnkoKGF3YWl0IHAucmVmcmVzaCgpKS5leGl0KX1gKTtcbiAgICAgICAgYXNzZXJ0LmVxdWFsKGNvZGUsIDcpO1xuICAgICAgICBmb3IgKGNvbnN0IGtpbmQgb2YgWydzdGFydGVkJywgJ2V4aXRlZCddKSBhc3NlcnQuZXF1YWwoZmFjdHMuZmlsdGVyKChmKSA9PiBmID09PSBraW5kKS5sZW5ndGgsIDEsIGtpbmQpO1xuICAgICAgICBhc3NlcnQuZXF1YWwoKGF3YWl0IHAud2FpdCgpKS5leGl0Py5jb2RlLCA3KTtcbiAgICAgICAgYXdhaXQgcC5yZW1vdmUoKTtcbiAgICAgIH0pLFxuICAgICAgKGFzeW5jICgpID0+IHtcbiAgICAgICAgY29uc3QgcCA9IGF3YWl0IGMuc3RhcnQoeyBhcmd2OiBbJ2NhdCddLCBzdGRpbjogJ3BpcGUnIH0pO1xuICAgICAgICBjb25zdCBieXRlcyA9IHJhbmRvbUJ5dGVzKDEgPDwgMjApO1xuICAgICAgICBjb25zdCBvdXQgPSBkcmFpbihwLm91dHB1dCgnc3Rkb3V0JykpO1xuICAgICAgICBjb25zdCB3cml0ZXM6IFByb21pc2U8dm9pZD5bXSA9IFtdO1xuICAgICAgICBmb3IgKGxldCBpID0gMDsgaSA8IGJ5dGVzLmxlbmd0aDsgaSArPSA0MDk5KSB3cml0ZXMucHVzaChwLndyaXRlKGJ5dGVzLnN1YmFycmF5KGksIGkgKyA0MDk5KSkpO1xuICAgICAgICBhd2FpdCBQcm9taXNlLmFsbCh3cml0ZXMpO1xuICAgICAgICBhd2FpdCBwLmNsb3NlU3RkaW4oKTtcbiAgICAgICAgYXNzZXJ0LmVxdWFsKHNoYShhd2FpdCBvdXQpLCBzaGEoYnl0ZXMpLCAnaW5wdXQgY29tZXMgaW4gb3JkZXIsIG9uY2UnKTtcbiAgICAgICAgYXNzZXJ0LmVxdWFsKChhd2FpdCBwLndhaXQoKSkuZXhpdD8uY29kZSwgMCk7XG4gICAgICB9KSgpLFxuICAgICAgKGFzeW5jICgpID0+IHtcbiAgICAgICAgZm9yIChsZXQgaSA9IDA7IGkgPCAxMDsgaSsrKSBhc3NlcnQuZXF1YWwoKGF3YWl0IGMucnVuKHsgc2hlbGw6IGBlY2hvICR7aX07IGV4aXQgJHtpfWAgfSkpLnN0ZG91dC50b1N0cmluZygpLCBgJHtpfVxcbmApO1xuICAgICAgfSkoKSxcbiAgICAgIChhc3luYyAoKSA9PiB7XG4gICAgICAgIGNvbnN0IHAgPSBhd2FpdCBjLnN0YXJ0KHsgc2hlbGw6ICdzbGVlcCA2MDAgJiBzbGVlcCA2MDAnIH0pO1xuICAgICAgICBhc3NlcnQuZGVlcEVxdWFsKGF3YWl0IHAua2lsbCgpLCB7IGtpbGxlZDogdHJ1ZSwgc3Vydml2b3JzOiBbXSB9KTtcbiAgICAgICAgYXNzZXJ0LmVxdWFsKChhd2FpdCBwLndhaXQoKSkuZXhpdD8uc2lnbmFsLCA5KTtcbiAgICAgIH0pKCksXG4gICAgXSk7XG4gIH1cbn1cblxudGVzdCgnd2hpbGUgc2VydmVyLCBrZWVwZXIgYW5kIGFuY2hvciBhcmUga2lsbGVkLCBub3RoaW5nIGlzIGxvc3Qgb3IgZG91YmxlZCcsIGFzeW5jICgpID0+IHtcbiAgY29uc3QgYyA9IGF3YWl0IENsaWVudC5jb25uZWN0KHsgdXJsOiBkYWVtb24uc29ja2V0IH0pO1xuICBjb25zdCBzdG9wID0gZGFlbW9uLmtpbGxpbmcoKTtcbiAgdHJ5IHtcbiAgICBhd2FpdCB1bmRlcldheShjLCA0KTtcbiAgfSBmaW5hbGx5IHtcbiAgICBhc3NlcnQub2soKGF3YWl0IHN0b3AoKSkgPiA1LCAncm9sZXMgd2VyZSBraWxsZWQnKTtcbiAgfVxuICBjLmNsb3NlKCk7XG59KTtcblxudGVzdCgnd2hpbGUgdGhlIHNlcnZlciBpcyB1cGdyYWRlZCwgbm90aGluZyBpcyBsb3N0IG9yIGRvdWJsZWQnLCBhc3luYyAoKSA9PiB7XG4gIGNvbnN0IGMgPSBhd2FpdCBDbGllbnQuY29ubmVjdCh7IHVybDogZGFlbW9uLnVybCB9KTtcbiAgbGV0IGRvbmUgPSBmYWxzZTtcbiAgY29uc3QgdXBncmFkZXMgPSAoYXN5bmMgKCkgPT4ge1xuICAgIGxldCBuID0gMDtcbiAgICBmb3IgKDsgIWRvbmU7IG4rKykgYXdhaXQgcHJvbWlzaWZ5KGV4ZWNGaWxlKShwcm9jZXNzLmVudi5URU5EX0JJTiA/PyAnLi4vLi4vYmluL3RlbmQnLCBbJ3VwZ3JhZGUnXSwgeyBlbnY6IHsgLi4ucHJvY2Vzcy5lbnYsIFRFTkRfVVJMOiBkYWVtb24uc29ja2V0IH0gfSk7XG4gICAgcmV0dXJuIG47XG4gIH0pKCk7XG4gIGF3YWl0IHVuZGVyV2F5KGMsIDIpO1xuICBkb25lID0gdHJ1ZTtcbiAgYXNzZXJ0Lm9rKChhd2FpdCB1cGdyYWRlcykgPiAwKTtcbiAgYy5jbG9zZSgpO1xufSk7XG5cbnRlc3QoJ3RoZSBwYWNrYWdlIHdvcmtzIGZvciBpbXBvcnQgYW5kIHJlcXVpcmUnLCAoKSA9PiB7XG4gIGNvbnN0IGNqcyA9IGNyZWF0ZVJlcXVpcmUoaW1wb3J0Lm1ldGEudXJsKSgnQHRlbmQvY2xpZW50JykgYXMgdHlwZW9mIGltcG9ydCgnQHRlbmQvY2xpZW50Jyk7XG4gIGFzc2VydC5lcXVhbCh0eXBlb2YgY2pzLkNsaWVudC5jb25uZWN0LCAnZnVuY3Rpb24nKTtcbiAgYXNzZXJ0Lm5vdEVxdWFsKGNqcy5DbGllbnQsIENsaWVudCk7XG59KTtcblxudGVzdCgndGhlIGNsaWVudCBlbmRzIHdpdGggaXRzIGNvbm5lY3Rpb25zLCBhbmQga2VlcHMgbm8gcHJvZ3JhbSBhbGl2ZScsIGFzeW5jICgpID0+IHtcbiAgY29uc3QgY29kZSA9IGBpbXBvcnQgeyBDbGllbnQgfSBmcm9tICdAdGVuZC9jbGllbnQnOyBjb25zdCBjID0gYXdhaXQgQ2xpZW50LmNvbm5lY3QoeyB1cmw6ICR7SlNPTi5zdHJpbmdpZnkoZGFlbW9uLnNvY2tldCl9IH0pOyBhd2FpdCBjLnJ1bih7IGFyZ3Y6IFsndHJ1ZSddIH0pO2A7XG4gIGF3YWl0IHByb21pc2lmeShleGVjRmlsZSkocHJvY2Vzcy5leGVjUGF0aCwgWyctLWlucHV0LXR5cGU9bW9kdWxlJywgJy1lJywgY29kZV0sIHsgdGltZW91dDogMzBfMDAwIH0pO1xuICBjbGllbnQuY2xvc2UoKTtcbiAgYXdhaXQgYXNzZXJ0LnJlamVjdHMoY2xpZW50Lmxpc3QoKSwgeyBjb2RlOiAnY2xvc2VkJyB9KTtcbn0pO1xuIiwgIi8vIEEgdGVuZCBvZiB0aGUgdGVzdHMnIG93bjogYmluL3RlbmQgc2VydmUsIG9yIHdoYXQgVEVORF9CSU4gbmFtZXMuIEl0IGlzIGVuZGVkXG4vLyB3aXRoIHRoZSB0ZXN0cy5cbmltcG9ydCB7IHNwYXduLCB0eXBlIENoaWxkUHJvY2VzcyB9IGZyb20gJ25vZGU6Y2hpbGRfcHJvY2Vzcyc7XG5pbXBvcnQgZnMgZnJvbSAnbm9kZTpmcyc7XG5pbXBvcnQgb3MgZnJvbSAnbm9kZTpvcyc7XG5pbXBvcnQgcGF0aCBmcm9tICdub2RlOnBhdGgnO1xuaW1wb3J0IHsgYWZ0ZXIgfSBmcm9tICdub2RlOnRlc3QnO1xuaW1wb3J0IHsgc2V0VGltZW91dCBhcyBzbGVlcCB9IGZyb20gJ25vZGU6dGltZXJzL3Byb21pc2VzJztcblxuY29uc3QgYmluID0gcHJvY2Vzcy5lbnYuVEVORF9CSU4gPz8gcGF0aC5yZXNvbHZlKCcuLi8uLi9iaW4vdGVuZCcpO1xuXG5leHBvcnQgY2xhc3MgRGFlbW9uIHtcbiAgcHJpdmF0ZSBjb25zdHJ1Y3RvcihcbiAgICByZWFkb25seSBkaXI6IHN0cmluZyxcbiAgICBwcml2YXRlIGNoaWxkOiBDaGlsZFByb2Nlc3MsXG4gICkge31cblxuICAvKiogU3RhcnRzIG9uZSwgd2l0aCBhIHNvY2tldCBhbmQgYSBwb3J0LiAqL1xuICBzdGF0aWMgYXN5bmMgc3RhcnQoLi4uZmxhZ3M6IHN0cmluZ1tdKTogUHJvbWlzZTxEYWVtb24+IHtcbiAgICBjb25zdCBkaXIgPSBmcy5ta2R0ZW1wU3luYyhwYXRoLmpvaW4ob3MudG1wZGlyKCksICd0ZW5kLXRzLScpKTtcbiAgICBjb25zdCBsb2cgPSBmcy5vcGVuU3luYyhwYXRoLmpvaW4oZGlyLCAnbG9nJyksICdhJyk7XG4gICAgY29uc3QgY2hpbGQgPSBzcGF3bihiaW4sIFsnc2VydmUnLCAnLS1saXN0ZW4nLCAnMTI3LjAuMC4xOjAnLCAnLS1zb2NrZXQnLCBwYXRoLmpvaW4oZGlyLCAncy5zb2NrJyksICctLXN0YXRlLWRpcicsIHBhdGguam9pbihkaXIsICdzdGF0ZScpLCAnLS1wb3J0LWZpbGUnLCBwYXRoLmpvaW4oZGlyLCAndXJsJyksIC4uLmZsYWdzXSwge1xuICAgICAgc3RkaW86IFsnaWdub3JlJywgbG9nLCBsb2ddLFxuICAgIH0pO1xuICAgIGZzLmNsb3NlU3luYyhsb2cpO1xuICAgIGNvbnN0IGRhZW1vbiA9IG5ldyBEYWVtb24oZGlyLCBjaGlsZCk7XG4gICAgYWZ0ZXIoKCkgPT4gZGFlbW9uLnN0b3AoKSk7XG4gICAgYXdhaXQgdW50aWwoKCkgPT4gZnMuZXhpc3RzU3luYyhwYXRoLmpvaW4oZGlyLCAndXJsJykpIHx8IGNoaWxkLmV4aXRDb2RlICE9PSBudWxsLCAndGhlIGRhZW1vbiBzZXJ2ZXMnKTtcbiAgICBpZiAoY2hpbGQuZXhpdENvZGUgIT09IG51bGwpIHRocm93IG5ldyBFcnJvcihmcy5yZWFkRmlsZVN5bmMocGF0aC5qb2luKGRpciwgJ2xvZycpLCAndXRmOCcpKTtcbiAgICByZXR1cm4gZGFlbW9uO1xuICB9XG5cbiAgZ2V0IHNvY2tldCgpOiBzdHJpbmcge1xuICAgIHJldHVybiBgdW5peDovLyR7dGhpcy5kaXJ9L3Muc29ja2A7XG4gIH1cblxuICBnZXQgdXJsKCk6IHN0cmluZyB7XG4gICAgcmV0dXJuIGZzLnJlYWRGaWxlU3luYyhwYXRoLmpvaW4odGhpcy5kaXIsICd1cmwnKSwgJ3V0ZjgnKS50cmltKCk7XG4gIH1cblxuICBnZXQgc3RhdGVEaXIoKTogc3RyaW5nIHtcbiAgICByZXR1cm4gcGF0aC5qb2luKHRoaXMuZGlyLCAnc3RhdGUnKTtcbiAgfVxuXG4gIC8qKiBUaGUgcGlkcyBvZiBhbmNob3IsIGtlZXBlciBhbmQgc2VydmVyOiBkZXNjZW5kYW50cyBvZiB0aGUgbGF1bmNoZXIsIGJ5IHRoZWlyIGNvbW1hbmQgbGluZXMuICovXG4gIHJvbGVzKCk6IFJlY29yZDxzdHJpbmcsIG51bWJlcj4ge1xuICAgIGNvbnN0IGZvdW5kOiBSZWNvcmQ8c3RyaW5nLCBudW1iZXI+ID0ge307XG4gICAgY29uc3QgdmlzaXQgPSAocGlkOiBudW1iZXIpID0+IHtcbiAgICAgIGxldCBjaGlsZHJlbjogc3RyaW5nW10gPSBbXTtcbiAgICAgIHRyeSB7XG4gICAgICAgIGZvciAoY29uc3QgdGFzayBvZiBmcy5yZWFkZGlyU3luYyhgL3Byb2MvJHtwaWR9L3Rhc2tgKSkgY2hpbGRyZW4ucHVzaCguLi5mcy5yZWFkRmlsZVN5bmMoYC9wcm9jLyR7cGlkfS90YXNrLyR7dGFza30vY2hpbGRyZW5gLCAndXRmOCcpLnNwbGl0KCcgJykuZmlsdGVyKEJvb2xlYW4pKTtcbiAgICAgIH0gY2F0Y2gge1xuICAgICAgICByZXR1cm47IC8vIGl0IGhhcyBlbmRlZFxuICAgICAgfVxuICAgICAgZm9yIChjb25zdCBjIG9mIGNoaWxkcmVuLm1hcChOdW1iZXIpKSB7XG4gICAgICAgIHRyeSB7XG4gICAgICAgICAgY29uc3QgYXJncyA9IGZzLnJlYWRGaWxlU3luYyhgL3Byb2MvJHtjfS9jbWRsaW5lYCwgJ3V0ZjgnKS5zcGxpdCgnXFwwJyk7XG4gICAgICAgICAgY29uc3QgZXhlID0gZnMucmVhZGxpbmtTeW5jKGAvcHJvYy8ke2N9L2V4ZWApO1xuICAgICAgICAgIGZvciAoY29uc3Qgcm9sZSBvZiBbJ2FuY2hvcicsICdrZWVwZXInLCAnc2VydmVyJ10pIGlmIChhcmdzLmluY2x1ZGVzKHJvbGUpICYmIC90ZW5kLy50ZXN0KGV4ZSkpIGZvdW5kW3JvbGVdID0gYztcbiAgICAgICAgfSBjYXRjaCB7XG4gICAgICAgICAgY29udGludWU7XG4gICAgICAgIH1cbiAgICAgICAgdmlzaXQoYyk7XG4gICAgICB9XG4gICAgfTtcbiAgICB2aXNpdCh0aGlzLmNoaWxkLnBpZCEpO1xuICAgIHJldHVybiBmb3VuZDtcbiAgfVxuXG4gIC8qKlxuICAgKiBLaWxscyByb2xlcyB3aXRoIFNJR0tJTEwsIG9uZSBhZnRlciB0aGUgb3RoZXIsIHVudGlsIHRoZSByZXR1cm5lZCBmdW5jdGlvbiBpc1xuICAgKiBjYWxsZWQ7IHRoYXQgcmVzb2x2ZXMgdG8gaG93IG1hbnkgaXQgd2VyZS5cbiAgICovXG4gIGtpbGxpbmcoZXZlcnkgPSAzMDAsIHJvbGVzID0gWydzZXJ2ZXInLCAna2VlcGVyJywgJ2FuY2hvciddKTogKCkgPT4gUHJvbWlzZTxudW1iZXI+IHtcbiAgICBsZXQgc3RvcCA9IGZhbHNlO1xuICAgIGxldCBraWxsZWQgPSAwO1xuICAgIGNvbnN0IGxvb3AgPSAoYXN5bmMgKCkgPT4ge1xuICAgICAgZm9yIChsZXQgaSA9IDA7ICFzdG9wOyBpKyspIHtcbiAgICAgICAgYXdhaXQgc2xlZXAoZXZlcnkpO1xuICAgICAgICBjb25zdCBwaWQgPSB0aGlzLnJvbGVzKClbcm9sZXNbaSAlIHJvbGVzLmxlbmd0aF0hXTtcbiAgICAgICAgaWYgKHN0b3AgfHwgIXBpZCkgY29udGludWU7XG4gICAgICAgIHRyeSB7XG4gICAgICAgICAgcHJvY2Vzcy5raWxsKHBpZCwgJ1NJR0tJTEwnKTtcbiAgICAgICAgICBraWxsZWQrKztcbiAgICAgICAgfSBjYXRjaCB7XG4gICAgICAgICAgLy8gSXQgZW5kZWQgYnkgaXRzZWxmLlxuICAgICAgICB9XG4gICAgICB9XG4gICAgfSkoKTtcbiAgICByZXR1cm4gYXN5bmMgKCkgPT4ge1xuICAgICAgc3RvcCA9IHRydWU7XG4gICAgICBhd2FpdCBsb29wO1xuICAgICAgcmV0dXJuIGtpbGxlZDtcbiAgICB9O1xuICB9XG5cbiAgYXN5bmMgc3RvcCgpOiBQcm9taXNlPHZvaWQ+IHtcbiAgICBpZiAodGhpcy5jaGlsZC5leGl0Q29kZSA9PT0gbnVsbCAmJiB0aGlzLmNoaWxkLnNpZ25hbENvZGUgPT09IG51bGwpIHtcbiAgICAgIGNvbnN0IGVuZGVkID0gbmV3IFByb21pc2UoKG9rKSA9PiB0aGlzLmNoaWxkLm9uY2UoJ2V4aXQnLCBvaykpO1xuICAgICAgdGhpcy5jaGlsZC5raWxsKCdTSUdURVJNJyk7XG4gICAgICBhd2FpdCBlbmRlZDtcbiAgICB9XG4gICAgZnMucm1TeW5jKHRoaXMuZGlyLCB7IHJlY3Vyc2l2ZTogdHJ1ZSwgZm9yY2U6IHRydWUgfSk7XG4gIH1cbn1cblxuLyoqIFdhaXRzIGZvciB3aGF0IG11c3QgaGFwcGVuOyB0aGUgYm91bmQgb25seSBlbmRzIGEgZmFpbGluZyB0ZXN0LiAqL1xuZXhwb3J0IGFzeW5jIGZ1bmN0aW9uIHVudGlsPFQ+KGNvbmQ6ICgpID0+IFQgfCBQcm9taXNlPFQ+LCB3aGF0OiBzdHJpbmcsIG1zID0gNjBfMDAwKTogUHJvbWlzZTxUPiB7XG4gIGNvbnN0IGVuZCA9IERhdGUubm93KCkgKyBtcztcbiAgZm9yICg7Oykge1xuICAgIGNvbnN0IHYgPSBhd2FpdCBjb25kKCk7XG4gICAgaWYgKHYpIHJldHVybiB2O1xuICAgIGlmIChEYXRlLm5vdygpID4gZW5kKSB0aHJvdyBuZXcgRXJyb3IoYCR7d2hhdH06IG5vdCB3aXRoaW4gJHttc30gbXNgKTtcbiAgICBhd2FpdCBzbGVlcCgxMCk7XG4gIH1cbn1cbiJdLAogICJtYXBwaW5ncyI6ICI7QUFDQSxPQUFPLFlBQVk7QUFDbkIsU0FBUyxnQkFBZ0I7QUFDekIsU0FBUyxZQUFZLG1CQUFtQjtBQUN4QyxPQUFPQSxTQUFRO0FBQ2YsU0FBUyxxQkFBcUI7QUFDOUIsT0FBT0MsU0FBUTtBQUNmLE9BQU9DLFdBQVU7QUFDakIsU0FBUyxnQkFBZ0I7QUFDekIsU0FBUyxnQkFBZ0I7QUFDekIsU0FBUyxZQUFZO0FBQ3JCLFNBQVMsaUJBQWlCO0FBQzFCLFNBQVMsUUFBUSxVQUFVLGFBQThDOzs7QUNWekUsU0FBUyxhQUFnQztBQUN6QyxPQUFPLFFBQVE7QUFDZixPQUFPLFFBQVE7QUFDZixPQUFPLFVBQVU7QUFDakIsU0FBUyxhQUFhO0FBQ3RCLFNBQVMsY0FBYyxhQUFhO0FBRXBDLElBQU0sTUFBTSxRQUFRLElBQUksWUFBWSxLQUFLLFFBQVEsZ0JBQWdCO0FBRTFELElBQU0sU0FBTixNQUFNLFFBQU87QUFBQSxFQUNWLFlBQ0csS0FDRCxPQUNSO0FBRlM7QUFDRDtBQUFBLEVBQ1A7QUFBQSxFQUZRO0FBQUEsRUFDRDtBQUFBO0FBQUEsRUFJVixhQUFhLFNBQVMsT0FBa0M7QUFDdEQsVUFBTSxNQUFNLEdBQUcsWUFBWSxLQUFLLEtBQUssR0FBRyxPQUFPLEdBQUcsVUFBVSxDQUFDO0FBQzdELFVBQU0sTUFBTSxHQUFHLFNBQVMsS0FBSyxLQUFLLEtBQUssS0FBSyxHQUFHLEdBQUc7QUFDbEQsVUFBTSxRQUFRLE1BQU0sS0FBSyxDQUFDLFNBQVMsWUFBWSxlQUFlLFlBQVksS0FBSyxLQUFLLEtBQUssUUFBUSxHQUFHLGVBQWUsS0FBSyxLQUFLLEtBQUssT0FBTyxHQUFHLGVBQWUsS0FBSyxLQUFLLEtBQUssS0FBSyxHQUFHLEdBQUcsS0FBSyxHQUFHO0FBQUEsTUFDM0wsT0FBTyxDQUFDLFVBQVUsS0FBSyxHQUFHO0FBQUEsSUFDNUIsQ0FBQztBQUNELE9BQUcsVUFBVSxHQUFHO0FBQ2hCLFVBQU1DLFVBQVMsSUFBSSxRQUFPLEtBQUssS0FBSztBQUNwQyxVQUFNLE1BQU1BLFFBQU8sS0FBSyxDQUFDO0FBQ3pCLFVBQU0sTUFBTSxNQUFNLEdBQUcsV0FBVyxLQUFLLEtBQUssS0FBSyxLQUFLLENBQUMsS0FBSyxNQUFNLGFBQWEsTUFBTSxtQkFBbUI7QUFDdEcsUUFBSSxNQUFNLGFBQWEsS0FBTSxPQUFNLElBQUksTUFBTSxHQUFHLGFBQWEsS0FBSyxLQUFLLEtBQUssS0FBSyxHQUFHLE1BQU0sQ0FBQztBQUMzRixXQUFPQTtBQUFBLEVBQ1Q7QUFBQSxFQUVBLElBQUksU0FBaUI7QUFDbkIsV0FBTyxVQUFVLEtBQUssR0FBRztBQUFBLEVBQzNCO0FBQUEsRUFFQSxJQUFJLE1BQWM7QUFDaEIsV0FBTyxHQUFHLGFBQWEsS0FBSyxLQUFLLEtBQUssS0FBSyxLQUFLLEdBQUcsTUFBTSxFQUFFLEtBQUs7QUFBQSxFQUNsRTtBQUFBLEVBRUEsSUFBSSxXQUFtQjtBQUNyQixXQUFPLEtBQUssS0FBSyxLQUFLLEtBQUssT0FBTztBQUFBLEVBQ3BDO0FBQUE7QUFBQSxFQUdBLFFBQWdDO0FBQzlCLFVBQU0sUUFBZ0MsQ0FBQztBQUN2QyxVQUFNLFFBQVEsQ0FBQyxRQUFnQjtBQUM3QixVQUFJLFdBQXFCLENBQUM7QUFDMUIsVUFBSTtBQUNGLG1CQUFXLFFBQVEsR0FBRyxZQUFZLFNBQVMsR0FBRyxPQUFPLEVBQUcsVUFBUyxLQUFLLEdBQUcsR0FBRyxhQUFhLFNBQVMsR0FBRyxTQUFTLElBQUksYUFBYSxNQUFNLEVBQUUsTUFBTSxHQUFHLEVBQUUsT0FBTyxPQUFPLENBQUM7QUFBQSxNQUNuSyxRQUFRO0FBQ047QUFBQSxNQUNGO0FBQ0EsaUJBQVcsS0FBSyxTQUFTLElBQUksTUFBTSxHQUFHO0FBQ3BDLFlBQUk7QUFDRixnQkFBTSxPQUFPLEdBQUcsYUFBYSxTQUFTLENBQUMsWUFBWSxNQUFNLEVBQUUsTUFBTSxJQUFJO0FBQ3JFLGdCQUFNLE1BQU0sR0FBRyxhQUFhLFNBQVMsQ0FBQyxNQUFNO0FBQzVDLHFCQUFXLFFBQVEsQ0FBQyxVQUFVLFVBQVUsUUFBUSxFQUFHLEtBQUksS0FBSyxTQUFTLElBQUksS0FBSyxPQUFPLEtBQUssR0FBRyxFQUFHLE9BQU0sSUFBSSxJQUFJO0FBQUEsUUFDaEgsUUFBUTtBQUNOO0FBQUEsUUFDRjtBQUNBLGNBQU0sQ0FBQztBQUFBLE1BQ1Q7QUFBQSxJQUNGO0FBQ0EsVUFBTSxLQUFLLE1BQU0sR0FBSTtBQUNyQixXQUFPO0FBQUEsRUFDVDtBQUFBO0FBQUE7QUFBQTtBQUFBO0FBQUEsRUFNQSxRQUFRLFFBQVEsS0FBSyxRQUFRLENBQUMsVUFBVSxVQUFVLFFBQVEsR0FBMEI7QUFDbEYsUUFBSSxPQUFPO0FBQ1gsUUFBSSxTQUFTO0FBQ2IsVUFBTSxRQUFRLFlBQVk7QUFDeEIsZUFBUyxJQUFJLEdBQUcsQ0FBQyxNQUFNLEtBQUs7QUFDMUIsY0FBTSxNQUFNLEtBQUs7QUFDakIsY0FBTSxNQUFNLEtBQUssTUFBTSxFQUFFLE1BQU0sSUFBSSxNQUFNLE1BQU0sQ0FBRTtBQUNqRCxZQUFJLFFBQVEsQ0FBQyxJQUFLO0FBQ2xCLFlBQUk7QUFDRixrQkFBUSxLQUFLLEtBQUssU0FBUztBQUMzQjtBQUFBLFFBQ0YsUUFBUTtBQUFBLFFBRVI7QUFBQSxNQUNGO0FBQUEsSUFDRixHQUFHO0FBQ0gsV0FBTyxZQUFZO0FBQ2pCLGFBQU87QUFDUCxZQUFNO0FBQ04sYUFBTztBQUFBLElBQ1Q7QUFBQSxFQUNGO0FBQUEsRUFFQSxNQUFNLE9BQXNCO0FBQzFCLFFBQUksS0FBSyxNQUFNLGFBQWEsUUFBUSxLQUFLLE1BQU0sZUFBZSxNQUFNO0FBQ2xFLFlBQU0sUUFBUSxJQUFJLFFBQVEsQ0FBQyxPQUFPLEtBQUssTUFBTSxLQUFLLFFBQVEsRUFBRSxDQUFDO0FBQzdELFdBQUssTUFBTSxLQUFLLFNBQVM7QUFDekIsWUFBTTtBQUFBLElBQ1I7QUFDQSxPQUFHLE9BQU8sS0FBSyxLQUFLLEVBQUUsV0FBVyxNQUFNLE9BQU8sS0FBSyxDQUFDO0FBQUEsRUFDdEQ7QUFDRjtBQUdBLGVBQXNCLE1BQVMsTUFBNEIsTUFBYyxLQUFLLEtBQW9CO0FBQ2hHLFFBQU0sTUFBTSxLQUFLLElBQUksSUFBSTtBQUN6QixhQUFTO0FBQ1AsVUFBTSxJQUFJLE1BQU0sS0FBSztBQUNyQixRQUFJLEVBQUcsUUFBTztBQUNkLFFBQUksS0FBSyxJQUFJLElBQUksSUFBSyxPQUFNLElBQUksTUFBTSxHQUFHLElBQUksZ0JBQWdCLEVBQUUsS0FBSztBQUNwRSxVQUFNLE1BQU0sRUFBRTtBQUFBLEVBQ2hCO0FBQ0Y7OztBRHBHQSxJQUFNLFNBQVMsTUFBTSxPQUFPLE1BQU07QUFDbEMsSUFBTSxTQUFTLE1BQU0sT0FBTyxRQUFRLEVBQUUsS0FBSyxPQUFPLE9BQU8sQ0FBQztBQUMxRCxJQUFNLE1BQU0sQ0FBQyxNQUFrQixXQUFXLFFBQVEsRUFBRSxPQUFPLENBQUMsRUFBRSxPQUFPLEtBQUs7QUFFMUUsZUFBZSxNQUFNLFVBQXFDO0FBQ3hELFFBQU0sUUFBa0IsQ0FBQztBQUN6QixtQkFBaUIsUUFBUSxTQUFVLE9BQU0sS0FBSyxJQUFjO0FBQzVELFNBQU8sT0FBTyxPQUFPLEtBQUs7QUFDNUI7QUFFQSxLQUFLLGlFQUFpRSxZQUFZO0FBQ2hGLGFBQVcsT0FBTyxDQUFDLE9BQU8sUUFBUSxPQUFPLEdBQUcsR0FBRztBQUM3QyxVQUFNLElBQUksTUFBTSxPQUFPLFFBQVEsRUFBRSxJQUFJLENBQUM7QUFDdEMsVUFBTSxJQUFJLE1BQU0sRUFBRSxJQUFJLEVBQUUsT0FBTyxtQ0FBbUMsS0FBSyxFQUFFLEdBQUcsT0FBTyxHQUFHLE9BQVUsR0FBRyxLQUFLLE9BQU8sR0FBRyxFQUFFLE9BQU8sTUFBTSxDQUFDO0FBQ2xJLFdBQU8sTUFBTSxFQUFFLE9BQU8sU0FBUyxHQUFHLFdBQVc7QUFDN0MsV0FBTyxNQUFNLEVBQUUsT0FBTyxTQUFTLEdBQUcsT0FBTztBQUN6QyxXQUFPLE1BQU0sRUFBRSxVQUFVLENBQUM7QUFDMUIsV0FBTyxNQUFNLEVBQUUsU0FBUyxLQUFLO0FBQzdCLFdBQU8sR0FBRyxFQUFFLE9BQU8sV0FBVyxFQUFFLE9BQU8sUUFBUTtBQUMvQyxNQUFFLE1BQU07QUFBQSxFQUNWO0FBQ0EsU0FBTyxVQUFVLE1BQU0sT0FBTyxLQUFLLEdBQUcsQ0FBQyxHQUFHLCtCQUErQjtBQUMzRSxDQUFDO0FBRUQsS0FBSyxvQ0FBb0MsWUFBWTtBQUNuRCxTQUFPLE9BQU8sTUFBTSxPQUFPLElBQUksRUFBRSxPQUFPLGdCQUFnQixDQUFDLEdBQUcsVUFBVSxHQUFHO0FBQ3pFLFFBQU0sT0FBTyxNQUFNLE9BQU8sSUFBSSxFQUFFLE9BQU8sb0RBQXFELFNBQVMsSUFBSSxDQUFDO0FBQzFHLFNBQU8sTUFBTSxLQUFLLFVBQVUsR0FBRztBQUMvQixTQUFPLE1BQU0sS0FBSyxLQUFLLE9BQU8sU0FBUztBQUN2QyxTQUFPLE1BQU0sS0FBSyxPQUFPLFNBQVMsR0FBRyxNQUFNO0FBQzNDLFFBQU0sT0FBTyxJQUFJLGdCQUFnQjtBQUNqQyxRQUFNLE1BQU0sT0FBTyxJQUFJLEVBQUUsTUFBTSxDQUFDLFNBQVMsSUFBSSxFQUFFLEdBQUcsRUFBRSxRQUFRLEtBQUssT0FBTyxDQUFDO0FBQ3pFLFFBQU0sTUFBTSxhQUFhLE1BQU0sT0FBTyxLQUFLLEVBQUUsTUFBTSxLQUFLLENBQUMsR0FBRyxTQUFTLEdBQUcsU0FBUztBQUNqRixPQUFLLE1BQU07QUFDWCxTQUFPLE9BQU8sTUFBTSxLQUFLLEtBQUssT0FBTyxRQUFRO0FBQy9DLENBQUM7QUFFRCxLQUFLLDZCQUE2QixZQUFZO0FBQzVDLFFBQU0sSUFBSSxNQUFNLE9BQU8sSUFBSSxFQUFFLE9BQU8sY0FBYyxHQUFHLEVBQUUsV0FBVyxJQUFJLENBQUM7QUFDdkUsU0FBTyxNQUFNLEVBQUUsT0FBTyxRQUFRLEdBQUc7QUFDakMsU0FBTyxHQUFHLEVBQUUsT0FBTyxTQUFTLEVBQUUsU0FBUyxlQUFlLENBQUM7QUFDdkQsU0FBTyxNQUFNLEVBQUUsZUFBZSxRQUFTLEdBQUc7QUFDNUMsQ0FBQztBQUVELEtBQUssc0JBQXNCLFlBQVk7QUFDckMsUUFBTSxLQUFLLE1BQU07QUFDakIsUUFBTSxPQUFPLEVBQUUsSUFBSSxNQUFNLENBQUMsU0FBUyxJQUFJLEdBQUcsUUFBUSxFQUFFLE1BQU0sTUFBTSxHQUFHLE1BQU0sU0FBUztBQUNsRixRQUFNLENBQUMsR0FBRyxDQUFDLElBQUksTUFBTSxRQUFRLElBQUksQ0FBQyxPQUFPLE1BQU0sSUFBSSxHQUFHLE9BQU8sTUFBTSxJQUFJLENBQUMsQ0FBQztBQUN6RSxTQUFPLE1BQU0sRUFBRSxLQUFLLEVBQUUsR0FBRztBQUN6QixRQUFNLE9BQU8sUUFBUSxPQUFPLE1BQU0sRUFBRSxJQUFJLE1BQU0sQ0FBQyxTQUFTLElBQUksRUFBRSxDQUFDLEdBQUcsRUFBRSxNQUFNLFNBQVMsQ0FBQztBQUNwRixTQUFPLFdBQVcsTUFBTSxPQUFPLEtBQUssRUFBRSxRQUFRLEVBQUUsTUFBTSxNQUFNLEVBQUUsQ0FBQyxHQUFHLElBQUksQ0FBQyxNQUFNLEVBQUUsRUFBRSxHQUFHLENBQUMsRUFBRSxDQUFDO0FBQ3hGLFNBQU8sT0FBTyxNQUFNLE9BQU8sSUFBSSxFQUFFLE1BQU0sU0FBUyxDQUFDLEdBQUcsSUFBSSxFQUFFO0FBQzFELFNBQU8sT0FBTyxNQUFNLE9BQU8sSUFBSSxFQUFFLEtBQUssRUFBRSxJQUFJLENBQUMsR0FBRyxJQUFJLEVBQUU7QUFDdEQsU0FBTyxVQUFVLE1BQU0sRUFBRSxLQUFLLEdBQUcsRUFBRSxRQUFRLE1BQU0sV0FBVyxDQUFDLEVBQUUsQ0FBQztBQUNoRSxTQUFPLFVBQVUsTUFBTSxFQUFFLEtBQUssR0FBRyxFQUFFLFFBQVEsT0FBTyxXQUFXLENBQUMsRUFBRSxDQUFDO0FBQ2pFLFFBQU0sRUFBRSxPQUFPO0FBQ2YsUUFBTSxPQUFPLFFBQVEsRUFBRSxRQUFRLEdBQUcsRUFBRSxNQUFNLFlBQVksQ0FBQztBQUN6RCxDQUFDO0FBRUQsS0FBSyxtQ0FBbUMsWUFBWTtBQUNsRCxRQUFNLE9BQU8sUUFBUSxPQUFPLE1BQU0sRUFBRSxNQUFNLENBQUMsVUFBVSxFQUFFLENBQUMsR0FBRyxFQUFFLE1BQU0sU0FBUyxRQUFRLGFBQWEsTUFBTSxXQUFXLENBQUM7QUFDbkgsUUFBTSxPQUFPLFFBQVEsT0FBTyxNQUFNLEVBQUUsTUFBTSxDQUFDLE1BQU0sR0FBRyxLQUFLLFdBQVcsQ0FBQyxHQUFHLEVBQUUsTUFBTSxTQUFTLFFBQVEsV0FBVyxNQUFNLFdBQVcsQ0FBQztBQUM5SCxRQUFNLE9BQU8sUUFBUSxPQUFPLE1BQU0sRUFBRSxNQUFNLENBQUMsTUFBTSxHQUFHLE9BQU8sT0FBTyxDQUFDLEdBQUcsRUFBRSxNQUFNLFVBQVUsQ0FBQztBQUMzRixDQUFDO0FBRUQsS0FBSyx3QkFBd0IsWUFBWTtBQUN2QyxRQUFNLFFBQVEsRUFBRSxNQUFNLE1BQU0sRUFBRTtBQUM5QixRQUFNLE1BQU0sSUFBSSxPQUFPLEdBQU87QUFDOUIsV0FBUyxJQUFJLEdBQUcsSUFBSSxJQUFJLElBQUssT0FBTSxPQUFPLE1BQU0sRUFBRSxNQUFNLENBQUMsTUFBTSxHQUFHLFFBQVEsRUFBRSxHQUFHLE9BQU8sR0FBRyxPQUFPLENBQUMsR0FBRyxJQUFJLEdBQUcsV0FBVyxFQUFFLEtBQUssSUFBTyxFQUFFLENBQUM7QUFDdkksUUFBTSxNQUFNLE1BQU0sT0FBTyxLQUFLLEVBQUUsUUFBUSxNQUFNLENBQUM7QUFDL0MsU0FBTyxVQUFVLElBQUksSUFBSSxDQUFDLE1BQU0sRUFBRSxLQUFLLE9BQVEsQ0FBQyxHQUFHLE1BQU0sS0FBSyxFQUFFLFFBQVEsR0FBRyxHQUFHLENBQUMsR0FBRyxNQUFNLE9BQU8sQ0FBQyxDQUFDLENBQUM7QUFDcEcsQ0FBQztBQUVELEtBQUsscURBQXFELFlBQVk7QUFDcEUsUUFBTSxJQUFJLE1BQU0sT0FBTyxNQUFNLEVBQUUsTUFBTSxDQUFDLFFBQVEsVUFBVSxNQUFNLHVJQUF1SSxFQUFFLENBQUM7QUFDeE0sUUFBTSxRQUFRLE1BQU0sRUFBRSxLQUFLLEVBQUUsT0FBTyxXQUFXLENBQUM7QUFDaEQsU0FBTyxHQUFHLE1BQU0sT0FBTyxNQUFNLFdBQVcsUUFBUTtBQUNoRCxRQUFNLE9BQU8sT0FBTyxNQUFNLE1BQU8sU0FBUyxFQUFFLE1BQU0sR0FBRyxFQUFFLENBQUMsQ0FBQztBQUN6RCxRQUFNLEtBQUssTUFBTSxFQUFFLEtBQUssRUFBRSxLQUFLLENBQUM7QUFDaEMsU0FBTyxVQUFVLEdBQUcsVUFBVSxJQUFJLENBQUMsTUFBTSxFQUFFLEdBQUcsR0FBRyxDQUFDLEVBQUUsR0FBRyxDQUFDO0FBQ3hELFNBQU8sT0FBTyxNQUFNLEVBQUUsS0FBSyxFQUFFLE9BQU8sR0FBRyxDQUFDLEdBQUcsS0FBSyxJQUFJO0FBQ3BELFFBQU0sRUFBRSxLQUFLO0FBQ2IsUUFBTSxNQUFNLE1BQU0sRUFBRSxLQUFLO0FBQ3pCLFNBQU8sTUFBTSxJQUFJLE1BQU0sUUFBUSxDQUFDO0FBQ2hDLFNBQU8sT0FBTyxNQUFNLEVBQUUsS0FBSyxFQUFFLE9BQU8sUUFBUSxDQUFDLEdBQUcsS0FBSyxLQUFLO0FBQzVELENBQUM7QUFFRCxLQUFLLGNBQWMsWUFBWTtBQUM3QixRQUFNLElBQUksTUFBTSxPQUFPLE1BQU0sRUFBRSxPQUFPLGdDQUFnQyxLQUFLLEVBQUUsTUFBTSxLQUFLLE1BQU0sR0FBRyxFQUFFLENBQUM7QUFDcEcsUUFBTSxFQUFFLEtBQUssRUFBRSxPQUFPLFNBQVMsQ0FBQztBQUNoQyxRQUFNLEVBQUUsT0FBTyxJQUFJLEVBQUU7QUFDckIsUUFBTSxFQUFFLE1BQU0sSUFBSTtBQUNsQixRQUFNLFFBQVEsTUFBTSxNQUFNLEVBQUUsT0FBTyxLQUFLLENBQUMsR0FBRyxTQUFTO0FBQ3JELFNBQU8sTUFBTSxNQUFNLFlBQVk7QUFDL0IsU0FBTyxNQUFNLE1BQU0sV0FBVztBQUNoQyxDQUFDO0FBRUQsS0FBSywrQ0FBK0MsWUFBWTtBQUM5RCxRQUFNLFFBQVEsWUFBWSxNQUFNLEVBQUU7QUFDbEMsUUFBTSxJQUFJLE1BQU0sT0FBTyxNQUFNLEVBQUUsTUFBTSxDQUFDLEtBQUssR0FBRyxPQUFPLE9BQU8sQ0FBQztBQUM3RCxRQUFNLE1BQU0sTUFBTSxFQUFFLE9BQU8sUUFBUSxDQUFDO0FBQ3BDLFFBQU0sU0FBUyxTQUFTLE1BQU0sYUFBYTtBQUFFLGFBQVMsSUFBSSxHQUFHLElBQUksTUFBTSxRQUFRLEtBQUssT0FBUyxPQUFNLE1BQU0sU0FBUyxHQUFHLElBQUksTUFBTztBQUFBLEVBQUcsR0FBRyxDQUFDLEdBQUcsRUFBRSxNQUFNLENBQUM7QUFDbkosU0FBTyxNQUFNLElBQUksTUFBTSxHQUFHLEdBQUcsSUFBSSxLQUFLLENBQUM7QUFDdkMsU0FBTyxVQUFVLElBQUksTUFBTSxNQUFNLEVBQUUsT0FBTyxVQUFVLEVBQUUsTUFBTSxFQUFFLFFBQVEsRUFBRSxFQUFFLENBQUMsQ0FBQyxDQUFDLEdBQUcsSUFBSSxNQUFNLFNBQVMsQ0FBQyxDQUFDLEdBQUcsK0JBQStCO0FBQ3pJLENBQUM7QUFFRCxLQUFLLHdDQUF3QyxZQUFZO0FBQ3ZELFFBQU0sSUFBSSxNQUFNLE9BQU8sTUFBTSxFQUFFLE9BQU8sNkJBQTZCLFdBQVcsRUFBRSxPQUFPLEtBQUssR0FBRyxFQUFFLENBQUM7QUFDbEcsUUFBTSxFQUFFLEtBQUssRUFBRSxLQUFLLEtBQUssQ0FBQztBQUMxQixRQUFNLE1BQU0sYUFBYSxNQUFNLEVBQUUsUUFBUSxHQUFHLFFBQVEsS0FBSyxDQUFDLE1BQU0sRUFBRSxPQUFPLENBQUMsR0FBRyxlQUFlO0FBQzVGLFFBQU0sT0FBTyxRQUFRLE1BQU0sRUFBRSxPQUFPLFFBQVEsQ0FBQyxHQUFHLFFBQVE7QUFDeEQsUUFBTSxRQUFRLG9CQUFJLElBQVk7QUFDOUIsbUJBQWlCLEtBQUssRUFBRSxLQUFLLEVBQUcsT0FBTSxJQUFJLEVBQUUsSUFBSTtBQUNoRCxTQUFPLEdBQUcsTUFBTSxJQUFJLEtBQUssS0FBSyxNQUFNLElBQUksUUFBUSxDQUFDO0FBQ25ELENBQUM7QUFFRCxLQUFLLGtDQUFrQyxZQUFZO0FBQ2pELFFBQU0sSUFBSSxNQUFNLE9BQU8sTUFBTSxFQUFFLE1BQU0sQ0FBQyxNQUFNLEdBQUcsT0FBTyxPQUFPLENBQUM7QUFDOUQsUUFBTSxFQUFFLEtBQUs7QUFDYixRQUFNLE9BQU8sUUFBUSxFQUFFLE1BQU0sR0FBRyxHQUFHLEVBQUUsTUFBTSxTQUFTLENBQUM7QUFDckQsUUFBTSxJQUFJLE1BQU0sT0FBTyxNQUFNLEVBQUUsTUFBTSxDQUFDLFNBQVMsSUFBSSxFQUFFLENBQUM7QUFDdEQsUUFBTSxPQUFPLFFBQVEsRUFBRSxNQUFNLEdBQUcsR0FBRyxFQUFFLE1BQU0sZUFBZSxDQUFDO0FBQzNELFFBQU0sRUFBRSxLQUFLO0FBQ2YsQ0FBQztBQUVELEtBQUssa0RBQWtELFlBQVk7QUFDakUsUUFBTSxPQUFPQyxNQUFLLEtBQUtDLElBQUcsWUFBWUQsTUFBSyxLQUFLRSxJQUFHLE9BQU8sR0FBRyxnQkFBZ0IsQ0FBQyxHQUFHLE9BQU87QUFDeEYsRUFBQUQsSUFBRyxjQUFjLE1BQU0sMEJBQTBCLEVBQUUsTUFBTSxJQUFNLENBQUM7QUFDaEUsUUFBTSxVQUFVLE1BQU0sT0FBTyxNQUFNLGdCQUFnQixJQUFJO0FBQ3ZELEVBQUFBLElBQUcsT0FBT0QsTUFBSyxRQUFRLElBQUksR0FBRyxFQUFFLFdBQVcsS0FBSyxDQUFDO0FBQ2pELFFBQU0sT0FBTyxRQUFRLE9BQU8sUUFBUSxFQUFFLEtBQUssUUFBUSxLQUFLLE9BQU8sUUFBUSxDQUFDLEdBQUcsRUFBRSxNQUFNLGFBQWEsQ0FBQztBQUNqRyxRQUFNLElBQUksTUFBTSxPQUFPLFFBQVEsRUFBRSxLQUFLLFFBQVEsS0FBSyxPQUFPLHlCQUF5QixDQUFDO0FBQ3BGLFNBQU8sT0FBTyxNQUFNLEVBQUUsSUFBSSxFQUFFLE1BQU0sQ0FBQyxRQUFRLElBQUksRUFBRSxDQUFDLEdBQUcsT0FBTyxTQUFTLEdBQUcsTUFBTTtBQUM5RSxJQUFFLE1BQU07QUFDVixDQUFDO0FBR0QsZUFBZSxPQUFPLEdBQXNFO0FBQzFGLFFBQU0sUUFBa0IsQ0FBQztBQUN6QixRQUFNLFFBQWtCLENBQUM7QUFDekIsTUFBSTtBQUNKLG1CQUFpQixLQUFLLEVBQUUsS0FBSyxFQUFFLE9BQU8sR0FBRyxDQUFDLEdBQWtDO0FBQzFFLFFBQUksRUFBRSxTQUFTLFNBQVUsT0FBTSxLQUFLLEVBQUUsSUFBSTtBQUFBLFFBQ3JDLE9BQU0sS0FBSyxFQUFFLElBQUk7QUFDdEIsUUFBSSxFQUFFLFNBQVMsU0FBVSxRQUFPLEVBQUUsS0FBSztBQUFBLEVBQ3pDO0FBQ0EsU0FBTyxFQUFFLEtBQUssT0FBTyxPQUFPLEtBQUssR0FBRyxNQUFNLE1BQU07QUFDbEQ7QUFFQSxlQUFlLFNBQVMsR0FBVyxRQUErQjtBQUNoRSxRQUFNLFFBQVE7QUFDZCxRQUFNLFFBQVE7QUFDZCxRQUFNLE9BQU8sTUFBTSxLQUFLLEVBQUUsUUFBUSxNQUFNLEdBQUcsQ0FBQyxHQUFHLE1BQU0sUUFBUSxJQUFJLENBQUM7QUFBQSxDQUFlLEVBQUUsS0FBSyxFQUFFO0FBQzFGLFdBQVMsUUFBUSxHQUFHLFFBQVEsUUFBUSxTQUFTO0FBQzNDLFVBQU0sUUFBUSxJQUFJO0FBQUEsTUFDaEIsR0FBRyxDQUFDLEdBQUcsR0FBRyxDQUFDLEVBQUUsSUFBSSxZQUFZO0FBQzNCLGNBQU0sSUFBSSxNQUFNLEVBQUUsTUFBTSxFQUFFLE9BQU8sTUFBTSxDQUFDO0FBQ3hDLGNBQU0sRUFBRSxLQUFLLE1BQU0sTUFBTSxJQUFJLE1BQU0sT0FBTyxDQUFDO0FBQzNDLGVBQU8sTUFBTSxJQUFJLEdBQUcsR0FBRyxJQUFJLE9BQU8sS0FBSyxJQUFJLENBQUMsR0FBRyxHQUFHLElBQUksTUFBTSxhQUFhLEtBQUssTUFBTSxLQUFLLE1BQU0sS0FBSyxDQUFDLElBQUksS0FBSyxXQUFXLE1BQU0sRUFBRSxRQUFRLEdBQUcsSUFBSSxDQUFDLEVBQUU7QUFDbkosZUFBTyxNQUFNLE1BQU0sQ0FBQztBQUNwQixtQkFBVyxRQUFRLENBQUMsV0FBVyxRQUFRLEVBQUcsUUFBTyxNQUFNLE1BQU0sT0FBTyxDQUFDLE1BQU0sTUFBTSxJQUFJLEVBQUUsUUFBUSxHQUFHLElBQUk7QUFDdEcsZUFBTyxPQUFPLE1BQU0sRUFBRSxLQUFLLEdBQUcsTUFBTSxNQUFNLENBQUM7QUFDM0MsY0FBTSxFQUFFLE9BQU87QUFBQSxNQUNqQixDQUFDO0FBQUEsT0FDQSxZQUFZO0FBQ1gsY0FBTSxJQUFJLE1BQU0sRUFBRSxNQUFNLEVBQUUsTUFBTSxDQUFDLEtBQUssR0FBRyxPQUFPLE9BQU8sQ0FBQztBQUN4RCxjQUFNLFFBQVEsWUFBWSxLQUFLLEVBQUU7QUFDakMsY0FBTSxNQUFNLE1BQU0sRUFBRSxPQUFPLFFBQVEsQ0FBQztBQUNwQyxjQUFNLFNBQTBCLENBQUM7QUFDakMsaUJBQVMsSUFBSSxHQUFHLElBQUksTUFBTSxRQUFRLEtBQUssS0FBTSxRQUFPLEtBQUssRUFBRSxNQUFNLE1BQU0sU0FBUyxHQUFHLElBQUksSUFBSSxDQUFDLENBQUM7QUFDN0YsY0FBTSxRQUFRLElBQUksTUFBTTtBQUN4QixjQUFNLEVBQUUsV0FBVztBQUNuQixlQUFPLE1BQU0sSUFBSSxNQUFNLEdBQUcsR0FBRyxJQUFJLEtBQUssR0FBRyw0QkFBNEI7QUFDckUsZUFBTyxPQUFPLE1BQU0sRUFBRSxLQUFLLEdBQUcsTUFBTSxNQUFNLENBQUM7QUFBQSxNQUM3QyxHQUFHO0FBQUEsT0FDRixZQUFZO0FBQ1gsaUJBQVMsSUFBSSxHQUFHLElBQUksSUFBSSxJQUFLLFFBQU8sT0FBTyxNQUFNLEVBQUUsSUFBSSxFQUFFLE9BQU8sUUFBUSxDQUFDLFVBQVUsQ0FBQyxHQUFHLENBQUMsR0FBRyxPQUFPLFNBQVMsR0FBRyxHQUFHLENBQUM7QUFBQSxDQUFJO0FBQUEsTUFDeEgsR0FBRztBQUFBLE9BQ0YsWUFBWTtBQUNYLGNBQU0sSUFBSSxNQUFNLEVBQUUsTUFBTSxFQUFFLE9BQU8sd0JBQXdCLENBQUM7QUFDMUQsZUFBTyxVQUFVLE1BQU0sRUFBRSxLQUFLLEdBQUcsRUFBRSxRQUFRLE1BQU0sV0FBVyxDQUFDLEVBQUUsQ0FBQztBQUNoRSxlQUFPLE9BQU8sTUFBTSxFQUFFLEtBQUssR0FBRyxNQUFNLFFBQVEsQ0FBQztBQUFBLE1BQy9DLEdBQUc7QUFBQSxJQUNMLENBQUM7QUFBQSxFQUNIO0FBQ0Y7QUFFQSxLQUFLLDBFQUEwRSxZQUFZO0FBQ3pGLFFBQU0sSUFBSSxNQUFNLE9BQU8sUUFBUSxFQUFFLEtBQUssT0FBTyxPQUFPLENBQUM7QUFDckQsUUFBTSxPQUFPLE9BQU8sUUFBUTtBQUM1QixNQUFJO0FBQ0YsVUFBTSxTQUFTLEdBQUcsQ0FBQztBQUFBLEVBQ3JCLFVBQUU7QUFDQSxXQUFPLEdBQUksTUFBTSxLQUFLLElBQUssR0FBRyxtQkFBbUI7QUFBQSxFQUNuRDtBQUNBLElBQUUsTUFBTTtBQUNWLENBQUM7QUFFRCxLQUFLLDREQUE0RCxZQUFZO0FBQzNFLFFBQU0sSUFBSSxNQUFNLE9BQU8sUUFBUSxFQUFFLEtBQUssT0FBTyxJQUFJLENBQUM7QUFDbEQsTUFBSSxPQUFPO0FBQ1gsUUFBTSxZQUFZLFlBQVk7QUFDNUIsUUFBSSxJQUFJO0FBQ1IsV0FBTyxDQUFDLE1BQU0sSUFBSyxPQUFNLFVBQVUsUUFBUSxFQUFFLFFBQVEsSUFBSSxZQUFZLGtCQUFrQixDQUFDLFNBQVMsR0FBRyxFQUFFLEtBQUssRUFBRSxHQUFHLFFBQVEsS0FBSyxVQUFVLE9BQU8sT0FBTyxFQUFFLENBQUM7QUFDeEosV0FBTztBQUFBLEVBQ1QsR0FBRztBQUNILFFBQU0sU0FBUyxHQUFHLENBQUM7QUFDbkIsU0FBTztBQUNQLFNBQU8sR0FBSSxNQUFNLFdBQVksQ0FBQztBQUM5QixJQUFFLE1BQU07QUFDVixDQUFDO0FBRUQsS0FBSyw0Q0FBNEMsTUFBTTtBQUNyRCxRQUFNLE1BQU0sY0FBYyxZQUFZLEdBQUcsRUFBRSxjQUFjO0FBQ3pELFNBQU8sTUFBTSxPQUFPLElBQUksT0FBTyxTQUFTLFVBQVU7QUFDbEQsU0FBTyxTQUFTLElBQUksUUFBUSxNQUFNO0FBQ3BDLENBQUM7QUFFRCxLQUFLLG9FQUFvRSxZQUFZO0FBQ25GLFFBQU0sT0FBTyxnRkFBZ0YsS0FBSyxVQUFVLE9BQU8sTUFBTSxDQUFDO0FBQzFILFFBQU0sVUFBVSxRQUFRLEVBQUUsUUFBUSxVQUFVLENBQUMsdUJBQXVCLE1BQU0sSUFBSSxHQUFHLEVBQUUsU0FBUyxJQUFPLENBQUM7QUFDcEcsU0FBTyxNQUFNO0FBQ2IsUUFBTSxPQUFPLFFBQVEsT0FBTyxLQUFLLEdBQUcsRUFBRSxNQUFNLFNBQVMsQ0FBQztBQUN4RCxDQUFDOyIsCiAgIm5hbWVzIjogWyJmcyIsICJvcyIsICJwYXRoIiwgImRhZW1vbiIsICJwYXRoIiwgImZzIiwgIm9zIl0KfQo=
