package local

import (
	"hash/fnv"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tend-run/tend/internal/core/container"
)

// Each sandbox has a range of container.IDs ids outside of its own, if the machine can (container.LayerIDs). They are the
// ids that systemd's list leaves to nobody, below those of tend's own files (package owner).
const (
	firstIDs = 0x70000000
	endOfIDs = 0x7ffd0000
)

// idFiles name ids of the machine: a range of which one is named is used for no sandbox.
var idFiles = []string{"/etc/subuid", "/etc/subgid", "/etc/passwd", "/etc/group"}

// ids are the ranges. What a sandbox has is in its record; a range is free when the sandbox is gone.
type ids struct {
	shared uint32   // the range of all that have none of their own
	first  int      // the range that is tried first: daemons of one machine begin in different places
	files  []string // idFiles

	mu    sync.Mutex
	taken map[uint32]bool // first ids; guarded by mu
	read  []fs.FileInfo   // of files, when named was read; nil: there was none; guarded by mu
	named []idRange       // guarded by mu
}

type idRange struct{ first, end uint64 }

func newIDs(state string, shared uint32) *ids {
	h := fnv.New32a()
	h.Write([]byte(state))
	return &ids{shared: shared, first: int(h.Sum32() % ((endOfIDs - firstIDs) / container.IDs)), files: idFiles, taken: map[uint32]bool{}}
}

// take returns the first id of a free range; all are taken: of the shared one.
func (s *ids) take() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	const all = (endOfIDs - firstIDs) / container.IDs
	for i := range all {
		base := uint32(firstIDs + (s.first+i)%all*container.IDs)
		touches := func(r idRange) bool { return uint64(base) < r.end && r.first < uint64(base)+container.IDs }
		if !s.taken[base] && !slices.ContainsFunc(s.named, touches) {
			s.taken[base] = true
			return base
		}
	}
	return s.shared
}

// keep takes a range that a record names.
func (s *ids) keep(base uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[base] = true
}

// free returns a range. That of several sandboxes is nobody's to return.
func (s *ids) free(base uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, base)
}

// look reads the account files, if they have changed. s.mu is held.
func (s *ids) look() {
	now := make([]fs.FileInfo, len(s.files))
	for i, f := range s.files {
		now[i], _ = os.Stat(f)
	}
	same := func(a, b fs.FileInfo) bool {
		return a == nil && b == nil || a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
	}
	if s.read != nil && slices.EqualFunc(now, s.read, same) {
		return
	}
	s.read, s.named = now, nil
	for _, f := range s.files {
		b, _ := os.ReadFile(f)
		for line := range strings.Lines(string(b)) {
			if r, ok := namedIDs(strings.TrimSpace(line), strings.HasPrefix(f[strings.LastIndexByte(f, '/')+1:], "sub")); ok {
				s.named = append(s.named, r)
			}
		}
	}
}

// namedIDs are those of a line: name:first:count, or name:password:id:…
func namedIDs(line string, counted bool) (idRange, bool) {
	fields := strings.Split(line, ":")
	if len(fields) < 3 {
		return idRange{}, false
	}
	first, count := fields[2], "1"
	if counted {
		first, count = fields[1], fields[2]
	}
	a, err := strconv.ParseUint(first, 10, 32)
	n, nerr := strconv.ParseUint(count, 10, 33)
	if err != nil || nerr != nil || a+n <= firstIDs || a >= endOfIDs {
		return idRange{}, false
	}
	return idRange{a, a + n}, true
}

// giveIDs gives a record that has none its ids: a range of its own, if the machine can.
func (d *Driver) giveIDs(rec *record) {
	rec.UIDBase = d.uidBase()
	d.joining.Lock()
	own := slices.Contains(d.can.Layers, container.LayerIDs)
	d.joining.Unlock()
	if !own || rec.UIDBase == 0 {
		return
	}
	if rec.UIDBase = d.ids.take(); rec.UIDBase == d.cfg.UIDBase {
		d.log.Warn("no range of ids is free for a sandbox; it shares that of others", slog.String("id", string(rec.ID)))
	}
}

// returnIDs is for a sandbox that is gone.
func (s *sandbox) returnIDs() {
	s.mu.Lock()
	base := s.rec.UIDBase
	s.mu.Unlock()
	s.d.ids.free(base)
}
