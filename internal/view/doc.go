// Package view shortens the output of a process for readers who cannot take all of it:
// it returns the beginning and the end without the middle, cuts long lines, removes
// escape sequences, or returns only matching lines. It also merges the output of
// several processes into one log in the order of time.
//
// Nothing is omitted silently. Each piece of text has the raw range that it stands for,
// and each range that is not shown is reported as [Omitted], so that a reader can
// request the raw bytes of any part afterwards: offsets are those of the stream, and
// the stream itself is never changed.
package view
