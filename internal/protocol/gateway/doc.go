// Package gateway lets programs use model providers with virtual keys instead of the
// providers' own, and accepts reports from healers of other machines. Its paths and
// answers are those of shmastra-cloud (github.com/just-ai/shmastra-cloud, commit
// 14783c1), so its clients work with tend.
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
// A virtual key (vk_…) is shown once, when it is created; only its hash is stored. It
// gives access to these paths and nothing else. Its rules limit the providers and
// models, the requests per minute, and the tokens per day.
//
// # What the gateway does with a request
//
// It finds the key, in any header, before it reads the body, and puts the provider's key
// into a header, never into the address. The provider gets the headers that are known
// ([api]) and no others. The request takes one of the places of its key once its body has
// arrived.
//
// It stores nothing of a request or an answer except one line: key, provider, model,
// status and tokens. The provider's count of tokens is used; a provider that counts a
// stream only if asked is asked. If it counts none, or the answer is cut off before the
// count, a quarter of the bytes count. The tokens that a request in flight may still use
// count as used.
//
// If a key has rules about models or tokens, only requests whose model and tokens are
// visible are passed on: those of [api]. Their body is read once, refused if another
// reader might understand it otherwise ([plainly]), and sent as it was read.
//
// # Files in the directory
//
//	keys.json               the keys, as hashes (0600)
//	reports.json            what was reported last with each key
//	usage-2026-11-22.jsonl  a line for each request of a day (UTC), kept for 31 days
//
// The files are read again when they have changed, because during an upgrade two
// servers use the directory. A line is written with one O_APPEND write, so neither
// server loses one. The other files are changed only by the holder of the lock on the
// file lock.
package gateway
