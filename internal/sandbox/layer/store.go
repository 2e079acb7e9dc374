package layer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// ID names one layer and is never used again: 32 hexadecimal digits.
type ID string

func newID() ID {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return ID(hex.EncodeToString(b[:]))
}

func (id ID) valid() bool {
	b, err := hex.DecodeString(string(id))
	return err == nil && len(b) == 16
}

// MaxDepth is the most layers of a chain. A layer on top of so many is refused with
// [ErrTooDeep]; [Store.Merge] makes one of them.
const MaxDepth = 200

var (
	ErrNotFound = errors.New("no such layer")
	ErrTooDeep  = fmt.Errorf("there are %d layers below; merge them first", MaxDepth)
	// ErrLimit: a copy or an archive has more than [Limits] allow.
	ErrLimit = errors.New("a limit of layers is reached")
)

// Limits on what a copy, a directory or an archive may hold.
type Limits struct {
	Entries int64 // 0: 2,000,000
	Bytes   int64 // 0: none
}

const (
	maxEntries = 2_000_000
	// maxNested is how deep directories may be in a layer that is copied.
	maxNested = 1000
)

// Meta is what a caller says of a new layer.
type Meta struct {
	// Parent is the layer below; "": there is none.
	Parent ID
	// Whole: nothing of the machine is below the chain. It is inherited.
	Whole bool
	// Key of what made the layer, for Find; "": it has none.
	Key string
	// By is the first holder of the layer.
	By string
	// Limits of this layer; Seal has none.
	Limits Limits
	// Progress of Copy and Merge is noted here; nil: nobody asks.
	Progress *Progress
}

// Info is the state of a layer.
type Info struct {
	ID      ID        `json:"id"`
	Parent  ID        `json:"parent,omitempty"`
	Whole   bool      `json:"whole,omitempty"`
	Key     string    `json:"key,omitempty"`
	From    string    `json:"from,omitempty"` // the directory that was sealed
	Entries int64     `json:"entries,omitempty"`
	Bytes   int64     `json:"bytes,omitempty"`
	Counted bool      `json:"counted,omitempty"` // of one that was sealed: Entries and Bytes are known
	Created time.Time `json:"created"`
	Boot    string    `json:"boot"` // of the machine
	Synced  bool      `json:"synced,omitempty"`
}

// Suspect: the machine was restarted before the layer was forced to the disk.
func (i *Info) Suspect() bool { return !i.Synced && i.Boot != bootID() }

// Store holds layers below a directory. All methods may be called concurrently.
type Store struct {
	dir     string
	changed chan struct{}

	mu     sync.Mutex
	layers map[ID]*entry // guarded by mu
}

type entry struct {
	Info
	holds    map[string]struct{} // guarded by Store.mu
	children int                 // guarded by Store.mu
	used     time.Time           // guarded by Store.mu
}

const newName, trashName, infoName, filesName = ".new", ".trash", "layer.json", "fs"

// maxInfo bounds layer.json, in bytes.
const maxInfo = 64 << 10

// Open reads the existing layers, and moves unfinished ones to the trash. There must be
// only one Store for a directory.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, changed: make(chan struct{}, 1), layers: map[ID]*entry{}}
	for _, d := range []string{dir, s.path(newName), s.path(trashName)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("directory of the layers: %w", err)
		}
	}
	half, err := os.ReadDir(s.path(newName))
	if err != nil {
		return nil, fmt.Errorf("directory of the layers: %w", err)
	}
	for _, e := range half {
		if err := s.discard(filepath.Join(newName, e.Name())); err != nil {
			return nil, err
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("directory of the layers: %w", err)
	}
	for _, e := range names {
		id := ID(e.Name())
		if !id.valid() {
			continue
		}
		info, err := s.readInfo(id)
		if err != nil {
			if err := s.discard(string(id)); err != nil {
				return nil, err
			}
			continue
		}
		s.layers[id] = &entry{Info: info, holds: map[string]struct{}{}, used: time.Now()}
	}
	for _, l := range s.layers {
		if p := s.layers[l.Parent]; p != nil {
			p.children++
		}
	}
	return s, nil
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// Files is the directory with the files of a layer.
func (s *Store) files(id ID) string { return filepath.Join(s.dir, string(id), filesName) }

func (s *Store) readInfo(id ID) (Info, error) {
	var info Info
	b, err := atomicfile.Read(filepath.Join(s.path(string(id)), infoName), maxInfo)
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	if err == nil && info.ID != id {
		err = fmt.Errorf("it is that of %.40q", string(info.ID))
	}
	if err == nil {
		var fi os.FileInfo
		if fi, err = os.Lstat(s.files(id)); err == nil && !fi.IsDir() {
			err = errors.New("its files are no directory")
		}
	}
	return info, err
}

func writeInfo(dir string, info *Info, sync bool) error {
	b, err := json.Marshal(info)
	if err != nil {
		return err
	}
	if sync {
		return atomicfile.Synced(filepath.Join(dir, infoName), b, 0o600)
	}
	return atomicfile.File(filepath.Join(dir, infoName), b, 0o600)
}

// begin checks a new layer and gives it an ID. The parent is held for it.
func (s *Store) begin(m *Meta) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &entry{
		Info:  Info{ID: newID(), Parent: m.Parent, Whole: m.Whole, Key: m.Key, Created: time.Now().UTC(), Boot: bootID()},
		holds: map[string]struct{}{}, used: time.Now(),
	}
	if m.By != "" {
		e.holds[m.By] = struct{}{}
	}
	if m.Parent == "" {
		return e, nil
	}
	depth := 0
	for id := m.Parent; id != ""; depth++ {
		p := s.layers[id]
		if p == nil {
			return nil, fmt.Errorf("%.40q: %w", string(id), ErrNotFound)
		}
		e.Whole = e.Whole || p.Whole
		id = p.Parent
	}
	if depth >= MaxDepth {
		return nil, ErrTooDeep
	}
	s.layers[m.Parent].children++
	return e, nil
}

