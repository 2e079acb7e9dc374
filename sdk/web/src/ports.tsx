// The TCP ports on which a process, or a sandbox, listens, each with a link.

import { useEffect, useState } from 'preact/hooks';
import type { PortsResponse } from '../../js/src/gen/tend/v1/process_pb.js';
import { place, repeat, sandboxes, transient, words } from './api.js';
import { readOnly } from './session.js';

/** How often it is looked, while somebody does. */
const every = 4000;

/** The address of a port: of a sandbox through the server, by a name of its own. */
export function linkOf(box: string, port: number, addresses: string[], domains: string[], at: { protocol: string; hostname: string; port: string } = location): string {
  const here = at.hostname === 'localhost' || at.hostname.endsWith('.localhost') || /^127\.|^\[::1\]$/.test(at.hostname);
  if (box) {
    const domain = domains[0] ?? (here ? 'localhost' : '');
    return domain && `${at.protocol}//${port}-${box}.${domain}${at.port && `:${at.port}`}/`;
  }
  const all = addresses.some((a) => /^(0\.0\.0\.0|\[::\]):/.test(a));
  return here || all ? `http://${here ? 'localhost' : at.hostname}:${port}/` : '';
}

/** Opens a port of a sandbox that is not public: with a ticket, by which this browser is let in. */
async function visit(box: string, href: string) {
  const page = window.open('', '_blank'); // now: what opens later is taken for an advertisement
  if (page) page.opener = null;
  try {
    const { ticket } = await repeat(() => sandboxes.access({ sandbox: box }));
    (page ?? window).location.replace(`${href}.tend/open?ticket=${encodeURIComponent(ticket)}`);
  } catch (err) {
    page?.close();
    throw err;
  }
}

export function Ports({ box, process, open }: { box: string; process?: string; open: boolean }) {
  const [found, set] = useState<PortsResponse>();
  const [failed, fail] = useState('');
  const enter = (e: MouseEvent, href: string) => {
    e.preventDefault();
    fail('');
    visit(box, href).catch((err: unknown) => fail(words(err)));
  };
  useEffect(() => {
    const scope = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      try {
        if (!document.hidden) set(await repeat(() => place(box).processes.ports(process ? { process: { by: { case: 'id', value: process } } } : {}, { signal: scope.signal }), scope.signal));
      } catch (err) {
        if (!transient(err)) return; // it has ended, or cannot be asked
      }
      if (!scope.signal.aborted) timer = setTimeout(() => void look(), every);
    };
    void look();
    return () => {
      scope.abort();
      clearTimeout(timer);
    };
  }, [box, process]);
  if (!found || found.ports.length === 0) return null;
  return (
    <p class="labels" aria-label="Ports">
      <span class="faint">Listens on</span>
      {found.ports.map((p) => {
        const href = open || !readOnly() ? linkOf(box, p.port, p.addresses, found.domains) : '';
        return href ? (
          <a key={p.port} class="badge port" href={href} target="_blank" rel="noopener noreferrer" title={p.addresses.join(', ')} onClick={open ? undefined : (e) => enter(e, href)}>
            {p.port} <span aria-hidden="true">{'\u2197'}</span>
          </a>
        ) : (
          <span key={p.port} class="badge" title={open ? `${p.addresses.join(', ')}; this page has no way there${box ? ': tend serve --domain gives sandboxes names' : ''}` : 'The ports of this sandbox are for those who may do more than read'}>
            {p.port}
          </span>
        );
      })}
      {failed && (
        <span class="error" role="alert">
          {failed}
        </span>
      )}
    </p>
  );
}
