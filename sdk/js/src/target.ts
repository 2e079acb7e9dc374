// The URLs of servers.

import { InvalidError } from './errors.js';

/** Where a URL points to. */
export interface Target {
  base: URL;
  socketPath?: string;
}

const forms = 'write http://HOST:PORT, https://HOST or unix:///PATH';

/** Refuses what it would otherwise ignore, and repeats no password. page: what a URL without a host is relative to. */
export function parseTarget(raw: string, page?: string): Target {
  const wrong = (why: string) => new InvalidError('url', why);
  if (raw.startsWith('unix:')) {
    const socketPath = raw.slice('unix:'.length).replace(/^\/\//, '');
    if (!socketPath) throw wrong('names no socket; write unix:///run/tend.sock');
    return { base: new URL('http://tend/'), socketPath };
  }
  let base: URL;
  try {
    base = new URL(raw || 'http:', page); // nothing is no place, though it would be the page's
  } catch {
    throw wrong(`cannot be read; ${forms}`);
  }
  if (base.username || base.password) throw wrong('has a user name or a password, and the server knows none; give the token apart from it (TEND_TOKEN, options.token)');
  if ((base.protocol !== 'http:' && base.protocol !== 'https:') || !base.hostname) throw wrong(`has no form that is known; ${forms}`);
  if (base.search || raw.includes('?')) throw wrong(`has a query, which has no meaning here; ${forms}`);
  if (base.hash || raw.includes('#')) throw wrong(`has a fragment, which has no meaning here; ${forms}`);
  if (!base.pathname.endsWith('/')) base.pathname += '/';
  return { base };
}

