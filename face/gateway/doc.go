// Package gateway lets programs use model providers by keys that are not the providers'
// own, and takes what the healers of other machines report. Its paths and answers are
// those of shmastra-cloud (github.com/just-ai/shmastra-cloud, commit 14783c1), so that
// what was made for it runs against tend.
//
//	/api/gateway/PROVIDER/*       any method: passed on to the provider, with its real key
//	POST /api/sandbox/heal        {status, error, sequence}: healing, ready or broken
//	GET  /api/sandbox/status      {status, errorMessage}: what was reported last
//	POST /api/sandbox/retry       {status: creating}: forgets what was reported
//	GET  /api/sandbox/extend      204: the sandbox of the key lives on
//	POST /api/sandbox/ready       410: of an older version
//
// # Keys
//
// A virtual key (vk_…) is shown once, when it is made; its hash is kept. It opens
// these paths and nothing else. Its rules say which providers and models it may use, how
// many requests a minute, and how many tokens a day.
//
// # What the gateway does with a request
//
// It finds the key, in any header, before it reads the body, and replaces it by the
// provider's. Nothing of a request or an answer is kept but a line about it: key, provider,
// model, status and tokens. Tokens are those that the provider counts; where it counts
// none, or is cut off before, a quarter of the bytes. The tokens that a request in flight
// may still use count as used.
//
// With rules about models or tokens, only requests are passed on whose model and
// tokens are seen: see metered.
//
// # Files in the directory
//
//	keys.json               the keys, as hashes (0600)
//	reports.json            what was reported last with each key
//	usage-2026-11-22.jsonl  a line for each request of a day (UTC), kept for 31 days
//
// The files are read again when they have changed: while the server is upgraded, two of
// them use the directory. A line is written at once with O_APPEND, so neither loses one,
// and the other files are changed by whoever has locked the file lock.
package gateway
