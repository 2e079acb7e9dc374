package unpack

import (
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// finish hides what is removed, and gives directories what they have.
func (u *unpacker) finish() error {
	u.t.forget()
	slices.Sort(u.shut)
	for _, dir := range slices.Compact(u.shut) {
		if err := u.hide(dir); err != nil {
			return &EntryError{join(dir, opaque), err}
		}
	}
	slices.Sort(u.gone) // a directory goes before what is in it
	for _, at := range slices.Compact(u.gone) {
		if err := u.remove(at); err != nil {
			return &EntryError{at, err}
		}
	}
	for at, d := range u.dirs {
		fd, err := u.t.dir(own, at)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue // replaced by a later entry
		}
		if err == nil && u.root {
			err = fdTime(fd, d.time)
		}
		if err != nil {
			return &EntryError{at, err}
		}
	}
	if u.root {
		return nil
	}
	// Without root's powers a directory may be closed to its owner: the innermost first.
	for _, at := range slices.Backward(sortedKeys(u.dirs)) {
		fd, err := u.t.dir(own, at)
		if err != nil {
			continue
		}
		err = errors.Join(eintr.Do(func() error { return unix.Fchmod(fd, u.dirs[at].mode) }), fdTime(fd, u.dirs[at].time))
		if err != nil {
			return &EntryError{at, err}
		}
	}
	return nil
}

func sortedKeys(m map[string]dirMeta) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// remove hides what the layers below have at a path; what the layer itself has stays.
func (u *unpacker) remove(at string) error {
	dir, err := u.t.walk(parent(at))
	if err != nil {
		return err
	}
	name := path.Base(at)
	if _, err := u.t.dir(own, dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return passed(err)
	}
	st, err := u.t.stat(own, dir, name)
	switch {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return u.hide(join(dir, name))
	case err == nil:
		return nil
	case !errors.Is(err, unix.ENOENT):
		return passed(err)
	}
	n, err := u.t.below(dir, name)
	if err != nil || !n.there {
		return err
	}
	fd, err := u.ensure(dir)
	if err != nil {
		return passed(err)
	}
	if err := eintr.Do(func() error { return unix.Mknodat(fd, name, unix.S_IFCHR, 0) }); err != nil {
		return err
	}
	return eintr.Do(func() error { return unix.Fsetxattr(fd, attrOrigin, nil, 0) })
}

// passed leaves out what is below something that is removed or is no directory.
func passed(err error) error {
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}

// hide hides all that the layers below have in a directory.
func (u *unpacker) hide(at string) error {
	dir, err := u.t.walk(at)
	if err != nil {
		return err
	}
	below, err := u.t.stack(dir)
	if err != nil || len(below) == 0 {
		return err
	}
	if dir != "" {
		if _, err := u.ensure(dir); err != nil {
			return passed(err)
		}
		return u.t.cut(dir)
	}
	// The kernel does not ask whether the root of a layer is opaque.
	for _, i := range below {
		names, err := namesIn(u.t.tops[i])
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := u.remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}
