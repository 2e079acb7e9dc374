package procfs

import "testing"

const (
	statCat = "4242 (cat) S 4200 4242 4100 34816 4242 4194304 103 0 0 0 7 8 0 0 20 0 1 0 8137731 2600960 208 18446744073709551615 94 94 14 0 0 0 0 0 0 1 0 0 17 1 0 0 0 0 0 9 9 9 1 1 1 1 0\n"
	statOdd = "77 (a) Z (b\n) R 1 77 77 -1 -1 4194304 103 0 0 0 0 0 0 0 20 0 1 0 55 2600960 208 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n"
	statZom = "78 (sh) Z 77 78 77 0 -1 4227084 0 0 0 0 0 0 0 0 20 0 1 0 56 0 0 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 256\n"
)

func TestParseStat(t *testing.T) {
	tests := []struct {
		name, text string
		want       Stat
		ok         bool
	}{
		{"reads a process on a terminal", statCat, Stat{State: 'S', PPID: 4200, Session: 4100, TTY: 34816, Threads: 1,
			User: 7, System: 8, Start: 8137731}, true},
		{"is not misled by the name", statOdd, Stat{State: 'R', PPID: 1, Session: 77, TTY: -1, Threads: 1, Start: 55}, true},
		{"reads a zombie", statZom, Stat{State: 'Z', PPID: 77, Session: 77, Threads: 1, Start: 56}, true},
		{"refuses an empty text", "", Stat{}, false},
		{"refuses a text that is cut off", statCat[:40], Stat{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := ParseStat([]byte(tt.text))
			if ok != tt.ok || ok && got != tt.want {
				t.Errorf("got %+v, %v; want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	for _, s := range []string{statCat, statOdd, statZom, ")", "1 () S", ")\x00 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := ParseStat(b); ok && s.State == 0 {
			t.Errorf("%q is taken for a process without a state", b)
		}
	})
}
