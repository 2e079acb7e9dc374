// Boxes that are isolated, and snapshots of them.
import test from "node:test";
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import { newClient, openSandbox } from "../helpers.mjs";

test("a box is isolated", async (t) => {
  const sandbox = await openSandbox(t);
  const mark = `of-the-box-${randomUUID()}`;
  const got = await sandbox.run(`touch /usr/${mark} && ls -d /proc/[0-9]* | wc -l`);
  assert.equal(got.exit_code, 0, got.stderr);
  assert.ok(Number(got.stdout) < 10, got.stdout);
  assert.equal(fs.existsSync(`/usr/${mark}`), false);
});

test("the life of a snapshot", async (t) => {
  const client = newClient();
  const box = await client.createSandbox();
  t.after(() => box.delete().catch(() => {}));
  const name = `kept-${randomUUID().slice(0, 8)}`;
  await box.write("file.txt", "kept");
  await box.stop();
  await box.start();
  const taken = await box.captureSnapshot(name);
  assert.equal(taken.name, name);
  assert.equal(taken.status, "ready");
  await box.write("file.txt", "changed");
  assert.equal((await client.getSnapshot(taken.id)).id, taken.id);
  assert.ok((await client.listSnapshots()).some((s) => s.id === taken.id));
  const copy = await client.createSandbox(taken.id);
  t.after(() => copy.delete().catch(() => {}));
  assert.equal((await copy.run("cat file.txt")).stdout, "kept");
  assert.equal((await box.run("cat file.txt")).stdout, "changed");
  await copy.delete();
  await client.deleteSnapshot(taken.id);
  await assert.rejects(client.getSnapshot(taken.id), /not found|no such/i);
});
