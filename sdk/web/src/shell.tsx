// A shell in a new terminal, where one is.

import { create } from '@bufbuild/protobuf';
import { useState } from 'preact/hooks';
import { SpecSchema } from '../../js/src/gen/tend/v1/spec_pb.js';
import { randomHex } from '../../js/src/random.js';
import { place, repeat, words } from './api.js';
import { go, paths } from './router.js';
import { readOnly } from './session.js';

/**
 * A button that opens it, on the machine or in a sandbox. of: a process, in whose directory; without one it is the directory
 * that a process has by itself.
 */
export function OpenTerminal({ box, of, bar }: { box: string; of?: string; bar?: boolean }) {
  const [busy, setBusy] = useState(false);
  const [failed, fail] = useState('');
  if (readOnly()) return null;
  const open = async () => {
    setBusy(true);
    fail('');
    try {
      const at = place(box).processes;
      const there = of ? (await repeat(() => at.get({ process: { by: { case: 'id', value: of } } }))).info?.spec : undefined;
      // A shell that was started by an attempt whose answer was lost is the one of the next.
      const spec = create(SpecSchema, { id: randomHex(16), name: 'shell', shell: 'exec "${SHELL:-/bin/sh}"', env: { TERM: 'xterm-256color' }, pty: { cols: 80, rows: 24 } });
      if (there) [spec.dir, spec.rawDir] = [there.dir, there.rawDir];
      await repeat(() => at.start({ spec }));
      go(paths.process(spec.id, box));
    } catch (err) {
      fail(words(err));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      {failed && (
        <span class="error" role="alert">
          {failed}
        </span>
      )}
      <button class={bar ? 'quiet' : undefined} disabled={busy} onClick={() => void open()} aria-label="New terminal" title={of ? 'Open a shell in its directory' : box ? 'Open a shell in the sandbox' : 'Open a shell on the machine'}>
        {bar ? <span class="mono">&gt;_</span> : 'New terminal'}
      </button>
    </>
  );
}
