// Longer outages, and losses in output that is no text.
import test from "node:test";
import assert from "node:assert/strict";
import { finish, openSandbox, TcpProxy, through, within } from "../helpers.mjs";

test("an outage of fifteen seconds is bridged", async (t) => {
  const proxy = await TcpProxy.start(t);
  const sandbox = await through(proxy, await openSandbox(t));
  const handle = await sandbox.run("for i in $(seq 100); do echo line$i; sleep 0.2; done; exit 3", { wait: false });
  let cut = false;
  const got = await within("stream", finish(handle, {
    onChunk: (_, all) => {
      if (all.length < 5 || cut) return;
      cut = true;
      proxy.refusing = true;
      proxy.reset();
      setTimeout(() => (proxy.refusing = false), 15_000);
    },
  }));
  assert.equal(got.stdout, Array.from({ length: 100 }, (_, i) => `line${i + 1}\n`).join(""));
  assert.equal(got.exit_code, 3);
});

test("binary output is the same text after any number of losses", async (t) => {
  const plain = await openSandbox(t);
  const proxy = await TcpProxy.start(t);
  const sandbox = await through(proxy, plain);
  const command = "head -c 3000000 /proc/self/exe; for i in $(seq 200); do head -c 20000 /bin/bash; sleep 0.01; done";
  const whole = await plain.run(command);
  const handle = await sandbox.run(command, { wait: false });
  let bytes = 0;
  let resets = 0;
  const got = await within("stream", finish(handle, {
    onChunk: (c) => {
      bytes += c.data.length;
      if (bytes > (resets + 1) * 1_000_000 && resets < 4) {
        resets++;
        proxy.reset();
      }
    },
  }));
  assert.ok(resets >= 3);
  assert.equal(got.stdout.length, whole.stdout.length);
  assert.ok(got.stdout === whole.stdout, "the text differs");
});
