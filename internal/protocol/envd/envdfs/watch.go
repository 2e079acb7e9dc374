package envdfs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/files"
	pb "github.com/tend-run/tend/internal/gen/envd/filesystem"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
)

// watchRequest is what WatchDir and CreateWatcher have in common.
type watchRequest interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

func (f *Face) watch(ctx context.Context, h http.Header, req watchRequest) (files.Watcher, error) {
	fsys, err := f.fsOf(ctx, h)
	if err != nil {
		return nil, err
	}
	held := new(budget.Charge)
	held.Like(budget.Of(ctx))
	w, err := fsys.Watch(req.GetPath(), files.WatchOptions{
		Held:         held,
		Recursive:    req.GetRecursive(),
		IncludeEntry: req.GetIncludeEntry(),
		AllowNetwork: req.GetAllowNetworkMounts(),
		Queue:        f.cfg.MaxEvents,
	})
	switch {
	case err == nil:
		return w, nil
	case errors.Is(err, files.ErrNotExist):
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("path %s not found: %w", pathOf(err, ""), err))
	case errors.Is(err, files.ErrNotDir):
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %s not a directory", pathOf(err, "")))
	case errors.Is(err, files.ErrNetworkMount):
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%w: %s", files.ErrNetworkMount, pathOf(err, "")))
	}
	return nil, rpcError(err, nil)
}

// WatchDir streams the changes: start, then events, and a keepalive after
// each interval without one.
func (s service) WatchDir(ctx context.Context, req *connect.Request[pb.WatchDirRequest],
	stream *connect.ServerStream[pb.WatchDirResponse]) error {
	place := s.f.streams.Charge(budget.Of(ctx).Holders()...)
	defer place.Release()
	if place.Add(1) != nil {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf(
			"%d streams of WatchDir are open, which is the limit, or as many of this sandbox as it may have; close one", s.f.streams.Used()))
	}
	w, err := s.f.watch(ctx, req.Header(), req.Msg)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := stream.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	interval := protocol.KeepaliveOf(req.Header())
	silence := time.NewTimer(interval)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.f.done.Done():
			return connect.NewError(connect.CodeUnavailable, errors.New("the server is stopping; watch again"))
		case <-silence.C:
			if err := stream.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Keepalive{
				Keepalive: &pb.WatchDirResponse_KeepAlive{}}}); err != nil {
				return err
			}
		case <-w.Ready():
			events, ended := w.Take()
			for i := range events {
				if err := stream.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Filesystem{Filesystem: fsEvent(&events[i])}}); err != nil {
					return err
				}
			}
			if ended != nil {
				return rpcError(ended, nil)
			}
		}
		silence.Reset(interval)
	}
}

func fsEvent(e *files.Event) *pb.FilesystemEvent {
	ev := &pb.FilesystemEvent{Name: e.Name, Entry: entryInfo(e.Entry)}
	switch e.Op {
	case files.OpCreate:
		ev.Type = pb.EventType_EVENT_TYPE_CREATE
	case files.OpWrite:
		ev.Type = pb.EventType_EVENT_TYPE_WRITE
	case files.OpRemove:
		ev.Type = pb.EventType_EVENT_TYPE_REMOVE
	case files.OpRename:
		ev.Type = pb.EventType_EVENT_TYPE_RENAME
	case files.OpChmod:
		ev.Type = pb.EventType_EVENT_TYPE_CHMOD
	}
	return ev
}
