package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// fileService implements the FileService. It touches nothing but what is in the sandbox
// that a call names, or what a user of the machine may touch.
type fileService struct {
	driver  driver.Driver
	machine driver.Access // nil: files are those of sandboxes alone
	kept    Kept          // nil: nothing is kept of what they were

	watches   *budget.Budget // has a place for each
	heartbeat time.Duration
	stopping  <-chan struct{}
}

// readPiece is how much of a file one message has.
const readPiece = 256 << 10

// in returns the files of the place of a call, for a user.
func (s *fileService) in(ctx context.Context, user string, paths ...string) (driver.Files, error) {
	call, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return nil, errors.New("a call without its headers")
	}
	return s.at(ctx, call.RequestHeader(), user, paths...)
}

func (s *fileService) at(ctx context.Context, h http.Header, user string, paths ...string) (driver.Files, error) {
	for i, p := range paths {
		field := "path"
		if len(paths) > 1 {
			field = []string{"source", "destination"}[i]
		}
		if p == "" || len(p) > driver.MaxPath || strings.ContainsRune(p, 0) {
			return nil, &process.InvalidError{Field: field, Reason: fmt.Sprintf("has %d bytes, or a NUL byte; 1 to %d are allowed",
				len(p), driver.MaxPath)}
		}
	}
	if len(user) > driver.MaxName || strings.ContainsRune(user, 0) {
		return nil, &process.InvalidError{Field: "user", Reason: fmt.Sprintf("has %d bytes, or a NUL byte; at most %d are allowed",
			len(user), driver.MaxName)}
	}
	keys := h.Values(tendpb.SandboxHeader)
	if len(keys) == 0 && s.machine != nil {
		return known(user)(s.machine.Files(user, ""))
	}
	if len(keys) != 1 || keys[0] == "" {
		return nil, &process.InvalidError{Field: tendpb.SandboxHeader,
			Reason: fmt.Sprintf("comes %d times, or is empty; files are those of one sandbox", len(keys))}
	}
	sandbox, err := find(ctx, s.driver, keys[0])
	if err != nil {
		return nil, err
	}
	info, err := sandbox.Info(ctx)
	if err != nil {
		return nil, err
	}
	dir := info.Run.Dir
	if dir == "" {
		dir = info.Dir
	}
	return known(user)(sandbox.Files(user, dir))
}

// known says which user is not known.
func known(user string) func(driver.Files, error) (driver.Files, error) {
	return func(f driver.Files, err error) (driver.Files, error) {
		if errors.Is(err, files.ErrUnknownUser) {
			return nil, fmt.Errorf("user %.80q: %w", user, err)
		}
		return f, err
	}
}

// fileError is an error about a file for the wire.
func fileError(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []struct{ files, wire error }{
		{files.ErrNotExist, process.ErrNotFound}, {files.ErrExists, process.ErrExists}, {files.ErrPermission, process.ErrPermission},
		{files.ErrTooMany, process.ErrLimit}, {files.ErrNoSpace, process.ErrLimit},
	} {
		if errors.Is(err, known.files) {
			return wireError(errtext.New(err.Error(), known.wire))
		}
	}
	if errors.Is(err, files.ErrChanged) {
		return wireError(connect.NewError(connect.CodeAborted, errors.New(text(err.Error()))))
	}
	for _, wrong := range []error{files.ErrIsDir, files.ErrNotDir, files.ErrNotRegular, files.ErrLoop, files.ErrCrossDevice,
		files.ErrBusy, files.ErrUnknownUser, files.ErrEndless} {
		if errors.Is(err, wrong) {
			return wireError(connect.NewError(connect.CodeFailedPrecondition, errors.New(text(err.Error()))))
		}
	}
	return wireError(err)
}

func fileEntry(e *files.Entry) *tendv1.FileEntry {
	return &tendv1.FileEntry{
		Name: text(e.Name), Path: text(e.Path), Type: tendv1.FileType(e.Type), Size: e.Size, Mode: uint32(e.Mode.Perm()),
		Owner: text(e.Owner), Group: text(e.Group), Modified: tendpb.Time(e.Modified), Target: text(e.Target),
	}
}

