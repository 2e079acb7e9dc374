package unpack

import (
	"errors"
	"fmt"
)

// Options say how a layer is unpacked.
type Options struct {
	// Below are the directories of the layers below, topmost first. Nobody changes them.
	Below []string
	// Entries and Bytes are the most that a layer may have; 0: [MaxEntries], and no limit. A
	// directory that a path needs and no entry describes is an entry. A hole of a file counts
	// as bytes.
	Entries, Bytes int64
	// Room is asked again and again how many bytes the disk has, as others write to it, too;
	// nil, and the answer 0: it is not known.
	Room func() int64
}

// MaxEntries of an image.
const MaxEntries = 2_000_000

// leastRoom is how much the disk has to have while a layer is written: Room is asked each time
// that half of it may have been written.
const leastRoom = 64 << 20

// Result says what was unpacked.
type Result struct {
	Entries, Bytes int64
	Left           Left
}

// Left counts what a layer has and its directory has not.
type Left struct {
	Capabilities int64 `json:"capabilities,omitempty"` // of files
	Owners       int64 `json:"owners,omitempty"`       // with an id above 65535
	Attributes   int64 `json:"attributes,omitempty"`   // not "user.", or not possible here
	Devices      int64 `json:"devices,omitempty"`      // FIFOs too
}

// Add adds what another layer has left.
func (l *Left) Add(o Left) {
	l.Capabilities, l.Owners = l.Capabilities+o.Capabilities, l.Owners+o.Owners
	l.Attributes, l.Devices = l.Attributes+o.Attributes, l.Devices+o.Devices
}

var (
	// ErrLimit: a layer has more than [Options] allow.
	ErrLimit = errors.New("a limit of images is reached")
	// ErrFull is an ErrLimit: a layer has more bytes.
	ErrFull = fmt.Errorf("%w: the files have more bytes than there is room for", ErrLimit)
	// ErrBad: an entry cannot be what a layer has.
	ErrBad = errors.New("no entry of a layer")
)

// EntryError says which entry of a layer could not be unpacked.
type EntryError struct {
	Entry string
	Err   error
}

func (e *EntryError) Error() string { return fmt.Sprintf("entry %.200q: %v", e.Entry, e.Err) }

func (e *EntryError) Unwrap() error { return e.Err }

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBad, fmt.Sprintf(format, args...))
}

// Sentences say what was left out, each in one sentence.
func (l Left) Sentences() (all []string) {
	for _, c := range []struct {
		n    int64
		text string
	}{
		{l.Capabilities, "files had capabilities, which mean nothing in a sandbox: they are without"},
		{l.Owners, "files had owners beyond 65535, and belong to nobody (65534) now"},
		{l.Attributes, "attributes of files are left out: those of users are kept, as far as the disk keeps them"},
		{l.Devices, "devices or FIFOs are left out: a sandbox has its own /dev"},
	} {
		if c.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", c.n, c.text))
		}
	}
	return all
}
