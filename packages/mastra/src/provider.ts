// The provider for MastraEditor: sandboxes from stored configurations.

import type { SandboxProvider } from '@mastra/core/editor';
import { TendSandbox, type TendIsolation } from './sandbox/index.js';

/** The options of a sandbox that can be stored. */
export interface TendProviderConfig {
  id?: string;
  url?: string;
  token?: string;
  isolation?: TendIsolation;
  workingDirectory?: string;
  env?: Record<string, string>;
  user?: string;
  instructions?: string;
}

export const tendSandboxProvider: SandboxProvider<TendProviderConfig> = {
  id: 'tend',
  name: 'tend',
  description: 'Processes of a tend daemon, which outlive the program that started them',
  configSchema: {
    type: 'object',
    additionalProperties: false,
    properties: {
      id: { type: 'string', description: 'Names the sandbox; the same id finds the same processes and files' },
      url: { type: 'string', description: 'http://HOST:PORT, https://HOST or unix:///PATH (default: the daemon of the current user)' },
      token: { type: 'string', description: 'Token of the daemon (default: TEND_TOKEN)' },
      isolation: { type: 'string', enum: ['none', 'full'], default: 'none', description: "none: commands run on the daemon's machine itself" },
      workingDirectory: { type: 'string', description: 'Where commands run (default: a directory of its own)' },
      env: { type: 'object', additionalProperties: { type: 'string' }, description: 'Environment variables of all commands' },
      user: { type: 'string', description: 'Whom commands run as (default: the user of the daemon)' },
      instructions: { type: 'string', description: 'Replaces the default instructions for agents' },
    },
  },
  createSandbox: (config) => new TendSandbox(config),
};
