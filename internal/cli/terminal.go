package cli

import (
	"io"
	"os"

	"github.com/tend-run/tend/process"
	"golang.org/x/term"
)

// fallbackSize is what a terminal program gets when it is started from
// something that is no terminal.
var fallbackSize = process.Size{Cols: 80, Rows: 24}

// terminalOf returns the file descriptor of w or r if it is a terminal.
func terminalOf(stream any) (fd int, ok bool) {
	f, isFile := stream.(*os.File)
	if !isFile || f == nil {
		return -1, false
	}
	return int(f.Fd()), term.IsTerminal(int(f.Fd()))
}

// terminalSize returns the size of the terminal behind stream.
func terminalSize(stream any) (process.Size, bool) {
	fd, ok := terminalOf(stream)
	if !ok {
		return process.Size{}, false
	}
	cols, rows, err := term.GetSize(fd)
	if err != nil || cols <= 0 || rows <= 0 {
		return process.Size{}, false
	}
	return process.Size{Cols: clampSide(cols), Rows: clampSide(rows)}, true
}

func clampSide(n int) uint16 {
	return uint16(max(0, min(n, process.MaxTermSide)))
}

// colours says whether stream wants them: a terminal that is not dumb, and no
// NO_COLOR (https://no-color.org: present and not empty).
func (inv *invocation) colours(stream io.Writer) bool {
	_, ok := terminalOf(stream)
	return ok && inv.getenv("NO_COLOR") == "" && inv.getenv("TERM") != "dumb"
}

// Colours of the SGR sequence.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	dim    = "2"
	bold   = "1"
)

func paint(on bool, sgr, text string) string {
	if !on || sgr == "" || text == "" {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}
