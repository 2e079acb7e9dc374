// What the suite of the facts does not reach: search, links, the life of a box.
import test from "node:test";
import assert from "node:assert/strict";
import net from "node:net";
import { LangSmithResourceNotFoundError } from "langsmith/sandbox";
import { newClient, openSandbox, scratchDir, until } from "../helpers.mjs";

test("glob, ls and grep", async (t) => {
  const sandbox = await openSandbox(t);
  const dir = await scratchDir(sandbox);
  await sandbox.run(`mkdir -p ${dir}/a/b; cd ${dir}; printf 'one\\nneedle (x\\n' > a/n.py; printf 'needle (x\\n' > a/b/n.txt; printf 'needle (x\\0' > bin`);
  const names = (r) => r.matches.map((m) => m.path.slice(dir.length + 1)).sort();
  assert.deepEqual(names(await sandbox.glob("**/*.py", dir)), ["a/n.py"]);
  assert.deepEqual(names(await sandbox.glob("*", dir)), ["a", "bin"]);
  const cut = await sandbox.glob("**", dir, { limit: 2 });
  assert.equal(cut.matches.length, 2);
  assert.equal(cut.truncated, true);
  const found = await sandbox.grep("needle (x", dir);
  assert.deepEqual(found.matches.map((m) => [m.path.slice(dir.length + 1), m.line, m.text]).sort(), [["a/b/n.txt", 1, "needle (x"], ["a/n.py", 2, "needle (x"]]);
  assert.deepEqual(names(await sandbox.grep("needle", dir, { glob: "*.txt" })), ["a/b/n.txt"]);
  await assert.rejects(sandbox.glob("*", "/no/such/dir"), LangSmithResourceNotFoundError);
});

test("a download link needs no key, takes ranges, and is for its file alone", async (t) => {
  const sandbox = await openSandbox(t);
  const dir = await scratchDir(sandbox);
  await sandbox.write(`${dir}/f.txt`, "0123456789");
  const link = await sandbox.generateDownloadURL(`${dir}/f.txt`, { contentDisposition: "attachment", expiresInSeconds: 600 });
  const whole = await fetch(link.download_url);
  assert.equal(await whole.text(), "0123456789");
  assert.match(whole.headers.get("content-disposition"), /attachment.*f\.txt/);
  assert.equal(await (await fetch(link.download_url, { headers: { range: "bytes=2-4" } })).text(), "234");
  assert.equal((await fetch(link.download_url, { method: "HEAD" })).headers.get("content-length"), "10");
  assert.equal((await fetch(link.download_url.slice(0, -2) + "xx")).status, 403);
});

test("a service in the box answers behind its link", async (t) => {
  const sandbox = await openSandbox(t);
  const port = await new Promise((resolve) => {
    const s = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = s.address();
      s.close(() => resolve(port));
    });
  });
  const dir = await scratchDir(sandbox);
  await sandbox.run(`echo hello from inside > ${dir}/index.html`);
  const handle = await sandbox.run(`cd ${dir} && exec python3 -m http.server ${port} --bind 127.0.0.1`, { wait: false, timeout: 0 });
  handle.result.catch(() => {});
  t.after(() => handle.kill());
  const service = await newClient().serviceUrl(sandbox.name, { port });
  await until(async () => (await service.fetch("/index.html")).status === 200, "the service answers");
  assert.equal(await (await service.fetch("/index.html")).text(), "hello from inside\n");
  assert.equal((await fetch(await service.serviceUrl())).status, 403, "without its token");
  const page = await fetch(await service.browserUrl(), { redirect: "manual" });
  assert.equal(page.status, 302);
  const cookie = page.headers.get("set-cookie").split(";")[0];
  assert.equal((await fetch(await service.serviceUrl(), { headers: { cookie } })).status, 200, "with the browser's cookie");
});

test("a stopped box has no processes, keeps its files, and wakes by itself", async (t) => {
  const client = newClient();
  const sandbox = await client.createSandbox({ name: `life-${Date.now()}` });
  t.after(() => sandbox.delete().catch(() => {}));
  await sandbox.write("kept.txt", "kept");
  const handle = await sandbox.run("sleep 300", { wait: false });
  await sandbox.stop();
  assert.notEqual((await handle.result).exit_code, 0);
  assert.equal((await client.getSandboxStatus(sandbox.name)).status, "stopped");
  assert.equal((await sandbox.run("cat kept.txt")).stdout, "kept");
  assert.equal((await client.getSandboxStatus(sandbox.name)).status, "ready");
  await sandbox.stop();
  await sandbox.start();
  assert.equal((await client.getSandboxStatus(sandbox.name)).status, "ready");
});

test("two boxes share neither directory nor commands", async (t) => {
  const client = newClient();
  const [a, b] = await Promise.all([client.createSandbox(), client.createSandbox()]);
  t.after(() => Promise.all([a.delete(), b.delete()]));
  await a.run("echo a > mine");
  assert.equal((await b.run("ls")).stdout, "");
  const handle = await a.run("echo from a", { wait: false, commandId: "same-id" });
  await handle.result;
  assert.equal((await b.run("echo from b", { commandId: "same-id" })).stdout, "from b\n");
});
