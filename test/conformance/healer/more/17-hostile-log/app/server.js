'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
// What users wrote is shown in the log, whatever it is.
for (const line of fs.readFileSync(path.join(__dirname, 'data', 'comments.txt'), 'utf8').split('\n')) console.log(line);
const { total } = require('./total');
const port = Number(process.env.PORT || 4111);
http.createServer((req, res) => {
  if (req.url === '/health') return res.end('{"ok":true}');
  if (req.url === '/whoami') return res.end(JSON.stringify({ pid: process.pid }));
  res.end(String(total([1, 2, 3])));
}).listen(port, '127.0.0.1', () => console.log(`Ready on ${port}`));
