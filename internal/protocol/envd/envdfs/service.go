package envdfs

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tend-run/tend/internal/files"
	pb "github.com/tend-run/tend/internal/gen/envd/filesystem"
)

// service implements filesystemconnect.FilesystemHandler. It is a type of its
// own so that its methods are no part of Face.
type service struct{ f *Face }

func (s service) Stat(ctx context.Context, req *connect.Request[pb.StatRequest]) (*connect.Response[pb.StatResponse], error) {
	fsys, err := s.f.fsOf(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	entry, err := fsys.Stat(req.Msg.GetPath())
	if err != nil {
		return nil, rpcError(err, map[error]string{files.ErrNotExist: "file not found: %v"})
	}
	return connect.NewResponse(&pb.StatResponse{Entry: entryInfo(&entry)}), nil
}

func (s service) MakeDir(ctx context.Context, req *connect.Request[pb.MakeDirRequest]) (*connect.Response[pb.MakeDirResponse], error) {
	fsys, err := s.f.fsOf(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	entry, err := fsys.Mkdir(req.Msg.GetPath())
	switch {
	case errors.Is(err, files.ErrExists):
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", pathOf(err, "")))
	case err != nil:
		if path, rerr := fsys.Resolve(req.Msg.GetPath()); rerr == nil && fileAbove(err) == path {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", path))
		}
		return nil, changeError(err, "error creating directory")
	}
	return connect.NewResponse(&pb.MakeDirResponse{Entry: entryInfo(&entry)}), nil
}

func (s service) Move(ctx context.Context, req *connect.Request[pb.MoveRequest]) (*connect.Response[pb.MoveResponse], error) {
	fsys, err := s.f.fsOf(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	entry, err := fsys.Move(req.Msg.GetSource(), req.Msg.GetDestination())
	if errors.Is(err, files.ErrNotExist) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("source file not found: %w", err))
	}
	if err != nil {
		return nil, changeError(err, "error renaming")
	}
	return connect.NewResponse(&pb.MoveResponse{Entry: entryInfo(&entry)}), nil
}

func (s service) ListDir(ctx context.Context, req *connect.Request[pb.ListDirRequest]) (*connect.Response[pb.ListDirResponse], error) {
	fsys, err := s.f.fsOf(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	list, err := fsys.List(ctx, req.Msg.GetPath(), req.Msg.GetDepth())
	switch {
	case errors.Is(err, files.ErrLoop):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("cyclic symlink or chain >255 links at %q", pathOf(err, "")))
	case errors.Is(err, files.ErrNotDir):
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", pathOf(err, "")))
	case err != nil:
		return nil, rpcError(err, map[error]string{files.ErrNotExist: "path not found: %v"})
	}
	infos := make([]*pb.EntryInfo, len(list))
	for i := range list {
		infos[i] = entryInfo(&list[i])
	}
	return connect.NewResponse(&pb.ListDirResponse{Entries: infos}), nil
}

func (s service) Remove(ctx context.Context, req *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	fsys, err := s.f.fsOf(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	if err := fsys.Remove(req.Msg.GetPath()); err != nil {
		return nil, changeError(err, "error removing file or directory")
	}
	return connect.NewResponse(&pb.RemoveResponse{}), nil
}

// changeError gives an error of MakeDir, Move or Remove its code: as in the original, all
// that has to do with the files themselves is internal.
func changeError(err error, text string) error {
	_, code := codesOf(err)
	_, invalid := errors.AsType[*files.InvalidError](err)
	switch code {
	case connect.CodeUnavailable, connect.CodePermissionDenied, connect.CodeCanceled, connect.CodeDeadlineExceeded:
		return connect.NewError(code, err)
	}
	if invalid {
		return connect.NewError(code, err)
	}
	if at := fileAbove(err); at != "" {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("path is a file: %s", at))
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("%s: %w", text, err))
}

// rpcError gives an error of files its code. texts hold the original's words
// for some kinds of errors.
func rpcError(err error, texts map[error]string) error {
	_, code := codesOf(err)
	for kind, text := range texts {
		if errors.Is(err, kind) {
			return connect.NewError(code, fmt.Errorf(text, err))
		}
	}
	return connect.NewError(code, err)
}

func entryInfo(e *files.Entry) *pb.EntryInfo {
	if e == nil {
		return nil
	}
	info := &pb.EntryInfo{
		Name:        e.Name,
		Path:        e.Path,
		Size:        e.Size,
		Mode:        uint32(e.Mode),
		Permissions: e.Permissions,
		Owner:       e.Owner,
		Group:       e.Group,
		Metadata:    e.Metadata,
	}
	if !e.Modified.IsZero() {
		info.ModifiedTime = timestamppb.New(e.Modified)
	}
	// A link is shown as what it leads to; the SDKs know it by its target.
	switch e.Type {
	case files.TypeFile:
		info.Type = pb.FileType_FILE_TYPE_FILE
	case files.TypeDir:
		info.Type = pb.FileType_FILE_TYPE_DIRECTORY
	}
	if e.Target != "" {
		info.SymlinkTarget = proto.String(e.Target)
	}
	return info
}
