package role

import (
	"fmt"
	"strings"
	"testing"
)

func FuzzSockets(f *testing.F) {
	for _, s := range []string{"", "3", "3,4,", ",,", "2", "-1", "0x3", "99999999999999999999", "3, 4", "+3", "３"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fds, err := parseFDs(s)
		if err != nil {
			return
		}
		words := strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
		if len(fds) != len(words) {
			t.Fatalf("%q has %d words and gives %v", s, len(words), fds)
		}
		for i, fd := range fds {
			if fd < 3 || strings.TrimLeft(strings.TrimPrefix(words[i], "+"), "0") != fmt.Sprint(fd) {
				t.Errorf("%q gives the descriptors %v", s, fds)
			}
		}
	})
}
