package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/exchange"
)

// likeness is which side of a repair something is like.
type likeness int

const (
	other likeness = iota
	before
	after
)

// found is what a path is in the work tree now.
type found struct {
	side
	is   likeness
	crlf bool // git has changed the ends of its lines
}

// why says what is wrong with a path that is not as the repair has left it.
func (f found) why() string {
	switch {
	case f.is == before:
		return "it is as it was before the repair already"
	case f.Kind == "":
		return "it is gone"
	}
	return "it has changed since, and that is not committed"
}

// look looks at a path of the work tree.
func (b *back) look(f Undone) (at found) {
	for dir := parent(f.Path); dir != ""; dir = parent(dir) {
		if info, err := b.root.Lstat(string(dir)); err == nil && !info.IsDir() {
			at.Kind = directory // what the repair had there is not reached by its path
			if f.After.Kind == "" {
				at.Kind = ""
			}
			return at.like(f)
		}
	}
	info, err := b.root.Lstat(string(f.Path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return at.like(f)
	case err != nil:
		at.Kind = directory
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := b.root.Readlink(string(f.Path))
		if err == nil {
			at.side = sideOf(link, 0, -1, -1, []byte(to))
		}
	case info.Mode().IsRegular():
		data, err := readAt(b.root, f.Path)
		if err != nil {
			at.Kind = directory
			break
		}
		at.side = sideOf(file, info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky), -1, -1, data)
		var e entry
		e.stat(info)
		at.UID, at.GID = e.UID, e.GID
	default:
		at.Kind = directory
	}
	if at.Kind == directory && f.After.Kind == "" && info != nil && info.IsDir() {
		at.Kind = "" // a directory is in place of a file that the repair has removed
	}
	at = at.like(f)
	if at.is == other && b.git != nil && at.Kind == file && isText(at.Data) && bytes.Contains(at.Data, []byte("\r\n")) {
		plain := at
		sum := sha256.Sum256([]byte(lineFeeds(string(at.Data))))
		plain.Sum = hex.EncodeToString(sum[:])
		if plain = plain.like(f); plain.is != other {
			at.is, at.crlf = plain.is, true
		}
	}
	return at
}

// like finds out which side it is.
func (f found) like(u Undone) found {
	switch {
	case f.side.is(u.After):
		f.is = after
	case f.side.is(u.Before):
		f.is = before
	}
	return f
}

// unlike are the paths that are neither as the repair has left them, nor taken back by a run
// of TakeBack that was killed. Once one was taken back, the others follow.
func (b *back) unlike() (out []Left) {
	for _, f := range b.files {
		switch at := b.look(f); at.is {
		case before:
			return nil
		case other:
			out = append(out, Left{string(f.Path), at.why()})
		}
	}
	return out
}

const changedMeanwhile = "it was changed while it was taken back, and is as it is"

// put makes the paths in the work tree what they were. What is neither that nor what the
// repair has left is somebody's newer work, and stays.
func (b *back) put(out *TakenBack) {
	do := func(f Undone, how func(Undone, found) error) {
		at := b.look(f)
		var err error
		switch at.is {
		case other:
			out.Left = append(out.Left, Left{string(f.Path), changedMeanwhile})
			return
		case after:
			if err = how(f, at); err == nil {
				b.step("put")
			}
		}
		if err != nil {
			out.Left = append(out.Left, Left{string(f.Path), reason(err)})
			return
		}
		out.Paths = append(out.Paths, string(f.Path))
	}
	// What goes comes first: it may be in the way of the rest.
	for _, f := range slices.Backward(b.files) {
		if f.Before.Kind == "" {
			do(f, b.remove)
		}
	}
	for _, dir := range slices.Backward(b.dirs) {
		_ = b.root.Remove(string(dir)) // unless something of somebody else is in it
	}
	for _, f := range b.files {
		if f.Before.Kind != "" {
			do(f, b.replace)
		}
	}
	slices.Sort(out.Paths)
}

