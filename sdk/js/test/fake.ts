// A server that does what a test says: cuts connections, answers late or wrong.
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { after } from 'node:test';
import { create, fromBinary, toBinary, type DescMessage, type MessageInitShape, type MessageShape } from '@bufbuild/protobuf';
import { EventSchema, HelloResponseSchema, ReadRequestSchema, ReadResponseSchema, WriteRequestSchema, WriteResponseSchema } from '../src/gen/tend/v1/process_pb.js';

export type Handler = (body: Buffer, res: http.ServerResponse, req: http.IncomingMessage) => void | Promise<void>;

export class Fake {
  readonly calls: string[] = [];
  private constructor(
    readonly server: http.Server,
    readonly url: string,
  ) {}

  /** handlers by method name; hello is there already. */
  static async start(handlers: Record<string, Handler>, hello: MessageInitShape<typeof HelloResponseSchema> = { listenersHeld: true, inputWriters: true }): Promise<Fake> {
    const all: Record<string, Handler> = { Hello: (_, res) => answer(res, HelloResponseSchema, hello), ...handlers };
    const calls: string[] = [];
    const server = http.createServer((req, res) => {
      const parts: Buffer[] = [];
      req.on('data', (d: Buffer) => parts.push(d));
      req.on('end', () => {
        const name = req.url!.split('/').pop()!;
        calls.push(name);
        const handler = all[name];
        // The port may have been another server's a moment before, whose clients still call.
        if (!handler) return refuse(res, 404, 'unimplemented', `${name} is not known here`);
        void handler(Buffer.concat(parts), res, req);
      });
      req.on('error', () => {});
    });
    await new Promise<void>((ok) => server.listen(0, '127.0.0.1', ok));
    after(() => {
      server.closeAllConnections();
      server.close();
    });
    const fake = new Fake(server, `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    (fake as { calls: string[] }).calls = calls;
    return fake;
  }
}

export function answer<S extends DescMessage>(res: http.ServerResponse, schema: S, message: MessageInitShape<S>): void {
  res.setHeader('Content-Type', 'application/proto');
  res.end(toBinary(schema, create(schema, message)));
}

export function refuse(res: http.ServerResponse, status: number, code: string, message: string, details: unknown[] = []): void {
  res.statusCode = status;
  res.setHeader('Content-Type', 'application/json');
  res.end(JSON.stringify({ code, message, details }));
}

export function envelope(data: Uint8Array, flags = 0): Buffer {
  const head = Buffer.alloc(5);
  head[0] = flags;
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

export const end = (json = '{}'): Buffer => envelope(Buffer.from(json), 2);

export type Fact = NonNullable<MessageInitShape<typeof EventSchema>['fact']>;
export const event = (fact: Fact, processId = 'p'): Buffer => envelope(toBinary(ReadResponseSchema, create(ReadResponseSchema, { event: { processId, fact } })));
export const output = (offset: number, data: Uint8Array, stream = 1): Buffer => event({ case: 'output', value: { stream, offset: BigInt(offset), data } });
export const exited = (code = 0): Buffer => event({ case: 'exited', value: { code } });
export const eof = (stream: number, at: number): Buffer => event({ case: 'eof', value: { stream, offset: BigInt(at) } });
export const hello = (from: { stream: number; offset: bigint }[] = []): Buffer => event({ case: 'hello', value: { from } }, '');

export const readRequest = (body: Buffer): MessageShape<typeof ReadRequestSchema> => fromBinary(ReadRequestSchema, body.subarray(5));
export const writeRequest = (body: Buffer): MessageShape<typeof WriteRequestSchema> => fromBinary(WriteRequestSchema, body);
export const written = (res: http.ServerResponse, offset: number): void => answer(res, WriteResponseSchema, { offset: BigInt(offset), written: BigInt(offset) });

/** From where stdout is asked for. */
export function stdoutFrom(body: Buffer): number {
  return Number(readRequest(body).from.find((f) => f.stream === 1)?.offset ?? 0n);
}
