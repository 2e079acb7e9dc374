package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// Kinds of journal records. Part of the format: do not change or reuse.
const (
	recSpec = 1 + iota
	recStarted
	recExited
	recEOF
	recTreeGone
	recPinned
	recInput

	recPlace = 16

	recWriters = 24
	recInside  = 25
)

const (
	recFreed = 20 + iota
	recCut
)

const (
	recHeader  = 4 + 1 + 8 // length, kind, time
	recTrailer = 4         // crc
	cutSize    = 16
	maxRecord  = 32 << 20
)

// castagnoli is the table of the checksums. Go makes it at the first use, which takes 0.1 ms
// of the start of a program.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func appendRecord(b []byte, kind byte, at time.Time, body func([]byte) []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, kind)
	b = binary.LittleEndian.AppendUint64(b, uint64(at.UnixNano()))
	if body != nil {
		b = body(b)
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start+recTrailer))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli()))
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// AppendSpec appends the record of the spec, which is always the first one.
func AppendSpec(b []byte, at time.Time, s *process.Spec) []byte {
	return appendRecord(b, recSpec, at, func(b []byte) []byte { return EncodeSpec(b, s) })
}

// AppendEncodedSpec is AppendSpec with what EncodeSpec made of the spec, perhaps in
// a newer version: fields that are not known here are kept.
func AppendEncodedSpec(b []byte, at time.Time, spec []byte) []byte {
	return appendRecord(b, recSpec, at, func(b []byte) []byte { return append(b, spec...) })
}

// Started says which process of which boot of the machine was started.
type Started struct {
	PID        int
	StartTicks uint64 // 0: not recorded
	BootID     string
}

// AppendStarted appends the record of the start.
func AppendStarted(b []byte, at time.Time, st Started) []byte {
	return appendRecord(b, recStarted, at, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint64(b, uint64(st.PID))
		b = binary.LittleEndian.AppendUint64(b, st.StartTicks)
		return append(b, st.BootID...)
	})
}

// AppendInside appends the pid that the process has inside of its sandbox.
func AppendInside(b []byte, at time.Time, pid int) []byte {
	return appendRecord(b, recInside, at, func(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, uint32(pid)) })
}

// Place is the keeper's own name for a process while it is live. By this name the next
// keeper finds the descriptors that the vaults hold for the process.
type Place struct{ Slot, Gen uint32 }

// AppendPlace appends the record of the place.
func AppendPlace(b []byte, at time.Time, p Place) []byte {
	return appendRecord(b, recPlace, at, func(b []byte) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, p.Slot), p.Gen)
	})
}

