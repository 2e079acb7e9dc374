// Package usage is the part of the server that keeps what the machine, each sandbox and each
// service have used in the last hour and day: processors, memory and network.
//
// While anything runs it looks once a minute; while nothing does it waits for the next start and
// does nothing. There is a point for each minute of the last hour, and for each five minutes of the
// last day. What was not measured has no point: while nothing ran, while no server did, and the
// first minute of each server, which has nothing to compare with.
//
// A service on the machine has no network of its own, so nothing is known of it.
//
// # The file
//
// DIR/points has a slot of 12 KiB for each subject, 256 at most: 3 MiB. It is written in place,
// without waiting for the disk, and outlives the death of every role; a power loss may take the last
// points. Numbers are little-endian.
//
//	0      length of the key, 2 bytes; 0: the slot is free
//	2      the key, at most 510 bytes: "machine", "sandbox ID" or "service NAME"
//	512    60 points of a minute each: of minute m since 1970 at place m mod 60
//	2432   288 points of five minutes each, in the same way
//
// A point has 32 bytes:
//
//	0    when it was measured, seconds since 1970, 4 bytes
//	4    thousandths of one processor, 4 bytes
//	8    memory in bytes, 8 bytes; of five minutes the most
//	16   bytes received a second, 8 bytes; all bits set: not known
//	24   bytes sent a second, in the same way
//
// A slot is free again when its sandbox or service is there no more.
package usage
