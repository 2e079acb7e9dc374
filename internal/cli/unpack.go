package cli

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// errNoArchive: nothing came.
var errNoArchive = errors.New("the sandbox sent no archive")

// maxEntries is how many entries an archive of a sandbox may have.
const maxEntries = 1_000_000

// unpacker writes what comes out of a sandbox. The archive is a stranger's: programs in
// the sandbox make it as they like. Nothing is written outside of the target, whatever
// its names and links say (os.Root), no program that gets another's rights, no device,
// no link that leads out of the target, and no more than was allowed.
type unpacker struct {
	target string // as cp was given it
	base   string // the name of the source; "": what is in it is copied
	tree   bool   // the target is there, and the archive is a tree whatever its first entry is
	most   int64  // bytes

	facts copyFacts
	dirs  []*tar.Header // whose mode and time are set at the end
	links []string      // that are looked at again at the end
}

func (u *unpacker) unpack(r io.Reader) error {
	t := tar.NewReader(r)
	first, err := t.Next()
	switch {
	case !u.tree && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return errNoArchive
	case err != nil:
		return wrongArchive(err)
	case !u.tree && first.Typeflag != tar.TypeDir:
		return u.single(t, first)
	}
	root, err := u.open()
	if err != nil {
		return err
	}
	defer root.Close()
	// Links are checked however it ends: what came stays.
	return errors.Join(u.entries(root, r, t, first), u.finish(root))
}

// entries writes the entries from h on.
func (u *unpacker) entries(root *os.Root, r io.Reader, t *tar.Reader, h *tar.Header) error {
	for n := 0; ; n++ {
		if n > maxEntries {
			return fmt.Errorf("the archive has more than %d entries", maxEntries)
		}
		if err := u.entry(root, t, h); err != nil {
			return err
		}
		var err error
		if h, err = t.Next(); errors.Is(err, io.EOF) {
			// What a program appends behind the archive's end is not read for ever.
			_, err := io.CopyN(io.Discard, r, 1<<20)
			if err == nil || !errors.Is(err, io.EOF) {
				return wrongArchive(errors.Join(err, errors.New("there is data after its end")))
			}
			return nil
		}
		if err != nil {
			return wrongArchive(err)
		}
	}
}

func wrongArchive(err error) error {
	return fmt.Errorf("the archive is damaged: %w", err)
}

