package project

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

const (
	// ignoreFile and lockFile are in healDir.
	ignoreFile = ".gitignore"
	lockFile   = "lock"
	// PointsDir is where checkpoints are, in the private directory.
	PointsDir = "points"
	// EnvFile is where variables are set.
	EnvFile = ".env"
	// MaxReviewed bounds a file that rules look at, in bytes.
	MaxReviewed = 1 << 20
	// lastTime bounds what nothing else ends.
	lastTime = 4 * time.Minute
)

// dir is the private directory.
func (l *Local) dir() string {
	if l.c.Dir != "" {
		return l.c.Dir
	}
	return filepath.Join(l.c.Root, filepath.FromSlash(healDir), l.c.ID)
}

func (l *Local) pointOptions(try int) checkpoint.Options {
	o := checkpoint.Options{
		Root: l.c.Root, Dir: filepath.Join(l.dir(), PointsDir, strconv.Itoa(try)), ID: fmt.Sprintf("%s-%d", l.c.ID, try), Leave: l.c.Data,
	}
	if l.c.StateDir != "" {
		o.Skip = append(o.Skip, l.c.StateDir)
	}
	return o
}

// makeDir makes the private directory. One in the project is not for git: what is kept in it
// may be secret. The caller holds the lock.
func (l *Local) makeDir() error {
	if l.c.Dir != "" {
		return nil // its owner makes it
	}
	if err := os.MkdirAll(l.dir(), 0o700); err != nil {
		return err
	}
	return atomicfile.File(filepath.Join(filepath.Dir(l.dir()), ignoreFile), []byte("*\n"), 0o600)
}

// lock waits until no other process works on the project. One before this one may have removed
// the directory meanwhile: then it is made again.
func (l *Local) lock(ctx context.Context) (unlock func(), err error) {
	up := filepath.Dir(l.dir())
	for {
		if err := os.MkdirAll(up, 0o700); err != nil {
			return nil, err
		}
		unlock, err := atomicfile.Lock(ctx, filepath.Join(up, lockFile))
		if !errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
			return unlock, err
		}
	}
}

// dropDir removes the private directory if it is one in the project and nothing is kept
// there. What is not a checkpoint's is of no use any more, such as what a process was writing
// that was killed. The caller holds the lock.
func (l *Local) dropDir() {
	if l.c.Dir != "" {
		return
	}
	all, _ := os.ReadDir(l.dir())
	for _, e := range all {
		if e.Name() != PointsDir {
			_ = os.RemoveAll(filepath.Join(l.dir(), e.Name()))
		}
	}
	points, _ := os.ReadDir(filepath.Join(l.dir(), PointsDir))
	for _, p := range points {
		_ = os.Remove(filepath.Join(l.dir(), PointsDir, p.Name())) // unless something is kept
	}
	_ = os.Remove(filepath.Join(l.dir(), PointsDir))
	_ = os.Remove(l.dir())
	up := filepath.Dir(l.dir())
	all, err := os.ReadDir(up)
	rest := slices.DeleteFunc(all, func(e os.DirEntry) bool {
		half := strings.HasPrefix(e.Name(), "."+ignoreFile+"-") // makeDir was killed
		return half && os.Remove(filepath.Join(up, e.Name())) == nil || e.Name() == ignoreFile || e.Name() == lockFile
	})
	if err != nil || len(rest) > 0 {
		return // there are copies, or more episodes
	}
	_ = os.Remove(filepath.Join(up, lockFile)) // git never sees it
	_ = os.Remove(filepath.Join(up, ignoreFile))
	_ = os.Remove(up)
	_ = os.Remove(filepath.Dir(up)) // unless there is more
}

// Take implements Project.
func (l *Local) Take(ctx context.Context, try int) error {
	if err := l.makeDir(); err != nil {
		return err
	}
	l.kept, l.seen = nil, nil
	p, err := checkpoint.Open(ctx, l.pointOptions(try))
	if errors.Is(err, checkpoint.ErrNone) {
		p, err = checkpoint.Take(ctx, l.pointOptions(try))
	}
	if l.point = p; err != nil {
		l.point = nil
	}
	return err
}

// open returns the checkpoint of a remedy, which another process may have taken.
func (l *Local) open(ctx context.Context, try int) (*checkpoint.Point, error) {
	if l.point == nil {
		p, err := checkpoint.Open(ctx, l.pointOptions(try))
		if err != nil {
			return nil, err
		}
		l.point = p
	}
	return l.point, nil
}

// Mark implements Project. It comes to its end, whatever becomes of ctx.
func (l *Local) Mark(ctx context.Context) error {
	if l.point == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	return l.point.Mark(ctx)
}

