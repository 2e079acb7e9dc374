// Package transcode turns the raw bytes of a process into UTF-8 text, the same
// text each time, and finds the raw byte that belongs to a text offset again.
//
// # The text
//
// A byte of the raw stream belongs to a character if it is part of a whole,
// valid UTF-8 sequence (as unicode/utf8 defines it: shortest form, no
// surrogates, at most U+10FFFF). Each byte that does not is replaced by one
// U+FFFD, which is three bytes long in UTF-8. Therefore
//
//	text offset = raw offset + 2 × (replaced bytes before it)
//
// and the text of a raw stream does not depend on how the stream was cut into pieces:
// sequences do not overlap, so the three bytes before a byte and the three after it
// decide what it belongs to. Up to three bytes at the current end may still become a
// character; they are held back ([Settled]) until more bytes come or the stream ends.
//
// These rules are part of the wire protocol: clients resume by text offsets, possibly
// at another server than the one that sent them. Do not change them.
//
// # The map
//
// [Map] stores the number of replaced bytes at some raw offsets. Where nothing was
// replaced, two points describe any distance; elsewhere there is a point at least every
// 64 KiB of raw bytes, so an offset is found by a binary search and a scan of at most
// 64 KiB.
package transcode
