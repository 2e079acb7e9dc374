//go:build unix

package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many links the kernel follows on one path.
const maxLinks = 40

// Check reports why a file or directory is not obeyed on behalf of a user; nil: it is. The path
// is absolute.
//
// Errors: *Error, and those of [os.Lstat].
func Check(path string, uid int) error { return walk(path, uid, true) }

// CheckOwners is [Check] that looks at owners alone, and not at who else may write: for what has
// its place where nobody had to be that careful until now.
func CheckOwners(path string, uid int) error { return walk(path, uid, false) }

func walk(path string, uid int, modes bool) error {
	if !filepath.IsAbs(path) {
		return &Error{path, uid, "is no absolute path"}
	}
	at, rest, links := "/", parts(path), 0
	info, err := os.Lstat(at)
	if err != nil {
		return err
	}
	top := stat(info).Uid
	if err := check(at, info, uid, top, len(rest) == 0, modes); err != nil {
		return err
	}
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at) // no part of it is a link
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			return err
		}
		if err := check(next, info, uid, top, len(rest) == 0, modes); err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return &Error{path, uid, "leads through too many links"}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(parts(target), rest...)
	}
	return nil
}

// CheckAll is [Check] of several paths. One that does not exist is not obeyed, so it is left out.
func CheckAll(uid int, paths ...string) error {
	for _, path := range paths {
		if err := Check(path, uid); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Of is the owner of what a path leads to.
func Of(path string) (uid int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return int(stat(info).Uid), nil
}

// parts are the names of a path. Those of a link are not joined with anything before: what is
// above a link is not what is above its name.
func parts(path string) (names []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

func stat(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

// check looks at one name on the way. last: it is what would be obeyed. top owns the directory
// at the top and can do anything above a file, so top counts as root there: in a user namespace
// that does not have the machine's root, the kernel shows that as another uid. So does
// [NoSandbox], which only root gives to anything.
func check(path string, info fs.FileInfo, uid int, top uint32, last, modes bool) error {
	st := stat(info)
	if st.Uid != 0 && int(st.Uid) != uid && (last || !info.IsDir() || st.Uid != top && st.Uid != NoSandbox) {
		return &Error{path, uid, fmt.Sprintf("belongs to uid %d", st.Uid)}
	}
	mode := info.Mode()
	switch {
	case !modes, mode&fs.ModeSymlink != 0: // nobody writes a link
		return nil
	case mode.IsDir() && mode&fs.ModeSticky != 0 && !last:
		return nil
	case mode.Perm()&0o002 != 0:
		return &Error{path, uid, "may be written by everybody"}
	case mode.Perm()&0o020 == 0:
		return nil
	}
	who, listed := byList(path, int(st.Gid), uid)
	if !listed && !isPrivate(int(st.Gid), uid) {
		who = fmt.Sprintf("gid %d, which others may be in", st.Gid)
	}
	if who != "" {
		return &Error{path, uid, "may be written by " + who}
	}
	return nil
}
