package mcp

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

const (
	uriList     = "tend://processes"
	uriTemplate = "tend://process/{id}/{stream}"
	// maxResource bounds the text of a resource in bytes: the end of an output.
	maxResource = 64 << 10
)

func (f *Face) addResources(s *sdk.Server) {
	s.AddResource(&sdk.Resource{Name: "processes", URI: uriList, MIMEType: "text/plain", Description: "Processes, one a line."}, f.readList)
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "output", URITemplate: uriTemplate, MIMEType: "text/plain",
		Description: "The end of a process's output, at most 64 KiB: stdout, stderr or pty.",
	}, f.readOutput)
}

func (f *Face) readList(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	c := callOf(ctx)
	ctx, done := c.context(ctx)
	defer done()
	got, err := f.list(ctx, nil, c, listArgs{All: true, Tokens: 10_000})
	if err != nil {
		return nil, err
	}
	return contents(r.Params.URI, got.text), nil
}

func contents(uri, text string) *sdk.ReadResourceResult {
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: "text/plain", Text: text}}}
}

// logOf finds the stream that a URI names, in the place of the call.
func (f *Face) logOf(ctx context.Context, c *call, uri string) (process.Process, process.Stream, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "tend" || u.Host != "process" {
		return nil, 0, sdk.ResourceNotFoundError(uri)
	}
	id, word, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	s, err := streamNamed(word)
	if err != nil || s == 0 || process.ID(id).Validate() != nil {
		return nil, 0, sdk.ResourceNotFoundError(uri)
	}
	p, err := c.place.access.Processes().Get(ctx, process.Selector{ID: process.ID(id)})
	if err != nil {
		return nil, 0, sdk.ResourceNotFoundError(uri)
	}
	return p, s, nil
}

func (f *Face) readOutput(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	c := callOf(ctx)
	ctx, done := c.context(ctx)
	defer done()
	p, s, err := f.logOf(ctx, c, r.Params.URI)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	o := view.Options{Streams: []process.Stream{s}, Tail: view.Amount{Bytes: maxResource}, StripANSI: true}
	for it, err := range shown(ctx, p, o) {
		switch {
		case err != nil:
			return nil, err
		case it.Omitted == 0:
			b.Write(it.Text)
		case it.To > it.From:
			fmt.Fprintf(&b, "[%d bytes left out: %s %d to %d]\n", it.To-it.From, it.Stream, it.From, it.To)
		}
	}
	return contents(r.Params.URI, strings.ToValidUTF8(b.String(), "�")), nil
}
