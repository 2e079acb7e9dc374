package work

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestTheLinesThatAnErrorNames(t *testing.T) {
	text := "one\n  two\nthree\nfour\nfive\n"
	many := ""
	for i := range 5 {
		many += fmt.Sprintf("  at /srv/app/lib/a.py:%d\n", i+1)
	}
	for name, c := range map[string]struct {
		log  string
		want string
	}{
		"python":             {"Traceback:\n  File \"/srv/app/lib/a.py\", line 2, in <module>\n    two\n", "two"},
		"node, and a column": {"/srv/app/lib/a.py:3:14\n", "three"},
		"go":                 {"./lib/a.py:1:2: undefined: one\n", "one"},
		"typescript":         {"lib/a.py(4,1): error TS2304\n", "four"},
		"several, and twice": {"lib/a.py:1\n at f (/srv/app/lib/a.py:2:1)\nlib/a.py:1\n", "one two"},
		"another's":          {"/srv/other/lib/a.py:1\n src/lib/a.py:2\n/srv/app/lib/a.pyc:3\n/srv/app/x/lib/a.py:4\n", ""},
		"no such line":       {"lib/a.py:0\nlib/a.py:6\nlib/a.py:99999999\n", ""},
		"too many":           {many, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := namedLines(c.log, "/srv/app", "lib/a.py", text); !slices.Equal(got, strings.Fields(c.want)) {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}
