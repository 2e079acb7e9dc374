package view

import (
	"io/fs"
	"maps"
	"slices"
	"sort"
	"strings"
)

// Change is what becomes of a path of the project.
type Change struct {
	Path string      `json:"path"` // below the root, with slashes
	Kind Kind        `json:"kind"`
	Mode fs.FileMode `json:"mode,omitempty"` // permissions of a file; 0: those that it has, or of a new one
	Data []byte      `json:"data,omitempty"` // of a file
}

// Kind says what that is.
type Kind string

// Kinds of changes.
const (
	Gone      Kind = "gone" // it is removed; a directory with its content
	File      Kind = "file"
	Directory Kind = "directory" // it is made
	Other     Kind = "other"     // a link, or the like
	Closed    Kind = "closed"    // a file of somebody else, which the command could not read
)

// Set is what a repair has changed. The zero value is nothing.
type Set struct {
	files map[string]Change
	Env   []Variable // added to files of variables
}

// Variable is one of a file of variables.
type Variable struct{ File, Name, Value string }

// Empty reports whether nothing is changed.
func (s *Set) Empty() bool { return len(s.files) == 0 && len(s.Env) == 0 }

// Put sets what becomes of a path.
func (s *Set) Put(c Change) {
	if s.files == nil {
		s.files = map[string]Change{}
	}
	s.files[c.Path] = c
}

// Drop has a path be as it is.
func (s *Set) Drop(path string) { delete(s.files, path) }

// Of returns what becomes of a path. What is below one that is gone is so, too.
func (s *Set) Of(path string) (Change, bool) {
	if c, ok := s.files[path]; ok {
		return c, true
	}
	for up := path; strings.Contains(up, "/"); {
		up = up[:strings.LastIndexByte(up, '/')]
		if c, ok := s.files[up]; ok && c.Kind == Gone {
			return Change{Path: path, Kind: Gone}, true
		}
	}
	return Change{}, false
}

// Changes are all, in the order in which they can be made.
func (s *Set) Changes() []Change {
	all := slices.Collect(maps.Values(s.files))
	sort.Slice(all, func(i, j int) bool { // slices.SortFunc is compiled for each type
		a, b := &all[i], &all[j]
		if (a.Kind == Gone) != (b.Kind == Gone) {
			return a.Kind == Gone
		}
		if a.Kind == Gone {
			return a.Path > b.Path // what is in a directory before it
		}
		return a.Path < b.Path
	})
	return all
}

// Paths are those of all files that change.
func (s *Set) Paths() (all []string) {
	for _, c := range s.Changes() {
		if c.Kind != Directory {
			all = append(all, c.Path)
		}
	}
	for _, v := range s.Env {
		if !slices.Contains(all, v.File) {
			all = append(all, v.File)
		}
	}
	return all
}
