// tend env: Node.js asks the system for the address of a name below localhost, and not every system knows that
// it is this machine (RFC 6761). NODE_OPTIONS=--require loads this file.
'use strict'
const dns = require('node:dns')

const local = (name) => typeof name === 'string' && /\.localhost\.?$/i.test(name)
const lookup = dns.lookup
const promised = dns.promises.lookup

// answer is what dns.lookup gives for 127.0.0.1, or undefined where the caller wants IPv6 alone.
const answer = (options) => {
  const { family, all } = typeof options === 'number' ? { family: options } : (options ?? {})
  if (family === 6 || family === 'IPv6') return undefined
  const address = { address: '127.0.0.1', family: 4 }
  return all ? [address] : address
}

dns.lookup = function (name, options, callback) {
  if (typeof options === 'function') [options, callback] = [undefined, options]
  const found = local(name) ? answer(options) : undefined
  if (found === undefined) return lookup.call(this, name, options ?? {}, callback)
  process.nextTick(() => (Array.isArray(found) ? callback(null, found) : callback(null, found.address, found.family)))
  return {}
}
dns.promises.lookup = async (name, options) => (local(name) && answer(options)) || promised(name, options)
