// What a sandbox is, above the list of what runs in it.

import { millisOf } from './duration.js';
import { age, millis, percent, size, visible } from './format.js';
import { boxName, boxState, ending } from './items.js';
import { Head } from './parts.js';
import { Ports } from './ports.js';
import { paths } from './router.js';
import { readOnly } from './session.js';
import { OpenTerminal } from './shell.js';
import { SandboxAction, SandboxIsolation, SandboxNetworkMode, SandboxState, type Sandbox } from '../../js/src/gen/tend/v1/sandbox_pb.js';
import type { Store } from './types.js';
import { Used } from './used.js';

const networks: Record<SandboxNetworkMode, string> = {
  [SandboxNetworkMode.DEFAULT]: 'as the server has it',
  [SandboxNetworkMode.NONE]: 'none',
  [SandboxNetworkMode.HOST]: "the machine's",
  [SandboxNetworkMode.OWN]: 'its own',
};

export function SandboxHead({ store, id }: { store: Store; id: string }) {
  const live = store.sandboxes.get(id);
  const b = live?.sandbox;
  return (
    <Head
      way={<a href={`${paths.home}?kind=sandbox`}>Sandboxes</a>}
      name={boxName(store, id)}
      state={b && boxState(b)}
      actions={
        <>
          {b && !readOnly() && <a href={paths.files('', id)}>Files</a>}
          {b?.state === SandboxState.READY && b.template && <a href={paths.code(id)}>Code</a>}
          {b?.state === SandboxState.READY && !readOnly() && <a href={`${paths.make('process')}?box=${id}`}>New process</a>}
          {b?.state === SandboxState.READY && <OpenTerminal box={id} />}
        </>
      }
    >
      {!b && <p class="error">There is no such sandbox any more; what is shown below was in it.</p>}
      {b?.reason && <p class="error">{visible(b.reason)}</p>}
      <dl class="facts">
        <div>
          <dt>Sandbox</dt>
          <dd class="mono">{id}</dd>
        </div>
        {b && <Facts b={b} store={store} />}
        {live?.memory !== undefined && (
          <div>
            <dt>Memory</dt>
            <dd>
              {size(live.memory)}
              {b?.size && b.size.memory > 0n && <span class="faint"> of {size(b.size.memory)}</span>}
            </dd>
          </div>
        )}
        {live?.cpu !== undefined && (
          <div>
            <dt>CPU</dt>
            <dd>{percent(live.cpu)}</dd>
          </div>
        )}
      </dl>
      {b && <Labels all={b.metadata} />}
      {b && <Used name={id} />}
      {b?.state === SandboxState.READY && <Ports box={id} open={b.network?.public !== false} />}
    </Head>
  );
}

function Facts({ b, store }: { b: Sandbox; store: Store }) {
  const ends = ending(b, store.now());
  const idle = b.idleTtl ? millisOf(b.idleTtl) : 0;
  return (
    <>
      <div>
        <dt>Ends by itself</dt>
        <dd title={b.deadline ? new Date(millis(b.deadline)).toLocaleString() : undefined}>{ends || 'never'}</dd>
      </div>
      {idle > 0 && (
        <div>
          <dt>If nobody uses it</dt>
          <dd>
            {b.atTimeout === SandboxAction.PAUSE ? 'paused' : 'stopped'} after {age(idle)}
          </dd>
        </div>
      )}
      <div>
        <dt>Made</dt>
        <dd>{age(store.now() - millis(b.created))} ago</dd>
      </div>
      {b.template && (
        <div>
          <dt>Template</dt>
          <dd>{visible(b.template)}</dd>
        </div>
      )}
      <div>
        <dt>Isolation</dt>
        <dd>{b.isolation === SandboxIsolation.NONE ? 'none: programs see the machine' : 'isolated'}</dd>
      </div>
      {b.network && (
        <div>
          <dt>Network</dt>
          <dd>{networks[b.network.mode] ?? 'unknown'}</dd>
        </div>
      )}
    </>
  );
}

/** Labels, each a link to everything that has it. */
export function Labels({ all }: { all: { [key: string]: string } }) {
  const shown = Object.entries(all)
    .filter(([k]) => !k.startsWith('tend.'))
    .sort(([a], [b]) => a.localeCompare(b));
  if (shown.length === 0) return null;
  return (
    <p class="labels" aria-label="Labels">
      {shown.map(([k, v]) => (
        <a key={k} class="badge" href={`${paths.home}?q=${encodeURIComponent(`${k}=${v}`)}`} title="Show everything with this label">
          <bdi>
            {visible(k)}={visible(v)}
          </bdi>
        </a>
      ))}
    </p>
  );
}
