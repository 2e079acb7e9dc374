package files

import (
	"bufio"
	"compress/gzip"
	"io"
	"io/fs"
)

// Gunzip returns what is in a stream that may be compressed by gzip.
func Gunzip(r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := in.Peek(2); string(magic) == "\x1f\x8b" {
		return gzip.NewReader(in)
	}
	return in, nil
}

// ExtractOptions say how an archive is unpacked.
type ExtractOptions struct {
	// Owner is the owner of files that root unpacks; nil: root.
	Owner *User
	// Mode of all files, if it is not 0; directories have it with x wherever it has r.
	Mode fs.FileMode
	// Strip is how many leading names of each path are left out; entries that have
	// no more are left out.
	Strip int
	// Only unpacks what is at this path in the archive or below it; "": everything.
	Only string
	// Links: an entry may lead through a link of the archive, as in an image's files. Who made the archive
	// says where it goes then, as far as the user's paths lead.
	Links bool
	// Entries and Bytes are the most there may be; 0: 1,000,000, and 64 GiB.
	Entries, Bytes int64
}

const (
	maxArchiveEntries = 1_000_000
	maxArchiveBytes   = 64 << 30
)

// Extracted is the result of unpacking.
type Extracted struct {
	Entries, Bytes int64
	// Skipped are entries that are neither files, directories nor links.
	Skipped int64
}
