package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/files"
	"github.com/tend-run/tend/process"
)

// Bounds of a search.
const (
	maxFound  = 5000
	maxSearch = 1 << 30 // bytes that are read
	searchFor = 20 * time.Second
)

func (f *Face) findFiles(ctx context.Context, _ *sdk.CallToolRequest, c *call, a findArgs) (*answer, error) {
	var n notes
	left := budget(&n, a.Tokens)*3 - 300 - cost(strings.Join(n, " "))
	at, err := f.placeOf(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	fs, dir, err := at.files(a.User, a.Dir)
	if err != nil {
		return nil, err
	}
	if dir, err = fs.Resolve(dir); err != nil {
		return nil, err
	}
	var lines []string
	more := false
	if a.Glob == "" && a.Text == "" {
		all, err := fs.List(ctx, dir, 1)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			lines = append(lines, listed(&e))
		}
	} else {
		if a.Glob == "" {
			a.Glob = "**"
		}
		if len(a.Glob) > maxPattern || files.Alternatives(a.Glob) > files.MaxAlternatives {
			return nil, &process.InvalidError{Field: "glob", Reason: fmt.Sprintf("has %d bytes, or braces for too many patterns; the limits are %d and %d", len(a.Glob), maxPattern, files.MaxAlternatives)}
		}
		if !doublestar.ValidatePattern(a.Glob) {
			return nil, &process.InvalidError{Field: "glob", Reason: fmt.Sprintf("is %.100q, which is not well formed; **, *, ?, [..] and {a,b} have a meaning", a.Glob)}
		}
		ctx, stop := context.WithTimeout(ctx, searchFor)
		defer stop()
		var found []files.Match
		found, more, err = fs.Search(ctx, dir, files.Query{Glob: a.Glob, Text: a.Text, Limit: maxFound, MaxLine: maxGrepLine, MaxBytes: maxSearch})
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			name := strings.TrimPrefix(strings.TrimPrefix(m.Path, dir), "/")
			switch {
			case m.Info == nil:
				name = fmt.Sprintf("%s:%d: %s", name, m.Line, strings.ToValidUTF8(string(m.Text), "�"))
			case m.Info.IsDir():
				name += "/"
			}
			lines = append(lines, name)
		}
	}
	var b strings.Builder
	for i, line := range lines {
		if left -= cost(line) + 1; left < 0 {
			n.add("%d more are left out: give a narrower dir or glob, or more max_tokens.", len(lines)-i)
			break
		}
		b.WriteString(line + "\n")
	}
	if more {
		n.add("The search was ended early; there may be more.")
	}
	if len(lines) == 0 {
		b.WriteString("(nothing)\n")
	}
	for _, s := range n {
		b.WriteString("Note: " + s + "\n")
	}
	return text("%s:\n%s", dir, b.String()), nil
}

// listed is an entry of a directory as a line.
func listed(e *files.Entry) string {
	switch e.Type {
	case files.TypeDir:
		return e.Name + "/"
	case files.TypeFile:
		return fmt.Sprintf("%s %d", e.Name, e.Size)
	}
	if e.Target != "" {
		return e.Name + " -> " + e.Target
	}
	return e.Name + " (" + e.Permissions + ")"
}
