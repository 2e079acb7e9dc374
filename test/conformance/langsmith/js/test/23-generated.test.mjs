// The generated client of the whole API, which repeats requests by itself.
import test from "node:test";
import assert from "node:assert/strict";
import { Langsmith } from "langsmith";
import { apiKey, inTime, openSandbox, scratchDir, serverUrl } from "../helpers.mjs";

const api = new Langsmith({ baseURL: serverUrl, apiKey });

test("a command that timed out is not run again", async (t) => {
  const sandbox = await openSandbox(t);
  const dir = await scratchDir(sandbox);
  const path = new URL(sandbox.dataplane_url).pathname + "/execute";
  await inTime(async (seconds) => {
    await assert.rejects(api.post(path, { body: { command: `echo run >> ${dir}/runs; sleep 3000`, timeout: seconds / 2 } }), { status: 408 });
    const runs = (await sandbox.run(`cat ${dir}/runs || true`)).stdout;
    assert.ok(runs === "" || runs === "run\n", runs);
    return runs;
  });
});

test("what is not supported is named, at the first try", async () => {
  let tries = 0;
  const counting = new Langsmith({ baseURL: serverUrl, apiKey, fetch: (...a) => (tries++, fetch(...a)) });
  await assert.rejects(counting.sandboxes.boxes.create({ volumes: [{ volume: "v", mount_path: "/v" }] }), (e) => e.status === 501 && /volumes/.test(JSON.stringify(e.error)));
  assert.equal(tries, 1);
  await assert.rejects(counting.sandboxes.boxes.create({ restore_memory: true }), (e) => e.status === 501 && /restore_memory/.test(JSON.stringify(e.error)));
  assert.equal(tries, 2);
});

test("the life of a box", async (t) => {
  const name = `gen-${Date.now()}`;
  const made = await api.sandboxes.boxes.create({ name, labels: { made: name }, env_vars: { A: "over" }, run_config: { env_vars: { A: "under", B: "under" } }, persistent: false });
  t.after(() => api.sandboxes.boxes.delete(made.id).catch(() => {}));
  assert.equal(made.persistent, false);
  assert.deepEqual(made.labels, { made: name });
  const listed = [];
  for await (const box of api.sandboxes.boxes.list({ label: [`made=${name}`], page_size: 1 })) listed.push(box.name);
  assert.deepEqual(listed, [name]);
  const execute = (command) => api.post(new URL(made.dataplane_url).pathname + "/execute", { body: { command } });
  assert.equal((await execute("echo $A $B > f; cat f")).stdout, "over under\n");
  assert.equal((await api.sandboxes.boxes.update(name, { run_config: { env_vars: { A: "new", B: "new" } } })).run_config.env_vars.B, "new");
  assert.equal((await execute("echo $A $B")).stdout, "over new\n");
  await api.sandboxes.boxes.stop(name);
  assert.equal((await api.sandboxes.boxes.getStatus(name)).status, "stopped");
  await api.sandboxes.boxes.start(name);
  assert.equal((await execute("ls -A")).stdout, "", "it was to be disposable");
  await api.sandboxes.boxes.delete(name);
  await assert.rejects(api.sandboxes.boxes.retrieve(name), { status: 404 });
});
