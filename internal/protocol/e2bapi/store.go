package e2bapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

const (
	// maxUpload is the most bytes of one upload.
	maxUpload = 8 << 30
	// keepUploads is how long an upload, and a build that nobody starts, are kept. What
	// a build took from an upload is the driver's then.
	keepUploads = 24 * time.Hour
	maxReserved = 1000 // builds that are still to start, or began not long ago
	// maxUploads is the most bytes of all uploads together. When there is no room those
	// go first whose links have expired, the oldest before the others.
	maxUploads = 32 << 30
)

// errUploads refuses an upload for which there is no room.
var errUploads = &problem{http.StatusInsufficientStorage,
	fmt.Sprintf("the uploads for builds have %d GiB together, and that is the limit; they are removed an hour later when there is need, or start their builds", maxUploads>>30)}

// store keeps what clients send before a build begins:
//
//	blobs/HASH       the tar of a COPY, under the name that the client gives it
//	builds/ID.json   what is known of a build until it starts
//
// A nil store keeps nothing.
type store struct {
	dir string
	max int64 // bytes of all uploads

	mu   sync.Mutex
	used int64 // bytes of uploads, those under way too; guarded by mu
}

// reserved is a build as it was asked for.
type reserved struct {
	ID         driver.BuildID `json:"id"`
	TemplateID string         `json:"template"`
	Name       string         `json:"name"`
	Tags       []string       `json:"tags,omitempty"`
	CPUs       float64        `json:"cpus,omitempty"`
	Memory     int64          `json:"memory,omitempty"`
	Created    time.Time      `json:"created"`
	Started    bool           `json:"started,omitempty"`
	// Refused says why it cannot be built.
	Refused string `json:"refused,omitempty"`
}

func openStore(dir string) (*store, error) {
	if dir == "" {
		return nil, nil
	}
	s := &store{dir: dir, max: maxUploads}
	for _, d := range []string{s.blobs(), s.builds()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("directory of uploads: %w", err)
		}
	}
	s.sweep(time.Now())
	s.count()
	return s, nil
}

func (s *store) blobs() string  { return filepath.Join(s.dir, "blobs") }
func (s *store) builds() string { return filepath.Join(s.dir, "builds") }

// sweep removes what is too old, half uploads among it, and returns how many builds
// are left.
func (s *store) sweep(now time.Time) (builds int) {
	for _, dir := range []string{s.blobs(), s.builds()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // it is looked at again
		}
		for _, e := range entries {
			fi, err := e.Info()
			if err == nil && now.Sub(fi.ModTime()) > keepUploads {
				os.Remove(filepath.Join(dir, e.Name()))
			} else if dir == s.builds() {
				builds++
			}
		}
	}
	return builds
}

var (
	isHash    = lazyregexp.New(`^[0-9a-f]{64}$`)
	errNoFile = &fs.PathError{Op: "open", Path: "upload", Err: fs.ErrNotExist}
)

// put keeps an upload under its hash; another one of that name is replaced.
func (s *store) put(hash string, r io.Reader) (err error) {
	f, err := os.CreateTemp(s.blobs(), "new-*")
	if err != nil {
		return err
	}
	defer func() {
		if close := f.Close(); err == nil {
			err = close
		}
		if err == nil {
			err = os.Rename(f.Name(), filepath.Join(s.blobs(), hash))
		}
		if err != nil {
			os.Remove(f.Name())
		}
		s.count()
	}()
	_, err = io.Copy(&counted{s, f}, r)
	return err
}

// counted is a file of uploads that grows while there is room.
type counted struct {
	s *store
	f *os.File
}

func (c *counted) Write(b []byte) (int, error) {
	if !c.s.room(int64(len(b)), time.Now()) {
		return 0, errUploads
	}
	return c.f.Write(b)
}

// room takes n bytes, and makes room for them.
func (s *store) room(n int64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used += n; s.used <= s.max {
		return true
	}
	all := s.uploads()
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, fi := range all {
		if s.used <= s.max || now.Sub(fi.ModTime()) < uploadTime {
			break
		}
		if os.Remove(filepath.Join(s.blobs(), fi.Name())) == nil {
			s.used -= fi.Size()
		}
	}
	if s.used > s.max {
		s.used -= n
		return false
	}
	return true
}

// count counts again what there is.
func (s *store) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = 0
	for _, fi := range s.uploads() {
		s.used += fi.Size()
	}
}

// uploads are the files of uploads, those under way too.
func (s *store) uploads() (all []fs.FileInfo) {
	entries, err := os.ReadDir(s.blobs())
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			all = append(all, fi)
		}
	}
	return all
}

func (s *store) has(hash string) bool {
	_, err := os.Stat(filepath.Join(s.blobs(), hash))
	return err == nil
}

// open implements driver.BuildSpec.Blob.
func (s *store) open(hash string) (io.ReadCloser, error) {
	if !isHash.MatchString(hash) {
		return nil, errNoFile
	}
	return os.Open(filepath.Join(s.blobs(), hash))
}

func (s *store) save(b *reserved) error {
	text, err := json.Marshal(b)
	if err != nil { // impossible: our own type
		return err
	}
	return atomicfile.File(filepath.Join(s.builds(), string(b.ID)+".json"), text, 0o600)
}

// load finds a build; nil: there is none of that ID.
func (s *store) load(id string) (*reserved, error) {
	if !driver.LikeID(id) {
		return nil, nil
	}
	text, err := atomicfile.Read(filepath.Join(s.builds(), id+".json"), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := new(reserved)
	return b, json.Unmarshal(text, b)
}
