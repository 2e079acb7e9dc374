//go:build linux

package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const epollInfo = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t1057\n" +
	"tfd:       11 events: 8000001d data:                b  pos:0 ino:2055 sdev:f\n" +
	"tfd:        4 events:        4 data:                4  pos:0 ino:421 sdev:f\n" +
	"tfd:       17 events:       19 data:               11  pos:0 ino:7 sdev:18\n"

func TestParseSyscall(t *testing.T) {
	tests := []struct {
		name, text string
		want       call
		ok         bool
	}{
		{"reads a blocked call", "0 0x3 0x7ffd8b1f1fd7 0x1 0x0 0x0 0x0 0x7ffd8b1f1f98 0x7f9d\n", call{0, [6]uint64{3, 0x7ffd8b1f1fd7, 1}}, true},
		{"refuses a running thread", "running\n", call{}, false},
		{"refuses a thread blocked in no call", "-1 0x7ffd 0x7f\n", call{}, false},
		{"refuses a negative number with arguments", "-1 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n", call{}, false},
		{"refuses what is no number", "0 x y z 0 0 0 0 0\n", call{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseSyscall([]byte(tt.text))
			if ok != tt.ok || got != tt.want {
				t.Errorf("got %+v, %v; want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestParseEpollKeepsWhatIsWatchedForInput(t *testing.T) {
	if diff := cmp.Diff([]int{11, 17}, parseEpoll([]byte(epollInfo))); diff != "" {
		t.Errorf("descriptors (-want +got):\n%s", diff)
	}
}

func FuzzParseSyscall(f *testing.F) {
	for _, s := range []string{"0 0x3 0x7ffd8b1f1fd7 0x1 0x0 0x0 0x0 0x7ffd8b1f1f98 0x7f9d\n", "running\n", "-1 0x0 0x0"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := parseSyscall(b); ok && c.nr < 0 {
			t.Errorf("%q gives call %d", b, c.nr)
		}
	})
}

func FuzzParseEpoll(f *testing.F) {
	f.Add([]byte(epollInfo))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, fd := range parseEpoll(b) {
			if fd < 0 {
				t.Errorf("%q gives descriptor %d", b, fd)
			}
		}
	})
}

func FuzzMatcher(f *testing.F) {
	f.Add("a+b", "xaab\nb", 3)
	f.Add("^$", "\n\n", 1)
	f.Fuzz(func(t *testing.T, expr, text string, cut int) {
		whole, err := NewMatcher(expr)
		if err != nil || cut < 0 || cut > len(text) || len(text) > 4096 {
			return
		}
		want, found := whole.Add(1, 0, []byte(text))
		parts, _ := NewMatcher(expr)
		got, ok := parts.Add(1, 0, []byte(text[:cut]))
		if !ok {
			got, ok = parts.Add(1, int64(cut), []byte(text[cut:]))
		}
		if ok != found || got != want {
			t.Errorf("%q in %q cut at %d: %+v, %v; uncut %+v, %v", expr, text, cut, got, ok, want, found)
		}
	})
}

func TestParseCgroup(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"the unified hierarchy alone":        {"0::/user.slice/x\n", "/user.slice/x"},
		"beside hierarchies of version 1":    {"9:name=systemd:/\n4:memory:/a\n0::/tend-1/7\n", "/tend-1/7"},
		"a path with colons":                 {"0::/a:b::c\n", "/a:b::c"},
		"version 1 alone":                    {"4:memory:/a\n", ""},
		"nothing":                            {"", ""},
		"a line that is cut before its path": {"0:", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parseCgroup([]byte(tt.text)); got != tt.want {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}

func TestAGroupIsBelowItselfAndItsAncestors(t *testing.T) {
	for path, want := range map[string]bool{"/a/b": true, "/a/b/c": true, "/a/bc": false, "/a": false, "": false, "/": false} {
		if got := isBelow(path, "/a/b"); got != want {
			t.Errorf("%q below /a/b: %v; want %v", path, got, want)
		}
	}
}
