'use strict';
// Looks for new entries in items.txt, many times a second.
const fs = require('fs');
const path = require('path');
const file = path.join(__dirname, '..', 'items.txt');
let n = 0;

exports.count = () => n;

function poll() {
  const fd = fs.openSync(file, 'r');
  try {
    n = fs.readFileSync(fd, 'utf8').split('\n').filter(Boolean).length;
  } finally {
    fs.closeSync(fd);
  }
}

exports.start = () => setInterval(poll, 20);
