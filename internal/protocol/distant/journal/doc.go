// Package journal stores on disk the state of a session of distant's native transport
// that must survive: which frames were sent, which requests were answered, which
// streams are open and their positions. It holds no output: a frame of output is a
// range of a spool, and is rebuilt from there.
//
// # Files
//
// A session is a directory of segments, 00000001.log and up, each a sequence of
// records that is only appended to. A segment begins with a [State] and is full
// after 64 MiB of frames; the one before it is kept, older ones are removed. So
// at least the last 64 MiB of frames can be sent again, which is more than two
// sockets hold.
//
// # Record (do not change; add kinds)
//
//	u32 LE length of kind and body | u32 LE CRC-32C of them | u8 kind | body
//
//	kind  body (integers u64 LE unless said)
//	1     state as JSON; the first record of a segment
//	2     frame number | number of the request it answers, or 0 | plaintext
//	3     frame number | slot u32 | stream u8 | offset | length u32    output
//	4     frame number | slot u32 | plaintext                          proc_done
//	5     frame number                                                 heartbeat
//	6     stream as JSON                                               a new slot
//	7     request | index u32 | process u32 | offset                   input begins here (former versions)
//	8     one-time passwords, 32 bytes each
//	9     watch as JSON: path and origin, removed or not
//	10    search as JSON: id and origin, ended or not
//	11    write as JSON: which of this session's bytes of input a request brought
//
// Each record is appended with one write, before the frame that it describes is sent.
// Therefore a kill between two instructions loses nothing: at worst a frame is recorded
// that was not sent, and the client reports that when it resumes. A torn record at the
// end of a segment ends it.
package journal
