// Package confine runs a command that changes nothing: what it does to one directory is
// collected, for others to decide what becomes of it.
//
// A command line is made by [Argv]; its program is this one, called again, which
// [Called] recognises and [Main] turns into the command:
//
//	argv := confine.Argv(self, confine.Rules{Root: project, Changes: file, Hide: secrets}, []string{"/bin/sh", "-c", line})
//
// The command is in namespaces of its own. The project is laid under a filesystem in memory,
// which takes what is changed; at the command's end that is written to a file, see [Read].
// Of the rest of the machine there are programs and libraries, read-only: /usr, /etc and the
// like, without what others may not read, and what [Rules].Show names. Everything else is
// empty. It sees and signals its own processes alone, which all end with it; it has a
// loopback interface and no other network, so neither the daemon, nor another program of the
// machine, nor anybody outside hears from it. What was done to its mounts it cannot take
// back: it has only the capabilities for its own files and processes, and gets no others by
// set-uid programs. The keys and the log of the kernel are closed to it. Where the daemon does not
// run as root, the namespaces belong to a user namespace, in which the command has the ids that it
// had.
//
// It is no sandbox against the kernel: its other calls are not filtered.
//
// # In a sandbox
//
// Programs in a sandbox may make no namespaces, and over its files no further overlay can be
// laid. So there [ArgvInside] names a program for the machine, which makes a [Shadow] of the
// sandbox and runs this program in it: root of namespaces in which nobody else is. That one
// does what was said above, gives up all that programs of the sandbox have not, gets their
// filter of system calls, and runs the command as its user, whom the machine looks up by name
// ([Shadow].User): the rules may come from a process in the sandbox, and say nothing of
// rights. The directory that takes what is changed is the shadow's, and is looked at on the
// machine, once nothing runs any more.
package confine

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// verb is the first argument of this program when it is to be a command.
const verb = "heal-exec"

// MaxPaths bounds how many paths there may be.
const MaxPaths = 4000

// Rules say what a command sees. Paths are absolute. A command cannot rename a hidden path,
// but it can rename a parent directory, in its own view: look up the paths again for each
// command.
type Rules struct {
	// Root is the directory in which the command works. Only the command sees its changes
	// there.
	Root string `json:"root"`
	// Changes is the file for the changes below Root. It is created or truncated; it stays
	// empty if the command was killed.
	Changes string `json:"-"`
	// Show are files and directories outside of Root that the command sees, read-only.
	// Missing ones are skipped.
	Show []string `json:"show,omitempty"`
	// Hide are files and directories, also below Root, that are replaced by one that says
	// so, or by an empty one. They cannot be changed. Missing ones are skipped.
	Hide []string `json:"hide,omitempty"`
	// Drop are names of directories whose changes are not collected.
	Drop []string `json:"drop,omitempty"`

	inner *inner // set where the command runs in a shadow
}

// lists are those of the rules, by the letter that an argument of Argv begins with.
func (r *Rules) lists() map[string]*[]string {
	return map[string]*[]string{"s": &r.Show, "h": &r.Hide, "d": &r.Drop}
}

// Argv returns the command line that runs argv under rules. self is the path of this
// program.
func Argv(self string, r Rules, argv []string) []string {
	out := []string{self, verb, r.Root, r.Changes}
	for letter, list := range r.lists() {
		for _, path := range *list {
			out = append(out, letter+path)
		}
	}
	if r.inner != nil {
		out = append(out, r.inner.text())
	}
	return slices.Concat(out, []string{"--"}, argv)
}

// public are the directories at the top with programs and libraries. All others are empty:
// homes, data, sockets in /run, disks and mounts.
var public = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "nix", "gnu", "proc", "sys"}

// Public reports whether a path is in a directory that commands see.
func Public(path string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(filepath.Clean(path), "/"), "/")
	return slices.Contains(public, top)
}

// Called reports whether the arguments of this process are those of [Argv].
func Called(args []string) bool { return len(args) > 1 && args[1] == verb }

// Refused is the exit status if the rules cannot be enforced. Then the command was not run.
const Refused = 121

func parse(args []string) (r Rules, argv []string, err error) {
	i := slices.Index(args, "--")
	if i < 2 || i == len(args)-1 {
		return r, nil, fmt.Errorf("usage: tend %s ROOT CHANGES [KIND/PATH...] -- COMMAND [ARG...]", verb)
	}
	if i > MaxPaths {
		return r, nil, fmt.Errorf("%d paths are too many: at most %d", i, MaxPaths)
	}
	r.Root, r.Changes = args[0], args[1]
	for _, path := range args[:2] {
		if !clean(path) {
			return r, nil, fmt.Errorf("%q: a path is absolute and clean", path)
		}
	}
	lists := r.lists()
	for _, a := range args[2:i] {
		if text, ok := strings.CutPrefix(a, "i"); ok {
			if r.inner, err = parseInner(text); err != nil {
				return r, nil, err
			}
			continue
		}
		list := lists[a[:min(1, len(a))]]
		switch {
		case list == nil || a[0] != 'd' && !clean(a[1:]):
			return r, nil, fmt.Errorf("%q: a path is absolute and clean, after s or h", a)
		case a[0] == 'd' && filepath.Base(a[1:]) != a[1:]:
			return r, nil, fmt.Errorf("%q: after d is the name of a directory", a)
		}
		*list = append(*list, a[1:])
	}
	return r, args[i+1:], nil
}

func clean(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == path }
