package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// Extract unpacks a tar, which may be compressed by gzip, below an existing directory.
// It has the user's rights, and follows links only as the user's paths do: with a
// [Root], never out of it. It follows none of the archive's own without o.Links. An
// existing file is replaced, never written through, and an existing directory keeps its
// content. Devices, FIFOs and system attributes are omitted. A name with ".." in it, or
// one that cannot be created, is an error; files unpacked before it stay.
func (f FS) Extract(ctx context.Context, r io.Reader, dir string, o ExtractOptions) (Extracted, error) {
	top, err := f.Resolve(dir)
	if err != nil {
		return Extracted{}, err
	}
	if o.Entries <= 0 {
		o.Entries = maxArchiveEntries
	}
	if o.Bytes <= 0 {
		o.Bytes = maxArchiveBytes
	}
	in, err := Gunzip(r)
	if err != nil {
		return Extracted{}, fmt.Errorf("archive: %w", err)
	}
	x := &extractor{in: tar.NewReader(in), top: top, o: o, links: map[uint64]bool{}}
	err = f.Do(ctx, func(a *Actor) error {
		x.a = a
		return x.run()
	})
	return x.done, err
}

type extractor struct {
	a    *Actor
	in   *tar.Reader
	top  string
	o    ExtractOptions
	done Extracted
	// shut are directories whose mode would close them to what comes: path and mode.
	shut  []shutDir
	links map[uint64]bool // the inodes of those of the archive, without o.Links
}

type shutDir struct {
	path string
	mode fs.FileMode
}

func (x *extractor) run() error {
	for {
		if err := x.a.Err(); err != nil {
			return err
		}
		h, err := x.in.Next()
		if errors.Is(err, io.EOF) {
			return x.close()
		}
		if err != nil {
			return fmt.Errorf("archive: %w", err)
		}
		if x.done.Entries++; x.done.Entries > x.o.Entries {
			return fmt.Errorf("archive: it has more than %d entries: %w", x.o.Entries, ErrNoSpace)
		}
		if err := x.a.fresh(); err != nil {
			return err
		}
		if err := x.entry(h); err != nil {
			return fmt.Errorf("archive: %.200q: %w", h.Name, err)
		}
	}
}

// close gives the directories that were kept open their modes, the innermost first.
func (x *extractor) close() error {
	for i := len(x.shut) - 1; i >= 0; i-- {
		if err := x.a.Chmod(x.shut[i].path, func(fs.FileMode) fs.FileMode { return x.shut[i].mode }); err != nil {
			return err
		}
	}
	return nil
}

// pathOf is where an entry goes; "": nowhere.
func (x *extractor) pathOf(name string) (string, error) {
	if err := checkPath(name); err != nil {
		return "", err
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "..":
			return "", &InvalidError{Field: "path", Reason: "leads up by '..'"}
		case "", ".":
		default:
			parts = append(parts, part)
		}
	}
	if only := strings.Trim(path.Clean("/"+x.o.Only), "/"); only != "" {
		rel := strings.Join(parts, "/")
		if rel != only && !strings.HasPrefix(rel, only+"/") {
			return "", nil
		}
	}
	if len(parts) < x.o.Strip {
		return "", nil
	}
	parts = parts[x.o.Strip:]
	full := path.Join(x.top, strings.Join(parts, "/"))
	if len(full) > MaxPath {
		return "", tooLong(full)
	}
	return full, nil
}

func (x *extractor) entry(h *tar.Header) error {
	where, err := x.pathOf(h.Name)
	if err != nil || where == "" {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return x.directory(where, h)
	case tar.TypeReg, tar.TypeGNUSparse:
		return x.at(where, func(dir *handle, name string) error { return x.regular(dir, name, h) })
	case tar.TypeSymlink:
		return x.at(where, func(dir *handle, name string) error {
			if err := os.Symlink(h.Linkname, dir.at(name)); err != nil {
				return err
			}
			uid, gid := x.owner()
			return errors.Join(os.Lchown(dir.at(name), uid, gid), x.linked(dir.at(name)))
		})
	case tar.TypeLink:
		return x.hardLink(where, h)
	case tar.TypeXGlobalHeader:
		return nil
	}
	x.done.Skipped++
	return nil
}

// linked notes a link of the archive.
func (x *extractor) linked(name string) error {
	var st unix.Stat_t
	if x.o.Links {
		return nil
	}
	err := eintr.Do(func() error { return unix.Lstat(name, &st) })
	x.links[st.Ino] = true
	return err
}

// unlinked refuses a path that leads through a link of the archive: who made that may not be who says where it is unpacked.
func (x *extractor) unlinked(where string) error {
	if len(x.links) == 0 {
		return nil
	}
	for dir := path.Dir(where); len(dir) > len(x.top); dir = path.Dir(dir) {
		info, err := x.a.stat(dir, false)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && x.links[st.Ino] {
			return &InvalidError{Field: "path", Reason: "leads through a link of the archive"}
		}
	}
	return nil
}

