// JSON-RPC with a process of the sandbox, over its stdin and stdout.
import { createMessageConnection, StreamMessageReader, StreamMessageWriter } from 'vscode-jsonrpc/node';
import { TendSandbox } from '@tend/mastra';

const sandbox = new TendSandbox();
await sandbox.writeFiles([
  {
    path: 'peer.mjs',
    content: `
import { createMessageConnection, StreamMessageReader, StreamMessageWriter } from ${JSON.stringify(import.meta.resolve('vscode-jsonrpc/node'))};
const connection = createMessageConnection(new StreamMessageReader(process.stdin), new StreamMessageWriter(process.stdout));
connection.onRequest('upper', ({ text }) => text.toUpperCase());
connection.listen();
`,
  },
]);

const peer = await sandbox.processes.spawn(`${process.execPath} peer.mjs`);
const connection = createMessageConnection(new StreamMessageReader(peer.reader), new StreamMessageWriter(peer.writer));
connection.listen();
console.log(await connection.sendRequest('upper', { text: 'žluť over the wire' }));

connection.dispose();
await sandbox.destroy();
