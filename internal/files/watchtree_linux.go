package files

import (
	"path/filepath"
	"slices"
	"strings"
)

// The directories of a recursive watch, and what is remembered of them, which is charged for.

// nameSize is what a name takes that is remembered, beside its text: entries of three maps, here
// and in the notices.
const nameSize = 200

// keep remembers a path, which is charged for.
func (w *Watch) keep(in map[string]bool, path string) error {
	if in[path] {
		return nil
	}
	if err := w.opts.Held.Add(int64(nameSize + len(path))); err != nil {
		return err
	}
	in[path] = true
	return nil
}

// drop forgets a path.
func (w *Watch) drop(from map[string]bool, path string) {
	if from[path] {
		delete(from, path)
		w.opts.Held.Give(int64(nameSize + len(path)))
	}
}

// listSize is what a listing takes in memory, about, in bytes.
func listSize(names []Name) (n int64) {
	for _, name := range names {
		n += int64(48 + len(name.Name))
	}
	return n
}

// add watches a directory below root, and what is below it.
func (w *Watch) add(a *Actor, dir string, report bool) error {
	if w.leavesOut(dir) {
		return nil
	}
	switch {
	case w.closing.Load():
		return ErrClosed
	case len(w.dirs) >= w.opts.MaxDirs && !w.dirs[dir]:
		return ErrWatchLimit
	}
	return unlessGone(w.follow(a, dir, report))
}

// follow watches a directory, and what is below it. With report set, it reports what is there.
// What was there before the kernel watched it is reported here alone. What came after that may be
// seen here and be reported by the kernel, too, so it is remembered.
func (w *Watch) follow(a *Actor, dir string, report bool) error {
	var before []Name
	if report {
		before, _ = a.Names(dir) // an error comes once more
	}
	if err := w.notices.add(a, dir); err != nil {
		return err
	}
	if dir != w.root {
		if err := w.keep(w.dirs, dir); err != nil {
			return err
		}
	}
	children, err := a.Names(dir)
	if err != nil {
		return unlessGone(err)
	}
	size := listSize(before) + listSize(children)
	if err := w.opts.Held.Add(size); err != nil {
		return err
	}
	defer w.opts.Held.Give(size)
	for _, child := range children {
		path := filepath.Join(dir, child.Name)
		if report && !w.reported[path] {
			if _, old := slices.BinarySearchFunc(before, child.Name, func(n Name, to string) int { return strings.Compare(n.Name, to) }); !old {
				if err := w.keep(w.reported, path); err != nil {
					return err
				}
			}
			if err := w.report(a, path, OpCreate, child.Type.IsDir()); err != nil {
				return err
			}
			// Content that came before the watch is reported as written. The
			// kernel may report it once more, which does no harm.
			if info, err := a.stat(path, false); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
				if err := w.report(a, path, OpWrite, false); err != nil {
					return err
				}
			}
		}
		if !child.Type.IsDir() {
			continue
		}
		if err := w.add(a, path, report); err != nil {
			return err
		}
	}
	return nil
}

// forget drops the watches of a directory that has lost its name, and of all
// below it: under its new name it is found as a new one.
func (w *Watch) forget(path string) {
	if !w.dirs[path] {
		return
	}
	for dir := range w.dirs {
		if dir == path || strings.HasPrefix(dir, path+"/") {
			w.notices.remove(dir)
			w.drop(w.dirs, dir)
		}
	}
	for known := range w.reported {
		if strings.HasPrefix(known, path+"/") {
			w.drop(w.reported, known)
		}
	}
}
