// Package process holds the domain words of tend: what a process is, what it
// is asked to be ([Spec]), what is known of it ([Info]), what happens to it
// ([Event]) and the one small interface through which everything else starts,
// reads and ends processes ([Manager]).
//
// # Facts
//
// The life of a process is a sequence of facts. Each of them happens on its own:
//
//	started(pid)
//	output(stream, offset, time, bytes)   any number
//	exited(code | signal, cause, usage)   exactly once
//	eof(stream)                           once for each output stream
//	tree gone                             once, when no descendant is left
//
// exited never waits for eof: a descendant that inherited a pipe may keep it
// open for days. No exit status is ever invented: a process whose end was not
// witnessed is reported as lost ([Exit.Lost]) and with no code.
//
// # Offsets
//
// Each stream is addressed by absolute byte offset, from 0, for ever. Freed
// bytes (retention) leave a gap, which is reported ([Gap], [GapError]) and never
// skipped in silence. stdin has offsets too, so that a write which is repeated
// after a lost answer is acknowledged and not applied twice.
//
// # Implementations
//
// keeper/client implements Manager over the local keeper; the root package of
// this module implements it over the network; package processtest holds the
// suite that each implementation passes. The package imports the standard
// library only.
package process
