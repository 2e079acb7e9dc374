package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// collector finds out what overlayfs has put into its upper directory.
type collector struct {
	root  *os.Root
	at    string // path of the root
	drop  []string
	by    *User  // whom the command ran as; nil: whom this process does
	first uint32 // is added to the ids of owners
	out   collected
	bytes int64
}

// collect writes what was changed. Nobody changes anything any more. first is added to the ids
// that owners have for the command.
func collect(upper int, first uint32, rules *Rules, to *os.File) error {
	c := &collector{at: fdPath(upper), drop: rules.Drop, by: rules.user(), first: first, out: collected{Changes: []Change{}}}
	root, err := os.OpenRoot(c.at)
	if err != nil {
		return err
	}
	defer root.Close()
	c.root = root
	var over *OverError
	if err := c.dir(""); errors.As(err, &over) {
		c.out = collected{Over: over.What}
	} else if err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(c.out)
}

func (c *collector) add(ch Change) error {
	if c.bytes += int64(len(ch.Data)); c.bytes > MaxChangedBytes {
		return &OverError{fmt.Sprintf("%d MiB", MaxChangedBytes>>20)}
	}
	if len(c.out.Changes) == MaxChanges {
		return &OverError{fmt.Sprintf("%d files and directories", MaxChanges)}
	}
	c.out.Changes = append(c.out.Changes, ch)
	return nil
}

func (c *collector) dir(at string) error {
	name := at
	if name == "" {
		name = "."
	}
	d, err := c.root.Open(name)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1) // as many as fit into its memory
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	for _, base := range names {
		path := base
		if at != "" {
			path = at + "/" + base
		}
		info, err := c.root.Lstat(path)
		if err != nil {
			return err
		}
		if slices.Contains(c.drop, base) && (info.IsDir() || whiteout(info)) {
			continue
		}
		switch {
		case whiteout(info):
			err = c.add(Change{Path: []byte(path), Kind: Gone})
		case info.IsDir():
			err = c.subdir(path)
		case info.Mode().IsRegular():
			err = c.file(path, info)
		default:
			err = c.add(Change{Path: []byte(path), Kind: Other})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// whiteout reports whether an entry says that the one below it is gone.
func whiteout(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func (c *collector) subdir(path string) error {
	if c.opaque(path) {
		if err := c.add(Change{Path: []byte(path), Kind: Gone}); err != nil {
			return err
		}
	}
	// Of one that was there before it says nothing new.
	if err := c.add(Change{Path: []byte(path), Kind: Directory}); err != nil {
		return err
	}
	return c.dir(path)
}

// opaque reports whether a directory hides the one below it.
func (c *collector) opaque(path string) bool {
	for _, name := range []string{"trusted.overlay.opaque", "user.overlay.opaque"} {
		b := make([]byte, 8)
		if n, err := unix.Lgetxattr(c.at+"/"+path, name, b); err == nil && n == 1 && b[0] == 'y' {
			return true
		}
	}
	return false
}

// closed is an error if whom the command ran as may not read a file: it has moved or linked
// another's. What is collected is given to that user.
func (c *collector) closed(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if c.by == nil || !ok || c.by.reads(st.Uid-c.first, st.Gid-c.first, st.Mode) {
		return nil
	}
	return fmt.Errorf("%q is another user's, and closed to the one that the command ran as; leave it where it is", path)
}

// reads reports whether the kernel lets a user read a file of this owner, or have that right: its
// own. The ids are those of the sandbox.
func (u *User) reads(uid, gid, mode uint32) bool {
	switch {
	case u.UID == 0, u.UID == uid:
		return true
	case u.GID == gid, slices.Contains(u.Groups, gid):
		return mode&0o040 != 0
	}
	return mode&0o004 != 0
}

func (c *collector) file(path string, info fs.FileInfo) error {
	if err := c.closed(path, info); err != nil {
		return err
	}
	if c.bytes+info.Size() > MaxChangedBytes {
		return &OverError{fmt.Sprintf("%d MiB", MaxChangedBytes>>20)}
	}
	if info.Mode()&0o400 == 0 { // who is not root could not read it
		_ = c.root.Chmod(path, 0o600)
	}
	f, err := c.root.Open(path)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxChangedBytes))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return c.add(Change{Path: []byte(path), Kind: File, Mode: info.Mode().Perm(), Data: data})
}
