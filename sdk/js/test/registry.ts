// A registry with one image, of one file.
import { createHash } from 'node:crypto';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';

const digest = (b: Buffer) => `sha256:${createHash('sha256').update(b).digest('hex')}`;

/** A tar with one file. */
function tar(name: string, text: string): Buffer {
  const head = Buffer.alloc(512);
  head.write(name);
  head.write('0000644\0' + '0000000\0' + '0000000\0' + text.length.toString(8).padStart(11, '0') + '\0' + '00000000000\0' + '        0', 100);
  head.write('ustar\x0000', 257);
  head.write(head.reduce((a, b) => a + b, 0).toString(8).padStart(6, '0') + '\0 ', 148);
  return Buffer.concat([head, Buffer.from(text.padEnd(512, '\0')), Buffer.alloc(1024)]);
}

export async function registry(): Promise<{ name: string; close: () => void }> {
  const layer = tar('srv/hello', 'hi\n');
  const said = { User: '33', WorkingDir: '/srv', Env: ['A=b'], Entrypoint: ['/srv/run'], Cmd: ['x'] };
  const config = Buffer.from(JSON.stringify({ os: 'linux', config: said, rootfs: { type: 'layers', diff_ids: [digest(layer)] } }));
  const packed = gzipSync(layer);
  const kind = 'application/vnd.oci.image.';
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: `${kind}manifest.v1+json`,
      config: { mediaType: `${kind}config.v1+json`, digest: digest(config), size: config.length },
      layers: [{ mediaType: `${kind}layer.v1.tar+gzip`, digest: digest(packed), size: packed.length }],
    }),
  );
  const blobs: Record<string, Buffer> = { '1': manifest, [digest(config)]: config, [digest(packed)]: packed, [digest(manifest)]: manifest };
  const server = http.createServer((req, res) => {
    const body = req.url === '/v2/' ? Buffer.from('ok') : blobs[req.url!.split('/').at(-1)!];
    res.writeHead(body ? 200 : 404, { 'Content-Type': body === manifest ? `${kind}manifest.v1+json` : 'application/octet-stream', 'Content-Length': body?.length ?? 0 });
    res.end(req.method === 'HEAD' ? undefined : body);
  });
  await new Promise<void>((r) => server.listen(0, '127.0.0.1', r));
  return {
    name: `127.0.0.1:${(server.address() as AddressInfo).port}/own/image:1`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
