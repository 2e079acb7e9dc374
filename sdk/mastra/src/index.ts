/**
 * Mastra sandboxes on tend.
 *
 * @packageDocumentation
 */
export { TendSandbox, type TendIsolation, type TendIsolationOptions, type TendSandboxOptions } from './sandbox/index.js';
export { TendProcessManager } from './sandbox/process-manager.js';
export { TendProcessHandle } from './sandbox/process-handle.js';
export { tendSandboxProvider, type TendProviderConfig } from './provider.js';
