package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/process"
)

type readArgs struct {
	Path   string `json:"path"`
	From   int    `json:"from_line,omitempty" jsonschema:"default 1"`
	Lines  int    `json:"lines,omitempty" jsonschema:"default: as many as fit"`
	User   string `json:"user,omitempty"`
	Tokens int    `json:"max_tokens,omitempty"`
	inSandbox
}

// maxCount is up to which size the lines of a file are counted, in bytes.
const maxCount = 64 << 20

func (f *Face) readFile(ctx context.Context, _ *sdk.CallToolRequest, c *call, a readArgs) (*answer, error) {
	var n notes
	tokens := allowance(&n, a.Tokens)
	if a.From < 0 || a.Lines < 0 {
		return nil, &process.InvalidError{Field: "from_line", Reason: "or lines is negative; the first line is 1"}
	}
	_, fs, name, err := f.filesOf(ctx, c, a.Sandbox, a.User, a.Path)
	if err != nil {
		return nil, err
	}
	content, info, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	first := max(a.From, 1)
	left := tokens*3 - 300 - cost(strings.Join(n, " "))
	var b strings.Builder
	line, last, cut := 0, first-1, false
	r := bufio.NewReaderSize(content, 64<<10)
	for whole := true; ; {
		piece, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(piece) > 0 && whole {
			line++
		}
		full := cut || a.Lines > 0 && line >= first+a.Lines
		if len(piece) > 0 && line >= first && !full {
			if bytes.IndexByte(piece, 0) >= 0 {
				return nil, fmt.Errorf("%s is no text: it has a NUL byte in line %d, of %d bytes in all; look at it with a command",
					name, line, info.Size())
			}
			text := strings.ToValidUTF8(string(piece), "�")
			if k := cost(text); k > left {
				cut = true
				if b.Len() == 0 { // better a part of a line than nothing
					b.WriteString(cutTo(text, left) + "…\n")
					n.add("Line %d is longer than max_tokens, and was cut.", line)
					last = line
				}
			} else {
				left -= k
				b.WriteString(text)
				last = line
			}
		}
		whole = err == nil
		if errors.Is(err, io.EOF) {
			break
		}
		if full && info.Size() > maxCount {
			line = -1
			break
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	body := b.String()
	if body != "" && !strings.HasSuffix(body, "\n") {
		body += "\n"
		n.add("The last line has no newline.")
	}
	total := fmt.Sprintf("%d lines", line)
	if line < 0 {
		total = fmt.Sprintf("%d bytes", info.Size())
	}
	title := fmt.Sprintf("%s lines %d to %d of %s\n", name, first, last, total)
	switch {
	case line == 0:
		title = name + " is empty\n"
	case last < first:
		title = fmt.Sprintf("%s has %s, and none from %d on\n", name, total, first)
	}
	if len(n) > 0 {
		body += "Note: " + strings.Join(n, " ") + "\n"
	}
	return &answer{title + body, map[string]any{"path": name, "from": first, "to": last, "lines": line, "size": info.Size()}, nil}, nil
}