// at makes the parents of a path, removes what has its name, and calls do.
func (x *extractor) at(where string, do func(dir *handle, name string) error) error {
	if where == x.top {
		return &InvalidError{Field: "path", Reason: "is the directory itself"}
	}
	if err := x.unlinked(where); err != nil {
		return err
	}
	if err := x.a.ensureDir(path.Dir(where)); err != nil {
		return err
	}
	dir, name, err := x.a.parent(where)
	if err != nil {
		return err
	}
	defer dir.close()
	if err := eintr.Do(func() error { return unix.Unlinkat(int(dir.file.Fd()), name, 0) }); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return do(dir, name)
}

// holes leaves out zeros: a few bytes of an archive may stand for as many as a disk has.
type holes struct{ file *os.File }

func (w holes) Write(b []byte) (int, error) {
	if len(bytes.TrimLeft(b, "\x00")) > 0 {
		return w.file.Write(b)
	}
	_, err := w.file.Seek(int64(len(b)), io.SeekCurrent)
	return len(b), err
}

func (x *extractor) regular(dir *handle, name string, h *tar.Header) (err error) {
	if h.Size > x.o.Bytes-x.done.Bytes {
		return fmt.Errorf("the files have more than %d bytes: %w", x.o.Bytes, ErrNoSpace)
	}
	x.done.Bytes += h.Size
	out, err := os.OpenFile(dir.at(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|openFlags, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}()
	if err := x.a.transfer(holes{out}, x.in); err != nil {
		return err
	}
	if err := out.Truncate(h.Size); err != nil {
		return err
	}
	mode := h.FileInfo().Mode().Perm()
	if x.o.Mode != 0 {
		mode = x.o.Mode.Perm()
	}
	return x.describe(out, h, mode)
}

func (x *extractor) directory(where string, h *tar.Header) error {
	if err := x.unlinked(where); err != nil {
		return err
	}
	info, err := x.a.stat(where, false)
	switch {
	case err == nil && info.IsDir():
	case err == nil && where != x.top:
		// A link to a directory stands for it, as in /bin.
		if to, err := x.a.stat(where, true); err == nil && to.IsDir() {
			return nil
		}
		fallthrough
	default:
		if err := x.at(where, func(dir *handle, name string) error { return os.Mkdir(dir.at(name), 0o700) }); err != nil {
			return err
		}
	}
	d, err := x.a.follow(where)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.mayChange(); err != nil {
		return err
	}
	open, err := os.Open(d.self())
	if err != nil {
		return err
	}
	defer open.Close()
	mode := h.FileInfo().Mode().Perm()
	if x.o.Mode != 0 {
		mode = x.o.Mode.Perm()
		mode |= mode & 0o444 >> 2
	}
	if !x.a.powers && mode&0o300 != 0o300 {
		x.shut = append(x.shut, shutDir{where, mode})
		mode |= 0o300
	}
	return x.describe(open, h, mode)
}

func (x *extractor) hardLink(where string, h *tar.Header) error {
	first, err := x.pathOf(h.Linkname)
	if err != nil {
		return err
	}
	if first == "" {
		x.done.Skipped++ // its first name is left out
		return nil
	}
	if first == where {
		return &InvalidError{Field: "path", Reason: "is a link to itself"}
	}
	if err := x.unlinked(first); err != nil {
		return err
	}
	to, err := x.a.nofollow(first)
	if errors.Is(err, fs.ErrNotExist) {
		return &InvalidError{Field: "path", Reason: "is another name of a file that is not there"}
	}
	if err != nil {
		return err
	}
	defer to.close()
	return x.at(where, func(dir *handle, name string) error {
		return eintr.Do(func() error {
			return unix.Linkat(unix.AT_FDCWD, to.self(), int(dir.file.Fd()), name, unix.AT_SYMLINK_FOLLOW)
		})
	})
}

// owner are the ids outside of the owner.
func (x *extractor) owner() (uid, gid int) {
	if x.o.Owner != nil && x.a.powers {
		return x.clamp(x.o.Owner.UID), x.clamp(x.o.Owner.GID)
	}
	return x.a.outside.UID, x.a.outside.GID
}

func (x *extractor) clamp(id int) int {
	if !isRootID(id) {
		id = nobody
	}
	return int(x.a.root.outer(uint32(id)))
}

// describe gives an open file or directory all but its content. What is not the
// user's own to describe, such as a directory that was there, stays as it is.
func (x *extractor) describe(file *os.File, h *tar.Header, mode fs.FileMode) error {
	uid, gid := x.owner()
	if err := file.Chown(uid, gid); err != nil {
		if h.Typeflag == tar.TypeDir && errors.Is(err, fs.ErrPermission) {
			return nil
		}
		return err
	}
	mode |= h.FileInfo().Mode() & fs.ModeSticky
	if err := file.Chmod(mode); err != nil {
		return err
	}
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, "SCHILY.xattr.")
		if !ok || !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		if err := eintr.Do(func() error { return unix.Fsetxattr(int(file.Fd()), name, []byte(value), 0) }); err != nil &&
			!errors.Is(err, unix.ENOTSUP) {
			return err
		}
	}
	if h.ModTime.IsZero() || h.ModTime.Unix() < 0 || h.ModTime.After(time.Unix(1<<33, 0)) {
		return nil
	}
	at := unix.NsecToTimespec(h.ModTime.UnixNano())
	return eintr.Do(func() error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(int(file.Fd())), []unix.Timespec{at, at}, 0)
	})
}
