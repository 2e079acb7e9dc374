package process

import (
	"fmt"
	"strconv"
	"strings"
)

// Labels that tend gives to processes.
const (
	LabelService = "tend.service" // of a run of a service: its name
	LabelHook    = "tend.hook"    // of a hook of a run, beside that: which one
	LabelSandbox = "tend.sandbox" // of a process in a sandbox: its ID
)

// Names are the keys by which a process can be found.
type Names struct {
	ID        ID
	PID       int
	Name, Tag string

	rank int // of running processes with one name those of the lowest are meant
}

// NamesOf returns the names of a process. By its name a service is found before a process
// of this machine, and that before one in a sandbox.
func NamesOf(id ID, pid int, s *Spec) Names {
	n := Names{ID: id, PID: pid, Name: s.Name, Tag: s.Tag}
	switch {
	case s.Labels[LabelService] != "" && s.Labels[LabelService] == s.Name && s.Labels[LabelHook] == "":
	case s.Labels[LabelSandbox] == "":
		n.rank = 1
	default:
		n.rank = 2
	}
	return n
}

// MinPrefix is the length of the shortest ID prefix that Selector.Any accepts, in
// bytes.
const MinPrefix = 4

// Resolve returns the index of the process that a selector selects among n processes in
// the order of their start. at returns the names of a process, and live whether it
// runs. A running process is preferred, then the newest ended one. Two running
// processes with the same name are ambiguous, unless [NamesOf] prefers one. Of processes with the same tag, which
// programs give, or the same pid, the newest is selected.
//
// Errors: ErrNotFound; AmbiguousError for a prefix of several ids and for a name
// of several running processes; InvalidError for an empty selector.
func Resolve(sel Selector, n int, at func(int) Names, live func(int) bool) (int, error) {
	r := resolver{n, at, live}
	found, what := -1, ""
	switch {
	case sel.ID != "":
		found, what = r.newest(func(p Names) bool { return p.ID == sel.ID }), "id "+string(sel.ID)
	case sel.PID != 0:
		found, what = r.newest(func(p Names) bool { return p.PID == sel.PID }), "pid "+strconv.Itoa(sel.PID)
	case sel.Tag != "":
		found, what = r.newest(func(p Names) bool { return p.Tag == sel.Tag }), "tag "+sel.Tag
	case sel.Name != "":
		i, err := r.one("name", sel.Name, func(p Names) bool { return p.Name == sel.Name })
		if err != nil {
			return -1, err
		}
		found, what = i, "name "+sel.Name
	case sel.Any != "":
		return r.any(sel.Any)
	default:
		return -1, &InvalidError{Field: "selector", Reason: "is empty; give an id, pid, tag or name"}
	}
	if found < 0 {
		return -1, fmt.Errorf("%w: %s", ErrNotFound, what)
	}
	return found, nil
}

type resolver struct {
	n    int
	at   func(int) Names
	live func(int) bool
}

// newest is the newest that runs, or else the newest; -1: none matches.
func (r resolver) newest(match func(Names) bool) int {
	ended := -1
	for i := r.n - 1; i >= 0; i-- {
		switch {
		case !match(r.at(i)):
		case r.live(i):
			return i
		case ended < 0:
			ended = i
		}
	}
	return ended
}

// one is newest, unless several run.
func (r resolver) one(kind, value string, match func(Names) bool) (int, error) {
	found := r.newest(match)
	if found < 0 || !r.live(found) {
		return found, nil
	}
	var ids []ID
	least := r.at(found).rank
	for i := range r.n {
		p := r.at(i)
		if !match(p) || !r.live(i) || p.rank > least {
			continue
		}
		if p.rank < least {
			ids, least = nil, p.rank
		}
		ids, found = append(ids, p.ID), i
	}
	if len(ids) > 1 {
		return -1, &AmbiguousError{What: fmt.Sprintf("%d running processes have the %s %q", len(ids), kind, value),
			IDs: ids[:min(len(ids), maxAmbiguous)]}
	}
	return found, nil
}

// maxAmbiguous bounds how many processes an AmbiguousError lists.
const maxAmbiguous = 20

func (r resolver) any(s string) (int, error) {
	if i := r.newest(func(p Names) bool { return string(p.ID) == s }); i >= 0 {
		return i, nil
	}
	if len(s) >= MinPrefix {
		first, ids := -1, []ID(nil)
		for i := range r.n {
			if id := r.at(i).ID; strings.HasPrefix(string(id), s) {
				first = i
				ids = append(ids, id)
			}
		}
		switch {
		case len(ids) == 1:
			return first, nil
		case len(ids) > 1:
			return -1, &AmbiguousError{What: fmt.Sprintf("%d ids begin with %q", len(ids), s), IDs: ids[:min(len(ids), maxAmbiguous)]}
		}
	}
	pid, perr := strconv.Atoi(s)
	for _, by := range []struct {
		kind  string
		match func(Names) bool
	}{
		{"name", func(p Names) bool { return p.Name == s }},
		{"tag", func(p Names) bool { return p.Tag == s }},
	} {
		if i, err := r.one(by.kind, s, by.match); err != nil || i >= 0 {
			return i, err
		}
	}
	if i := r.newest(func(p Names) bool { return perr == nil && p.PID == pid }); i >= 0 {
		return i, nil
	}
	return -1, fmt.Errorf("%w: %q is no id, prefix of an id, name, tag or pid", ErrNotFound, s)
}
