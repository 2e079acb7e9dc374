package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"sort"
	"strings"
)

// maxMerged is the most bytes of a file that is merged.
const maxMerged = 1 << 20

// Absorb attributes all changes since the last Absorb or Mark to others: Restore keeps
// them, and Commit leaves them out.
func (p *Point) Absorb(ctx context.Context) error { return p.observe(ctx, false) }

// Mark attributes all changes since the last Absorb or Mark to the healer, except for logs
// that only grew.
func (p *Point) Mark(ctx context.Context) error { return p.observe(ctx, true) }

func (p *Point) observe(ctx context.Context, healer bool) error {
	grown := map[name]bool{}
	now, err := p.scan(ctx, p.last, func(path name, e *entry, data []byte) error {
		last := p.last[path]
		grown[path] = grew(path, last, e, data)
		if last == nil || last.Sum != e.Sum {
			e.Held = len(data) <= maxIgnoredFile || !e.Ignored
			if e.Held {
				if err := p.store(e.Sum, data); err != nil {
					return err
				}
			}
		} else {
			e.Held = last.Held
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.opts.step("seen")
	moves := maps.Clone(p.moves)
	for path := range union(p.last, now) {
		last, cur := p.last[path], now[path]
		if same(last, cur) {
			if cur != nil {
				cur.Held = last.Held
				p.last[path] = cur // its times may be settled by now
			}
			continue
		}
		m, ok := moves[path]
		if !ok {
			m = move{Base: p.base[path]}
		}
		m.Last = cur
		if !healer || grown[path] || tooLarge(last) && grew(path, last, cur, nil) {
			m.Base, m.Unclear = p.absorb(ctx, m, last, cur)
		} else if p.opened {
			m.Unseen = true
		}
		moves[path] = m
	}
	if err := p.saveMoves(moves); err != nil {
		return err
	}
	p.moves, p.opened = moves, false
	for path, m := range moves {
		p.set(path, m)
	}
	return nil
}

func union(a, b tree) map[name]bool {
	all := make(map[name]bool, len(a))
	for path := range a {
		all[path] = true
	}
	for path := range b {
		all[path] = true
	}
	return all
}

// grew reports whether a log was appended to. Of one that was too large to be read, and of
// which nothing can be brought back, the size is all that is known.
func grew(path name, last, cur *entry, data []byte) bool {
	if last == nil || cur == nil || last.Kind != file || cur.Kind != file || last.Mode != cur.Mode || cur.Size <= last.Size ||
		!cur.Ignored && !strings.HasSuffix(string(path), ".log") || isEnv(path) {
		return false
	}
	if last.Sum == "" {
		return true
	}
	if int64(len(data)) < last.Size {
		return false
	}
	sum := sha256.Sum256(data[:last.Size])
	return hex.EncodeToString(sum[:]) == last.Sum
}

func tooLarge(e *entry) bool { return e != nil && e.Kind == file && e.Sum == "" }

// absorb returns where Restore is to go back to, after somebody has changed a path from
// last to cur.
func (p *Point) absorb(ctx context.Context, m move, last, cur *entry) (base *entry, unclear bool) {
	switch {
	case same(m.Base, last), last == nil, cur == nil:
		return cur, false // the healer had not touched it; or it is new; or it is gone
	case same(m.Base, cur):
		return m.Base, false
	case sameContent(last, cur) && m.Base != nil: // the mode alone
		b := *m.Base
		b.Mode = cur.Mode
		return &b, m.Unclear
	}
	if m.Base == nil || m.Base.Kind != file || last.Kind != file || cur.Kind != file {
		return m.Base, true
	}
	var texts [3]string
	for i, e := range []*entry{last, m.Base, cur} {
		data, err := p.content(ctx, e)
		if err != nil || !isText(data) {
			return m.Base, true
		}
		texts[i] = string(data)
	}
	merged, ok := merge(texts[0], texts[1], texts[2])
	if !ok {
		return m.Base, true
	}
	b := *m.Base
	sum := sha256.Sum256([]byte(merged))
	b.Sum, b.Size, b.Held = hex.EncodeToString(sum[:]), int64(len(merged)), true
	if p.git != nil {
		b.Oid = p.git.oid([]byte(merged))
	}
	if last.Mode != cur.Mode {
		b.Mode = cur.Mode
	}
	b.MTime, b.CTime = cur.MTime, 0
	if p.store(b.Sum, []byte(merged)) != nil {
		return m.Base, true
	}
	return &b, false
}

func isText(data []byte) bool { return len(data) <= maxMerged && bytes.IndexByte(data, 0) < 0 }

// Kind says what happened to a path.
type Kind string

// The kinds. A path that has become something else, such as a link, is modified.
const (
	Added    Kind = "added"
	Modified Kind = "modified"
	Deleted  Kind = "deleted"
	Mode     Kind = "mode" // the permissions alone
)

// Change is a change of the healer to a file or link.
type Change struct {
	Path   string // below the root, with slashes; any bytes
	Kind   Kind
	Dirty  bool // it had uncommitted changes, or was untracked, where Restore would go back to
	AtHead bool // it is now as in the last commit
}

// Changes lists the healer's changes: the tree against the state that Restore would
// restore. A directory is listed if none of its entries is.
func (p *Point) Changes(ctx context.Context) ([]Change, error) {
	now, err := p.scan(ctx, p.last, nil)
	if err != nil {
		return nil, err
	}
	var head map[string]blob
	if p.git != nil {
		if _, head, err = p.git.head(ctx); err != nil {
			return nil, err
		}
	}
	return p.changes(now, head), nil
}

func (p *Point) changes(now tree, head map[string]blob) (out []Change) {
	for path := range union(p.base, now) {
		was, is := p.base[path], now[path]
		if same(was, is) || p.leaves(path) {
			continue
		}
		if directories(was, is) && (was == nil || is == nil) && (hasBelow(now, path) || hasBelow(p.base, path)) {
			continue
		}
		c := Change{Path: string(path), Kind: Modified}
		switch {
		case was == nil:
			c.Kind = Added
		case is == nil:
			c.Kind = Deleted
		case sameContent(was, is):
			c.Kind = Mode
		}
		if p.git != nil {
			h, ok := head[p.git.prefix+string(path)]
			c.Dirty = was != nil && !directories(was, nil) && !(ok && p.isBlob(was, h)) || was == nil && ok
			c.AtHead = ok && is != nil && p.isBlob(is, h) || !ok && is == nil
		}
		out = append(out, c)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}

func directories(a, b *entry) bool {
	return (a == nil || a.Kind == directory) && (b == nil || b.Kind == directory)
}

func hasBelow(t tree, dir name) bool {
	for path := range t {
		if strings.HasPrefix(string(path), string(dir)+"/") {
			return true
		}
	}
	return false
}

// isBlob reports whether an entry is what a tree of git says.
func (p *Point) isBlob(e *entry, b blob) bool {
	if e.Kind == link {
		return b.mode == "120000" && p.git.oid([]byte(e.Target)) == b.oid
	}
	return e.Kind == file && e.Oid == b.oid && gitMode(e) == b.mode
}

// Before returns the content of a file in the state that Restore would restore. The error
// is [fs.ErrNotExist] if there is no file in it.
func (p *Point) Before(ctx context.Context, path string) ([]byte, error) {
	e := p.base[name(path)]
	if e == nil || e.Kind != file || !e.Held {
		return nil, &fs.PathError{Op: "read the checkpoint of", Path: path, Err: fs.ErrNotExist}
	}
	return p.content(ctx, e)
}
