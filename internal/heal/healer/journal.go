package healer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// Bounds of a journal.
const (
	MaxJournal = 8 << 20 // bytes
	maxLine    = 4 << 20
)

// ErrFull: a journal has reached MaxJournal.
var ErrFull = errors.New("the journal of the episode is full")

// Journal is the file of an episode, open for its one writer.
type Journal struct {
	f    *os.File
	size int64
}

// OpenJournal opens a journal, or creates a missing one, and returns its entries. It
// removes an incomplete entry at the end. The caller guarantees that there is no other
// writer.
func OpenJournal(path string) (*Journal, []Entry, error) {
	f, err := atomicfile.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, nil, err
	}
	entries, whole, err := readJournal(f)
	if err == nil {
		err = f.Truncate(whole)
	}
	if err == nil {
		_, err = f.Seek(whole, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return &Journal{f: f, size: whole}, entries, nil
}

// ReadJournal returns the entries of a journal, also while it is being written.
func ReadJournal(path string) ([]Entry, error) {
	f, err := atomicfile.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, _, err := readJournal(f)
	return entries, err
}

// readJournal reads whole lines. A line that is none of ours ends the journal, as one that
// is cut short does: nothing was done for what is not known.
func readJournal(f io.Reader) (entries []Entry, whole int64, err error) {
	r := bufio.NewReader(io.LimitReader(f, MaxJournal+maxLine))
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return entries, whole, nil
		}
		if err != nil {
			return nil, 0, err
		}
		var e Entry
		if json.Unmarshal(bytes.TrimSpace(line), &e) != nil || e.Kind == 0 {
			return entries, whole, nil
		}
		entries = append(entries, e)
		whole += int64(len(line))
	}
}

// Append writes an entry, and returns when it is on the disk.
func (j *Journal) Append(e Entry) error {
	line, err := json.Marshal(e.bounded())
	if err != nil {
		return err
	}
	if j.size+int64(len(line)) > MaxJournal || len(line) >= maxLine {
		return fmt.Errorf("%w: %d bytes", ErrFull, j.size)
	}
	n, err := j.f.WriteAt(append(line, '\n'), j.size)
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	j.size += int64(n)
	return nil
}

// Close closes the file.
func (j *Journal) Close() error { return j.f.Close() }
