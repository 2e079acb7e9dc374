'use strict';
const http = require('http');
const port = Number(process.env.PORT || 4111);
const server = http.createServer((req, res) => {
  if (req.url === '/health') return res.end('{"ok":true}');
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  res.statusCode = 404;
  res.end();
});
// As Vite and Next.js do it: if the port is taken, any other one.
server.on('error', (err) => {
  if (err.code !== 'EADDRINUSE') throw err;
  console.log(`Port ${port} is taken, using another one`);
  server.listen(0, '127.0.0.1');
});
console.log('Starting gallery dev server');
server.listen(port, '127.0.0.1', () => console.log(`Ready on ${server.address().port}`));
