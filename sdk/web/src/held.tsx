// A change by a model that waits for a person: it is shown with the reason, and applied or discarded.

import { useEffect, useState } from 'preact/hooks';
import type { Episode } from '../../js/src/gen/tend/v1/service_pb.js';
import { services, words } from './api.js';
import { visible } from './format.js';
import { amend } from './router.js';
import { readOnly } from './session.js';
import { Diff } from './timeline.js';

export function Held({ e }: { e: Episode }) {
  const [diff, show] = useState('');
  const [busy, work] = useState(false);
  const [refused, refuse] = useState('');
  useEffect(() => {
    if (e.held) services.getEpisode({ id: e.id }).then((m) => show(new TextDecoder().decode(m.diff)), (err: unknown) => refuse(words(err)));
  }, [e.id, e.held]);
  if (!e.held) return null;
  const act = async (what: { apply: string } | { discard: string }) => {
    work(true);
    refuse('');
    try {
      const { episode } = await services.heal(what);
      if (episode) amend({ tab: 'healing', episode }, true);
    } catch (err) {
      refuse(words(err));
    }
    work(false);
  };
  return (
    <>
      {diff && <Diff text={diff} title="A change that waits for you" />}
      <div class="healbar">
        <span class="faint">{visible(e.heldWhy)}</span>
        <span class="grow" />
        {!readOnly() && (
          <>
            <button disabled={busy} onClick={() => void act({ discard: e.held })}>
              Discard it
            </button>
            <button class="danger" disabled={busy || !diff} onClick={() => void act({ apply: e.held })}>
              Apply it
            </button>
          </>
        )}
      </div>
      {refused && (
        <p class="error written" role="alert">
          {refused.split('\n').map(visible).join('\n')}
        </p>
      )}
    </>
  );
}
