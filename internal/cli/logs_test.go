package cli

import (
	"strings"
	"testing"

	"github.com/tend-run/tend/process"
)

// output makes events of "o:text" and "e:text" for stdout and stderr.
func output(pieces ...string) (events []process.Event) {
	var at [4]int64
	for _, p := range pieces {
		s := process.Stdout
		if strings.HasPrefix(p, "e:") {
			s = process.Stderr
		}
		data := []byte(p[2:])
		events = append(events, process.Event{Kind: process.EventOutput, Stream: s, Offset: at[s], Data: data})
		at[s] += int64(len(data))
	}
	return events
}

func TestTailKeepsTheLastLinesInOrderOfArrival(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []process.Event
		want amount
		text string
	}{
		{"fewer lines than wanted", output("o:a\nb\n"), amount{n: 5}, "o:a\n o:b\n"},
		{"exactly the wanted ones", output("o:a\nb\nc\n"), amount{n: 2}, "o:b\n o:c\n"},
		{"an unfinished line counts", output("o:a\nb\nc"), amount{n: 2}, "o:b\n o:c"},
		{"two streams", output("o:1\n", "e:2\n", "o:3\n", "e:4\n"), amount{n: 3}, "e:2\n o:3\n e:4\n"},
		{"a line in pieces around another stream", output("o:0\nhel", "e:x\n", "o:lo\n"), amount{n: 2}, "o:hel e:x\n o:lo\n"},
		{"a line before the cut of its stream does not come back", output("o:1\n2\n", "e:x\n", "o:3\n"), amount{n: 1}, "o:3\n"},
		{"none", output("o:a\n"), amount{}, ""},
		{"bytes", output("o:hello", "e:world"), amount{n: 7, bytes: true}, "o:lo e:world"},
		{"more bytes than there are", output("o:hello"), amount{n: 99, bytes: true}, "o:hello"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l tail
			for _, ev := range tt.in {
				l.add(ev, tt.want.bytes)
			}
			var got []string
			for _, ev := range l.last(tt.want) {
				got = append(got, map[process.Stream]string{process.Stdout: "o:", process.Stderr: "e:"}[ev.Stream]+string(ev.Data))
			}
			if text := strings.Join(got, " "); text != tt.text {
				t.Errorf("got %q; want %q", text, tt.text)
			}
		})
	}
}

func TestTailPiecesKeepTheirOffsets(t *testing.T) {
	var l tail
	for _, ev := range output("o:ab\ncd\n", "o:ef\n") {
		l.add(ev, false)
	}
	last := l.last(amount{n: 2})
	if len(last) != 2 || last[0].Offset != 3 || last[1].Offset != 6 {
		t.Errorf("got %+v; want offsets 3 and 6", last)
	}
}

func TestHeadTakesWholeLinesOrBytes(t *testing.T) {
	for _, tt := range []struct {
		a    amount
		in   []string
		want string
	}{
		{amount{n: 2}, []string{"a\nb\nc\n"}, "a\nb\n"},
		{amount{n: 2}, []string{"a", "\nb", "b\nc"}, "a\nbb\n"},
		{amount{n: 9}, []string{"a\nb"}, "a\nb"},
		{amount{n: 3, bytes: true}, []string{"ab", "cd"}, "abc"},
	} {
		got := ""
		for _, in := range tt.in {
			got += string(tt.a.take([]byte(in)))
		}
		if got != tt.want {
			t.Errorf("head of %q = %q; want %q", tt.in, got, tt.want)
		}
	}
}
