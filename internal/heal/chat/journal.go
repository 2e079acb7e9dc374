package chat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// Bounds of a journal, in bytes. The end of a turn has room in one that is full.
const (
	MaxJournal = 16 << 20
	spare      = 64 << 10
	maxLine    = 8 << 20
)

// ErrFull: a journal has reached MaxJournal.
var ErrFull = errors.New("the chat is full: clear it, and begin another")

// Journal is the file of a chat, for one of its readers and writers. Its methods are called
// one at a time.
type Journal struct {
	path  string
	at    int64 // bytes that were read
	state State
}

// Open returns the journal at a path. The first entry creates the file.
func Open(path string) *Journal { return &Journal{path: path} }

// State returns the state at the last read or write.
func (j *Journal) State() *State { return &j.state }

// Read reads and returns the new entries.
func (j *Journal) Read() ([]Entry, error) {
	f, err := atomicfile.Open(j.path, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) && j.at == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return j.read(f)
}

// read reads whole lines. A line that is none of ours ends the journal, as one that is cut
// short does: nothing was done for what is not known.
func (j *Journal) read(f *os.File) (more []Entry, err error) {
	r := bufio.NewReader(io.NewSectionReader(f, j.at, MaxJournal+spare+maxLine-j.at))
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return more, nil
		}
		if err != nil {
			return more, err
		}
		var e Entry
		if json.Unmarshal(bytes.TrimSpace(line), &e) != nil || e.Kind == "" {
			return more, nil
		}
		j.at += int64(len(line))
		e.Seq = j.state.Entries + 1
		j.state.take(&e)
		more = append(more, e)
	}
}

// Append calls decide with the state of that moment, writes the entries that it returns,
// and returns when they are on the disk. No other writer writes meanwhile. If decide
// returns an error, nothing is written.
func (j *Journal) Append(ctx context.Context, decide func(*State) ([]Entry, error)) (err error) {
	unlock, err := atomicfile.Lock(ctx, j.path+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	f, err := atomicfile.Open(j.path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := j.read(f); err != nil {
		return err
	}
	add, err := decide(&j.state)
	if err != nil || len(add) == 0 {
		return err
	}
	var lines []byte
	most := int64(MaxJournal + spare)
	for i := range add {
		e := &add[i]
		e.bound()
		e.At = time.Now()
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if e.Kind != End && e.Kind != Stopped && e.Kind != Back {
			most = MaxJournal
		}
		lines = append(append(lines, line...), '\n')
	}
	if j.at+int64(len(lines)) > most || len(lines) > maxLine {
		return ErrFull
	}
	if err := f.Truncate(j.at); err != nil { // what a write that was cut short has left
		return err
	}
	if _, err := f.WriteAt(lines, j.at); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	_, err = j.read(f)
	return err
}
