package template

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// MaxFile is the most bytes of a build file.
const MaxFile = driver.MaxStepBytes

// File is what a build file says.
type File struct {
	// From is a template; "": base. FromDir is a path as written, and FromImage the name of an
	// image; at most one of the three is set.
	From, FromDir, FromImage string
	Steps                    []Step
	Start, Ready             string
}

// Step is one instruction, in the form of driver.Step; a COPY has no hash yet, and one
// source.
type Step struct {
	driver.Step
	Line int // from 1
}

// Error is a mistake in a build file.
type Error struct {
	Line, Column int // from 1; the column counts characters
	Reason       string
}

func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Parse reads a build file. The error is an *Error.
func Parse(text string) (*File, error) {
	p := &parser{file: &File{}}
	if len(text) > MaxFile {
		return nil, &Error{1, 1, fmt.Sprintf("the file has %d bytes; the limit is %d", len(text), MaxFile)}
	}
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		for i, c := range line {
			if c == utf8.RuneError || c < ' ' && c != '\t' {
				return nil, &Error{n + 1, utf8.RuneCountInString(line[:i]) + 1, "is no printable UTF-8"}
			}
		}
		if err := p.line(n+1, line); err != nil {
			return nil, err
		}
	}
	if p.open {
		return nil, &Error{p.first, 1, "the instruction goes on, but there is no line after it"}
	}
	return p.file, nil
}

type parser struct {
	file  *File
	begun bool // an instruction was read

	// An instruction that continues over several lines: its pieces and where each begins.
	open  bool
	first int // its first line
	text  string
	at    []place
}

// place is where a part of an instruction's text comes from.
type place struct{ offset, line, column int }

