package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/service/watch"
)

// record is the file of a service.
type record struct {
	Rules *config.Service  `json:"rules"`
	State supervisor.State `json:"state"`
	// Token is the random part of the IDs of its processes.
	Token string `json:"token"`
	// Boot in which State was stored.
	Boot string `json:"boot"`
	// seen is the time of the newest step that was looked at.
	seen supervisor.Time
	// unsaved: the newest save has failed.
	unsaved bool
}

// stored is a record as it is read: another version of tend may have put more into its
// declaration and its state than this one knows.
type stored struct {
	Rules json.RawMessage `json:"rules"`
	State json.RawMessage `json:"state"`
	Token string          `json:"token"`
	Boot  string          `json:"boot"`
}

// parse reads a record. One with something in its declaration or state that is not known is
// foreign: it is kept as it is, and so is what runs.
func parse(data []byte) (*record, error) {
	var in stored
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(string(in.Rules), "{") || in.Token == "" {
		return nil, errors.New("it is not whole")
	}
	r := &record{Token: in.Token, Boot: in.Boot}
	err := json.Unmarshal(in.Rules, &r.Rules)
	if err == nil && len(in.State) > 0 {
		if err = json.Unmarshal(in.State, &r.State); err == nil {
			err = r.State.Unknown()
		}
	}
	if r.Rules == nil {
		r.Rules = new(config.Service)
	}
	if err == nil {
		return r, nil
	}
	var newest struct{ Run int64 }
	_ = json.Unmarshal(in.State, &newest) // 0: what runs of it is not shown
	r.State = supervisor.State{
		Phase: supervisor.Failed, Run: newest.Run, Foreign: true,
		Why: fmt.Sprintf("another version of tend has stored it, and this one does not know all of that (%v): nothing is done to it, and what runs of it goes on", err),
	}
	return r, nil
}

const (
	suffix    = ".json"
	maxRecord = 16 << 20
)

// store keeps records.
type store struct{ dir string }

// path of a file of a service. The '/' in a name is an '@' there, which names have not.
func (s store) path(name, suffix string) string {
	return filepath.Join(s.dir, strings.Replace(name, "/", "@", 1)+suffix)
}

// load reads all records. A file that cannot be read is an error: a service that is
// forgotten would be started a second time. One of another version is held.
func (s store) load() (map[string]*record, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	all := map[string]*record{}
	for _, e := range entries {
		name, of := strings.CutSuffix(e.Name(), filesSuffix)
		if log, ok := strings.CutSuffix(e.Name(), logSuffix); ok {
			name, of = log, true
		}
		if of {
			if _, err := os.Lstat(filepath.Join(s.dir, name+suffix)); errors.Is(err, fs.ErrNotExist) {
				_ = os.Remove(filepath.Join(s.dir, e.Name())) // of a service that is forgotten
			}
			continue
		}
		base, ok := strings.CutSuffix(e.Name(), suffix)
		name = strings.Replace(base, "@", "/", 1)
		prefix, short := config.SplitName(name)
		if !ok || config.ServiceName(short) != "" || prefix != "" && config.ServiceName(prefix) != "" {
			continue // what a write that was cut short has left
		}
		data, err := atomicfile.Read(filepath.Join(s.dir, e.Name()), maxRecord)
		if err != nil {
			return nil, err
		}
		r, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s is damaged (%v); remove it to forget the service", filepath.Join(s.dir, e.Name()), err)
		}
		r.Rules.Name = name
		if r.State.Foreign {
			r.State.Why += "; start that version again, or end tend and remove " + filepath.Join(s.dir, e.Name()) + " to forget it"
		}
		all[name] = r
	}
	return all, nil
}

func (s store) save(name string, r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.File(s.path(name, suffix), data, 0o600)
}

func (s store) remove(name string) error {
	s.forgetFiles(name)
	_ = os.Remove(s.path(name, logSuffix)) // else the next supervisor removes it
	err := os.Remove(s.path(name, suffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// filesRecord is what the watched files of a service were when all changes of them had been
// told.
type filesRecord struct {
	// Of is what was watched for which service, as a hash.
	Of   string     `json:"of"`
	Were *watch.Sum `json:"were"`
}

const (
	filesSuffix = ".files"
	maxFiles    = 4 << 10
)

// files returns what the watched files of a service were; nil: it is not known.
func (s store) files(name, of string) *watch.Sum {
	r := new(filesRecord)
	data, err := atomicfile.Read(s.path(name, filesSuffix), maxFiles)
	if err != nil || json.Unmarshal(data, r) != nil || r.Of != of {
		return nil
	}
	return r.Were
}

func (s store) saveFiles(name, of string, were *watch.Sum) error {
	data, err := json.Marshal(filesRecord{of, were})
	if err != nil {
		return err
	}
	return atomicfile.File(s.path(name, filesSuffix), data, 0o600)
}

// forgetFiles is for what is not so any more. What stays for want of a right restarts the
// service once too often.
func (s store) forgetFiles(name string) { _ = os.Remove(s.path(name, filesSuffix)) }

// lasting is the part of a state that another must know to go on. What probes found
// last is asked again.
func lasting(s supervisor.State) supervisor.State {
	s.Last, s.Late, s.Met, s.Unmet = 0, false, false, ""
	for i := range s.Probes {
		s.Probes[i] = supervisor.Probe{OK: s.Probes[i].OK}
	}
	return s
}