// AppendExited appends the record of the exit; at is not used where e.Time is
// set.
func AppendExited(b []byte, at time.Time, e *process.Exit) []byte {
	if !e.Time.IsZero() {
		at = e.Time
	}
	return appendRecord(b, recExited, at, func(b []byte) []byte {
		b = append(b, byte(e.Cause), bit(e.CoreDumped))
		for _, v := range []int64{int64(e.Code), int64(e.Signal), int64(e.UserTime), int64(e.SystemTime), e.MaxRSS} {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		return binary.LittleEndian.AppendUint64(b, uint64(procfs.BootTime()))
	})
}

// AppendEOF appends the record that a stream ended at end.
func AppendEOF(b []byte, at time.Time, s process.Stream, end int64) []byte {
	return appendRecord(b, recEOF, at, func(b []byte) []byte {
		return binary.LittleEndian.AppendUint64(append(b, byte(s)), uint64(end))
	})
}

// AppendTreeGone appends the record that no descendant is left.
func AppendTreeGone(b []byte, at time.Time) []byte { return appendRecord(b, recTreeGone, at, nil) }

// AppendPinned appends the record that the process was pinned or unpinned.
func AppendPinned(b []byte, at time.Time, pinned bool) []byte {
	return appendRecord(b, recPinned, at, func(b []byte) []byte { return append(b, bit(pinned)) })
}

// Input says how much of a process's input was accepted.
type Input struct {
	Accepted int64 // bytes
	EOF      bool  // closed after them
}

// AppendInput appends the record of the accepted input, once no more can be accepted.
func AppendInput(b []byte, at time.Time, in Input) []byte {
	return appendRecord(b, recInput, at, func(b []byte) []byte {
		return append(binary.LittleEndian.AppendUint64(b, uint64(in.Accepted)), bit(in.EOF))
	})
}

// appendFreed appends the record that all output was freed, with the lengths
// that the streams had.
func appendFreed(b []byte, at time.Time, ends [4]int64) []byte {
	return appendRecord(b, recFreed, at, func(b []byte) []byte {
		for s := process.Stdout; s <= process.PTY; s++ {
			b = binary.LittleEndian.AppendUint64(append(b, byte(s)), uint64(ends[s]))
		}
		return b
	})
}

// Journal is the content of a journal.
type Journal struct {
	Spec        process.Spec
	SpecTime    time.Time
	Started     *Started
	StartedTime time.Time
	Inside      int    // its pid inside of its sandbox; 0: it is in none, or not recorded
	Place       *Place // nil: not recorded
	Exit        *process.Exit
	EOF         [4]bool
	EOFAt       [4]int64 // where EOF is set: the length of the stream
	TreeGone    bool
	Pinned      bool
	Input       Input   // of a finished process
	Writers     Writers // of its input, once that is closed
	Size        int64   // of the whole records
	ExitBoot    int64   // when it exited on CLOCK_BOOTTIME of the boot it started in, ns; 0: not known
	Torn        bool    // something follows them
	// Damaged says what else is damaged in the directory; "": nothing known. Only Finished
	// sets it; it is not in the journal.
	Damaged string
	// Freed: the output was freed, all of it; FreedAt are the lengths of the
	// streams.
	Freed   bool
	FreedAt [4]int64
	// Cut identifies the original spec; Spec is the rest of it. Zero: it is complete.
	Cut [cutSize]byte
}

// IsCut reports whether a part of the spec is missing.
func (j *Journal) IsCut() bool { return j.Cut != [cutSize]byte{} }

// Asked reports whether a spec equals the original one.
func (j *Journal) Asked(s *process.Spec) bool {
	if j.IsCut() {
		return j.Cut == sumOf(s)
	}
	return j.Spec.Equal(s)
}

// sumOf identifies a spec. It is enough to recognize mistakes. A caller can make two
// specs with the same sum; then a start of its own is answered with a process of
// its own.
func sumOf(s *process.Spec) (sum [cutSize]byte) {
	b := EncodeSpec(nil, s)
	binary.LittleEndian.PutUint64(sum[:], uint64(len(b)))
	binary.LittleEndian.PutUint32(sum[8:], crc32.Checksum(b, castagnoli()))
	binary.LittleEndian.PutUint32(sum[12:], crc32.ChecksumIEEE(b))
	return sum
}

// ReadJournal reads the journal of a process's directory. A torn tail (a
// record cut short or damaged, and all after it) is left out and reported.
// process.ErrNotFound if there is no journal or no whole spec in it.
// process.ErrDamaged if there is one that cannot be read.
func ReadJournal(dir string) (*Journal, error) {
	b, err := wholeJournal(dir)
	if err != nil {
		return nil, err
	}
	return parseJournal(b)
}

func wholeJournal(dir string) ([]byte, error) {
	f, err := open(dir, JournalName, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, process.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if fi.Size() > maxJournal {
		return nil, broken(f.Name(), fmt.Sprintf("has %d bytes; no journal is larger than %d", fi.Size(), maxJournal))
	}
	b := make([]byte, fi.Size())
	n, err := io.ReadFull(f, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, broken(f.Name(), "cannot be read: "+err.Error())
	}
	return b[:n], nil
}

func parseJournal(b []byte) (*Journal, error) {
	j := &Journal{}
	for rest := b; ; {
		kind, at, body, n := cutRecord(rest)
		if n == 0 || !j.apply(kind, at, body) {
			j.Torn = len(rest) > 0
			break
		}
		rest = rest[n:]
		j.Size += int64(n)
	}
	if j.SpecTime.IsZero() {
		return nil, process.ErrNotFound
	}
	return j, nil
}

// cutRecord returns the first record and its whole length, or 0.
func cutRecord(b []byte) (kind byte, at time.Time, body []byte, n int) {
	if len(b) < recHeader+recTrailer {
		return
	}
	size := int(binary.LittleEndian.Uint32(b))
	if size < recHeader+recTrailer || size > maxRecord || size > len(b) {
		return
	}
	if crc32.Checksum(b[:size-recTrailer], castagnoli()) != binary.LittleEndian.Uint32(b[size-recTrailer:]) {
		return
	}
	at = time.Unix(0, int64(binary.LittleEndian.Uint64(b[5:])))
	return b[4], at, b[recHeader : size-recTrailer], size
}

// least is how many bytes the body of a kind has at least.
var least = [...]int{recStarted: 16, recExited: 42, recEOF: 9, recPinned: 1, recInput: 9, recPlace: 8, recInside: 4}

// apply takes one record in; false if it does not hold what its kind needs.
// Unknown kinds are of a newer version and are skipped.
func (j *Journal) apply(kind byte, at time.Time, body []byte) bool {
	le := binary.LittleEndian
	if int(kind) < len(least) && len(body) < least[kind] {
		return false
	}
	switch kind {
	case recSpec:
		s, err := DecodeSpec(body)
		if err != nil {
			return false
		}
		j.Spec, j.SpecTime, j.Pinned = s, at, s.Retention.Pin
	case recStarted:
		j.Started, j.StartedTime = &Started{int(le.Uint64(body)), le.Uint64(body[8:]), string(body[16:])}, at
	case recInside:
		j.Inside = int(le.Uint32(body))
	case recPlace:
		j.Place = &Place{le.Uint32(body), le.Uint32(body[4:])}
	case recExited:
		v := func(i int) int64 { return int64(le.Uint64(body[2+8*i:])) }
		j.Exit = &process.Exit{Cause: process.Cause(body[0]), CoreDumped: body[1] == 1, Code: int(v(0)), Signal: int(v(1)),
			UserTime: time.Duration(v(2)), SystemTime: time.Duration(v(3)), MaxRSS: v(4), Time: at}
		if len(body) >= 50 {
			j.ExitBoot = v(5)
		}
	case recEOF:
		if body[0] > byte(process.PTY) {
			return true // a stream of a newer version
		}
		j.EOF[body[0]], j.EOFAt[body[0]] = true, int64(le.Uint64(body[1:]))
	case recTreeGone:
		j.TreeGone = true
	case recPinned:
		j.Pinned = body[0] == 1
	case recInput:
		j.Input = Input{Accepted: int64(le.Uint64(body)), EOF: body[8] == 1}
	case recWriters:
		w, ok := parseWriters(body)
		if !ok {
			return false
		}
		j.Writers = w
	case recFreed:
		for ; len(body) >= 9; body = body[9:] {
			if end := int64(le.Uint64(body[1:])); body[0] <= byte(process.PTY) && end >= 0 {
				j.Freed, j.FreedAt[body[0]] = true, end
			}
		}
	case recCut:
		if len(body) != cutSize {
			return false
		}
		j.Cut = [cutSize]byte(body)
	}
	return true
}
