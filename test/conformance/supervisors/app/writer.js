// Writes a number that counts, each 20 ms, until its output is gone.
let n = 0
setInterval(() => process.stdout.write(`${++n}\n`), 20)
