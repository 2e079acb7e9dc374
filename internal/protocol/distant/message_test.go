package distant

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/process"
)

// The vectors come from the serializer of distant 0.20.0.
func TestResponseVectors(t *testing.T) {
	const head = "83a26964a139a96f726967696e5f6964a131a77061796c6f6164"
	for _, tc := range []struct {
		name, want string
		m          message
	}{
		{"proc_spawned", "82a474797065ac70726f635f737061776e6564a2696407", idMessage("proc_spawned", 7)},
		{"proc_stdout", "83a474797065ab70726f635f7374646f7574a2696407a464617461c4036869ff", dataMessage("proc_stdout", 7, []byte("hi\xff"))},
		{"proc_done", "84a474797065a970726f635f646f6e65a2696407a773756363657373c3a4636f646500", doneMessage(7, &process.Exit{})},
		{"ok", "81a474797065a26f6b", okMessage},
		{"error", "83a474797065a56572726f72a46b696e64a96e6f745f666f756e64ab6465736372697074696f6ea178", &fault{kindNotFound, "x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := wire.NewPack(nil)
			putEnvelope(w, "9", "1", func() { putMessage(w, tc.m) })
			if got := hex.EncodeToString(w.Buffer()); got != head+tc.want {
				t.Errorf("got\n%s, want\n%s", got, head+tc.want)
			}
		})
	}
}

func TestOutputHead(t *testing.T) {
	st := &stream{slot: 3, id: 7, origin: origin{id: "1"}}
	got := append(outputHead(nil, st, process.Stderr, 12, 2), "hi"...)
	w := wire.NewPack(nil)
	putEnvelope(w, "3.2.12", "1", func() { putMessage(w, dataMessage("proc_stderr", 7, []byte("hi"))) })
	if diff := cmp.Diff(hex.EncodeToString(w.Buffer()), hex.EncodeToString(got)); diff != "" {
		t.Error(diff)
	}
}

func TestDone(t *testing.T) {
	for _, tc := range []struct {
		name string
		exit *process.Exit
		want string
	}{
		{"a code", &process.Exit{Code: 3}, `{"type":"proc_done","id":7,"success":false,"code":3}`},
		{"a signal is 128 and its number", &process.Exit{Signal: 9, Cause: process.CauseKilled}, `{"type":"proc_done","id":7,"success":false,"code":137}`},
		{"an end that nobody saw has no code", &process.Exit{Cause: process.CauseLost}, `{"type":"proc_done","id":7,"success":false}`},
		{"nor has one that was lost with all of tend", &process.Exit{Code: -1, Cause: process.CauseShutdown}, `{"type":"proc_done","id":7,"success":false}`},
		{"nor has one that is forgotten", nil, `{"type":"proc_done","id":7,"success":false}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := wire.NewJSON(nil)
			putMessage(w, doneMessage(7, tc.exit))
			if got := string(w.Buffer()); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		line string
		want []string // nil: an error
	}{
		{"ls", []string{"ls"}},
		{"  echo\t a  b\n", []string{"echo", "a", "b"}},
		{`echo 'a  b' "c'd" e\ f g'h'"i"`, []string{"echo", "a  b", "c'd", "e f", "ghi"}},
		{`echo "a\"b\\c\$d\e" '\n'`, []string{"echo", `a"b\c$d\e`, `\n`}},
		{"echo a\\\nb \"c\\\nd\"", []string{"echo", "ab", "cd"}},
		{"echo '' \"\"", []string{"echo", "", ""}},
		{"echo a#b # a comment\nc", []string{"echo", "a#b", "c"}},
		{"echo $HOME * ~ a;b `x`", []string{"echo", "$HOME", "*", "~", "a;b", "`x`"}},
		{"", nil}, {" \t", nil}, {"# all of it", nil}, {"'' a", nil}, {"echo 'a", nil}, {`echo "a`, nil}, {`echo a\`, nil}, {`echo "a\`, nil},
	} {
		got, err := split(tc.line)
		if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != (tc.want != nil) {
			t.Errorf("%q: %v %s", tc.line, err, diff)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{`echo 'a' "b\"" c\ d # e`, "\\", "\"\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := split(line)
		if err == nil && (len(words) == 0 || words[0] == "") {
			t.Errorf("%q became %q", line, words)
		}
	})
}
