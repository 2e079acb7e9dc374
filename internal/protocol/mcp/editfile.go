package mcp

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/process"
)

type writeArgs struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	User    string `json:"user,omitempty"`
	inSandbox
}

func (f *Face) writeFile(ctx context.Context, _ *sdk.CallToolRequest, c *call, a writeArgs) (*answer, error) {
	at, fs, name, err := f.filesOf(ctx, c, a.Sandbox, a.User, a.Path)
	if err != nil {
		return nil, err
	}
	defer f.lock(at, name)()
	e, err := fs.Write(name, strings.NewReader(a.Content), nil)
	if err != nil {
		return nil, err
	}
	return text("%s has %d bytes now.\n", e.Path, e.Size), nil
}

type editArgs struct {
	Path string `json:"path"`
	Old  string `json:"old" jsonschema:"the exact text to replace; must occur once"`
	New  string `json:"new"`
	All  bool   `json:"all,omitempty" jsonschema:"replace each occurrence"`
	User string `json:"user,omitempty"`
	inSandbox
}

const (
	// maxEdit bounds the files that are edited, in bytes. An edit holds the file as it was
	// and as it becomes, which may be four times as much.
	maxEdit = 16 << 20
	// maxEdits are made at a time; others wait.
	maxEdits = 8
)

func (f *Face) editFile(ctx context.Context, _ *sdk.CallToolRequest, c *call, a editArgs) (*answer, error) {
	if a.Old == "" || a.Old == a.New {
		return nil, &process.InvalidError{Field: "old", Reason: "is empty, or the same as new; give the text that is to be replaced"}
	}
	at, fs, name, err := f.filesOf(ctx, c, a.Sandbox, a.User, a.Path)
	if err != nil {
		return nil, err
	}
	select {
	case f.edits <- struct{}{}:
		defer func() { <-f.edits }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer f.lock(at, name)() // models call several tools at a time
	content, info, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if info.Size() > maxEdit {
		return nil, fmt.Errorf("%s has %d bytes; files of at most %d are edited: use a command", name, info.Size(), maxEdit)
	}
	// As it was, twice while it is read, and as it becomes; the ends of lines of new may double.
	held := 2*info.Size() + min(4*maxEdit, info.Size()+info.Size()/int64(len(a.Old))*int64(2*len(a.New)))
	if err := budget.Of(ctx).Add(held); err != nil {
		return nil, err
	}
	defer budget.Of(ctx).Give(held)
	was, err := io.ReadAll(io.LimitReader(content, maxEdit+1))
	if err != nil {
		return nil, err
	}
	a.keepEnding(was)
	n := bytes.Count(was, []byte(a.Old))
	switch {
	case c.again && isReplaced(was, []byte(a.Old), []byte(a.New)):
		return text("%s: replaced.\n", name), nil // by this call, whose answer was lost
	case n == 0:
		return nil,
			fmt.Errorf("old is nowhere in %s: read the file, and give the text exactly as it stands there, with its spaces and newlines; nothing was changed", name)
	case n > 1 && !a.All:
		return nil, fmt.Errorf("old is %d times in %s: give more of the text around it, or all; nothing was changed", n, name)
	}
	line := 1 + bytes.Count(was[:bytes.Index(was, []byte(a.Old))], []byte{'\n'})
	if int64(len(was))+int64(n)*int64(len(a.New)-len(a.Old)) > 4*maxEdit {
		return nil, fmt.Errorf("%s would have more than %d bytes: use a command; nothing was changed", name, 4*maxEdit)
	}
	if _, err := fs.Write(name, bytes.NewReader(bytes.ReplaceAll(was, []byte(a.Old), []byte(a.New))), nil); err != nil {
		return nil, err
	}
	return text("%s: replaced %d times, first in line %d.\n", name, n, line), nil
}

// keepEnding gives both texts the ends of lines that the file has: models write \n, also for a file whose lines end with \r\n.
// A text with a \r of its own says what it wants. In a file with both, \n alone comes first.
func (a *editArgs) keepEnding(was []byte) {
	if strings.Contains(a.Old+a.New, "\r") {
		return
	}
	all, windows := bytes.Count(was, []byte("\n")), bytes.Count(was, []byte("\r\n"))
	if windows == 0 || windows < all && bytes.Contains(was, []byte(a.Old)) {
		return
	}
	a.Old, a.New = strings.ReplaceAll(a.Old, "\n", "\r\n"), strings.ReplaceAll(a.New, "\n", "\r\n")
}

// isReplaced reports whether an edit has been made: new is there, and old at most as a
// part of it.
func isReplaced(content, old, new []byte) bool {
	if len(new) == 0 || !bytes.Contains(content, new) {
		return false
	}
	if !bytes.Contains(new, old) {
		return !bytes.Contains(content, old)
	}
	for more := true; more; {
		var outside []byte
		if outside, content, more = bytes.Cut(content, new); bytes.Contains(outside, old) {
			return false
		}
	}
	return true
}

var lockSeed = maphash.MakeSeed()

// lock holds other edits of the file back until unlock.
func (f *Face) lock(at *place, name string) (unlock func()) {
	l := &f.locks[maphash.String(lockSeed, string(at.sandbox)+"\x00"+name)%uint64(len(f.locks))]
	l.Lock()
	return l.Unlock
}

type findArgs struct {
	Dir    string `json:"dir,omitempty"`
	Glob   string `json:"glob,omitempty" jsonschema:"paths below dir, as **/*.go. Without glob and text: what is in dir"`
	Text   string `json:"text,omitempty" jsonschema:"lines holding this text, in files of glob"`
	User   string `json:"user,omitempty"`
	Tokens int    `json:"max_tokens,omitempty"`
	inSandbox
}
