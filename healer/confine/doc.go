// Package confine runs a command for which some files and directories are not
// there: secrets, which a command could otherwise send out in a form that nobody
// recognises.
//
// A command line is made by [Argv]; its program is this one, called again, which
// [Called] recognises and [Main] turns into the command:
//
//	argv := confine.Argv(self, confine.Rules{Hide: secrets, Write: dirs}, []string{"/bin/sh", "-c", line})
//
// The command is in a mount namespace of its own. In place of each hidden file
// there is one that says so, in place of each hidden directory an empty one; neither can
// be written, moved or removed. The command cannot take that back: it has not the
// capabilities to mount, to look into other processes, or to get any by set-uid
// programs. Where the daemon does not run as root, the namespace belongs to a user
// namespace, in which the command has the ids that it had.
//
// With [Rules.Write] all files but those below these directories are read-only, whatever
// user it is; devices, pipes and sockets are what they are. That needs Linux 5.12: where
// it cannot be done the command is not run.
//
// It is no sandbox: the network and processes of the user are what they are. A disk that
// root can read byte for byte is not hidden.
package confine

import (
	"fmt"
	"slices"
	"strings"
)

// verb is the first argument of this program when it is to be a command.
const verb = "heal-exec"

// MaxPaths bounds how many paths [Rules] name.
const MaxPaths = 1000

// Rules say what a command may see and change. Paths are absolute; those of Hide and
// Keep that are not there are left out.
type Rules struct {
	// Hide are files and directories that are not there for it.
	Hide []string
	// Write are directories in which alone it can change files; none: all are as they
	// are.
	Write []string
	// Keep are files and directories below those of Write that it cannot change.
	Keep []string
}

// Argv is the command line that runs argv under the rules. self is the path of this
// program.
func Argv(self string, r Rules, argv []string) []string {
	return slices.Concat([]string{self, verb}, marked("hide:", r.Hide), marked("write:", r.Write), marked("keep:", r.Keep), []string{"--"}, argv)
}

func marked(mark string, paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = mark + p
	}
	return out
}

// Called reports whether the arguments of this process are those of [Argv].
func Called(args []string) bool { return len(args) > 1 && args[1] == verb }

// Refused is the exit status where the files cannot be hidden. The command was not run
// then.
const Refused = 121

func parse(args []string) (r Rules, argv []string, err error) {
	i := slices.Index(args, "--")
	if i < 0 || i == len(args)-1 {
		return r, nil, fmt.Errorf("usage: tend %s [hide:PATH|write:PATH|keep:PATH...] -- COMMAND [ARG...]", verb)
	}
	if i > MaxPaths {
		return r, nil, fmt.Errorf("%d paths are too many: at most %d", i, MaxPaths)
	}
	for _, word := range args[:i] {
		mark, path, _ := strings.Cut(word, ":")
		list := map[string]*[]string{"hide": &r.Hide, "write": &r.Write, "keep": &r.Keep}[mark]
		if list == nil || !strings.HasPrefix(path, "/") {
			return r, nil, fmt.Errorf("%q is not hide:, write: or keep: with an absolute path", word)
		}
		*list = append(*list, path)
	}
	return r, args[i+1:], nil
}
