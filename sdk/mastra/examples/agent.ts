// An agent that works in a tend sandbox: it runs commands, and starts a server in
// the background that outlives this program.
//
//   ANTHROPIC_API_KEY=… npx tsx agent.ts 'what to do'
import { Agent } from '@mastra/core/agent';
import { Workspace } from '@mastra/core/workspace';
import { TendSandbox } from '@tend/mastra';

const sandbox = new TendSandbox({ id: 'my-agent' });
const workspace = new Workspace({ sandbox });

const agent = new Agent({
  id: 'my-agent',
  name: 'My agent',
  instructions: 'You work in the sandbox with your tools. Say briefly what you found.',
  model: 'anthropic/claude-opus-4-5',
  workspace,
});

const { text } = await agent.generate(process.argv[2] ?? 'Count the files of /etc.');
console.log(text);
await sandbox.detach(); // what it started runs on