// replace puts what a file or link was before in its place at once.
func (b *back) replace(f Undone, at found) error {
	if dir := parent(f.Path); dir != "" {
		if err := b.makeDir(dir); err != nil {
			return err
		}
	}
	temp := b.temp(f)
	was := f.Before
	if was.Kind == link {
		if err := b.root.Symlink(string(was.Data), temp); err != nil {
			return err
		}
	} else {
		data := was.Data
		if at.crlf && !bytes.Contains(data, []byte("\r\n")) {
			data = []byte(strings.ReplaceAll(string(data), "\n", "\r\n"))
		}
		out, err := b.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|openFlags, 0o600)
		if err != nil {
			return err
		}
		_, err = out.Write(data)
		if err = errors.Join(err, out.Close()); err != nil {
			return errors.Join(err, b.root.Remove(temp))
		}
	}
	b.step("written")
	err := b.own(f, at, temp)
	switch {
	case err != nil:
	case at.Kind == "":
		err = exchange.File(b.root, temp, string(f.Path), nil)
	case at.Kind == file:
		err = exchange.File(b.root, temp, string(f.Path), func(old *os.File) bool { return sumIs(old, at.Sum) })
	case b.look(f).is == after:
		err = b.root.Rename(temp, string(f.Path))
	default:
		err = exchange.ErrChanged
	}
	if errors.Is(err, exchange.ErrChanged) { // somebody was quicker
		err = errors.New(changedMeanwhile)
	}
	if err != nil {
		return errors.Join(err, b.root.Remove(temp))
	}
	return nil
}

// remove removes what the repair has made.
func (b *back) remove(f Undone, at found) error {
	if at.Kind != file {
		return b.root.Remove(string(f.Path))
	}
	err := exchange.Remove(b.root, b.temp(f), string(f.Path), func(old *os.File) bool { return sumIs(old, at.Sum) })
	if errors.Is(err, exchange.ErrChanged) {
		err = errors.New(changedMeanwhile)
	}
	return err
}

// tidy removes what a run that was killed has left beside a file. What somebody had saved when it was
// about to be replaced gets its place again.
func (b *back) tidy(f Undone) error {
	temp := b.temp(f)
	data, err := readAt(b.root, name(temp))
	if err == nil && b.look(f).is == before && sideOf(file, 0, -1, -1, data).Sum != f.After.Sum {
		return b.root.Rename(temp, string(f.Path))
	}
	if b.root.Remove(temp) == nil {
		b.step("swept")
	}
	return nil
}

// own gives a new file the owner and the mode that it should have: those it had, as far as
// they are known, else those of what it replaces, or of its directory.
func (b *back) own(f Undone, at found, temp string) error {
	was := f.Before
	mode, uid, gid := was.Mode, was.UID, was.GID
	if uid < 0 {
		uid, gid = at.UID, at.GID
		if at.Kind != file {
			uid, gid = b.ownerOf(path.Dir(temp))
		}
		if at.Kind == file && was.Kind == file { // git knows only who may run it
			mode = at.Mode &^ 0o111
			if was.Mode&0o100 != 0 {
				mode |= 0o111 & (at.Mode >> 2)
			}
		}
	}
	if mayGive() && uid >= 0 {
		if err := b.root.Lchown(temp, uid, gid); err != nil {
			return err
		}
	}
	if was.Kind == link {
		return nil
	}
	return b.root.Chmod(temp, mode)
}

func (b *back) ownerOf(dir string) (uid, gid int) {
	info, err := b.root.Lstat(dir)
	if err != nil {
		return -1, -1
	}
	var e entry
	e.stat(info)
	return e.UID, e.GID
}

// makeDir makes a directory that the repair has removed, and those above it.
func (b *back) makeDir(dir name) error {
	info, err := b.root.Lstat(string(dir))
	if err == nil && info.IsDir() {
		return nil
	}
	if up := parent(dir); up != "" {
		if err := b.makeDir(up); err != nil {
			return err
		}
	}
	if err := b.root.Mkdir(string(dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if uid, gid := b.ownerOf(path.Dir(string(dir))); mayGive() && uid >= 0 {
		return b.root.Lchown(string(dir), uid, gid)
	}
	return nil
}

// temp is where the content of a file is written first. It is the same each time, so that
// nothing is left of a run that was killed.
func (b *back) temp(f Undone) string {
	sum := sha256.Sum256([]byte(f.Path))
	return path.Join(path.Dir(string(f.Path)), temporary+b.ID+"-"+hex.EncodeToString(sum[:6]))
}
