package checkpoint

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/exchange"
)

// Restored is the result of Restore.
type Restored struct {
	Paths []string // what is again as it was
	Kept  []Kept   // copies of what nobody had marked as the healer's
	Left  []Left   // what is not as it was
}

// Kept is a replaced or removed file, and its copy.
type Kept struct {
	Path string
	Copy string // absolute
}

// Restore makes everything below the root as it was, but keeps changes of others (Absorb).
// Call it while the service is stopped if possible. A repeated call, also after a kill,
// continues. An error of one path is in Left.
func (p *Point) Restore(ctx context.Context) (Restored, error) {
	var r Restored
	p.readable()
	now, err := p.scan(ctx, p.last, nil)
	if err != nil {
		return r, err
	}
	var todo []name
	for at := range union(p.base, now) {
		if !same(p.base[at], now[at]) && !p.leaves(at) {
			todo = append(todo, at)
		}
	}
	slices.Sort(todo)
	if len(todo) == 0 {
		return r, p.sweep()
	}
	kept, err := p.keepDir()
	if err != nil {
		return r, err
	}
	failed := map[name]bool{}
	fail := func(at name, why string) {
		failed[at] = true
		r.Left = append(r.Left, Left{string(at), why + p.formerly(p.base[at])})
	}
	for _, at := range todo {
		if was := p.base[at]; was != nil && !was.Held {
			fail(at, "its content is not in the checkpoint")
			continue
		}
		is := now[at]
		if is == nil || is.Kind != file || sameContent(p.base[at], is) {
			continue
		}
		if last := p.last[at]; last != nil && same(last, is) && !p.moves[at].Unclear && !same(last, p.taken[at]) {
			continue // the healer's own, which was marked
		}
		copied, err := p.keep(kept, at)
		if err != nil {
			fail(at, "no copy of it could be kept: "+reason(err))
			continue
		}
		r.Kept = append(r.Kept, Kept{string(at), copied})
		p.opts.step("kept")
	}
	// What is in the way or too much goes, the deepest first.
	for _, at := range slices.Backward(todo) {
		was, is := p.base[at], now[at]
		if failed[at] || is == nil || was != nil && was.Kind == is.Kind {
			continue
		}
		if err := p.root.Remove(string(at)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			if is.Kind == directory && was == nil {
				failed[at] = true // what is in it is nobody's: made by tools, or a socket
				continue
			}
			fail(at, "it cannot be removed: "+reason(err))
			continue
		}
		p.opts.step("removed")
	}
	for _, at := range todo {
		was := p.base[at]
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if was == nil || failed[at] {
			continue
		}
		if err := p.put(ctx, at, was, now[at]); err != nil {
			fail(at, reason(err))
			continue
		}
		p.opts.step("put")
	}
	for _, at := range slices.Backward(todo) { // a directory that may not be written to comes last
		if was := p.base[at]; was != nil && was.Kind == directory && !failed[at] {
			if err := p.root.Chmod(string(at), was.Mode); err != nil {
				fail(at, reason(err))
			}
		}
	}
	for _, at := range todo {
		if !failed[at] {
			r.Paths = append(r.Paths, string(at))
			if m, ok := p.moves[at]; ok {
				m.Last, m.Unclear = m.Base, false
				p.moves[at] = m
				p.set(at, m)
			} else {
				p.set(at, move{Base: p.base[at], Last: p.base[at]})
			}
		}
	}
	p.opts.step("restored")
	return r, errors.Join(p.saveMoves(p.moves), p.sweep())
}

// readable gives directories that were closed their modes back, so that what is in them
// can be seen.
func (p *Point) readable() {
	for _, at := range p.base.sorted() {
		e := p.base[at]
		if e.Kind != directory || e.Mode&0o700 != 0o700 {
			continue
		}
		if info, err := p.root.Lstat(string(at)); err == nil && info.IsDir() && info.Mode()&0o700 != 0o700 {
			_ = p.root.Chmod(string(at), e.Mode) // what cannot be read is told by what it lacks
		}
	}
}

