// Answers with its pid.
require('http').createServer((_, res) => res.end(String(process.pid))).listen(Number(process.env.SUITE_PORT), '127.0.0.1')
