package cli

import (
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/view"
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
		want view.Amount
		text string
	}{
		{"fewer lines than wanted", output("o:a\nb\n"), view.Amount{Lines: 5}, "o:a\n o:b\n"},
		{"exactly the wanted ones", output("o:a\nb\nc\n"), view.Amount{Lines: 2}, "o:b\n o:c\n"},
		{"an unfinished line counts", output("o:a\nb\nc"), view.Amount{Lines: 2}, "o:b\n o:c"},
		{"two streams", output("o:1\n", "e:2\n", "o:3\n", "e:4\n"), view.Amount{Lines: 3}, "e:2\n o:3\n e:4\n"},
		{"a line in pieces around another stream", output("o:0\nhel", "e:x\n", "o:lo\n"), view.Amount{Lines: 2}, "o:hel e:x\n o:lo\n"},
		{"a line before the cut of its stream does not come back", output("o:1\n2\n", "e:x\n", "o:3\n"), view.Amount{Lines: 1}, "o:3\n"},
		{"none", output("o:a\n"), view.Amount{}, ""},
		{"bytes", output("o:hello", "e:world"), view.Amount{Bytes: 7}, "o:lo e:world"},
		{"more bytes than there are", output("o:hello"), view.Amount{Bytes: 99}, "o:hello"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l tail
			for _, ev := range tt.in {
				l.add(ev, tt.want.Bytes > 0)
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
	last := l.last(view.Amount{Lines: 2})
	if len(last) != 2 || last[0].Offset != 3 || last[1].Offset != 6 {
		t.Errorf("got %+v; want offsets 3 and 6", last)
	}
}
