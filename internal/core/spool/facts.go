package spool

import (
	"maps"
	"slices"
	"strings"

	"github.com/tend-run/tend/process"
)

// newJournal is the name under which a journal is written that replaces one.
const newJournal = "journal.new"

// Bounds of what Cut leaves of a spec, in bytes. Names and tag are left whole,
// since a process is found by them.
const (
	wholeSpec = 2 << 10 // encoded: up to this nothing is cut
	cutWords  = 512     // of argv, or of the shell line
	cutValue  = 256     // of one label, name and value
	cutLabels = 1 << 10 // of all labels together
)

// Cut returns the part of a spec that is kept when space is needed: all of it if it is
// small; otherwise no environment, no large labels, and only the head of the command.
// cut reports whether anything is missing.
func Cut(s *process.Spec) (small process.Spec, cut bool) {
	if len(EncodeSpec(nil, s)) <= wholeSpec {
		return *s, false
	}
	small = *s
	small.Env, small.HiddenEnv, small.Labels, small.Argv = nil, nil, nil, nil
	left := cutWords
	small.Shell = head(s.Shell, &left)
	for _, word := range s.Argv {
		if left == 0 {
			break
		}
		small.Argv = append(small.Argv, head(word, &left))
	}
	if len(s.User) > cutValue {
		small.User = ""
	}
	if len(s.Dir) > BlockSize {
		small.Dir = ""
	}
	left = cutLabels
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		v := s.Labels[k]
		if n := len(k) + len(v); n <= cutValue && n <= left {
			if small.Labels == nil {
				small.Labels = map[string]string{}
			}
			small.Labels[strings.Clone(k)] = strings.Clone(v)
			left -= n
		}
	}
	return small, true
}

// head is as much of a text as is left, and its own copy: the rest is to go.
func head(s string, left *int) string {
	s = strings.Clone(s[:min(len(s), *left)])
	*left -= len(s)
	return s
}
