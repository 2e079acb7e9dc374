// A relay that writes down what an SDK sends and what it is answered, in the
// form of internal/protocol/langsmith/testdata/transcripts: relay.mjs URL FILE.
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
const { WebSocket, WebSocketServer } = createRequire(new URL("../js/package.json", import.meta.url))("ws");

const target = new URL(process.argv[2]);
const file = process.argv[3];
const exchanges = [];
const begin = (line) => {
  const lines = [line];
  exchanges.push(lines);
  return lines;
};
const text = (b) => b.toString().split("\n");

const server = http.createServer((req, res) => {
  const body = [];
  req.on("data", (d) => body.push(d));
  req.on("end", () => {
    const lines = begin(`> ${req.method} ${req.url}`);
    for (const h of ["x-api-key", "content-type", "range", "if-range", "if-none-match"]) if (req.headers[h]) lines.push(`> ${h}: ${req.headers[h]}`);
    const sent = Buffer.concat(body);
    if (sent.length) lines.push(">", ...text(sent).map((l) => `> ${l}`));
    const up = http.request({ host: target.hostname, port: target.port, method: req.method, path: req.url, headers: req.headers }, (answer) => {
      const got = [];
      answer.on("data", (d) => got.push(d));
      answer.on("end", () => {
        const all = Buffer.concat(got);
        lines.push(`< ${answer.statusCode}`);
        if (all.length) lines.push("<", ...text(all).map((l) => `< ${l}`));
        res.writeHead(answer.statusCode, answer.headers);
        res.end(all);
      });
    });
    up.end(sent);
  });
});
const wss = new WebSocketServer({ noServer: true });
server.on("upgrade", (req, socket, head) =>
  wss.handleUpgrade(req, socket, head, (down) => {
    const lines = begin(`> WS ${req.url}`);
    const up = new WebSocket(`ws://${target.host}${req.url}`, { headers: { "x-api-key": req.headers["x-api-key"] ?? "", host: req.headers.host } });
    const queue = [];
    up.on("open", () => queue.splice(0).forEach((m) => up.send(m)));
    down.on("message", (m) => {
      lines.push(`> ${m}`);
      up.readyState === WebSocket.OPEN ? up.send(m.toString()) : queue.push(m.toString());
    });
    up.on("message", (m) => {
      lines.push(`< ${m}`);
      down.send(m.toString());
    });
    up.on("close", (code) => {
      lines.push(`< close ${code}`);
      down.close(code === 1005 || code === 1006 ? 1000 : code);
    });
    down.on("close", () => up.close());
    up.on("error", () => {});
    down.on("error", () => {});
  }),
);
process.on("SIGTERM", () => {
  fs.writeFileSync(file, exchanges.map((e) => e.map((l) => l.trimEnd()).join("\n")).join("\n\n") + "\n");
  process.exit(0);
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
