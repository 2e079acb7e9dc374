// Package confine runs a command for which some files and directories are not
// there: secrets, which a command could otherwise send out in a form that nobody
// recognises.
//
// A command line is made by [Argv]; its program is this one, called again, which
// [Called] recognises and [Main] turns into the command:
//
//	argv := confine.Argv(self, hide, []string{"/bin/sh", "-c", line})
//
// The command is in a mount namespace of its own. In place of each hidden file
// there is one that says so, in place of each hidden directory an empty one; neither can
// be written, moved or removed. The command cannot take that back: it has not the
// capabilities to mount, to look into other processes, or to get any by set-uid
// programs. Where the daemon does not run as root, the namespace belongs to a user
// namespace, in which the command has the ids that it had.
//
// It is no sandbox: other files, the network and processes of the user are what they
// are. A disk that root can read byte for byte is not hidden.
package confine

import (
	"fmt"
	"slices"
)

// verb is the first argument of this program when it is to be a command.
const verb = "heal-exec"

// MaxHidden bounds how many paths are hidden.
const MaxHidden = 1000

// Argv is the command line that runs argv without the files and directories whose
// absolute paths are given; those that are not there are left out. self is the path of
// this program.
func Argv(self string, hide, argv []string) []string {
	return slices.Concat([]string{self, verb}, hide, []string{"--"}, argv)
}

// Called reports whether the arguments of this process are those of [Argv].
func Called(args []string) bool { return len(args) > 1 && args[1] == verb }

// Refused is the exit status where the files cannot be hidden. The command was not run
// then.
const Refused = 121

func parse(args []string) (hide, argv []string, err error) {
	i := slices.Index(args, "--")
	if i < 0 || i == len(args)-1 {
		return nil, nil, fmt.Errorf("usage: tend %s [PATH...] -- COMMAND [ARG...]", verb)
	}
	if i > MaxHidden {
		return nil, nil, fmt.Errorf("%d paths are too many to hide: at most %d", i, MaxHidden)
	}
	return args[:i], args[i+1:], nil
}
