package process

import (
	"fmt"
	"strconv"
	"strings"
)

// Names are what a process can be found by.
type Names struct {
	ID        ID
	PID       int
	Name, Tag string
}

// MinPrefix is the shortest prefix of an id that Selector.Any takes for one,
// in bytes.
const MinPrefix = 4

// Resolve finds what a selector means among n processes, in the order of their
// start, whose names at tells: the index of the one, or of the newest where
// several have the same pid, tag or name.
//
// Errors: ErrNotFound; ErrAmbiguous for a prefix of several ids; InvalidError
// for an empty selector.
func Resolve(sel Selector, n int, at func(int) Names) (int, error) {
	newest := func(match func(Names) bool) int {
		for i := n - 1; i >= 0; i-- {
			if match(at(i)) {
				return i
			}
		}
		return -1
	}
	found, what := -1, ""
	switch {
	case sel.ID != "":
		found, what = newest(func(p Names) bool { return p.ID == sel.ID }), "id "+string(sel.ID)
	case sel.PID != 0:
		found, what = newest(func(p Names) bool { return p.PID == sel.PID }), "pid "+strconv.Itoa(sel.PID)
	case sel.Tag != "":
		found, what = newest(func(p Names) bool { return p.Tag == sel.Tag }), "tag "+sel.Tag
	case sel.Name != "":
		found, what = newest(func(p Names) bool { return p.Name == sel.Name }), "name "+sel.Name
	case sel.Any != "":
		return resolveAny(sel.Any, n, at, newest)
	default:
		return -1, &InvalidError{Field: "selector", Reason: "is empty; give an id, pid, tag or name"}
	}
	if found < 0 {
		return -1, fmt.Errorf("%w: %s", ErrNotFound, what)
	}
	return found, nil
}

func resolveAny(s string, n int, at func(int) Names, newest func(func(Names) bool) int) (int, error) {
	if i := newest(func(p Names) bool { return string(p.ID) == s }); i >= 0 {
		return i, nil
	}
	if len(s) >= MinPrefix {
		first, count := -1, 0
		for i := range n {
			if strings.HasPrefix(string(at(i).ID), s) {
				first = i
				count++
			}
		}
		switch {
		case count == 1:
			return first, nil
		case count > 1:
			return -1, fmt.Errorf("%w: %d ids begin with %q; give more of it", ErrAmbiguous, count, s)
		}
	}
	pid, err := strconv.Atoi(s)
	for _, match := range []func(Names) bool{
		func(p Names) bool { return p.Name == s },
		func(p Names) bool { return p.Tag == s },
		func(p Names) bool { return err == nil && p.PID == pid },
	} {
		if i := newest(match); i >= 0 {
			return i, nil
		}
	}
	return -1, fmt.Errorf("%w: %q is no id, prefix of an id, name, tag or pid", ErrNotFound, s)
}
