// Package view shows the output of a process to readers who cannot take all of
// it: the beginning and the end with what lies between left out, long lines
// cut, escape sequences taken away, or only the lines that match; or what several
// processes have written as one log in the order of time.
//
// Nothing is left out in silence. Each piece of text has the raw range that
// it stands for, and each range that is not shown is reported as [Omitted], so that
// a reader can ask for the raw bytes of any part afterwards: offsets are those
// of the stream, and the stream itself is never changed.
package view