func (s *fileService) StatFile(ctx context.Context,
	req *connect.Request[tendv1.StatFileRequest]) (*connect.Response[tendv1.StatFileResponse], error) {
	f, err := s.in(ctx, req.Msg.GetUser(), req.Msg.GetPath())
	if err != nil {
		return nil, fileError(err)
	}
	e, err := f.Stat(req.Msg.GetPath())
	if errors.Is(err, files.ErrNotDir) { // a path below a file: there is nothing
		err = errtext.New(err.Error(), process.ErrNotFound)
	}
	if err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(&tendv1.StatFileResponse{Entry: fileEntry(&e)}), nil
}

func (s *fileService) ListFiles(ctx context.Context,
	req *connect.Request[tendv1.ListFilesRequest]) (*connect.Response[tendv1.ListFilesResponse], error) {
	if req.Msg.GetChanged() {
		return s.changes(ctx, req.Header(), req.Msg)
	}
	f, err := s.in(ctx, req.Msg.GetUser(), req.Msg.GetPath())
	if err != nil {
		return nil, fileError(err)
	}
	if req.Msg.GetLimit() > 0 {
		return listSome(ctx, f, req.Msg)
	}
	all, err := f.List(ctx, req.Msg.GetPath(), req.Msg.GetDepth())
	if err != nil {
		return nil, fileError(err)
	}
	resp := &tendv1.ListFilesResponse{}
	size := 0
	for i := range all {
		m := fileEntry(&all[i])
		if size += proto.Size(m) + 4; size > MaxRequest {
			return nil, wireError(fmt.Errorf("the listing has more than %d bytes; list with a smaller depth: %w", MaxRequest, process.ErrLimit))
		}
		resp.Entries = append(resp.Entries, m)
	}
	return connect.NewResponse(resp), nil
}

// changes tells what has changed in a share that is a copy.
func (s *fileService) changes(ctx context.Context, h http.Header,
	m *tendv1.ListFilesRequest) (*connect.Response[tendv1.ListFilesResponse], error) {
	keys := h.Values(tendpb.SandboxHeader)
	switch {
	case len(keys) != 1:
		return nil, wireError(&process.InvalidError{Field: tendpb.SandboxHeader,
			Reason: fmt.Sprintf("comes %d times; changes are those of one sandbox", len(keys))})
	case !strings.HasPrefix(m.GetPath(), "/") || len(m.GetPath()) > driver.MaxPath || strings.ContainsRune(m.GetPath(), 0):
		return nil, wireError(&process.InvalidError{Field: "path", Reason: fmt.Sprintf("is %.80q; an absolute path of at most %d bytes is needed",
			m.GetPath(), driver.MaxPath)})
	case len(m.GetSkip()) > maxSkip:
		return nil, wireError(&process.InvalidError{Field: "skip",
			Reason: fmt.Sprintf("has %d entries; the limit is %d", len(m.GetSkip()), maxSkip)})
	}
	d, ok := s.driver.(driver.Differ)
	if !ok {
		return nil, wireError(&driver.UnsupportedError{Field: "changed", Reason: "this driver does not tell it"})
	}
	box, err := find(ctx, s.driver, keys[0])
	if err != nil {
		return nil, wireError(err)
	}
	info, err := box.Info(ctx)
	if err != nil {
		return nil, wireError(err)
	}
	all, err := d.Changes(ctx, info.ID, m.GetPath(), m.GetSkip(), driver.MaxChanges)
	if err != nil {
		return nil, wireError(err)
	}
	resp := &tendv1.ListFilesResponse{}
	for _, c := range all {
		if !utf8.ValidString(c.Path) {
			c.Kind = driver.ChangeSpecial // nobody could ask for it
		}
		resp.Entries = append(resp.Entries, &tendv1.FileEntry{Path: text(c.Path), Change: string(c.Kind)})
	}
	return connect.NewResponse(resp), nil
}

// maxSkip bounds the names of directories that are left out of changes.
const maxSkip = 64

// maxWindow is the most entries of a part of a directory.
const maxWindow = 10_000

func listSome(ctx context.Context, f driver.Files, m *tendv1.ListFilesRequest) (*connect.Response[tendv1.ListFilesResponse], error) {
	if n := len(m.GetMatch()); n > 255 {
		return nil, wireError(&process.InvalidError{Field: "match", Reason: fmt.Sprintf("has %d bytes; at most 255 are allowed", n)})
	}
	all, total, err := f.ListSome(ctx, m.GetPath(), files.Window{Match: m.GetMatch(), From: int(min(m.GetFrom(), math.MaxInt32)),
		Most: int(min(m.GetLimit(), maxWindow))})
	if err != nil {
		return nil, fileError(err)
	}
	resp := &tendv1.ListFilesResponse{Total: uint32(total)}
	for i := range all {
		resp.Entries = append(resp.Entries, fileEntry(&all[i]))
	}
	return connect.NewResponse(resp), nil
}

