package process_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/process"
)

// FuzzResolve: a selector finds one that it means, a running one if there is
// one, or an error of the kinds that are promised.
func FuzzResolve(f *testing.F) {
	// Processes are words of id, name and tag with commas between; those with a
	// '!' before them run.
	for _, s := range []string{"!abcd1,web,t !abcd2,web,t abcd3,db,", "abcd,1,2 !1,abcd,abcd", "", "!a,,", ",,", "!x,7,7 !y,7,7", "!old,1,t new,1,t"} {
		for kind, sel := range []string{"abcd", "1", "web", "t", "7"} {
			f.Add(s, uint8(kind), sel, kind)
		}
	}
	f.Fuzz(func(t *testing.T, table string, kind uint8, text string, pid int) {
		if len(table) > 4096 || len(text) > process.MaxTagLen { // longer ones are refused where they come in
			return
		}
		var all []process.Names
		var live []bool
		for i, word := range strings.Fields(table) {
			word, runs := strings.CutPrefix(word, "!")
			part := append(strings.SplitN(word, ",", 3), "", "")
			all, live = append(all, process.Names{ID: process.ID(part[0]), PID: i + 1, Name: part[1], Tag: part[2]}), append(live, runs)
		}
		sel := []process.Selector{{Any: text}, {ID: process.ID(text)}, {Name: text}, {Tag: text}, {PID: pid}}[kind%5]
		means := func(p process.Names) bool {
			switch {
			case sel.ID != "":
				return p.ID == sel.ID
			case sel.PID != 0:
				return p.PID == sel.PID
			case sel.Tag != "":
				return p.Tag == sel.Tag
			case sel.Name != "":
				return p.Name == sel.Name
			}
			return true // Any has an order of its own
		}
		i, err := process.Resolve(sel, len(all), func(i int) process.Names { return all[i] }, func(i int) bool { return live[i] })
		if err != nil {
			many, ambiguous := errors.AsType[*process.AmbiguousError](err)
			invalid, wrong := errors.AsType[*process.InvalidError](err)
			switch {
			case i != -1, len(err.Error()) > 4*process.MaxTagLen+4096:
				t.Errorf("%+v is %d, %v", sel, i, err)
			case ambiguous && len(many.IDs) > 1 && len(many.IDs) <= 20:
			case wrong && invalid.Field != "" && sel == process.Selector{}:
			case errors.Is(err, process.ErrNotFound):
				for _, p := range all {
					if sel.Any == "" && means(p) || sel.Any != "" && (string(p.ID) == sel.Any || p.Name == sel.Any || p.Tag == sel.Any) {
						t.Errorf("%+v is not found among %+v", sel, all)
					}
				}
			default:
				t.Errorf("%+v: %v", sel, err)
			}
			return
		}
		if i < 0 || i >= len(all) || !means(all[i]) {
			t.Fatalf("%+v is %d of %+v", sel, i, all)
		}
		for j, p := range all {
			if sel.Any == "" && means(p) && live[j] && !live[i] {
				t.Errorf("%+v is %+v, which has ended, and %+v runs", sel, all[i], p)
			}
		}
	})
}

// FuzzID: an id that passes is the name of one file.
func FuzzID(f *testing.F) {
	for _, s := range []string{"a", "..", "a/b", "-a", "a\x00", "é", strings.Repeat("a", process.MaxIDLen+1), string(process.NewID())} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := process.ID(s).Validate()
		if err == nil && (len(s) > process.MaxIDLen || filepath.Base(s) != s || !filepath.IsLocal(s) || s[0] == '.' || s[0] == '-' || strings.ContainsAny(s, "\x00\n ")) {
			t.Errorf("%q passes", s)
		}
		if invalid, ok := errors.AsType[*process.InvalidError](err); err != nil && (!ok || invalid.Field != "id" || len(err.Error()) > 1<<10) {
			t.Errorf("%q: %v", s, err)
		}
	})
}
