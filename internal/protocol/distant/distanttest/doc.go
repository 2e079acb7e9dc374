// Package distanttest is a client of distant's native transport, for tests and
// benchmarks. It counts frames, keeps what it sent and resumes as the client of
// distant 0.20.0 does, mistakes included: heartbeats count as received, and a
// new one-time password is taken only when the synchronization has ended.
package distanttest
