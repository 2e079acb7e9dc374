// Forms that make a sandbox, a process or a service. What is made is shown.

import { create } from '@bufbuild/protobuf';
import type { ComponentChildren, InputHTMLAttributes } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Image } from '../../js/src/gen/tend/v1/image_pb.js';
import { SandboxIsolation, type Template } from '../../js/src/gen/tend/v1/sandbox_pb.js';
import { SpecSchema } from '../../js/src/gen/tend/v1/spec_pb.js';
import { randomHex } from '../../js/src/random.js';
import { images, place, repeat, sandboxes, services, words } from './api.js';
import { size, visible } from './format.js';
import { boxName } from './items.js';
import { Notice, Tabs } from './parts.js';
import { amend, go, paths } from './router.js';
import { readOnly } from './session.js';
import { useStore } from './store.js';

const kinds = { sandbox: 'Sandbox', process: 'Process', service: 'Service' } as const;
type Kind = keyof typeof kinds;

export function NewPage({ kind, query }: { kind: string; query: URLSearchParams }) {
  useEffect(() => {
    document.title = 'New \u2013 tend';
  }, []);
  if (readOnly())
    return (
      <main>
        <Notice title="This login only reads">
          <a href={paths.home}>Go to the overview</a>
        </Notice>
      </main>
    );
  const at: Kind = kind in kinds ? (kind as Kind) : 'sandbox';
  return (
    <main class="new">
      <div class="crumbs">
        <a class="back" href={paths.home}>
          Overview
        </a>
      </div>
      <h1>New {kinds[at].toLowerCase()}</h1>
      <Tabs label="What to make">
        {Object.entries(kinds).map(([k, title]) => (
          <button key={k} aria-pressed={k === at} onClick={() => go(paths.make(k))}>
            {title}
          </button>
        ))}
      </Tabs>
      {at === 'sandbox' ? <NewSandbox from={query.get('from') ?? ''} /> : at === 'process' ? <NewProcess box={query.get('box') ?? ''} /> : <NewService />}
    </main>
  );
}

/** A form, whose values make gets; it says what goes on, and returns where to go then. */
function Form({ label, children, make }: { label: string; children: ComponentChildren; make: (value: (name: string) => string, say: (text: string) => void) => Promise<string> }) {
  const [busy, setBusy] = useState(false);
  const [said, say] = useState('');
  const [failed, fail] = useState('');
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const data = new FormData(e.currentTarget as HTMLFormElement);
    setBusy(true);
    fail('');
    try {
      go(await make((name) => String(data.get(name) ?? '').trim(), say));
    } catch (err) {
      fail(words(err));
    } finally {
      setBusy(false);
      say('');
    }
  };
  return (
    <form class="form" onSubmit={(e) => void submit(e)}>
      {children}
      <p class="error" role="alert">
        {failed}
      </p>
      <span class="form-end">
        <button class="primary" disabled={busy}>
          {label}
        </button>
        <span role="status">{said}</span>
      </span>
    </form>
  );
}

function Field({ name, title, hint = '', ...rest }: { name: string; title: string; hint?: string } & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <label>
      <span>
        {title} {hint && <small class="faint">{hint}</small>}
      </span>
      <input name={name} autocomplete="off" spellcheck={false} {...rest} />
    </label>
  );
}

const nameOf = (t: Template) => t.aliases[0] || t.name || t.id;

