// Not from the SDK's documents but from what we promise: fifty commands at a
// time stream on through whatever happens to the server, and a client needs no
// more connections for it than the SDK allows itself.
import test from "node:test";
import assert from "node:assert/strict";
import { exec } from "node:child_process";
import { finish, hotRestart, openSandbox, restartCmd, sleep, TcpProxy, through, within } from "../helpers.mjs";

const COMMANDS = 50;
const LINES = 60;
// The shell waits by itself, for input from a pipe of its own in which there is none: fifty
// commands that start a program twenty times a second would wait for the processor.
const COUNT = `exec 3<> <(:); for i in $(seq ${LINES}); do echo "line $i of $$"; echo "warn $i" >&2; read -t 0.05 -u 3; done; exit 7`;
const MAX_AUTO_RECONNECTS = 5; // of the SDK, in succession

/** Run COUNT fifty times, call disturb() in mid-stream, check every byte. */
async function through50(t, disturb, connections) {
  const plain = await openSandbox(t);
  const proxy = await TcpProxy.start(t);
  const sandbox = await through(proxy, plain);
  const handles = await Promise.all(Array.from({ length: COMMANDS }, () => sandbox.run(COUNT, { wait: false })));
  const done = Promise.all(handles.map((h) => finish(h)));
  await sleep(800);
  await disturb();
  const results = await within("fifty streams", done);
  results.forEach((r, n) => {
    const pid = handles[n].pid;
    assert.equal(r.stdout, Array.from({ length: LINES }, (_, i) => `line ${i + 1} of ${pid}\n`).join(""));
    assert.equal(r.stderr, Array.from({ length: LINES }, (_, i) => `warn ${i + 1}\n`).join(""));
    assert.equal(r.exit_code, 7);
    assert.ok((handles[n]._reconnectAttempts ?? 0) <= MAX_AUTO_RECONNECTS);
  });
  assert.ok(proxy.accepted <= connections, `${proxy.accepted} connections were made, ${connections} are allowed`);
}

const skip = !restartCmd && "TEND_RESTART_CMD is not set";

test("fifty commands stream on through a restart", { skip }, (t) =>
  // One connection each, one more after the loss, and one for who met the old
  // server once more.
  through50(t, hotRestart, 3 * COMMANDS));

const skipRoles = !process.env.TEND_KILL_ROLE && "TEND_KILL_ROLE is not set: give the command that kills a role";
const killRole = (role) =>
  new Promise((resolve, reject) => exec(`'${process.env.TEND_KILL_ROLE}' ${role}`, (e, out, err) => (e ? reject(new Error(e.message + err)) : resolve())));

for (const role of ["server", "keeper", "anchor"]) {
  test(`fifty commands stream on through kill -9 of the ${role}`, { skip: skipRoles }, (t) =>
    // Only the server holds connections.
    through50(t, () => killRole(role), role === "server" ? 3 * COMMANDS : COMMANDS));
}
