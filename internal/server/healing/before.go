package healing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/heal/chat"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

const (
	// maxBefore bounds the content that FileBefore returns, in bytes: what the page compares.
	maxBefore = 2 << 20
	// mostBefore limits the stored data that one FileBefore reads, in bytes.
	mostBefore = 64 << 20
)

// change is a repair or a turn that has changed a project, with its stored data.
type change struct {
	by, service string
	roots       []string // of the project
	at          time.Time
	file        string
	read        func(path string) (u *checkpoint.Undo, lost bool, err error) // lost: u is not all of it
}

// FileBefore returns the content of a file before the newest repair or chat turn that
// changed it and was not taken back, as far as it is stored; if ChangedBy is empty,
// there is none. name is the file's absolute path, in the sandbox with the given ID and
// name, or on the machine without them. FileBefore reads nothing of the project: the
// caller must have checked permissions.
func (h *Healing) FileBefore(ctx context.Context, sandbox []string, name string) (*tendv1.FileBeforeResponse, error) {
	h.comparing.Lock() // what is kept may be large
	defer h.comparing.Unlock()
	where := h.spaceOf(ctx, sandbox)
	all := slices.Concat(h.repairs(where), h.turns(where))
	slices.SortStableFunc(all, func(a, b change) int { return b.at.Compare(a.at) })
	read := int64(0)
	for _, c := range all {
		if !slices.ContainsFunc(c.roots, func(root string) bool { return below(root, name) != "" }) {
			continue
		}
		info, err := os.Lstat(c.file)
		if err != nil {
			continue // it has gone at this moment
		}
		if read += info.Size(); read > mostBefore {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		u, lost, err := c.read(c.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil { // the others are as good as without it
			h.c.Log.Warn("what a change of a project keeps cannot be read, and is left out", "change", c.by, "file", c.file, "err", err)
			continue
		}
		for _, root := range c.roots {
			content, kind, ok := u.Before(below(root, name))
			if !ok {
				continue
			}
			m := &tendv1.FileBeforeResponse{ChangedBy: c.by, Service: c.service, At: stamp(c.at), Existed: kind == checkpoint.File}
			switch {
			case lost:
				m.Why = "not all that the turn has changed is kept"
			case kind == checkpoint.Link:
				m.Why = "it was a symbolic link"
			case len(content) > maxBefore:
				m.Why = fmt.Sprintf("it had more than %d MiB", maxBefore>>20)
			case !utf8.Valid(content) || slices.Contains(content, 0):
				m.Why = "it was not text in UTF-8"
			default:
				m.Content = content
			}
			return m, nil
		}
	}
	return &tendv1.FileBeforeResponse{}, nil
}

// below is a path below a root; "": it is not there.
func below(root, name string) string {
	rel, ok := strings.CutPrefix(name, strings.TrimSuffix(path.Clean(filepath.ToSlash(root)), "/")+"/")
	if !ok || !filepath.IsLocal(rel) {
		return ""
	}
	return rel
}

// repairs are the repairs that have permanently changed a project, or are about to.
func (h *Healing) repairs(where *space) (all []change) {
	for _, id := range h.store.episodes() {
		o, err := healer.ReadOrder(h.store.episode(id))
		if err != nil || o.Back != nil || o.DryRun {
			continue
		}
		var in *string
		if o.SandboxID != "" {
			in = &o.SandboxID
		}
		if !where.had(o.Rules.Sandbox, in, o.At) {
			continue
		}
		entries, err := healer.ReadJournal(o.Path(healer.JournalFile))
		if err != nil {
			continue
		}
		s := healer.Fold(entries)
		c := change{by: id, service: o.Service, roots: []string{o.Healer.Root}, at: s.Ended, file: o.Path(healer.UndoFile), read: readUndo}
		switch {
		case !s.Done():
			c.file, c.at = o.Path(healer.LiveFile), time.Now()
		case s.Status != healer.Ready || h.store.takenBack(id) != "":
			continue
		}
		all = append(all, c)
	}
	return all
}

// turns are those of chats that were not taken back.
func (h *Healing) turns(where *space) (all []change) {
	for _, id := range h.store.chats() {
		dir := h.store.chat(id)
		if forgotten(dir) {
			continue
		}
		o, err := healer.ReadOrder(dir)
		if err != nil {
			continue
		}
		for _, said := range chat.Turns(dir) {
			c := change{by: turnName(id, said), service: o.Service, roots: []string{o.Healer.Root}, file: chat.TurnFile(dir, said)}
			info, err := os.Lstat(c.file)
			if err != nil {
				continue
			}
			c.at = info.ModTime()
			c.read = func(path string) (*checkpoint.Undo, bool, error) {
				t, err := chat.ReadTurn(path)
				if err != nil {
					return nil, false, err
				}
				if !where.had(o.Rules.Sandbox, t.Sandbox, c.at) { // the order is the newest turn's
					return nil, false, fs.ErrNotExist
				}
				return t.Undo, t.Lost, nil
			}
			all = append(all, c)
		}
	}
	return all
}

// readUndo reads what a repair can be taken back by.
func readUndo(path string) (u *checkpoint.Undo, lost bool, err error) {
	data, err := atomicfile.Read(path, 2*checkpoint.MaxUndo)
	if err != nil {
		return nil, false, err
	}
	u = new(checkpoint.Undo)
	return u, false, json.Unmarshal(data, u)
}