// Absorb implements Project.
func (l *Local) Absorb(ctx context.Context) error {
	if l.point == nil {
		return nil
	}
	return l.point.Absorb(ctx)
}

// Changed implements Project.
func (l *Local) Changed(ctx context.Context) (paths []string, err error) {
	if l.point == nil {
		return nil, nil
	}
	changes, err := l.point.Changes(ctx)
	for _, c := range changes {
		paths = append(paths, c.Path)
	}
	return paths, err
}

// Review implements Project. What the service has written since is its own.
func (l *Local) Review(ctx context.Context, try int) (r Reviewed, err error) {
	p, err := l.open(ctx, try)
	if err != nil {
		return r, err
	}
	if err := p.Absorb(ctx); err != nil {
		return r, err
	}
	if r.Diff, err = p.Diff(ctx); err != nil {
		return r, err
	}
	changes, err := p.Changes(ctx)
	if err != nil {
		return r, err
	}
	for _, c := range changes {
		// Nothing but SetEnv has a way to a .env.
		if _, err := l.guard.Check(c.Path, true); err != nil && c.Path != EnvFile && r.Denied == "" {
			r.Denied = err.Error()
		}
		d := agent.FileDiff{Path: c.Path, Added: c.Kind == checkpoint.Added, Deleted: c.Kind == checkpoint.Deleted,
			Dirty: c.Dirty, AtHead: c.AtHead}
		if before, err := p.Before(ctx, c.Path); err == nil {
			d.Before = text(before)
		}
		if !d.Deleted {
			if now, err := atomicfile.Read(l.full(c.Path), MaxReviewed); err == nil {
				d.After = text(now)
			}
		}
		r.Files = append(r.Files, d)
	}
	return r, nil
}

// text is what is text, of a size that rules look at.
func text(data []byte) string {
	if len(data) > MaxReviewed || strings.IndexByte(string(data), 0) >= 0 {
		return ""
	}
	return string(data)
}

// Commit implements Project.
func (l *Local) Commit(ctx context.Context, try int, c *checkpoint.Commit) (out Committed, err error) {
	p, err := l.open(ctx, try)
	if errors.Is(err, checkpoint.ErrNone) {
		out.None = true
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Kept = p.Kept()
	if err := p.Absorb(ctx); err != nil {
		return out, err
	}
	if c != nil {
		if out.Committed, err = p.Commit(ctx, *c); err != nil {
			return out, err
		}
		if out.Hash == "" { // the one before this one may have died after it
			out.Hash, out.Paths, err = p.Made(ctx, c.Trailers)
		}
	}
	if err != nil {
		return out, err
	}
	u, why, err := p.Undo(ctx)
	if err != nil && out.Hash != "" { // it is for those who compare alone
		err = nil
	}
	out.Undo, out.NoUndo = u, why
	return out, err
}

// TakeBack implements Project.
func (l *Local) TakeBack(ctx context.Context, b checkpoint.Back, check bool) (checkpoint.TakenBack, error) {
	if err := l.makeDir(); err != nil {
		return checkpoint.TakenBack{}, err
	}
	b.Root, b.Dir, b.ID = l.c.Root, l.dir(), l.c.ID
	if check {
		return checkpoint.CheckBack(ctx, b)
	}
	return checkpoint.TakeBack(ctx, b)
}

// Rollback implements Project. The checkpoint stays: whoever has seen that all was taken back
// drops it.
func (l *Local) Rollback(ctx context.Context, try int, absorb bool) (out RolledBack, err error) {
	p, err := l.open(ctx, try)
	if errors.Is(err, checkpoint.ErrNone) {
		out.None = true
		return out, nil
	}
	if err != nil {
		return out, err
	}
	if absorb {
		if err := p.Absorb(ctx); err != nil {
			return out, err
		}
	}
	if diff, err := p.Diff(ctx); err == nil {
		out.Diff = diff // for people
	}
	l.kept = nil
	moved := l.moveBack(try)
	if out.Restored, err = p.Restore(ctx); err != nil {
		return out, errors.Join(moved, err)
	}
	if moved != nil { // a directory that it has to be in may be there again
		return out, l.moveBack(try)
	}
	return out, nil
}

// Drop implements Project.
func (l *Local) Drop(ctx context.Context, try int) error {
	p, err := l.open(ctx, try)
	if err == nil {
		err = p.Drop(ctx)
		l.point = nil
	}
	if errors.Is(err, checkpoint.ErrNone) {
		err = checkpoint.Clear(l.pointOptions(try))
	}
	l.dropAside(try)
	return err
}
