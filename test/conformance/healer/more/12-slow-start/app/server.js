'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
const port = Number(process.env.PORT || 4111);
const { warmupMs } = JSON.parse(fs.readFileSync(path.join(__dirname, 'warmup.json'), 'utf8'));
const starts = path.join(process.env.STATE || __dirname, 'starts');
fs.appendFileSync(starts, `${process.pid}\n`);
console.log('Starting warm dev server');
// A large index is read before the first request is answered.
setTimeout(() => http.createServer((req, res) => {
  if (req.url === '/health') return res.end('{"ok":true}');
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  res.statusCode = 404;
  res.end();
}).listen(port, '127.0.0.1', () => console.log(`Ready on ${port}`)), warmupMs);