// open makes the directory into which a directory is copied.
func (u *unpacker) open() (*os.Root, error) {
	switch info, err := os.Stat(u.target); {
	case err == nil && !info.IsDir():
		return nil, fmt.Errorf("%s is a file; a directory is copied into a directory", u.target)
	case err == nil && u.base != "":
		parent, err := os.OpenRoot(u.target)
		if err != nil {
			return nil, err
		}
		defer parent.Close()
		if err := parent.Mkdir(u.base, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		return parent.OpenRoot(u.base)
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Mkdir(u.target, 0o700); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	return os.OpenRoot(u.target)
}

// single writes the one file that is copied.
func (u *unpacker) single(t *tar.Reader, h *tar.Header) error {
	dir, name := u.target, u.base
	if !isDirectory(u.target) {
		if dir, name = filepath.Split(u.target); name == "" {
			return fmt.Errorf("%s: no such directory", u.target)
		}
		if dir == "" {
			dir = "."
		}
	}
	if h.Typeflag != tar.TypeReg {
		return fmt.Errorf("%s is neither a file nor a directory", h.Name)
	}
	if name == "" {
		return errors.New("the sandbox sent a file for a directory")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Lstat(name); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", filepath.Join(dir, name))
	}
	// Beside it first: readers find the file whole, and a link of that name is replaced,
	// not followed.
	aside := "." + name[:min(len(name), 100)] + "." + rand.Text()[:8]
	if err := u.file(root, aside, t, h); err != nil {
		_ = root.Remove(aside)
		return err
	}
	if err := root.Rename(aside, name); err != nil {
		_ = root.Remove(aside)
		return err
	}
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return wrongArchive(errors.Join(err, errors.New("the sandbox sent more bytes than the file has")))
	}
	return nil
}

// entry writes one entry below the target.
func (u *unpacker) entry(root *os.Root, t *tar.Reader, h *tar.Header) error {
	name := path.Clean(h.Name)
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return fmt.Errorf("the sandbox sent %.200q, which leads out of %s; nothing of it was written", h.Name, u.target)
	}
	own := *h
	own.Name = filepath.FromSlash(name)
	if dir := filepath.Dir(own.Name); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeDir {
		u.dirs = append(u.dirs, &own)
		err := root.Mkdir(own.Name, 0o700)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if info, err := root.Lstat(own.Name); err != nil || !info.IsDir() {
			return errors.Join(err, fmt.Errorf("%s exists and is not a directory", filepath.Join(u.target, own.Name)))
		}
		return nil
	}
	if name == "." {
		return wrongArchive(errors.New("an entry has no name"))
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(root, own.Name, t, h)
	case tar.TypeSymlink:
		to := path.Join(path.Dir(name), h.Linkname)
		if path.IsAbs(h.Linkname) || filepath.IsAbs(h.Linkname) || !filepath.IsLocal(filepath.FromSlash(to)) {
			u.facts.Skipped++
			return nil
		}
		if err := replaced(root, own.Name); err != nil {
			return err
		}
		u.facts.Files++
		u.links = append(u.links, own.Name)
		return root.Symlink(filepath.FromSlash(h.Linkname), own.Name)
	case tar.TypeLink:
		old := filepath.FromSlash(path.Clean(h.Linkname))
		if info, err := root.Lstat(old); !filepath.IsLocal(old) || err != nil || !info.Mode().IsRegular() || old == own.Name {
			u.facts.Skipped++
			return nil
		}
		if err := replaced(root, own.Name); err != nil {
			return err
		}
		u.facts.Files++
		return root.Link(old, own.Name)
	}
	u.facts.Skipped++
	return nil
}

// replaced removes what is in the place of a new file: it is never written through a
// link, nor into a file that has other names.
func replaced(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory here and a file in the sandbox", name)
	}
	return root.Remove(name)
}

func (u *unpacker) file(root *os.Root, name string, t *tar.Reader, h *tar.Header) (err error) {
	if err := replaced(root, name); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	left := u.most - u.facts.Bytes
	n, err := io.Copy(f, io.LimitReader(t, left+1))
	u.facts.Bytes += n
	u.facts.Files++
	if n > left {
		return fmt.Errorf("there is more than %s to copy; --max allows more", strings.TrimSuffix(sizeText(u.most), ".0"))
	}
	if err != nil {
		return wrongArchive(err)
	}
	if err := f.Chmod(h.FileInfo().Mode().Perm()); err != nil {
		return err
	}
	return root.Chtimes(name, time.Now(), h.ModTime)
}

// finish gives the directories their modes and times, the deepest first. Of the links,
// those are taken away that lead out by way of another one, or that may when a later copy
// puts one in their way.
func (u *unpacker) finish(root *os.Root) error {
	for _, name := range u.links {
		info, err := root.Lstat(name)
		if err != nil || info.Mode().Type() != fs.ModeSymlink {
			continue // a later entry took its place
		}
		to, err := root.Readlink(name)
		if err != nil {
			return err
		}
		_, err = root.Stat(name)
		if err == nil || errors.Is(err, fs.ErrNotExist) && !climbsBack(to) {
			continue
		}
		if err := root.Remove(name); err != nil {
			return err
		}
		u.facts.Skipped++
	}
	for i := len(u.dirs) - 1; i >= 0; i-- {
		h := u.dirs[i]
		// The owner can always enter and remove what was copied.
		if err := root.Chmod(h.Name, h.FileInfo().Mode().Perm()|0o700); err != nil {
			return err
		}
		if err := root.Chtimes(h.Name, time.Now(), h.ModTime); err != nil {
			return err
		}
	}
	return nil
}

// climbsBack reports whether a link goes up behind a name: where that is depends on what
// the name is.
func climbsBack(to string) bool {
	named := false
	for part := range strings.SplitSeq(to, "/") {
		switch part {
		case "", ".":
		case "..":
			if named {
				return true
			}
		default:
			named = true
		}
	}
	return false
}
