package mcp

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

// share says how a window is divided: the part of the head, in percent. Errors stand at
// the end of an output.
const share = 30

// window is a part of one stream that is shown.
type window struct {
	stream process.Stream
	from   int64
	// head, tail are shares of the bytes: percent of the head.
	head int
	raw  bool // escape sequences stay
	end  int64
}

// piece is what is shown of a stream, and what is not.
type piece struct {
	text string
	cut  bool // some is left out
}

// span makes text of an amount of bytes of the stream, at most about room thirds.
func (w *window) span(ctx context.Context, p process.Process, room int) (piece, error) {
	n := int64(max(room, 48)) // of ASCII
	for try := 0; ; try++ {
		got, err := w.show(ctx, p, n)
		if err != nil {
			return piece{}, err
		}
		c := cost(got.text)
		switch {
		case c > room:
		case try == 0 && got.cut && c < room/2: // most of it was escape sequences
			n = min(n*int64(room)/int64(max(c, 1))*9/10, 8<<20)
			continue
		default:
			return got, nil
		}
		if n <= 16 || try > 8 {
			return piece{cutTo(got.text, room), true}, nil
		}
		n = max(16, n*int64(room)/int64(c)*9/10)
	}
}

// show makes text of at most n bytes of the stream.
func (w *window) show(ctx context.Context, p process.Process, n int64) (piece, error) {
	o := view.Options{Streams: []process.Stream{w.stream}, StripANSI: !w.raw}
	o.From[w.stream] = w.from
	if w.end-w.from > n {
		o.Head.Bytes = n * int64(w.head) / 100
		o.Tail.Bytes = n - o.Head.Bytes
	}
	var head, tail strings.Builder
	var left []process.Gap
	var freed bool
	for it, err := range shown(ctx, p, o) {
		switch {
		case err != nil:
			return piece{}, err
		case it.Omitted != 0:
			freed = freed || it.Omitted == view.Freed
			if k := len(left); k > 0 && left[k-1].To == it.From {
				left[k-1].To = it.To
			} else if it.To > it.From {
				left = append(left, process.Gap{From: it.From, To: it.To})
			}
		case len(left) == 0:
			head.Write(it.Text)
		default:
			tail.Write(it.Text)
		}
	}
	a, b := head.String(), tail.String()
	if !w.raw { // as a terminal has it
		a, b = strings.ReplaceAll(a, "\r\n", "\n"), strings.ReplaceAll(b, "\r\n", "\n")
	}
	if len(left) == 0 {
		return piece{text: strings.ToValidUTF8(a, "�")}, nil
	}
	gap := process.Gap{From: left[0].From, To: left[len(left)-1].To}
	if w.raw || !freed { // a character that the gap has cut belongs to it
		k := partial(a)
		a = a[:len(a)-k]
		gap.From -= int64(k)
		for k = 0; k < min(utf8.UTFMax-1, len(b)) && !utf8.RuneStart(b[k]); k++ {
		}
		b = b[k:]
		gap.To += int64(k)
	}
	why := ""
	if freed {
		why = ", in part no longer kept"
	}
	text := fmt.Sprintf("[%d bytes left out: %s %d to %d%s]", gap.To-gap.From, w.stream, gap.From, gap.To, why)
	if a != "" && !strings.HasSuffix(a, "\n") {
		a += "\n"
	}
	if b != "" {
		text += "\n"
	}
	return piece{strings.ToValidUTF8(a, "�") + text + strings.ToValidUTF8(b, "�"), true}, nil
}

// partial is how many bytes at the end of text begin a character that is not whole.
func partial(text string) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if c := text[len(text)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRuneInString(text[len(text)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// shown is view.Show as a sequence.
func shown(ctx context.Context, p process.Process, o view.Options) func(func(view.Item, error) bool) {
	return func(yield func(view.Item, error) bool) {
		err := view.Show(ctx, p, o, func(it view.Item) error {
			if !yield(it, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && err != errEnough {
			yield(view.Item{}, err)
		}
	}
}

// streamsText shows streams of a process, the room divided among them. marks is where each
// begins.
func streamsText(ctx context.Context, p process.Process, info *process.Info, from [4]int64, only process.Stream, head int,
	raw bool, room int) (string, error) {
	var all []*window
	for _, si := range info.Streams {
		if only != 0 && si.Stream != only || si.End <= from[si.Stream] && only == 0 {
			continue
		}
		all = append(all, &window{stream: si.Stream, from: min(from[si.Stream], si.End), head: head, raw: raw, end: si.End})
	}
	if len(all) == 0 {
		return "(no output)\n", nil
	}
	var b strings.Builder
	for i, w := range all {
		title := fmt.Sprintf("%s %d to %d:\n", w.stream, w.from, w.end)
		mine := room / (len(all) - i)
		for _, o := range all[i+1:] { // what a later one does not need
			if need := int(min(o.end-o.from, 1<<30)) + 100; need < room/(len(all)-i) {
				mine = room - need
			}
		}
		got, err := w.span(ctx, p, max(48, mine-cost(title)-120))
		if err != nil {
			return "", err
		}
		if got.text != "" && !strings.HasSuffix(got.text, "\n") {
			got.text += "\n"
		}
		text := title + got.text
		room -= cost(text)
		b.WriteString(text)
	}
	return b.String(), nil
}
