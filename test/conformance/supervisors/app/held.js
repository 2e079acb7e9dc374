// Answers with its pid at the socket that it is given, and at SIGTERM ends when it has answered.
const server = require('http').createServer((_, res) => res.end(String(process.pid))).listen({ fd: 3 })
process.on('SIGTERM', () => server.close())