function NewSandbox({ from }: { from: string }) {
  const [there, set] = useState<{ templates: Template[]; images: Image[] }>({ templates: [], images: [] });
  const [chosen, choose] = useState(from);
  useEffect(() => {
    const scope = new AbortController();
    void Promise.all([sandboxes.templates({}, { signal: scope.signal }), images.listImages({}, { signal: scope.signal })]).then(
      ([t, i]) => set({ templates: t.templates, images: i.images }),
      () => undefined, // then there is the base alone, and what is typed
    );
    return () => scope.abort();
  }, []);
  const listed = [...there.templates.map((t) => `template:${nameOf(t)}`), ...there.images.flatMap((i) => i.names.map((n) => `image:${n}`))];
  return (
    <Form
      label="Make the sandbox"
      make={async (value, say) => {
        const [, kind, key] = /^(template|image):(.*)$/.exec(chosen) ?? ['', '', ''];
        let image = kind === 'image' ? key! : '';
        if (chosen === 'pull') {
          image = value('image');
          for await (const m of images.pullImage({ image })) say(m.message || (m.total ? `${size(m.done)} of ${size(m.total)}` : 'fetching \u2026'));
        }
        const minutes = Number(value('minutes'));
        const made = await sandboxes.create({
          spec: {
            name: value('name'), isolation: SandboxIsolation.FULL, template: kind === 'template' ? key! : '', image,
            size: { cpus: Number(value('cpus')), memory: BigInt(Math.round(Number(value('memory')) * 2 ** 20)) },
            ...(minutes > 0 && { timeout: { seconds: BigInt(Math.round(minutes * 60)), nanos: 0 } }),
          },
        });
        return paths.sandbox(made.sandbox!.id);
      }}
    >
      <Field name="name" title="Name" hint="none: one is chosen" maxLength={128} />
      <label>
        <span>Files</span>
        <select value={chosen} onChange={(e) => choose(e.currentTarget.value)}>
          <option value="">this machine's programs</option>
          {[...new Set(chosen && chosen !== 'pull' ? [...listed, chosen] : listed)].map((f) => (
            <option key={f} value={f}>
              {visible(f.replace(':', ' '))}
            </option>
          ))}
          <option value="pull">an image of a registry …</option>
        </select>
      </label>
      {chosen === 'pull' && <Field name="image" title="Image" placeholder="python:3" required />}
      <Field name="cpus" title="Processors" hint="empty: as many as the machine has" type="number" min="0" step="any" />
      <Field name="memory" title="Memory in MiB" hint="empty: as its template says, or no limit" type="number" min="0" />
      <Field name="minutes" title="Time in minutes" hint="it is removed then; empty: never" type="number" min="0" step="any" />
    </Form>
  );
}

function NewProcess({ box }: { box: string }) {
  const store = useStore(true);
  return (
    <Form
      label="Start the process"
      make={async (value) => {
        // A process that was started by an attempt whose answer was lost is the one of the next.
        const spec = create(SpecSchema, { id: randomHex(16), name: value('name'), shell: value('command'), dir: value('dir') });
        await repeat(() => place(box).processes.start({ spec, uniqueName: spec.name !== '' }));
        return paths.process(spec.id, box);
      }}
    >
      <label>
        <span>Where</span>
        <select value={box} onChange={(e) => amend({ box: e.currentTarget.value })}>
          <option value="">this machine</option>
          {[...store.sandboxes.keys()].map((id) => (
            <option key={id} value={id}>
              sandbox {visible(boxName(store, id))}
            </option>
          ))}
        </select>
      </label>
      <Field name="command" title="Command" hint="a line for the shell" required placeholder="npm run dev" />
      <Field name="name" title="Name" hint="may be empty" />
      <Field name="dir" title="Directory" hint="empty: the home of its user" placeholder="/srv/app" />
    </Form>
  );
}

function NewService() {
  return (
    <Form
      label="Start the service"
      make={async (value) => {
        const name = value('name');
        const there = await repeat(() => services.list({}));
        if (there.projects.some((p) => p.name === name)) throw new Error(`There is a project ${name} already; its file declares its services.`);
        // JSON is YAML.
        const text = new TextEncoder().encode(JSON.stringify({ services: { [name]: { command: value('command') } } }));
        await services.apply({ text, name: `${name}.yaml`, dir: value('dir'), project: name });
        await services.start({ names: [name], project: name });
        // The first project of a daemon has its services without a prefix.
        const made = (await repeat(() => services.list({}))).services.find((s) => s.project === name);
        return paths.service(made?.name ?? name);
      }}
    >
      <Field name="name" title="Name" hint="also of its project" required maxLength={40} pattern="[A-Za-z0-9._\-]+" />
      <Field name="command" title="Command" hint="it is kept running" required placeholder="npm start" />
      <Field name="dir" title="Directory" required pattern="/.*" placeholder="/srv/app" />
      <p class="faint">For health, dependencies and repairs, write a tend.yaml: tend init makes one.</p>
    </Form>
  );
}
