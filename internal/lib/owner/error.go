package owner

import "fmt"

// Error says why a file is not obeyed.
type Error struct {
	Path string // what the rule fails at: the file, or what is on the way to it
	UID  int    // on whose behalf it would have been obeyed
	Why  string // completes "/a/b …"
}

func (e *Error) Error() string {
	if e.UID == 0 {
		return fmt.Sprintf("%s %s: only what belongs to root, and nobody else may write, is obeyed for root; use chown or chmod if it is meant",
			e.Path, e.Why)
	}
	return fmt.Sprintf("%s %s: only what belongs to uid %d or to root, and nobody else may write, is obeyed for uid %[3]d; use chown or chmod if it is meant", e.Path, e.Why, e.UID)
}
