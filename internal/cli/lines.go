package cli

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/tend-run/tend/process"
)

// lineWriter writes output with something before each line: the process, if
// there are several, and the time.
type lineWriter struct {
	inv   *invocation
	id    process.ID
	name  string // "": only one process is printed
	times bool
	utc   bool
	// together keeps the lines of several processes apart. They are held back
	// until they are whole then; nil: output is written as it comes.
	together *sync.Mutex

	streams [4]struct {
		held   []byte
		inside bool // of a line that was begun
		at     time.Time
	}
}

// longestHeld bounds a line that is held back, in bytes.
const longestHeld = 64 << 10

// nameColours are those of names before lines. Red and yellow say that something is wrong.
var nameColours = []string{"36", "35", "32", "34", "96", "95", "92", "94"}

// prefix is the name of one of several before its lines: on a terminal as wide as the longest
// of all, in a colour of its own.
func (inv *invocation) prefix(name string, all []string) string {
	text := printable(name)
	if !inv.colours(inv.out) {
		return text
	}
	wide := 0
	for _, other := range all {
		wide = max(wide, runewidth.StringWidth(printable(other)))
	}
	return paint(true, nameColours[max(slices.Index(all, name), 0)%len(nameColours)], runewidth.FillRight(text, wide))
}

func (l *lineWriter) before(at time.Time) string {
	text := ""
	if l.times {
		if text = timeText(at, l.utc, "2006-01-02T15:04:05.000000"); at.IsZero() {
			text = strings.Repeat("-", len(timeText(time.Now(), l.utc, "2006-01-02T15:04:05.000000")))
		}
		text += " "
	}
	if l.name != "" {
		text = l.name + " | " + text
	}
	return text
}

func (l *lineWriter) write(s process.Stream, at time.Time, data []byte) error {
	if l.together == nil {
		var b bytes.Buffer
		l.add(&b, s, at, data)
		_, err := l.inv.sink(s).Write(b.Bytes())
		return err
	}
	st := &l.streams[s]
	if len(st.held) == 0 {
		st.at = at
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	if whole == 0 && len(st.held)+len(data) <= longestHeld {
		st.held = append(st.held, data...)
		return nil
	}
	var b bytes.Buffer
	l.add(&b, s, st.at, st.held)
	if whole == 0 {
		whole = len(data)
		defer func() { l.streams[s].inside = false }()
	}
	l.add(&b, s, at, data[:whole])
	if last := b.Bytes(); last[len(last)-1] != '\n' {
		b.WriteByte('\n')
	}
	st.held, st.at = append(st.held[:0], data[whole:]...), at
	return l.put(s, b.Bytes())
}

// add puts data into b, with what comes before each line.
func (l *lineWriter) add(b *bytes.Buffer, s process.Stream, at time.Time, data []byte) {
	st := &l.streams[s]
	for line := range bytes.Lines(data) {
		if !st.inside {
			b.WriteString(l.before(at))
		}
		b.Write(line)
		st.inside = line[len(line)-1] != '\n'
	}
}

func (l *lineWriter) put(s process.Stream, text []byte) error {
	l.together.Lock()
	defer l.together.Unlock()
	_, err := l.inv.sink(s).Write(text)
	return err
}

// flush writes what is held back, with an end of its line.
func (l *lineWriter) flush() error {
	if l.together == nil {
		return nil
	}
	for s := range l.streams {
		if st := &l.streams[s]; len(st.held) > 0 {
			var b bytes.Buffer
			l.add(&b, process.Stream(s), st.at, st.held)
			b.WriteByte('\n')
			st.held, st.inside = nil, false
			if err := l.put(process.Stream(s), b.Bytes()); err != nil {
				return err
			}
		}
	}
	return nil
}