func (s *fileService) ReadFile(ctx context.Context, req *connect.Request[tendv1.ReadFileRequest],
	stream *connect.ServerStream[tendv1.ReadFileResponse]) error {
	f, err := s.in(ctx, req.Msg.GetUser(), req.Msg.GetPath())
	if err != nil {
		return fileError(err)
	}
	if req.Msg.GetOffset() < 0 {
		return wireError(&process.InvalidError{Field: "offset", Reason: "is negative"})
	}
	content, info, err := f.Open(req.Msg.GetPath())
	if err != nil {
		return fileError(err)
	}
	defer content.Close()
	if _, err := content.Seek(req.Msg.GetOffset(), io.SeekStart); err != nil {
		return fileError(err)
	}
	piece := pieces.Get().(*[readPiece]byte)
	defer pieces.Put(piece)
	m := &tendv1.ReadFileResponse{Size: info.Size()}
	for first := true; ; first = false {
		n, err := content.Read(piece[:])
		if m.Data = piece[:n]; n > 0 || first {
			if err := stream.Send(m); err != nil {
				return err
			}
			m.Size = 0
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fileError(err)
		}
	}
}

// pieces are buffers of reads.
var pieces = sync.Pool{New: func() any { return new([readPiece]byte) }}

func (s *fileService) WriteFile(ctx context.Context,
	stream *connect.ClientStream[tendv1.WriteFileRequest]) (*connect.Response[tendv1.WriteFileResponse], error) {
	if !stream.Receive() {
		return nil, wireError(errors.Join(stream.Err(), &process.InvalidError{Field: "path", Reason: "is missing"}))
	}
	path := stream.Msg().GetPath()
	f, err := s.in(ctx, stream.Msg().GetUser(), path)
	if err != nil {
		return nil, fileError(err)
	}
	e, err := f.Write(path, &written{stream: stream, rest: stream.Msg().GetData()}, nil)
	if err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(&tendv1.WriteFileResponse{Entry: fileEntry(&e)}), nil
}

// written reads what a client sends for a file. Only the orderly end of the stream is
// the end of the file.
type written struct {
	stream *connect.ClientStream[tendv1.WriteFileRequest]
	rest   []byte
}

func (w *written) Read(b []byte) (int, error) {
	for len(w.rest) == 0 {
		if !w.stream.Receive() {
			if err := w.stream.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		if m := w.stream.Msg(); m.GetPath() != "" || m.GetUser() != "" {
			return 0, &process.InvalidError{Field: "path", Reason: "or user is set in a later message; the first one has them"}
		}
		w.rest = w.stream.Msg().GetData()
	}
	n := copy(b, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (s *fileService) MakeDir(ctx context.Context,
	req *connect.Request[tendv1.MakeDirRequest]) (*connect.Response[tendv1.MakeDirResponse], error) {
	f, err := s.in(ctx, req.Msg.GetUser(), req.Msg.GetPath())
	if err != nil {
		return nil, fileError(err)
	}
	e, err := f.Mkdir(req.Msg.GetPath())
	if err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(&tendv1.MakeDirResponse{Entry: fileEntry(&e)}), nil
}

func (s *fileService) MoveFile(ctx context.Context,
	req *connect.Request[tendv1.MoveFileRequest]) (*connect.Response[tendv1.MoveFileResponse], error) {
	f, err := s.in(ctx, req.Msg.GetUser(), req.Msg.GetSource(), req.Msg.GetDestination())
	if err != nil {
		return nil, fileError(err)
	}
	e, err := f.Move(req.Msg.GetSource(), req.Msg.GetDestination())
	if err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(&tendv1.MoveFileResponse{Entry: fileEntry(&e)}), nil
}

func (s *fileService) RemoveFile(ctx context.Context,
	req *connect.Request[tendv1.RemoveFileRequest]) (*connect.Response[tendv1.RemoveFileResponse], error) {
	f, err := s.in(ctx, req.Msg.GetUser(), req.Msg.GetPath())
	if err != nil {
		return nil, fileError(err)
	}
	if err := f.Remove(req.Msg.GetPath()); err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(&tendv1.RemoveFileResponse{}), nil
}
