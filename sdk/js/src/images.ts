// OCI images, from which sandboxes are created.

import { clean, protocolError } from './errors.js';
import { bytesOf, type Bytes } from '#platform';
import { ImageService, type ExportImageResponse, type Image as Message, type PullImageResponse } from './gen/tend/v1/image_pb.js';
import type { Link } from './link.js';
import { fromInt, fromTimestamp, text } from './messages.js';

/** What is known of an image. */
export interface Image {
  /** `sha256:` and 64 hexadecimal digits, of its configuration. */
  id: string;
  /** Of its manifest in a registry; empty: it came from none. */
  digest: string;
  names: string[];
  /** `linux/amd64`; empty: it does not say. */
  platform: string;
  /** As the image says. */
  made?: Date;
  added?: Date;
  /** Of all its layers, which other images may share. */
  bytes: number;
  entries: number;
  /** Of the processes of its sandboxes that do not say. */
  user: string;
  dir: string;
  env: Record<string, string>;
  /** What a container engine would start: entrypoint, and behind it cmd. */
  entrypoint: string[];
  cmd: string[];
  /** `80/tcp`. */
  ports: string[];
  labels: Record<string, string>;
  /** What of the image is left out, in sentences. */
  leftOut: string[];
}

function fromImage(m: Message | undefined): Image {
  if (!m) throw protocolError('no image');
  return {
    id: clean(m.id),
    digest: clean(m.digest),
    names: m.names.map(clean),
    platform: clean(m.platform),
    made: fromTimestamp(m.made),
    added: fromTimestamp(m.added),
    bytes: fromInt('a size', m.bytes),
    entries: fromInt('a number', m.entries),
    user: clean(m.run?.user ?? ''),
    dir: m.run?.dir ?? '',
    env: { ...m.run?.env },
    entrypoint: [...m.entrypoint],
    cmd: [...m.cmd],
    ports: m.ports.map(clean),
    labels: { ...m.labels },
    leftOut: m.leftOut.map(clean),
  };
}

/** The images of the daemon. A key is an id, the first 6 digits or more of it, or a name such as `python:3`. `not_found`: there is none. */
export class Images {
  readonly #link: Link;

  /** @internal Made by Client. */
  constructor(link: Link) {
    this.#link = link;
  }

  /** All images, the newest first. */
  async list(signal?: AbortSignal): Promise<Image[]> {
    await this.#link.needsSandboxes(signal);
    return (await this.#link.call(ImageService.method.listImages, {}, { signal })).images.map(fromImage);
  }

  async get(key: string, signal?: AbortSignal): Promise<Image> {
    const image = text('image', key);
    await this.#link.needsSandboxes(signal);
    return fromImage((await this.#link.call(ImageService.method.getImage, { image }, { signal })).image);
  }

  /**
   * Has the server fetch an image from its registry, as far as it is not there, with the credentials that docker login or podman
   * login have stored on its machine. When it is aborted, what is complete stays, and the next call goes on with the rest.
   */
  async pull(name: string, options: { say?: (message: string) => void; progress?: (done: number, total: number) => void; signal?: AbortSignal } = {}): Promise<Image> {
    const image = text('image', name);
    await this.#link.needsSandboxes(options.signal);
    const open = (s: AbortSignal) => this.#link.connect.stream(ImageService.method.pullImage, { image }, { signal: s });
    const take = (m: PullImageResponse): { value?: Message; progress: boolean } => {
      if (m.message) options.say?.(clean(m.message));
      options.progress?.(fromInt('a size', m.done), fromInt('a size', m.total));
      return { value: m.image, progress: true };
    };
    for await (const m of this.#link.follow(open, take, () => false, options.signal)) return fromImage(m);
    throw protocolError('the fetch of an image without its end');
  }

  /**
   * An archive of an image, in pieces, as `tend image import` and `docker load` read it: by a name it has that name alone, by its id
   * all of them. After a lost connection the server makes it again, and what has come already is left out.
   */
  async *export(key: string, signal?: AbortSignal): AsyncGenerator<Bytes, void, void> {
    const image = text('image', key);
    await this.#link.needsSandboxes(signal);
    let [got, at] = [0, 0];
    const open = (s: AbortSignal) => {
      at = 0;
      return this.#link.connect.stream(ImageService.method.exportImage, { image }, { signal: s });
    };
    const take = (m: ExportImageResponse): { value?: Bytes; progress: boolean } => {
      const data = m.data.subarray(Math.max(0, got - at));
      at += m.data.length;
      got += data.length;
      return { value: data.length ? bytesOf(data) : undefined, progress: data.length > 0 };
    };
    yield* this.#link.follow(open, take, () => false, signal);
  }

  /** Takes a name from an image, and removes the image with its last name, or if the key is its id. Sandboxes and templates stay. */
  async remove(key: string, signal?: AbortSignal): Promise<void> {
    const image = text('image', key);
    await this.#link.needsSandboxes(signal);
    await this.#link.once(ImageService.method.removeImage, { image }, { signal });
  }

  /** Removes the images without a name, or with `all` those that no sandbox and no template uses, and returns them. */
  async prune(options: { all?: boolean; signal?: AbortSignal } = {}): Promise<Image[]> {
    await this.#link.needsSandboxes(options.signal);
    return (await this.#link.once(ImageService.method.pruneImages, { all: options.all }, { signal: options.signal })).images.map(fromImage);
  }
}
