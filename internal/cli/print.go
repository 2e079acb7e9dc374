package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// All that a daemon says goes through printable or printJSON before it is shown,
// so that a name, a command line or an error cannot act on the terminal. The
// output of processes alone is printed as it is: by run, attach, logs, grep and
// wait --until match.

// printable shows what is no printable character by its number, as Go and
// Python write it: control characters, and the invisible ones that turn the
// direction of text.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i]) // a byte that is no UTF-8
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// printableLines keeps the ends of lines, and begins each but the first so that
// it cannot be taken for a message of its own.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n  ")
}

// note prints for the person what is no fact of the answer.
func (inv *invocation) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if inv.json {
		_ = printJSONLine(inv.errs, map[string]string{"notice": text}) // as below
		return
	}
	fmt.Fprintf(inv.errs, "tend: %s\n", printableLines(text)) // if this fails, no reader is left
}

// errorFacts is an error as JSON, on stderr.
type errorFacts struct {
	Error  string `json:"error"`  // as it is printed without --json
	Code   string `json:"code"`   // for programs: not_found, usage, no_daemon, …
	Status int    `json:"status"` // that the program ends with
}

// complain prints an error that ends the program, or is one of several that do.
func (inv *invocation) complain(err error, text string, status int) {
	if !inv.json {
		inv.note("%s", text)
		return
	}
	_ = printJSONLine(inv.errs, errorFacts{Error: text, Code: errorCode(err), Status: status})
}

// errorCodes name the errors that programs distinguish. They are API.
var errorCodes = []struct {
	err  error
	code string
}{
	{process.ErrNotFound, "not_found"}, {process.ErrAmbiguous, "ambiguous"}, {process.ErrExists, "exists"},
	{process.ErrExited, "exited"}, {process.ErrRunning, "running"}, {process.ErrStdinClosed, "stdin_closed"},
	{process.ErrNoPTY, "no_pty"}, {process.ErrPTY, "pty"}, {process.ErrOffset, "offset"},
	{process.ErrPermission, "permission_denied"}, {process.ErrUnsupported, "unsupported"}, {process.ErrLimit, "limit"},
	{process.ErrUnavailable, "unavailable"}, {context.DeadlineExceeded, "timeout"}, {errSurvivors, "survivors"},
	{errStrays, "strays"}, {tend.ErrSandboxStopped, "sandbox_stopped"}, {tend.ErrSandboxPaused, "sandbox_paused"}, {tend.ErrInUse, "in_use"},
}

func errorCode(err error) string {
	if _, ok := errors.AsType[usageError](err); ok {
		return "usage"
	}
	if _, ok := errors.AsType[lateError](err); ok {
		return "timeout"
	}
	if _, ok := errors.AsType[*noDaemonError](err); ok {
		return "no_daemon"
	}
	if start, ok := errors.AsType[*process.StartError](err); ok {
		return "start_" + start.Reason.String()
	}
	if _, ok := errors.AsType[*process.InvalidError](err); ok {
		return "invalid"
	}
	if _, ok := errors.AsType[*tend.ChangedError](err); ok {
		return "changed"
	}
	for _, known := range errorCodes {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return "failed"
}

// printJSON writes v indented, for people and jq alike.
func printJSON(w io.Writer, v any) error { return encode(w, v, "  ") }

// printJSONLine writes v on one line, for streams of facts.
func printJSONLine(w io.Writer, v any) error { return encode(w, v, "") }

// encode writes JSON. What a terminal acts on and JSON allows as it is, DEL, the
// controls from U+0080 and those of the direction of writing, is written by its number.
func encode(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	return writeJSON(w, b.Bytes())
}

// writeJSON writes what is JSON already.
func writeJSON(w io.Writer, text []byte) error {
	control := func(r rune) bool { return r >= 0x7f && tendpb.Active(r) }
	if bytes.IndexFunc(text, control) >= 0 {
		var safe bytes.Buffer
		for _, r := range string(text) {
			if control(r) {
				fmt.Fprintf(&safe, `\u%04x`, r)
			} else {
				safe.WriteRune(r)
			}
		}
		text = safe.Bytes()
	}
	_, err := w.Write(text)
	return err
}

// cells measures text as terminals show it: wide characters take two.
var cells = &runewidth.Condition{StrictEmojiNeutral: true}

// alignRows lays out rows in columns. It comes before any colour, whose bytes
// would count as width.
func alignRows(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cells.StringWidth(cell))
		}
	}
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		lines = append(lines, alignRow(row, widths))
	}
	return lines
}

// alignRow fills each cell but the last up to its width.
func alignRow(row []string, widths []int) string {
	var b strings.Builder
	for i, cell := range row {
		b.WriteString(cell)
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", max(0, widths[i]-cells.StringWidth(cell))+2))
		}
	}
	return b.String()
}

// cut shortens a line to width cells; 0 keeps it.
func cut(line string, width int) string {
	if width <= 0 || cells.StringWidth(line) <= width {
		return line
	}
	return cells.Truncate(line, width, "")
}

// answer prints one fact: as JSON by print, which is printJSON or printJSONLine, or as text.
func (inv *invocation) answer(print func(io.Writer, any) error, fact any, text string) error {
	if inv.flags.JSON {
		return print(inv.out, fact)
	}
	_, err := fmt.Fprintln(inv.out, printable(text))
	return err
}

// mapped makes something of each of a list; it is never nil.
func mapped[T, F any](all []T, of func(*T) F) []F {
	out := make([]F, len(all))
	for i := range all {
		out[i] = of(&all[i])
	}
	return out
}

// printList prints what there is of something, as the flags say: its facts, the first
// column alone, or a table; see printRows.
func (inv *invocation) printList(facts any, rows [][]string, quiet bool) error {
	switch {
	case inv.flags.JSON:
		return printJSON(inv.out, facts)
	case quiet:
		for _, row := range rows[1:] {
			if _, err := fmt.Fprintln(inv.out, row[0]); err != nil {
				return err
			}
		}
		return nil
	}
	return inv.printRows(rows, nil)
}

// printRows prints a table whose first row is the head, cut to the terminal's width.
// colourOf is the colour of the n-th row below the head, "" for none; nil: none has one.
func (inv *invocation) printRows(rows [][]string, colourOf func(n int) string) error {
	width := 0
	if size, ok := terminalSize(inv.out); ok {
		width = int(size.Cols)
	}
	colour := inv.colours(inv.out)
	for i, line := range alignRows(rows) {
		line = cut(line, width)
		if i == 0 {
			line = paint(colour, dim, line)
		} else if colourOf != nil {
			line = paint(colour, colourOf(i-1), line)
		}
		if _, err := fmt.Fprintln(inv.out, line); err != nil {
			return err
		}
	}
	return nil
}
