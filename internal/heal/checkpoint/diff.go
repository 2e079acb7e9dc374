package checkpoint

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
)

// MaxDiff is the most bytes of a diff.
const MaxDiff = 256 << 10

// Diff returns the healer's changes as a unified diff of at most 256 KiB. It names what is
// left out.
func (p *Point) Diff(ctx context.Context) (string, error) {
	now, err := p.scan(ctx, p.last, nil)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	changes := p.changes(now, nil)
	for i, c := range changes {
		path := name(c.Path)
		was, is := p.base[path], now[path]
		old, okOld := p.text(ctx, was, func() ([]byte, error) { return p.content(ctx, was) })
		text, okNew := p.text(ctx, is, func() ([]byte, error) { return p.read(path) })
		var part string
		a, z := "a/"+c.Path, "b/"+c.Path
		if was == nil {
			a = "/dev/null"
		}
		if is == nil {
			z = "/dev/null"
		}
		switch {
		case c.Kind == Mode:
			part = fmt.Sprintf("%s: mode %o became %o\n", c.Path, was.Mode, is.Mode)
		case directories(was, is):
			part = fmt.Sprintf("%s: a directory was %s\n", c.Path, c.Kind)
		case !okOld || !okNew:
			part = fmt.Sprintf("Binary or large files %s and %s differ\n", a, z)
		default:
			part = udiff.Unified(a, z, old, text)
		}
		if b.Len()+len(part) > MaxDiff-100 {
			fmt.Fprintf(&b, "… %d of %d changed files are left out: the diff is too long\n", len(changes)-i, len(changes))
			break
		}
		b.WriteString(part)
	}
	return b.String(), nil
}

// FileDiff is the unified diff of one file, which there was before, and is now.
func FileDiff(path string, old, now []byte, was, is bool) string {
	a, z := "a/"+path, "b/"+path
	if !was {
		a = "/dev/null"
	}
	if !is {
		z = "/dev/null"
	}
	if !isText(old) || !isText(now) {
		return fmt.Sprintf("Binary or large files %s and %s differ\n", a, z)
	}
	return udiff.Unified(a, z, string(old), string(now))
}

// text returns what a diff shows of an entry.
func (p *Point) text(ctx context.Context, e *entry, read func() ([]byte, error)) (string, bool) {
	switch {
	case e == nil || e.Kind == directory:
		return "", true
	case e.Kind == link:
		return "link to " + string(e.Target) + "\n", true
	case e.Size > maxMerged || ctx.Err() != nil:
		return "", false
	}
	data, err := read()
	if err != nil || !isText(data) || !utf8.Valid(data) {
		return "", false
	}
	return string(data), true
}
