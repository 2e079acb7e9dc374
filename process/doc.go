// Package process defines the domain types of tend: the description of a process to
// start ([Spec]), its current state ([Info]), its events ([Event]), and the one small
// interface through which everything else starts, reads and ends processes ([Manager]).
//
// # Facts
//
// The life of a process is a sequence of facts. Each of them happens independently:
//
//	started(pid)
//	output(stream, offset, time, bytes)   any number
//	exited(code | signal, cause, usage)   exactly once
//	eof(stream)                           once for each output stream
//	tree gone                             once, when no descendant is left
//
// exited never waits for eof: a descendant that inherited a pipe may keep it open for
// days. No exit status is ever invented: if nobody observed the end of a process, it is
// reported as lost ([Exit.Lost]), without a code.
//
// # Offsets
//
// Each stream is addressed by absolute byte offset, starting at 0; offsets never
// change. Freed bytes (retention) leave a gap, which is reported ([Gap], [GapError])
// and never skipped silently. stdin has offsets too, so a write that is repeated after
// a lost answer is acknowledged and not applied twice.
//
// # Implementations
//
// internal/core/client implements Manager over the local keeper; package sdk/go of
// this module implements it over the network; package processtest holds the
// suite that each implementation passes. The package imports the standard
// library only.
package process
