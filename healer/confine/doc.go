// Package confine runs a command that can change one directory alone, and for which
// some files are not there: secrets, which a command could otherwise send out in a
// form that nobody recognises.
//
// A command line is made by [Argv]; its program is this one, called again, which
// [Called] recognises and [Main] turns into the command:
//
//	argv := confine.Argv(self, confine.Rules{Write: []string{root}, Hide: secrets}, []string{"/bin/sh", "-c", line})
//
// The command is in namespaces of its own. It sees and signals its own processes alone,
// which all end with it; it has a loopback interface and no other network, so neither the
// daemon, nor another program of the machine, nor anybody outside hears from it. What was
// done to its mounts it cannot take back: it has not the capabilities to mount, to look into
// other processes, or to get any by set-uid programs. Where the daemon does not run as root,
// the namespaces belong to a user namespace, in which the command has the ids that it had.
//
// It is no sandbox: the kernel's calls are not filtered, and a disk that root can write byte
// for byte is not protected.
package confine

import (
	"fmt"
	"path/filepath"
	"slices"
)

// verb is the first argument of this program when it is to be a command.
const verb = "heal-exec"

// MaxPaths bounds how many paths there may be.
const MaxPaths = 4000

// Rules say what is otherwise for a command. Paths are absolute; those that are not
// there are left out. A command cannot rename a path that a rule names, but a directory
// that it is in: find the paths anew for each command.
type Rules struct {
	// Write are the directories that may be changed. Empty: all; else everything but
	// them is read-only, and /tmp, /var/tmp, /dev/shm and /run are empty and the command's
	// own.
	Write []string
	// Private are directories in which changes are seen by the command alone, and are
	// gone after it; read-only where the kernel cannot do that.
	Private []string
	// Keep are files and directories that cannot be changed.
	Keep []string
	// Hide are files and directories in whose place there is one that says so, or an
	// empty one. They cannot be changed either.
	Hide []string
}

// Argv is the command line that runs argv under rules. self is the path of this
// program.
func Argv(self string, r Rules, argv []string) []string {
	out := []string{self, verb}
	for _, group := range []struct {
		kind  string
		paths []string
	}{{"w", r.Write}, {"p", r.Private}, {"k", r.Keep}, {"h", r.Hide}} {
		for _, path := range group.paths {
			out = append(out, group.kind+path)
		}
	}
	return slices.Concat(out, []string{"--"}, argv)
}

// Called reports whether the arguments of this process are those of [Argv].
func Called(args []string) bool { return len(args) > 1 && args[1] == verb }

// Refused is the exit status where the rules cannot be kept. The command was not run
// then.
const Refused = 121

func parse(args []string) (r Rules, argv []string, err error) {
	i := slices.Index(args, "--")
	if i < 0 || i == len(args)-1 {
		return r, nil, fmt.Errorf("usage: tend %s [KIND/PATH...] -- COMMAND [ARG...]", verb)
	}
	if i > MaxPaths {
		return r, nil, fmt.Errorf("%d paths are too many: at most %d", i, MaxPaths)
	}
	groups := map[string]*[]string{"w": &r.Write, "p": &r.Private, "k": &r.Keep, "h": &r.Hide}
	for _, a := range args[:i] {
		group := groups[a[:min(1, len(a))]]
		if group == nil || !filepath.IsAbs(a[1:]) || filepath.Clean(a[1:]) != a[1:] {
			return r, nil, fmt.Errorf("%q: a path is absolute and clean, after w, p, k or h", a)
		}
		*group = append(*group, a[1:])
	}
	return r, args[i+1:], nil
}
