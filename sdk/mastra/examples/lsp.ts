// A language server in the sandbox, over its stdin and stdout.
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { createMessageConnection, StreamMessageReader, StreamMessageWriter } from 'vscode-jsonrpc/node';
import { TendSandbox } from '@tend/mastra';

const sandbox = new TendSandbox();
const source = 'const answer: number = "not a number";\n';
await sandbox.writeFiles([
  { path: 'tsconfig.json', content: '{ "compilerOptions": { "strict": true }, "include": ["*.ts"] }' },
  { path: 'a.ts', content: source },
]);
const root = pathToFileURL(sandbox.workingDirectory!).href;
const uri = `${root}/a.ts`;

const require = createRequire(import.meta.url);
const cli = path.join(path.dirname(require.resolve('typescript-language-server/package.json')), 'lib/cli.mjs');
// It leaves a directory in TMPDIR, which goes with the sandbox.
const server = await sandbox.processes.spawn(`${process.execPath} '${cli}' --stdio`, { env: { TMPDIR: sandbox.workingDirectory } });
const connection = createMessageConnection(new StreamMessageReader(server.reader), new StreamMessageWriter(server.writer));

const found = new Promise<string>((resolve) => {
  connection.onNotification('textDocument/publishDiagnostics', (p: { uri: string; diagnostics: { code: number; message: string }[] }) => {
    const error = p.uri === uri && p.diagnostics.find((d) => d.code === 2322);
    if (error) resolve(error.message);
  });
});
connection.onRequest('workspace/configuration', (p: { items: unknown[] }) => p.items.map(() => ({})));
connection.onRequest('window/workDoneProgress/create', () => null);
connection.onRequest('client/registerCapability', () => null);
connection.listen();

await connection.sendRequest('initialize', {
  processId: null,
  rootUri: root,
  workspaceFolders: [{ uri: root, name: 'w' }],
  capabilities: { textDocument: { publishDiagnostics: {} }, workspace: { configuration: true } },
  initializationOptions: { tsserver: { path: require.resolve('typescript/lib/tsserver.js') }, disableAutomaticTypingAcquisition: true },
});
await connection.sendNotification('initialized', {});
await connection.sendNotification('textDocument/didOpen', { textDocument: { uri, languageId: 'typescript', version: 1, text: source } });
console.log(await found);

await connection.sendRequest('shutdown');
await connection.sendNotification('exit');
console.log('exit code', (await server.wait()).exitCode);
connection.dispose();
await sandbox.destroy();
