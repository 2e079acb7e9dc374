package langsmith

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/protocol/langsmith/transcode"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

const (
	// saveClean is after how many bytes of clean text the map is kept: what is
	// behind is read again after a crash, which takes a few milliseconds.
	saveClean = 16 << 20
	// saveReplaced is the same where bytes were replaced: retention could free
	// what it would have to be made of.
	saveReplaced = 64 << 10
	// scanChunk is how much is read at once to complete a map.
	scanChunk = 1 << 20
	mapSuffix = ".map"
	// maxMapFile bounds a kept map in bytes: 16 million points. A stream that has
	// more is read again.
	maxMapFile = 256 << 20
)

// textMap is the map of one stream of one process, shared by the connections
// that read it.
type textMap struct {
	path string // of the kept part; "" where nothing is kept

	mu    sync.Mutex
	m     *transcode.Map  // guarded by mu
	saved transcode.Point // last point that is kept; guarded by mu
	refs  int             // guarded by Face.mu
}

type mapKey struct {
	id     process.ID
	stream process.Stream
}

// textMap returns the shared map of a stream. Give it back with release.
func (f *Face) textMap(id process.ID, s process.Stream) *textMap {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := mapKey{id, s}
	t := f.maps[key]
	if t == nil {
		t = &textMap{}
		if f.dir != "" {
			t.path = filepath.Join(f.dir, string(id)+"."+s.String()+mapSuffix)
		}
		f.maps[key] = t
	}
	t.refs++
	return t
}