// put makes a path what an entry says. What is there is of the same kind, or
// nothing.
func (p *Point) put(ctx context.Context, at name, was, is *entry) error {
	full := string(at)
	switch {
	case was.Kind == directory:
		if is == nil || is.Kind != directory {
			if info, err := p.root.Lstat(full); err == nil && !info.IsDir() {
				if err := p.root.Remove(full); err != nil { // a socket or the like
					return err
				}
			}
			if err := p.root.Mkdir(full, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if mayGive() {
				return p.root.Lchown(full, was.UID, was.GID)
			}
		}
		return nil
	case was.Kind == file && is != nil && sameContent(was, is):
		return p.root.Chmod(full, was.Mode)
	}
	temp := path.Join(path.Dir(full), temporary+rand.Text())
	if was.Kind == link {
		if err := p.root.Symlink(string(was.Target), temp); err != nil {
			return err
		}
	} else if err := p.writeTemp(ctx, temp, was); err != nil {
		return errors.Join(err, p.root.Remove(temp))
	}
	p.opts.step("written")
	var err error
	if mayGive() {
		err = p.root.Lchown(temp, was.UID, was.GID)
	}
	if was.Kind == file && err == nil {
		at := time.Unix(0, was.MTime)
		err = errors.Join(p.root.Chmod(temp, was.Mode), p.root.Chtimes(temp, at, at))
	}
	switch {
	case err != nil:
	case is == nil || is.Kind != was.Kind:
		err = exchange.File(p.root, temp, full, nil)
	case is.Kind == link:
		err = p.root.Rename(temp, full)
	default:
		err = exchange.File(p.root, temp, full, func(f *os.File) bool { return is.Sum == "" || sumIs(f, is.Sum) })
	}
	if err != nil {
		return errors.Join(err, p.root.Remove(temp))
	}
	return nil
}

// sumIs reports whether the content of a file has a sum.
func sumIs(f *os.File, sum string) bool {
	h := sha256.New()
	_, err := io.Copy(h, f)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == sum
}

func (p *Point) writeTemp(ctx context.Context, temp string, e *entry) error {
	data, err := p.content(ctx, e)
	if err != nil {
		return err
	}
	f, err := p.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|openFlags, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// keepDir makes a directory for the copies of one Restore.
func (p *Point) keepDir() (string, error) {
	if err := os.MkdirAll(p.path(KeptDir), 0o700); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		dir := filepath.Join(p.path(KeptDir), strconv.Itoa(n))
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return dir, nil
		} else if err != nil {
			return "", err
		}
	}
}

// keep copies a file of any size up to 64 MiB; a larger one is moved, which needs one
// file system.
func (p *Point) keep(dir string, at name) (string, error) {
	to := filepath.Join(dir, filepath.FromSlash(string(at)))
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", err
	}
	f, err := p.root.OpenFile(string(at), os.O_RDONLY|openFlags, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() > maxFile {
		if err := os.Rename(filepath.Join(p.opts.Root, filepath.FromSlash(string(at))), to); err != nil {
			return "", fmt.Errorf("it is too large to copy, and cannot be moved: %w", err)
		}
		return to, nil
	}
	// A copy has its name once it is whole: people are told where it is.
	half := p.path(halfFile)
	out, err := os.OpenFile(half, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, io.LimitReader(f, maxFile))
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(half, to)
	}
	return to, err
}

// read returns the content that a file has now.
func (p *Point) read(at name) ([]byte, error) { return readAt(p.root, at) }

func readAt(root *os.Root, at name) ([]byte, error) {
	f, err := root.OpenFile(string(at), os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, errors.New("it is no regular file, or has more than 64 MiB")
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// sweep removes what a Restore that was killed was writing.
func (p *Point) sweep() error {
	dirs := []name{""}
	for at, e := range p.base {
		if e.Kind == directory {
			dirs = append(dirs, at)
		}
	}
	for _, dir := range dirs {
		d, err := p.root.Open(path.Join(".", string(dir)))
		if err != nil {
			continue
		}
		names, err := d.Readdirnames(-1)
		d.Close()
		if err != nil {
			continue
		}
		for _, base := range names {
			if strings.HasPrefix(base, temporary) {
				if err := p.root.Remove(path.Join(string(dir), base)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
