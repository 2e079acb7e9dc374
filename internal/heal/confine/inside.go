package confine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// insideVerb is the first argument of this program when a command is to run in a sandbox.
const insideVerb = "heal-exec-inside"

// Sandbox identifies a sandbox for the process that makes a [Shadow] of it.
type Sandbox struct {
	StateDir string // of its daemon
	Scratch  string // a directory for the shadow alone, on the machine
	ID       string
	// User that the command runs as, as in process.Spec; "": root.
	User string
}

// User that a command in a sandbox runs as, by its ids there.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Program is the path of this program in a shadow.
type Program struct {
	Argv, Env []string
	Dir       string
	File      *os.File // its descriptor 3
}

// Shadow is the environment of a command in a sandbox: the files of the sandbox, with
// memory for everything that is written, and nothing else of the sandbox.
type Shadow interface {
	// Covers reports whether what is written at a path is taken by that memory.
	Covers(path string) bool
	// Harden is what programs of the sandbox are denied: they have these capabilities alone, a
	// bit each, and a filter of system calls.
	Harden() (caps uint64, filter bool)
	// Room is how many bytes a filesystem in memory may have there.
	Room() int64
	// User finds an account of the sandbox, as a process that starts there would.
	User(name string) (User, error)
	// Run runs this program as root of the shadow, with all capabilities and no filter.
	Run(p Program) (status int, err error)
	// End ends all that runs there.
	End() error
	// Changed opens what was written below a directory; -1: nothing was. Owners are shown with
	// first added to their ids inside.
	Changed(path string) (fd int, first uint32, err error)
	Close() error
}

// inner is how a command in a shadow is confined besides.
type inner struct {
	caps   uint64 // that it keeps if it is root
	filter bool   // of system calls
	room   int64  // bytes of a filesystem in memory, at most
	// bare: the root is written as it is, since the shadow takes that.
	bare bool
	as   User
}

// ArgvInside is Argv for a command in a sandbox, on a machine with overlays. self is the
// path of this program on the machine, where it runs as root; the paths of the rules,
// except Changes, are paths in the sandbox.
func ArgvInside(self string, at Sandbox, r Rules, argv []string) []string {
	line := Argv(self, r, argv)
	return slices.Concat([]string{self, insideVerb, at.StateDir, at.Scratch, at.ID, at.User}, line[2:])
}

// CalledInside reports whether the arguments of this process are those of [ArgvInside].
func CalledInside(args []string) bool { return len(args) > 1 && args[1] == insideVerb }

func parseInside(args []string) (at Sandbox, r Rules, argv []string, err error) {
	if len(args) < 4 {
		return at, r, nil, fmt.Errorf("usage: tend %s STATE SCRATCH ID USER ROOT CHANGES [KIND/PATH...] -- COMMAND [ARG...]", insideVerb)
	}
	at = Sandbox{args[0], args[1], args[2], args[3]}
	r, argv, err = parse(args[4:])
	if err == nil && r.inner != nil {
		err = errors.New("an argument is for the inside alone")
	}
	return at, r, argv, err
}

// text of a user: uid:gid:group,group…
func (u *User) text() string {
	groups := make([]string, len(u.Groups))
	for i, g := range u.Groups {
		groups[i] = strconv.FormatUint(uint64(g), 10)
	}
	return fmt.Sprintf("%d:%d:%s", u.UID, u.GID, strings.Join(groups, ","))
}

func parseUser(text string) (u User, err error) {
	f := strings.Split(text, ":")
	if len(f) != 3 {
		return u, fmt.Errorf("%q: a user is UID:GID:GROUPS", text)
	}
	var ids []uint32
	for _, one := range append(f[:2:2], strings.FieldsFunc(f[2], func(r rune) bool { return r == ',' })...) {
		id, err := strconv.ParseUint(one, 10, 32)
		if err != nil {
			return u, fmt.Errorf("%q: a user is UID:GID:GROUPS", text)
		}
		ids = append(ids, uint32(id))
	}
	return User{ids[0], ids[1], ids[2:]}, nil
}

// text of what the inside is told: i, capabilities, filter, room, bare, user.
func (i *inner) text() string {
	return fmt.Sprintf("i%x/%t/%d/%t/%s", i.caps, i.filter, i.room, i.bare, i.as.text())
}

func parseInner(text string) (*inner, error) {
	f := strings.Split(text, "/")
	if len(f) != 5 {
		return nil, fmt.Errorf("%q: after i are five values", text)
	}
	caps, err1 := strconv.ParseUint(f[0], 16, 64)
	filter, err2 := strconv.ParseBool(f[1])
	room, err3 := strconv.ParseInt(f[2], 10, 64)
	bare, err4 := strconv.ParseBool(f[3])
	as, err5 := parseUser(f[4])
	return &inner{caps, filter, room, bare, as}, errors.Join(err1, err2, err3, err4, err5)
}
