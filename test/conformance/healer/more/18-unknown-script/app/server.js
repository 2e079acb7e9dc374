'use strict';
const http = require('http');
const port = Number(process.env.PORT || 4111);
console.log('Starting plain dev server');
http.createServer((req, res) => {
  if (req.url === '/health') return res.end('{"ok":true}');
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  res.end('plain');
}).listen(port, '127.0.0.1', () => console.log(`Ready on ${port}`));
