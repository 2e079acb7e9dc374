package telemetry

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/process"
)

// sent is which processes' spans a collector has taken: a file with an ID a line. Lines of
// processes that are not known any more go when it is rewritten.
type sent struct {
	dir   string
	file  *os.File            // nil: not open
	ids   map[process.ID]bool // of processes that are known
	lines int                 // of the file
}

// maxSent bounds the file, in bytes: a larger one is none of ours.
const maxSent = 64 << 20

// slack is how many lines may be of processes that are gone.
const slack = 4096

// open reads the file; known are the processes that there are. It may be called again.
// With an error nothing can be noted yet, and all else works.
func (s *sent) open(known map[process.ID]bool) error {
	s.close()
	s.ids = map[process.ID]bool{}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	data, _ := atomicfile.Read(s.path(), maxSent) // what cannot be read is sent again, and made again
	for line := range bytes.Lines(data) {
		// A line that a death has cut has no end: it is written again.
		if id, whole := bytes.CutSuffix(line, []byte("\n")); whole && known[process.ID(id)] {
			s.ids[process.ID(id)] = true
		}
	}
	return s.rewrite()
}

func (s *sent) path() string { return filepath.Join(s.dir, "sent") }

// rewrite makes the file again of what is known.
func (s *sent) rewrite() error {
	s.close()
	var b bytes.Buffer
	for id := range s.ids {
		b.WriteString(string(id) + "\n")
	}
	if err := atomicfile.File(s.path(), b.Bytes(), 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(s.path(), os.O_WRONLY|os.O_APPEND, 0)
	s.file, s.lines = f, len(s.ids)
	return err
}

func (s *sent) has(id process.ID) bool { return s.ids[id] }

func (s *sent) forget(id process.ID) { delete(s.ids, id) }

// add notes that spans were taken.
func (s *sent) add(ids []process.ID) error {
	var b bytes.Buffer
	for _, id := range ids {
		s.ids[id] = true
		b.WriteString(string(id) + "\n")
	}
	if s.lines += len(ids); s.file == nil || s.lines > 2*len(s.ids)+slack {
		return s.rewrite()
	}
	_, err := s.file.Write(b.Bytes())
	return err
}

func (s *sent) close() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}
