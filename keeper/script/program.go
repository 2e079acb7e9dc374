package script

import "errors"

// ErrUnsupported says that this machine can start nothing by a script.
var ErrUnsupported = errors.New("a script of system calls is not possible here")

// Program is what a child becomes. It has a session of its own.
type Program struct {
	Path      string
	Argv, Env []string
	Dir       string // "": the parent's
	Files     []int  // its descriptors 0, 1, 2 …; it has no others
	Terminal  bool   // descriptor 0 becomes the controlling terminal
	Group     int    // an open cgroup v2 directory; -1: the parent's
	User      *User  // nil: the parent's
	Limits    []Limit
}

// User is whom a program runs as. Groups are all the supplementary ones.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Limit is one of resources (setrlimit(2)). It is set if the kernel lets the
// parent's user do so.
type Limit struct {
	Resource   int
	Soft, Hard uint64
}
