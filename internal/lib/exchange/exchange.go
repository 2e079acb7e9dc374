// Package exchange replaces and removes files of which others may save a newer version at any
// moment: what they save is not lost. And it exchanges directories.
package exchange

import (
	"errors"
	"os"
	"path"
	"syscall"
)

// ErrChanged is the error of [File]: somebody else has changed the file at this moment, or
// is writing it.
var ErrChanged = errors.New("somebody else is changing it at this moment")

// File puts the file fresh in the place of name, which is in the same directory below root, and
// removes what was there. is says of that whether it is what was expected. It is asked when nobody
// finds that file by its name any more, so nothing that is saved meanwhile is lost: if it is not,
// or somebody has it open for writing, all is as it was, and the error is [ErrChanged]. So it is if
// there is no file, or, where is is nil, if there is one.
//
// File systems that cannot exchange two files are asked before the name is replaced.
func File(root *os.Root, fresh, name string, is func(old *os.File) bool) error {
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	if done, err := swap(dir, path.Base(fresh), path.Base(name), is); done || err != nil {
		return err
	}
	if err := looked(root, name, is); err != nil {
		return err
	}
	return root.Rename(fresh, name)
}

// Remove removes a file, if it is what was expected, as [File] has it. Meanwhile it is at
// aside, a path in the same directory.
func Remove(root *os.Root, aside, name string, is func(old *os.File) bool) error {
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	if done, err := remove(dir, path.Base(aside), path.Base(name), is); done || err != nil {
		return err
	}
	if err := looked(root, name, is); err != nil {
		return err
	}
	return root.Remove(name)
}

// Dirs exchanges two directories below root, at once; neither is a link. Error:
// [errors.ErrUnsupported] if the file system cannot.
func Dirs(root *os.Root, a, b string) error {
	one, err := root.Open(path.Dir(a))
	if err != nil {
		return err
	}
	defer one.Close()
	two, err := root.Open(path.Dir(b))
	if err != nil {
		return err
	}
	defer two.Close()
	return swapDirs(one, path.Base(a), two, path.Base(b))
}

// looked looks at a file that has its name still.
func looked(root *os.Root, name string, is func(old *os.File) bool) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, os.ErrNotExist) && is == nil:
		return nil
	case err != nil:
		return err
	}
	defer f.Close()
	if is == nil || !is(f) {
		return ErrChanged
	}
	return nil
}
