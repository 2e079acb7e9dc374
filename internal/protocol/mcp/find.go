package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/files"
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
	left := allowance(&n, a.Tokens)*3 - 300 - cost(strings.Join(n, " "))
	_, fs, dir, err := f.filesOf(ctx, c, a.Sandbox, a.User, a.Dir)
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
			return nil, &process.InvalidError{Field: "glob",
				Reason: fmt.Sprintf("has %d bytes, or braces for too many patterns; the limits are %d and %d", len(a.Glob), maxPattern,
					files.MaxAlternatives)}
		}
		if !doublestar.ValidatePattern(a.Glob) {
			return nil, &process.InvalidError{Field: "glob",
				Reason: fmt.Sprintf("is %.100q, which is not well formed; **, *, ?, [..] and {a,b} have a meaning", a.Glob)}
		}
		ctx, stop := context.WithTimeout(ctx, searchFor)
		defer stop()
		var found []files.Match
		found, more, err = fs.Search(ctx, dir, files.Query{Glob: a.Glob, Text: a.Text, Limit: maxFound, MaxLine: maxGrepLine,
			MaxBytes: maxSearch})
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
	if more {
		n.add("The search was ended early; there may be more.")
	}
	return listing{
		head: dir + ":\n", lines: len(lines), line: func(i int) string { return lines[i] + "\n" },
		none: "(nothing)\n", more: "%d more are left out: give a narrower dir or glob, or more max_tokens.",
	}.answer(n, left), nil
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
