'use strict';
const http = require('http');
const fs = require('fs');
const path = require('path');
const port = Number(process.env.PORT || 4111);
fs.appendFileSync(path.join(process.env.STATE || __dirname, 'workers'), `${process.pid}\n`);
http.createServer((req, res) => {
  if (req.url === '/health') return res.end('{"ok":true}');
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  res.statusCode = 404;
  res.end();
}).listen(port, '127.0.0.1', () => console.log(`Ready on ${port}`));
