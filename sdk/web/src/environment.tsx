// The environment that a process was started with; values are hidden until one asks.

import { useRef, useState } from 'preact/hooks';
import { Inherit, type Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import { visible } from './format.js';
import { Notice } from './parts.js';
import { readOnly } from './session.js';

/** What a process has without variables of its own. */
const inherited: Record<Inherit, string> = {
  [Inherit.USER]: 'It has PATH of the daemon, and HOME, USER and LOGNAME of its user.',
  [Inherit.DAEMON]: 'It has the environment of the daemon, and HOME, USER and LOGNAME of its user.',
  [Inherit.NONE]: 'Its environment is empty.',
};

export function Environment({ info }: { info: Info }) {
  const [shown, show] = useState<Set<string>>(new Set());
  const utf8 = useRef(new TextDecoder());
  const spec = info.spec!;
  const all: [string, string][] = [...Object.entries(spec.env), ...spec.rawEnv.map((v) => [utf8.current.decode(v.name), utf8.current.decode(v.value)] as [string, string])].sort(([a], [b]) => a.localeCompare(b));
  if (all.length === 0)
    return (
      <Notice title="No variables were given to it">
        <p>{inherited[spec.inherit]}</p>
      </Notice>
    );
  return (
    <div class="environment">
      <p class="faint">{readOnly() ? 'What it was started with. A login that only reads is not told the values, since many are secrets.' : 'What it was started with. Values are hidden, since many are secrets.'}</p>
      <dl>
        {all.map(([name, value]) => (
          <div key={name}>
            <dt class="mono">
              <bdi>{visible(name)}</bdi>
            </dt>
            <dd class="mono">
              {shown.has(name) ? <bdi>{visible(value)}</bdi> : <span aria-label="hidden">{'\u2022'.repeat(8)}</span>}
              {!readOnly() && <button class="quiet" onClick={() => show(new Set(shown.has(name) ? [...shown].filter((n) => n !== name) : [...shown, name]))} aria-label={`${shown.has(name) ? 'Hide' : 'Show'} ${visible(name)}`}>
                {shown.has(name) ? 'Hide' : 'Show'}
              </button>}
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
