package native

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// Kept gives access to what repairs and chats keep of the files that they changed.
type Kept interface {
	// FileBefore returns what a file was before the newest repair or turn of a chat that has
	// changed it; without ChangedBy there is none. path is absolute, in the sandbox of
	// which the ID and the name are given, or on the machine without.
	FileBefore(ctx context.Context, sandbox []string, path string) (*tendv1.FileBeforeResponse, error)
}

// FileBefore answers only for files that the caller may read now.
func (s *fileService) FileBefore(ctx context.Context,
	req *connect.Request[tendv1.FileBeforeRequest]) (*connect.Response[tendv1.FileBeforeResponse], error) {
	if s.kept == nil {
		return nil, wireError(fmt.Errorf("what files were before: %w", process.ErrUnsupported))
	}
	m := req.Msg
	f, err := s.in(ctx, m.GetUser(), m.GetPath())
	if err != nil {
		return nil, fileError(err)
	}
	e, err := f.Stat(m.GetPath())
	if err != nil {
		return nil, fileError(err)
	}
	now, _, err := f.Open(m.GetPath())
	if err != nil {
		return nil, fileError(err)
	}
	if err := now.Close(); err != nil {
		return nil, fileError(err)
	}
	var names []string
	if keys := req.Header().Values(tendpb.SandboxHeader); len(keys) > 0 {
		sandbox, err := find(ctx, s.driver, keys[0])
		if err != nil {
			return nil, fileError(err)
		}
		info, err := sandbox.Info(ctx)
		if err != nil {
			return nil, fileError(err)
		}
		names = []string{string(info.ID), info.Name}
	}
	out, err := s.kept.FileBefore(ctx, names, e.Path)
	return answer(out, err)
}