// finish adds the layer, or lets its parent go if it did not come to be.
func (s *Store) finish(e *entry, err error) (ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if p := s.layers[e.Parent]; p != nil {
			p.children--
		}
		return "", err
	}
	s.layers[e.ID] = e
	s.change()
	return e.ID, nil
}

// Seal makes a layer of a directory by moving it, however much is in it: dir is gone
// then. It must be on the filesystem of the store, and nothing may write to it any
// more.
func (s *Store) Seal(dir string, m Meta) (ID, error) {
	e, err := s.begin(&m)
	if err != nil {
		return "", err
	}
	e.From = dir
	top := s.path(string(e.ID))
	err = os.Mkdir(top, 0o700)
	if err == nil {
		err = writeInfo(top, &e.Info, false)
	}
	if err == nil {
		err = os.Rename(dir, s.files(e.ID))
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("layer of %s: %w", dir, err), s.discard(string(e.ID)))
	}
	return s.finish(e, err)
}

// Sealed finds the layer that was made of a directory by Seal, if there is one: for a
// caller that ended before it could note the layer.
func (s *Store) Sealed(dir string) (ID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *entry
	for _, e := range s.layers {
		if e.From == dir && (last == nil || e.Created.After(last.Created)) {
			last = e
		}
	}
	if last == nil {
		return "", false
	}
	return last.ID, true
}

// make makes a layer whose files fill writes below a new directory.
func (s *Store) make(m *Meta, fill func(dir string, e *entry) error) (ID, error) {
	e, err := s.begin(m)
	if err != nil {
		return "", err
	}
	half := filepath.Join(newName, string(e.ID))
	top := s.path(half)
	err = os.Mkdir(top, 0o700)
	if err == nil {
		err = os.Mkdir(filepath.Join(top, filesName), 0o755)
	}
	if err == nil {
		err = os.Chmod(filepath.Join(top, filesName), 0o755) // whatever the umask is
	}
	if err == nil {
		err = fill(filepath.Join(top, filesName), e)
	}
	if err == nil {
		err = writeInfo(top, &e.Info, false)
	}
	if err == nil {
		err = os.Rename(top, s.path(string(e.ID)))
	}
	if err != nil {
		err = errors.Join(err, s.discard(half))
	}
	return s.finish(e, err)
}

// Copy creates a layer from the current content of a directory. For a consistent copy
// nothing may write to it meanwhile. The overlay's marks of removed and replaced
// directories are kept.
func (s *Store) Copy(ctx context.Context, dir string, m Meta) (ID, error) {
	return s.make(&m, func(to string, e *entry) error {
		return copyTree(ctx, []string{dir}, to, &m, false, &e.Info)
	})
}

// FromDir makes a layer of a directory of this machine: files, directories, links and
// FIFOs of one filesystem. Devices are left out.
func (s *Store) FromDir(ctx context.Context, dir string, m Meta) (ID, error) {
	return s.make(&m, func(to string, e *entry) error {
		return copyTree(ctx, []string{dir}, to, &m, true, &e.Info)
	})
}

// Unpack makes a layer of what fill writes to a new directory, with those of the layers
// below in view, topmost first. It returns how much that was.
func (s *Store) Unpack(m Meta, fill func(dir string, below []string) (entries, bytes int64, err error)) (ID, error) {
	return s.make(&m, func(to string, e *entry) error {
		chain, err := s.Chain(m.Parent)
		if err == nil {
			e.Entries, e.Bytes, err = fill(to, chain.Dirs)
		}
		return err
	})
}

// below calls do with the files in a directory. Their paths may be longer than a path can
// be, and no link leads out of it.
func below(path string, do func(files.FS) error) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	var root *files.Root
	if os.Geteuid() == 0 {
		root, err = files.OpenRoot(dir, 0)
	} else {
		root, err = files.OpenOwnRoot(dir) // all in it has the daemon's id
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return do(files.FS{Root: root})
}

// Make makes a layer of what fill writes to a new directory.
func (s *Store) Make(m Meta, fill func(dir string) error) (ID, error) {
	return s.make(&m, func(to string, _ *entry) error { return fill(to) })
}

// Merge makes one layer, without a parent, of a layer and all below it. What uses the
// chain continues using it.
func (s *Store) Merge(ctx context.Context, id ID, m Meta) (ID, error) {
	const by = "merge"
	if err := s.Hold(id, by+string(id)); err != nil {
		return "", err
	}
	defer s.Release(id, by+string(id))
	chain, err := s.Chain(id)
	if err != nil {
		return "", err
	}
	m.Parent, m.Whole = "", chain.Whole
	return s.make(&m, func(to string, e *entry) error {
		return copyTree(ctx, chain.Dirs, to, &m, false, &e.Info)
	})
}
