// Package spool stores all output: append-only files, addressed by absolute byte
// offset, that the keeper writes and any number of readers read at their own pace. The
// format below is public: other tools may read the files while tend runs. The layout of
// the records and the numbers of kinds and tags never change; readers skip the kinds
// and tags they do not know.
//
// # Layout
//
// One directory for each process, named by its ID, mode 0700:
//
//	journal   what was asked for and what happened, as records
//	stdout    raw bytes; file offset == stream offset
//	stderr    the same
//	pty       the same, in place of both, for a process with a terminal
//	index     in which order the bytes arrived, and when
//
// A data file is made with its first byte: a missing one is an empty stream.
// Retention frees the head of a data file by punching holes (whole blocks of
// BlockSize): offsets never move, `cat` still works, and the last trim record
// of the index says where the kept bytes begin. All numbers are little-endian;
// all checksums are CRC-32C (Castagnoli).
//
// # Journal (do not change; new kinds may be added)
//
//	u32  length of the record, all of it (17 to 32 MiB)
//	u8   kind
//	i64  time, unix ns
//	…    body
//	u32  crc of all before it
//
//	kind  body
//	1     spec: fields as uvarint tag, uvarint length, value (see EncodeSpec)
//	2     started: u64 pid, u64 start ticks (0: not recorded), boot id
//	3     exited: u8 cause, u8 core dumped, i64 code, i64 signal,
//	      i64 user ns, i64 system ns, i64 max rss; since then also i64 time
//	      on CLOCK_BOOTTIME, ns; 0: not known
//	4     end of stream: u8 stream, u64 length
//	5     tree gone
//	6     pinned: u8 1 or unpinned: u8 0, from here on; before the first it is
//	      as the spec says
//	7     input: u64 bytes accepted, u8 1 if it was closed after them; written
//	      when no more can come, if there was any
//	16    place: u32 slot, u32 gen that the keeper has it at while it is live
//	20    freed: all output was freed for room; u8 stream, u64 length, for each
//	      stream. Data files and index are not looked at any more
//	21    cut: u64 length, u32 CRC-32C and u32 CRC-32 (IEEE) of the body of
//	      record 1 as it was first; what is there now is cut (see Cut)
//	24    writers of the input, once it is closed: u8 1 if one was forgotten; then
//	      for each u8 length of the name, name, u64 bytes taken of it
//	25    inside: u32 pid inside of its sandbox; written with 2
//
// The first record is the spec. A record that is cut short or damaged ends the
// journal (a torn tail).
//
// # Index (do not change; new kinds may be added)
//
// Records of 32 bytes, in the order of arrival:
//
//	0   u8   kind: 1 data, 2 trim, 3 size
//	1   u8   stream: 1 stdout, 2 stderr, 3 pty
//	4   u32  length of the data; for size, u16 columns and u16 rows
//	8   u64  offset of the data; for trim, of the oldest byte kept; for size, of
//	         the first byte that was written on a terminal of that size
//	16  i64  time, unix ns; 0: unknown (found by repair)
//	24  u32  monotonic clock, ms, wrapping
//	28  u32  crc of all before it
//
// Bytes that no record covers are delivered without a time, before the next record of
// their stream. A size comes before the data that it holds for, the first before the
// first byte, and is repeated, whether or not it has changed, before the next byte once
// SizeEvery records have followed it: so a reader that begins anywhere finds it by
// looking back a little. In a spool of a version that did not record sizes, the size of
// the spec applies before the first recorded one. A version that does not know sizes
// skips them, and frees no record after one. Records of freed bytes, at the head of the
// index, are freed with them, except the newest size among them; the hole reads as
// damaged records. A damaged record is ignored. Repair cuts off what follows the last
// whole record, and appends records without a time for bytes at the end of a stream
// that no record covers.
//
// # Facts
//
// When space is needed, a finished process loses its output and keeps its facts: a
// journal that says "freed", without data files and index. If its spec is large, the
// journal is then replaced (by a rename from journal.new) with one whose spec is cut.
//
// # Damage
//
// A path that is not a regular file, or belongs to another user, is not opened, and
// links are not followed. A process without a readable journal is known only by its
// directory. An end of stream in the journal takes precedence over the length of the
// file.
//
// # Order of writing
//
// Data, then its index record, then the announcement to readers. To free: the
// announcement of the new base, then the trim record, then the punch; so a reader
// checks the base again after it has read, and treats bytes below it as a gap. The
// writer handles a full filesystem (ENOSPC): nothing partial is ever announced.
package spool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tend-run/tend/process"
)

// Names in a process's directory.
const (
	JournalName = "journal"
	IndexName   = "index"
)

// BlockSize is the unit in which heads are freed, in bytes.
const BlockSize = 4096

// FileName is the name of a stream's data file.
func FileName(s process.Stream) string { return s.String() }

// fileNames are all names that tend itself uses in a process's directory.
var fileNames = []string{JournalName, newJournal, IndexName, FileName(process.Stdout), FileName(process.Stderr), FileName(process.PTY)}

// RemoveDir removes a process's directory, the journal first: if the removal is
// interrupted, the rest no longer counts as a process, rather than as one whose output
// is missing. It opens no regular files, so it works when no descriptors are left.
func RemoveDir(dir string) error {
	for _, name := range fileNames {
		if err := remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.RemoveAll(dir) // somebody put other files there
}

// remove removes a file, or what lies in its place. A test has it fail.
var remove = func(path string) error {
	err := os.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.RemoveAll(path) // a directory
}
