package distant

import (
	"io/fs"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// permissionNames are the bits of a mode from the highest down.
var permissionNames = [9]string{
	"owner_read", "owner_write", "owner_exec", "group_read", "group_write", "group_exec", "other_read", "other_write", "other_exec",
}

type metadata struct {
	canonical string // "" if it was not asked for
	info      fs.FileInfo
	born      time.Time // zero: not known
	fileType  string
}

// typeName is the type of a file in the original's words: what is neither a
// directory nor a link is a file.
func typeName(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "dir"
	case mode&fs.ModeSymlink != 0:
		return "symlink"
	}
	return "file"
}

func (m *metadata) message() message {
	out := wire.Map{"type", "metadata"}
	if m.canonical != "" {
		out = append(out, "canonicalized_path", m.canonical)
	}
	out = append(out, "file_type", m.fileType, "len", m.info.Size(), "readonly", m.info.Mode()&0o222 == 0)
	if at := accessedAt(m.info); at >= 0 {
		out = append(out, "accessed", at)
	}
	if !m.born.IsZero() {
		out = append(out, "created", max(0, m.born.Unix()))
	}
	var unix wire.Map
	for i, name := range permissionNames {
		unix = append(unix, name, m.info.Mode()&(1<<(8-i)) != 0)
	}
	return append(out, "modified", max(0, m.info.ModTime().Unix()), "unix", unix)
}

func (r *fileRequest) metadata() (message, error) {
	path, canonicalize, resolve := r.path("path"), r.f.flag("canonicalize"), r.f.flag("resolve_file_type")
	abs, err := r.only(path)
	if err != nil {
		return nil, err
	}
	var m metadata
	err = r.fs.Do(r.ctx, func(a *files.Actor) error {
		if m.info, err = a.Lstat(abs); err != nil {
			return err
		}
		m.fileType, m.born = typeName(m.info.Mode()), a.Born(abs)
		if canonicalize {
			if m.canonical, err = a.Real(abs); err != nil {
				return err
			}
		}
		if !resolve || m.info.Mode()&fs.ModeSymlink == 0 {
			return nil
		}
		target, err := a.Stat(abs)
		if err == nil {
			m.fileType = typeName(target.Mode())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return m.message(), nil
}

// change is what set_permissions asks for: bits to set and bits to clear.
type change struct{ set, clear fs.FileMode }

func (c change) apply(mode fs.FileMode) fs.FileMode { return mode&^c.clear | c.set }

func (r *fileRequest) setPermissions() (message, error) {
	path := r.path("path")
	p := r.f.needObject("permissions")
	var ch change
	for i, name := range permissionNames {
		v := p.get(name)
		if v == nil || v.Null() {
			continue
		}
		if decoded(p, name, v, wire.Value.Bool) {
			ch.set |= 1 << (8 - i)
		} else {
			ch.clear |= 1 << (8 - i)
		}
	}
	if err := p.done(); err != nil {
		return nil, err
	}
	var excludeLinks, followLinks, recursive bool
	if o := r.f.object("options"); o != nil {
		excludeLinks, followLinks, recursive = o.flag("exclude_symlinks"), o.flag("follow_symlinks"), o.flag("recursive")
		if err := o.end(); err != nil {
			return nil, err
		}
	}
	abs, err := r.only(path)
	if err != nil {
		return nil, err
	}
	return okMessage, r.fs.Do(r.ctx, func(a *files.Actor) error {
		info, err := a.Lstat(abs)
		if err != nil {
			return err
		}
		link := info.Mode()&fs.ModeSymlink != 0
		if link && excludeLinks {
			return nil
		}
		if !recursive || link && !followLinks {
			return a.Chmod(abs, ch.apply)
		}
		return chmodAll(a, abs, ch, excludeLinks)
	})
}

// chmodAll changes what is in a directory before the directory, which may be
// closed by the change. Links below are not entered.
func chmodAll(a *files.Actor, root string, ch change, excludeLinks bool) error {
	root, err := a.Real(root)
	if err != nil {
		return err
	}
	paths := []string{root}
	if info, err := a.Stat(root); err != nil {
		return err
	} else if info.IsDir() {
		err := a.Walk(root, func(path string, typ fs.FileMode) error {
			if typ&fs.ModeSymlink != 0 && excludeLinks {
				return nil
			}
			if len(paths) == files.MaxEntries {
				return files.ErrTooMany
			}
			paths = append(paths, path)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i := len(paths) - 1; i >= 0; i-- {
		if err := a.Chmod(paths[i], ch.apply); err != nil {
			return err
		}
	}
	return nil
}
