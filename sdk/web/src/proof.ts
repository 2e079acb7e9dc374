// Proves with each request that this browser is logged in. The key of the login stays in the
// browser, which signs with it for the scripts of this origin and hands it to none. What is sent
// is good for one request to one run of the server (package page of the server says more).

interface Login {
  /** The end of the name of its cookie. */
  tag: string;
  /** Bytes where the browser has no WebCrypto, as on a page of plain HTTP from another machine. */
  key: CryptoKey | Uint8Array<ArrayBuffer>;
}

/** Headers that decide, beside the path, what a request does. */
const signedHeaders = ['Tend-Sandbox', 'If-Match', 'If-None-Match'];

/** Of a body of more bytes the length is signed, not the hash. */
const most = 1 << 20;

/** How often a request is sent that the server wants another proof for. */
const tries = 4;

const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
const plain = () => import('./plain.js');
const utf8 = new TextEncoder();
const hex = (bytes: Uint8Array) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');

async function digest(data: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  return subtle ? new Uint8Array(await subtle.digest('SHA-256', data)) : (await plain()).digest(data);
}

async function sign(key: Login['key'], text: string): Promise<Uint8Array> {
  const data = utf8.encode(text);
  return key instanceof Uint8Array ? (await plain()).sign(key, data) : new Uint8Array(await subtle!.sign('HMAC', key, data));
}

/** Does something with what this origin keeps of its login. */
function stored(mode: IDBTransactionMode, act: (all: IDBObjectStore) => IDBRequest): Promise<unknown> {
  return new Promise((ok, fail) => {
    const opening = indexedDB.open('tend', 1);
    opening.onupgradeneeded = () => void opening.result.createObjectStore('login');
    opening.onerror = () => fail(opening.error!);
    opening.onsuccess = () => {
      const db = opening.result;
      try {
        const all = db.transaction('login', mode);
        const asked = act(all.objectStore('login'));
        all.oncomplete = () => ok(asked.result);
        all.onabort = () => fail(all.error ?? new Error('it cannot be stored'));
      } catch (err) {
        fail(err as Error);
      }
      db.close(); // once that is done
    };
  });
}

const name = 'page';
/** Undefined: it was not looked for yet. */
let login: Promise<Login | undefined> | undefined;
/** The other windows of this browser, which are told that it has changed. */
const windows = new BroadcastChannel('tend-login');

function current(): Promise<Login | undefined> {
  return (login ??= stored('readonly', (all) => all.get(name)).catch(() => undefined) as Promise<Login | undefined>);
}

async function become(next: Login | undefined): Promise<void> {
  login = Promise.resolve(next);
  // What cannot be stored lasts as long as this window.
  await stored('readwrite', (all) => (next ? all.put(next, name) : all.delete(name))).catch(() => undefined);
  windows.postMessage('changed');
}

/** Keeps a login, as the server answers it. */
export async function keep(tag: string, key: string): Promise<void> {
  localStorage.removeItem('tend-proof'); // of a former page
  const bytes = utf8.encode(key);
  await become({ tag, key: subtle ? await subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']) : bytes });
}

export const forget = (): Promise<void> => become(undefined);

/** Calls act when another window has logged in or out. */
export function onOther(act: () => void): void {
  windows.onmessage = () => {
    login = undefined;
    act();
  };
}

/** The run of the server that proofs are for. */
let run = '';
/** It is not known whether that server is still there. */
let doubtful = true;
/** The count of the last proof for it, or what the server says it must be greater than. */
let last = 0;

/** Takes in what an answer says a proof must be for. */
function learn(says: string | null): { run: string; least: number } | undefined {
  const [, named, least] = /Tend-Page run="([^"]*)", least="(\d+)"/.exec(says ?? '') ?? [];
  if (!named) return undefined;
  if (named !== run) last = 0;
  run = named;
  last = Math.max(last, Number(least));
  doubtful = false;
  return { run, least: Number(least) };
}

/** What an answer says. */
const wanted = (res: Response) => res.headers.get('WWW-Authenticate');

let asking: Promise<void> | undefined;

/** Asks for the run where it is doubtful. A server that says none has no use for proofs. */
async function knowRun(): Promise<void> {
  if (!doubtful) return;
  asking ??= fetch('/ui/session', { cache: 'no-store' })
    .then((res) => {
      learn(wanted(res));
      doubtful = false;
    })
    .finally(() => (asking = undefined));
  await asking;
}

/** A request that is to be proved. */
export interface Provable {
  method: string;
  address: string | URL;
  headers: Record<string, string>;
  body?: string | Blob | Uint8Array<ArrayBuffer> | null;
}

/** The header for a request, and whether an answer wants another one for it. */
interface Proof {
  header: Record<string, string>;
  refused: (says: string | null) => boolean;
}

async function prove({ method, address, headers, body }: Provable): Promise<Proof> {
  const by = await current();
  if (!by) return { header: {}, refused: () => false };
  const data = new Blob(body ? [body] : []);
  const long = data.size > most;
  if (long) doubtful = true; // a refusal may be lost with the connection, in the midst of it
  await knowRun();
  const to = run;
  // It grows over all windows of a browser, whose clock it follows. Two that have the same are no
  // harm: one of them is asked for another.
  const count = (last = Math.max(last + 1, Date.now() * 1024 + Math.floor(Math.random() * 1024)));
  const about = long ? String(data.size) : hex(await digest(new Uint8Array(await data.arrayBuffer())));
  const { pathname, search } = new URL(address, location.href);
  const all = new Headers(headers);
  const fields = [by.tag, to, count, method, pathname + search, about, ...signedHeaders.map((h) => all.get(h) ?? '')];
  const header = { 'Tend-Page': [by.tag, to, count, about, hex(await sign(by.key, fields.join('\n')))].join('.') };
  return {
    header,
    refused(says) {
      const next = learn(says);
      return next !== undefined && (next.run !== to || next.least >= count);
    },
  };
}

/**
 * Sends a request with its proof; send gets all headers. If the answer wants another proof,
 * nothing was done for it, and it is sent again. says is the header WWW-Authenticate of an answer.
 */
export async function proved<T>(
  request: Provable,
  send: (headers: Record<string, string>) => Promise<T>,
  says: (answer: T) => string | null,
): Promise<T> {
  for (let n = 1; ; n++) {
    const { header, refused } = await prove(request);
    let answer: T;
    try {
      answer = await send({ ...request.headers, ...header });
    } catch (err) {
      if ((err as Error).name !== 'AbortError') doubtful = true; // who answers next may be another server
      throw err;
    }
    if (!refused(says(answer)) || n === tries) return answer;
  }
}

/** What call takes, of what fetch does. */
export interface CallInit extends Omit<RequestInit, 'headers' | 'body'> {
  headers?: Record<string, string>;
  body?: Provable['body'];
}

/** fetch, as whoever is logged in. Nothing comes from a cache, which asks in its own words. */
export function call(address: string | URL, { headers = {}, ...init }: CallInit = {}): Promise<Response> {
  const request = { method: init.method ?? 'GET', address, headers, body: init.body ?? null };
  return proved(request, (headers) => fetch(address, { ...init, headers, cache: 'no-store' }), wanted);
}
