package view_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// finished starts a shell line and waits until it has written all.
func finished(t *testing.T, line string) process.Process {
	t.Helper()
	p := proctest.Value(testkeeper.New(t).Start(t.Context(), process.Spec{Shell: line}))(t)
	proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
	return p
}

// raw reads a range of a stream.
func raw(t *testing.T, p process.Process, s process.Stream, from, to int64) []byte {
	t.Helper()
	opts := process.ReadOptions{Streams: []process.Stream{s}, NoFollow: true}
	opts.From[s] = from
	var b []byte
	for ev, err := range process.Events(t.Context(), p, opts) {
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, ev.Data...)
	}
	return b[:to-from]
}

// show renders a view: text as it is, what is left out as «stream from-to why»,
// and holds the ranges to the contract: no byte is missing or told twice.
func show(t *testing.T, p process.Process, o view.Options) string {
	t.Helper()
	var b strings.Builder
	at := [4]int64{}
	err := view.Show(t.Context(), p, o, func(it view.Item) error {
		if it.From != at[it.Stream] || it.To <= it.From {
			t.Fatalf("%+v comes behind %d", it, at[it.Stream])
		}
		at[it.Stream] = it.To
		if it.Omitted != 0 {
			fmt.Fprintf(&b, "«%s %d-%d %s»", it.Stream, it.From, it.To, it.Omitted)
		} else if !o.StripANSI && it.Text != nil && !bytes.Equal(it.Text, raw(t, p, it.Stream, it.From, it.To)) {
			t.Errorf("%q is not what the range %d-%d holds", it.Text, it.From, it.To)
		}
		b.Write(it.Text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	info := proctest.Value(p.Info(t.Context()))(t)
	for _, s := range info.Streams {
		if (len(o.Streams) == 0 || o.Streams[0] == s.Stream) && at[s.Stream] != s.End {
			t.Errorf("%s is told up to %d of %d", s.Stream, at[s.Stream], s.End)
		}
	}
	return b.String()
}

func TestShow(t *testing.T) {
	t.Parallel()
	lines := "for i in $(seq -w 1 100); do echo line$i; done"
	tests := []struct {
		name, line string
		o          view.Options
		want       string
	}{
		{"everything", "printf 'a\\nb'", view.Options{}, "a\nb"},
		{"lines of both ends", lines, view.Options{Head: view.Amount{Lines: 2}, Tail: view.Amount{Lines: 1}}, "line001\nline002\n«stdout 16-792 middle»line100\n"},
		{"bytes of both ends", lines, view.Options{Head: view.Amount{Bytes: 3}, Tail: view.Amount{Bytes: 5}}, "lin«stdout 3-795 middle»e100\n"},
		{"a tail without an end of line", "seq 5; printf 6", view.Options{Tail: view.Amount{Lines: 2}}, "«stdout 0-8 middle»5\n6"},
		{"a head alone", lines, view.Options{Head: view.Amount{Lines: 1}}, "line001\n«stdout 8-800 middle»"},
		{"ends that meet leave nothing out", "seq 5", view.Options{Head: view.Amount{Lines: 3}, Tail: view.Amount{Lines: 3}}, "1\n2\n3\n4\n5\n"},
		{"an end that is larger than all", "seq 5", view.Options{Head: view.Amount{Bytes: 1000}, Tail: view.Amount{Bytes: 1000}}, "1\n2\n3\n4\n5\n"},
		{"one stream", "echo o; echo e >&2", view.Options{Streams: []process.Stream{process.Stderr}}, "e\n"},
		{"no output", "true", view.Options{Head: view.Amount{Lines: 1}, Tail: view.Amount{Lines: 1}}, ""},
		{"long lines are cut", "printf '%050d\\nshort\\n%020d' 0 0", view.Options{MaxLine: 16}, strings.Repeat("0", 16) + "«stdout 16-50 long_line»\nshort\n" + strings.Repeat("0", 16) + "«stdout 73-77 long_line»"},
		{"no character is cut", "printf '123456789012345é0\\n'", view.Options{MaxLine: 16}, "123456789012345«stdout 15-18 long_line»\n"},
		{"escape sequences are taken away", `printf '\033[1;31mred\033[0m \033]0;title\007plain \033(B\033Pq\033\\x\n'`, view.Options{StripANSI: true}, "red plain x\n"},
		{"a string without an end ends with its line", `printf '\033]0;title\nnext\n'`, view.Options{StripANSI: true}, "\nnext\n"},
		{"a line is measured without its colours", `printf '\033[31m1234567890123456\033[0m\n'`, view.Options{StripANSI: true, MaxLine: 16}, "1234567890123456\n"},
		{"a tail of a large output", "seq -w 1 200000", view.Options{Tail: view.Amount{Lines: 2}}, "«stdout 0-1399986 middle»199999\n200000\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tt.want, show(t, finished(t, tt.line), tt.o)); d != "" {
				t.Error(d)
			}
		})
	}
}

// What begins past the end is not the same as what is empty.
func TestAViewAndASearchPastTheEndSayWhereItIs(t *testing.T) {
	t.Parallel()
	p := finished(t, "seq 5")
	for _, tt := range []struct {
		from int64
		want string
	}{{10, "<nil>"}, {process.FromNow, "<nil>"}, {11, "the offset is past the end of the stream: stdout ends at 10, 11 was asked for"}} {
		from := [4]int64{process.Stdout: tt.from}
		for name, err := range map[string]error{
			"view":         view.Show(t.Context(), p, view.Options{From: from}, func(view.Item) error { return errors.New("an item") }),
			"view an end":  view.Show(t.Context(), p, view.Options{From: from, Tail: view.Amount{Lines: 1}}, func(view.Item) error { return errors.New("an item") }),
			"search":       view.Grep(t.Context(), p, view.GrepOptions{Pattern: ".", From: from}, func(view.Match) error { return errors.New("a match") }, nil),
			"other stream": view.Show(t.Context(), p, view.Options{From: [4]int64{process.PTY: 1}, Tail: view.Amount{Bytes: 1}}, func(view.Item) error { return nil }),
		} {
			want := tt.want
			if name == "other stream" { // as of a reader
				want = "<nil>"
			}
			if got := fmt.Sprint(err); got != want || err != nil && !errors.Is(err, process.ErrOffset) {
				t.Errorf("%s from %d: %s; want %q", name, tt.from, got, want)
			}
		}
	}
}

// Each line is written when the one before has arrived.
func TestBothStreamsComeInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	p := proctest.Start(t, testkeeper.New(t), process.Spec{Stdin: process.StdinPipe, Shell: "echo o1; read go; echo e1 >&2; read go; echo o2; read go; echo e2 >&2"})
	proctest.Step(t, p, 3, 6, 9)
	proctest.Wait(t, p, process.Until{EOF: true})
	want := "o1\ne1\n«stdout 3-6 middle»e2\n"
	if got := show(t, p, view.Options{Head: view.Amount{Lines: 2}, Tail: view.Amount{Lines: 1}}); got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

func TestFreedOutputIsTold(t *testing.T) {
	t.Parallel()
	p := finished(t, "seq -w 1 3000")
	proctest.Must(t, p.Trim(t.Context(), process.Stdout, 8192))
	got := show(t, p, view.Options{Head: view.Amount{Lines: 1}, Tail: view.Amount{Lines: 1}})
	if !strings.HasPrefix(got, "«stdout 0-8192 freed»") || !strings.HasSuffix(got, "middle»3000\n") {
		t.Errorf("%.100q", got)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	p := finished(t, "true")
	for name, o := range map[string]view.Options{
		"a negative head":     {Head: view.Amount{Bytes: -1}},
		"a tail of two kinds": {Tail: view.Amount{Bytes: 1, Lines: 1}},
		"too large a head":    {Head: view.Amount{Bytes: view.MaxBytes + 1}},
		"too short a line":    {MaxLine: 3},
	} {
		var invalid *process.InvalidError
		if err := view.Show(t.Context(), p, o, func(view.Item) error { return nil }); err == nil || !cmp.Equal(fmt.Sprintf("%T", err), fmt.Sprintf("%T", invalid)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGrep(t *testing.T) {
	t.Parallel()
	grep := func(t *testing.T, p process.Process, o view.GrepOptions) (got []string) {
		t.Helper()
		err := view.Grep(t.Context(), p, o, func(m view.Match) error {
			if !o.StripANSI && !m.Cut && !bytes.Equal(m.Text, raw(t, p, m.Stream, m.From, m.To)) {
				t.Errorf("%q is not what the range %d-%d holds", m.Text, m.From, m.To)
			}
			got = append(got, fmt.Sprintf("%s:%d:%d:%.40s", m.Stream, m.Line, m.From, m.Text))
			return nil
		}, func(g process.Gap) error {
			got = append(got, fmt.Sprintf("freed %s %d-%d", g.Stream, g.From, g.To))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	tests := []struct {
		name, line string
		o          view.GrepOptions
		want       []string
	}{
		{"lines that match", "printf 'one\\ntwo\\nthree\\n'", view.GrepOptions{Pattern: "^t"}, []string{"stdout:2:4:two", "stdout:3:8:three"}},
		{"a last line without an end", "printf 'a\\nbc'", view.GrepOptions{Pattern: "c$"}, []string{"stdout:2:2:bc"}},
		{"a limit", "seq 100", view.GrepOptions{Pattern: "1", Limit: 2}, []string{"stdout:1:0:1", "stdout:10:18:10"}},
		{"colours", `printf '\033[31mre\033[0md\n'`, view.GrepOptions{Pattern: "^red$", StripANSI: true}, []string{"stdout:1:0:red"}},
		{"behind a long line", "head -c 100000 /dev/zero; printf 'x\\nfind\\n'", view.GrepOptions{Pattern: "find"}, []string{"stdout:2:100002:find"}},
		{"nothing", "echo a", view.GrepOptions{Pattern: "b"}, nil},
		{"a line that ends with CR", "printf 'a\\r\\n'", view.GrepOptions{Pattern: "a$"}, []string{"stdout:1:0:a\r"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tt.want, grep(t, finished(t, tt.line), tt.o)); d != "" {
				t.Error(d)
			}
		})
	}
	t.Run("both streams", func(t *testing.T) {
		p := proctest.Start(t, testkeeper.New(t), process.Spec{Stdin: process.StdinPipe, Shell: "echo same; read go; echo same >&2"})
		proctest.Step(t, p, 5)
		proctest.Wait(t, p, process.Until{EOF: true})
		want := []string{"stdout:1:0:same", "stderr:1:0:same"}
		if d := cmp.Diff(want, grep(t, p, view.GrepOptions{Pattern: "same"})); d != "" {
			t.Error(d)
		}
	})
	t.Run("what was freed is told", func(t *testing.T) {
		p := finished(t, "seq -w 1 3000")
		proctest.Must(t, p.Trim(t.Context(), process.Stdout, 8192))
		if got := grep(t, p, view.GrepOptions{Pattern: "^3000"}); len(got) != 2 || got[0] != "freed stdout 0-8192" {
			t.Errorf("%q", got)
		}
	})
	t.Run("a pattern that is none", func(t *testing.T) {
		err := view.Grep(t.Context(), finished(t, "true"), view.GrepOptions{Pattern: "("}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "pattern") {
			t.Error(err)
		}
	})
}

// TestAnyCutOfTheOutput: whatever the pieces in which output comes, a view
// without head and tail shows the same text, and its ranges are whole.
func TestAnyCutOfTheOutput(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"text ", "\\n", "\\033[1;31m", "\\033]0;t\\007", "é", "\\033", "long long long long line "}
	var line strings.Builder
	for range 60 {
		fmt.Fprintf(&line, "printf '%s'; ", parts[r.IntN(len(parts))])
		if r.IntN(4) == 0 {
			line.WriteString("sleep 0.005; ")
		}
	}
	pieces := show(t, finished(t, line.String()), view.Options{StripANSI: true, MaxLine: 20})
	whole := show(t, finished(t, "("+line.String()+") | cat | (sleep 0.6; cat)"), view.Options{StripANSI: true, MaxLine: 20})
	if d := cmp.Diff(whole, pieces); d != "" {
		t.Error(d)
	}
}

func TestHeadTakesWholeLinesOrBytes(t *testing.T) {
	for _, tt := range []struct {
		a    view.Amount
		in   []string
		want string
	}{
		{view.Amount{Lines: 2}, []string{"a\nb\nc\n"}, "a\nb\n"},
		{view.Amount{Lines: 2}, []string{"a", "\nb", "b\nc"}, "a\nbb\n"},
		{view.Amount{Lines: 9}, []string{"a\nb"}, "a\nb"},
		{view.Amount{Bytes: 3}, []string{"ab", "cd"}, "abc"},
	} {
		got := ""
		for _, in := range tt.in {
			got += string(tt.a.Cut([]byte(in)))
		}
		if got != tt.want {
			t.Errorf("head of %q = %q; want %q", tt.in, got, tt.want)
		}
	}
}
