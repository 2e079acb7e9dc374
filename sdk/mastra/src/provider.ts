// The provider for MastraEditor: sandboxes from stored configurations.

import type { SandboxProvider } from '@mastra/core/editor';
import { InvalidError } from '@tend/client';
import { TendSandbox, type TendIsolation, type TendIsolationOptions } from './sandbox/index.js';

/** The options of a sandbox that can be stored. */
export interface TendProviderConfig extends Omit<TendIsolationOptions, 'sandboxId'> {
  id?: string;
  url?: string;
  token?: string;
  isolation?: TendIsolation;
  workingDirectory?: string;
  env?: Record<string, string>;
  user?: string;
  instructions?: string;
}

const number = { type: 'number', minimum: 0 };
const texts = { type: 'array', items: { type: 'string' } };

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
      isolation: { type: 'string', enum: ['none', 'full'], default: 'none', description: "none: commands run on the daemon's machine itself; full: in a sandbox of their own" },
      share: {
        type: 'array',
        description: "Directories of the daemon's machine that are seen inside (full)",
        items: { type: 'object', additionalProperties: false, required: ['source'], properties: { source: { type: 'string' }, target: { type: 'string' }, readOnly: { type: 'boolean' } } },
      },
      network: {
        type: 'object',
        description: 'What it reaches, and whether its ports are reached (full)',
        additionalProperties: false,
        properties: { mode: { type: 'string', enum: ['none', 'host', 'own'] }, allow: texts, deny: texts, public: { type: 'boolean' } },
      },
      limits: {
        type: 'object',
        description: 'What it may use; sizes in bytes (full)',
        additionalProperties: false,
        properties: { cpus: number, memory: number, disk: number, tasks: number },
      },
      template: { type: 'string', description: 'A template of the daemon (full)' },
      timeout: { ...number, description: 'Milliseconds after the last start at which onTimeout is done to it (full)' },
      onTimeout: { type: 'string', enum: ['pause', 'destroy'], default: 'pause' },
      idleTimeout: { ...number, description: 'Milliseconds without use after which it is stopped; its files stay (full)' },
      checkpointName: { type: 'string', description: 'What snapshot keeps, and what it begins with (full)' },
      seedCheckpointName: { type: 'string', description: 'What it begins with while there is no checkpoint (full)' },
      domain: { type: 'string', description: "The daemon's domain, for the URLs of ports (full)" },
      workingDirectory: { type: 'string', description: 'Where commands run (default: a directory of its own)' },
      env: { type: 'object', additionalProperties: { type: 'string' }, description: 'Environment variables of all commands' },
      user: { type: 'string', description: 'Whom commands run as (default: the user of the daemon)' },
      instructions: { type: 'string', description: 'Replaces the default instructions for agents' },
    },
  },
  createSandbox(config) {
    // What is stored may be misspelt, isolation too.
    const known = Object.keys((tendSandboxProvider.configSchema as { properties: object }).properties);
    for (const name of Object.keys(config)) if (!known.includes(name)) throw new InvalidError(name, `is not known; ${known.join(', ')} are`);
    return new TendSandbox(config);
  },
};
