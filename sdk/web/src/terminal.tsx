// The frame of a terminal; what draws it is loaded when one is opened.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import { place } from './api.js';
import { readOnly } from './session.js';
import type { Screen } from './screen.js';

export function TerminalTab({ info, box }: { info: Info; box: string }) {
  const at = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen | undefined>(undefined);
  const [state, set] = useState<{ size?: string; trouble?: string | undefined; over?: boolean }>({});
  const [failed, fail] = useState(false);
  useEffect(() => {
    let closed = false;
    import('./screen.js').then(
      ({ Screen }) => {
        if (closed) return;
        screen.current = new Screen(at.current!, place(box), info, (s) => set((old) => ({ ...old, ...s })));
      },
      () => fail(true),
    );
    return () => {
      closed = true;
      screen.current?.close();
    };
  }, [info.id, box]);
  const over = state.over || !!info.exit;
  return (
    <section class="tty" aria-label="Terminal">
      {failed && (
        <p class="error" role="alert">
          The terminal could not be loaded; tend may have been upgraded. <button onClick={() => location.reload()}>Load the page anew</button>
        </p>
      )}
      <div class="screen" ref={at} />
      <footer class="statusline">
        <span>{state.size}</span>
        <span class="faint">{readOnly() ? 'this login only looks on: what you type goes nowhere' : 'the size of the window that was opened or resized last'}</span>
        <span class="grow" />
        <Search find={(text, back) => screen.current?.find(text, back) ?? false} />
        <span role="status">{state.trouble ? <span class="away">reconnecting…</span> : over ? 'it has ended' : ''}</span>
      </footer>
    </section>
  );
}

/** A text is found with Enter, and the one before it with Shift. */
function Search({ find }: { find: (text: string, back: boolean) => boolean }) {
  const [missed, miss] = useState(false);
  return (
    <>
      <span role="status">{missed && 'not found'}</span>
      <input
        id="search"
        type="search"
        placeholder="Search"
        aria-label="Search in the terminal"
        title="Enter: the next; Shift+Enter: the one before"
        spellcheck={false}
        onInput={(e) => miss(e.currentTarget.value !== '' && !find(e.currentTarget.value, true))}
        onKeyDown={(e) => e.key === 'Enter' && e.currentTarget.value && miss(!find(e.currentTarget.value, e.shiftKey))}
      />
    </>
  );
}