func (f *Face) releaseMap(id process.ID, s process.Stream) {
	key := mapKey{id, s}
	f.mu.Lock()
	t := f.maps[key]
	last := t.refs == 1
	f.mu.Unlock()
	if last {
		t.mu.Lock()
		if t.m != nil && t.m.End().Replaced != t.saved.Replaced {
			t.save()
		}
		t.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.refs--; t.refs == 0 {
		delete(f.maps, key)
	}
}

// load reads what was kept. t.mu is held.
func (t *textMap) load() {
	if t.m != nil {
		return
	}
	b := t.kept()
	t.m = transcode.Parse(b)
	t.saved = t.m.End()
}

// kept reads what earlier servers have saved, in whole points. Without it the
// stream is read again.
func (t *textMap) kept() []byte {
	if t.path == "" {
		return nil
	}
	f, err := atomicfile.Open(t.path, os.O_RDWR)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := atomicfile.ReadAll(f, maxMapFile)
	if err != nil {
		return nil
	}
	whole := len(b) / transcode.PointSize * transcode.PointSize
	if whole != len(b) {
		// A torn write: what follows must begin at a whole point.
		_ = f.Truncate(int64(whole))
	}
	return b[:whole]
}

// add takes raw bytes, which begin at offset from where a character does, and
// end so, into the map, as far as it does not have them.
func (t *textMap) add(from int64, raw []byte, replaced int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.load()
	have := t.m.End().Raw
	switch {
	case from > have || from+int64(len(raw)) <= have:
		return
	case from == have && (replaced == 0 || len(raw) <= 64<<10):
		t.m.AddCounted(len(raw), replaced)
	default:
		t.m.Add(raw[have-from:])
	}
	t.saveSome()
}

// saveSome keeps the map if it has grown enough. t.mu is held.
func (t *textMap) saveSome() {
	end := t.m.End()
	grown := end.Raw - t.saved.Raw
	if grown >= saveClean || grown >= saveReplaced && end.Replaced != t.saved.Replaced {
		t.save()
	}
}

// save appends the new points. Without them a later server reads the stream
// again, so an error costs time only. t.mu is held.
func (t *textMap) save() {
	if t.path == "" {
		return
	}
	var b []byte
	for _, p := range t.m.After(t.saved.Raw) {
		b = transcode.AppendPoint(b, p)
	}
	f, err := atomicfile.Open(t.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.Write(b); err == nil {
		t.saved = t.m.End()
	}
}

// gapError: what is between two offsets cannot be read any more.
func gapError(s process.Stream, from, to int64) error {
	n := nameOf(s)
	return &problem{http.StatusGone, kindTruncated,
		fmt.Sprintf("bytes %d to %d of %s were freed by retention before they were read; reconnect with %s_offset %d for what is left",
			from, to, n, n, to)}
}

// locate finds the raw place of a text offset, and reads on in the stream
// where the map does not reach that far. For an offset beyond the end it is the
// end.
func (t *textMap) locate(ctx context.Context, p process.Process, s process.Stream, text int64) (transcode.Point, error) {
	if text == 0 {
		return transcode.Point{}, nil
	}
	for {
		t.mu.Lock()
		t.load()
		if text <= t.m.End().Text() {
			pt, err := t.m.Locate(text, spoolAt{ctx, p, s})
			t.mu.Unlock()
			return pt, err
		}
		end, more, err := t.scan(ctx, p, s)
		t.mu.Unlock()
		switch {
		case err != nil:
			return transcode.Point{}, err
		case !more && text > end.Text():
			return end, nil
		}
	}
}

// scan takes one chunk of the stream into the map. more: there may be more.
// t.mu is held.
func (t *textMap) scan(ctx context.Context, p process.Process, s process.Stream) (end transcode.Point, more bool, err error) {
	opts := process.ReadOptions{Streams: []process.Stream{s}, NoFollow: true, Unordered: true, MaxChunk: scanChunk}
	opts.From[s] = t.m.End().Raw
	r, err := p.Read(ctx, opts)
	if errors.Is(err, process.ErrOffset) { // the map knows more than the spool: its file is of another stream
		return t.m.End(), false, nil
	}
	if err != nil {
		return end, false, err
	}
	var held []byte
	for ev, err := range process.Follow(ctx, r) {
		if err != nil {
			return end, false, err
		}
		switch ev.Kind {
		case process.EventGap:
			t.m.Add(held)
			held = nil
			t.m.Skip(ev.Gap.To)
			t.save()
		case process.EventOutput:
			raw := ev.Data
			if len(held) > 0 {
				raw = append(held, raw...)
			}
			n := transcode.Settled(raw)
			t.m.Add(raw[:n])
			held = append([]byte(nil), raw[n:]...)
			more = true
			if len(ev.Data) == scanChunk {
				// One chunk at a time: others wait for the lock.
				t.saveSome()
				return t.m.End(), true, nil
			}
		case process.EventEOF:
			t.m.Add(held)
			held = nil
		}
	}
	t.saveSome()
	return t.m.End(), false, nil
}

// afterGap returns the first point at or behind raw from which text can be
// read, where [.., raw) was freed.
func (t *textMap) afterGap(ctx context.Context, p process.Process, s process.Stream, raw int64) (transcode.Point, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.load()
	if raw > t.m.End().Raw {
		t.m.Skip(raw)
		t.save()
	}
	return t.m.AfterGap(raw, spoolAt{ctx, p, s})
}

// spoolAt reads a stream of a process at any offset. Freed bytes read as
// zeros.
type spoolAt struct {
	ctx    context.Context // of the one call it lives for
	p      process.Process
	stream process.Stream
}

// Base implements [transcode.Source].
func (a spoolAt) Base() (int64, error) {
	info, err := a.p.Info(a.ctx)
	if err != nil {
		return 0, err
	}
	si, _ := info.Stream(a.stream)
	return si.Base, nil
}

func (a spoolAt) ReadAt(b []byte, off int64) (int, error) {
	opts := process.ReadOptions{Streams: []process.Stream{a.stream}, NoFollow: true, Unordered: true, MaxChunk: min(max(len(b), 1), scanChunk)}
	opts.From[a.stream] = off
	r, err := a.p.Read(a.ctx, opts)
	if err != nil {
		return 0, err
	}
	n := 0
	for ev, err := range process.Follow(a.ctx, r) {
		switch {
		case err != nil:
			return n, err
		case ev.Kind == process.EventGap:
			skipped := min(int(ev.Gap.To-ev.Gap.From), len(b)-n)
			clear(b[n : n+skipped])
			n += skipped
		case ev.Kind == process.EventOutput:
			n += copy(b[n:], ev.Data)
		}
		if n == len(b) {
			return n, nil
		}
	}
	return n, io.EOF
}

// sweepMaps removes the maps of processes that no sandbox has.
func (f *Face) sweepMaps(ctx context.Context) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return
	}
	gone := map[process.ID][]string{} // files by process
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), mapSuffix); ok {
			id := process.ID(strings.TrimSuffix(name, filepath.Ext(name)))
			gone[id] = append(gone[id], e.Name())
		}
	}
	if len(gone) == 0 {
		return
	}
	// After the files: each belongs to a process that had started by now.
	boxes, err := f.driver.List(ctx)
	if err != nil {
		return
	}
	for _, info := range boxes {
		box, err := f.driver.Get(ctx, string(info.ID))
		if errors.Is(err, driver.ErrNotFound) {
			continue
		}
		if err != nil {
			return
		}
		have, err := box.Processes().List(ctx, process.Filter{})
		if err != nil {
			return
		}
		for _, p := range have {
			delete(gone, p.ID)
		}
		if len(gone) == 0 {
			return
		}
	}
	for _, names := range gone {
		for _, name := range names {
			if err := os.Remove(filepath.Join(f.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				f.log.Warn("map of a process that is gone not removed", "file", name, "err", err)
			}
		}
	}
}
