// Package failpoint names the critical places in the roles, and lets a test make a role
// die at each of them, at a chosen passage.
//
// A release contains none of this: [Hit] is empty and is inlined away. A role built
// with the tag tend_failpoint maps a file in the run directory of its state directory
// at its start, if a test has created one ([Create]), and checks it at each point.
//
// # The file
//
// One record of 32 bytes for each point, in the order of the names; 32-bit
// words in native order, accessed atomically:
//
//	0   passed: how often a role came by             roles add
//	4   armed: strike at this many more passages; 0: never
//	                                                 test stores, roles count down
//	8   struck: how often it struck                  roles add
//	12  pid of the role that was struck last         roles
//	16  hold: 1: the role stops (SIGSTOP) instead    test
//	    of dying, and continues when this is 0 again
package failpoint

import "fmt"

// File is the name in the run directory.
const File = "failpoints"

const recordSize = 32

// Words of a record.
const (
	passed = iota
	armed
	struck
	pid
	hold
)

func (p Point) String() string {
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("point %d", int(p))
}

// All returns every point.
func All() []Point {
	all := make([]Point, len(names))
	for i := range all {
		all[i] = Point(i)
	}
	return all
}