func (p *parser) line(n int, line string) error {
	start := len(line) - len(strings.TrimLeft(line, " \t"))
	if !p.open && (start == len(line) || line[start] == '#') {
		return nil
	}
	if !p.open {
		p.open, p.first, p.text, p.at = true, n, "", nil
	}
	p.at = append(p.at, place{len(p.text), n, utf8.RuneCountInString(line[:start]) + 1})
	rest := strings.TrimRight(line[start:], " \t")
	if more, goes := strings.CutSuffix(rest, `\`); goes {
		p.text += more + " "
		return nil
	}
	p.open = false
	p.text += rest
	return p.instruction()
}

// fault is a mistake at an offset of the instruction's text.
func (p *parser) fault(offset int, format string, args ...any) error {
	from := p.at[0]
	for _, at := range p.at {
		if at.offset <= offset {
			from = at
		}
	}
	return &Error{from.line, from.column + utf8.RuneCountInString(p.text[from.offset:offset]), fmt.Sprintf(format, args...)}
}

func (p *parser) instruction() error {
	name, _, _ := strings.Cut(strings.ReplaceAll(p.text, "\t", " "), " ")
	begin := len(name)
	for begin < len(p.text) && (p.text[begin] == ' ' || p.text[begin] == '\t') {
		begin++
	}
	rest := strings.TrimRight(p.text[begin:], " \t")
	first := !p.begun
	p.begun = true
	f := p.file
	switch name {
	case "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "START", "READY":
		if rest == "" {
			return p.fault(len(name), "%s needs something behind it", name)
		}
	default:
		return p.fault(0, "%.40q is no instruction; FROM, RUN, COPY, ENV, USER, WORKDIR, START and READY are", name)
	}
	switch name {
	case "RUN":
		return p.step("RUN", rest)
	case "START", "READY":
		to := &f.Start
		if name == "READY" {
			to = &f.Ready
		}
		if *to != "" {
			return p.fault(0, "there is a second %s", name)
		}
		*to = rest
		return nil
	}
	words, err := p.words(begin)
	if err != nil {
		return err
	}
	if (name == "FROM" || name == "USER" || name == "WORKDIR") && len(words) != 1 {
		return p.fault(words[1].offset, "%s has one word; put quotes around one with blanks", name)
	}
	switch name {
	case "FROM":
		if !first {
			return p.fault(0, "FROM must be the first instruction")
		}
		return p.from(words[0])
	case "ENV":
		var args []string
		for _, w := range words {
			k, v, ok := strings.Cut(w.text, "=")
			if !ok || k == "" {
				return p.fault(w.offset, "%.80q is not NAME=VALUE", w.text)
			}
			args = append(args, k, v)
		}
		return p.step("ENV", args...)
	case "COPY":
		if len(words) < 2 {
			return p.fault(len(p.text), "COPY needs a source and a destination")
		}
		to := words[len(words)-1]
		if len(words) > 2 && !strings.HasSuffix(to.text, "/") {
			return p.fault(to.offset, "the destination of several sources must end with '/'")
		}
		for _, w := range words[:len(words)-1] {
			if err := p.source(w); err != nil {
				return err
			}
			if err := p.step("COPY", w.text, to.text); err != nil {
				return err
			}
		}
		return nil
	}
	return p.step(name, words[0].text)
}

func (p *parser) step(kind string, args ...string) error {
	if len(p.file.Steps) == driver.MaxSteps {
		return p.fault(0, "there are more than %d steps", driver.MaxSteps)
	}
	p.file.Steps = append(p.file.Steps, Step{driver.Step{Kind: kind, Args: args}, p.at[0].line})
	return nil
}

func (p *parser) from(w word) error {
	kind, rest, special := strings.Cut(w.text, ":")
	switch {
	case w.text == "host":
		return nil
	case special && kind == "dir" && rest == "":
		return p.fault(w.offset, "dir: needs a path")
	case special && kind == "image" && rest == "":
		return p.fault(w.offset, "image: needs a name, such as image:python:3")
	case special && kind == "tar":
		return p.fault(w.offset, "a tar with a whole root is an image: tend image import -t NAME %.200s, and then FROM image:NAME", rest)
	case special && kind == "dir":
		p.file.FromDir = rest
		return nil
	case special && kind == "image":
		p.file.FromImage = rest
		return nil
	}
	for i, c := range w.text {
		ok := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || i > 0 && strings.ContainsRune("-_.:/", c)
		if !ok {
			return p.fault(w.offset,
				"%.80q is no template: host, NAME, NAME:TAG, dir:PATH and image:NAME are known, and a name has lower-case letters, digits, '-' and '_'",
				w.text)
		}
	}
	p.file.From = w.text
	return nil
}

// source refuses what is not below the directory of the build file. Links there are
// looked at when the files are read.
func (p *parser) source(w word) error {
	if path.IsAbs(w.text) {
		return p.fault(w.offset, "a source is relative to the directory of the build file")
	}
	for part := range strings.SplitSeq(w.text, "/") {
		if part == ".." {
			return p.fault(w.offset, "a source does not lead up by '..'")
		}
	}
	dir, name := path.Split(strings.TrimSuffix(w.text, "/"))
	if _, err := path.Match(name, ""); err != nil {
		return p.fault(w.offset, "%.80q is a pattern with a mistake", name)
	}
	if strings.ContainsAny(dir, "*?[") {
		return p.fault(w.offset, "only the last name of a source may be a pattern")
	}
	return nil
}

type word struct {
	text   string
	offset int // in the instruction's text
}

// words are those from an offset on.
func (p *parser) words(at int) ([]word, error) {
	var all []word
	s := p.text
	for {
		for at < len(s) && (s[at] == ' ' || s[at] == '\t') {
			at++
		}
		if at == len(s) {
			return all, nil
		}
		w := word{offset: at}
		var b strings.Builder
		quoted := false
		for ; at < len(s) && (quoted || s[at] != ' ' && s[at] != '\t'); at++ {
			switch {
			case s[at] == '"':
				quoted = !quoted
			case quoted && s[at] == '\\' && at+1 < len(s) && (s[at+1] == '"' || s[at+1] == '\\'):
				at++
				b.WriteByte(s[at])
			default:
				b.WriteByte(s[at])
			}
		}
		if quoted {
			return nil, p.fault(w.offset, "the quotes are not closed")
		}
		if w.text = b.String(); w.text == "" {
			return nil, p.fault(w.offset, "an empty word")
		}
		all = append(all, w)
	}
}
