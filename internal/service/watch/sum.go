package watch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"path"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/internal/files"
)

// MaxFiles is the most files that a Sum is of.
const MaxFiles = 10_000

// Tell is what is called by Run, by one goroutine.
type Tell struct {
	// Changed gets the path of the first changed file, relative to the directory.
	Changed func(name string)
	// Known has the files as they are once nothing has changed for two delays. nil: what it
	// had before is not so any more, though no change that counts was told; Changed means
	// that, too. nil: nobody wants to know, and no file is looked at.
	Known func(*Sum)
}

// Sum is what files are at a moment, in a few bytes: two of the same directory, by the same
// rules, are equal if no file that counts has come, gone, or another size or time.
type Sum struct {
	Files int
	Hash  string
}

// summing makes a Sum of files in their order.
type summing struct {
	files int
	hash  hash.Hash
}

// errFull: there are more files than a Sum is of.
var errFull = errors.New("too many files")

func newSumming() *summing { return &summing{hash: sha256.New()} }

func (s *summing) add(name string, size int64, modified time.Time) error {
	if s.files++; s.files > MaxFiles {
		return errFull
	}
	fmt.Fprintf(s.hash, "%q %d %d\n", name, size, modified.UnixNano())
	return nil
}

func (s *summing) sum() *Sum {
	return &Sum{Files: s.files, Hash: hex.EncodeToString(s.hash.Sum(nil))}
}

// Sum returns what the files are; nil: there are more than MaxFiles, or the sandbox is gone.
func (w *Watcher) Sum() *Sum {
	s := newSumming()
	sum := w.sum
	if w.here {
		sum = w.sumHere
	}
	if err := sum(s, "."); err != nil {
		return nil
	}
	return s.sum()
}

// sumHere is sum on this machine, where nothing else is found out about a file.
func (w *Watcher) sumHere(s *summing, dir string) error {
	return below(filepath.Join(w.dir, dir), &w.match, func(string) error { return nil }, func(name string, e fs.DirEntry) error {
		info, err := e.Info()
		if err != nil {
			return nil // it is gone
		}
		return s.add(name, info.Size(), info.ModTime())
	})
}

func (w *Watcher) sum(s *summing, dir string) error {
	all, err := w.files.List(context.Background(), path.Join(w.dir, dir), 1)
	switch {
	case errors.Is(err, files.ErrNotExist), errors.Is(err, files.ErrNotDir), errors.Is(err, files.ErrPermission):
		return nil
	case err != nil:
		return err
	}
	for _, e := range all {
		name := path.Join(dir, e.Name)
		switch {
		case e.Type == files.TypeDir && e.Target == "":
			if w.match.mayHold(name) {
				err = w.sum(s, name)
			}
		case w.match.counts(name):
			err = s.add(name, e.Size, e.Modified)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
