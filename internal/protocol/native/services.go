package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/process"
)

// Bounds of calls about services.
const (
	maxServiceNames = 1000
	maxServiceName  = 104     // bytes, with its project
	maxServiceFiles = 1000    // that env_file names
	maxServiceFile  = 1 << 20 // bytes of the text, and of each of those files
	// watchPause is the least time between two messages of Watch.
	watchPause = 20 * time.Millisecond
)

// Services keeps declared services running.
type Services interface {
	Apply(ctx context.Context, req *tendv1.ApplyServicesRequest) error
	// Start, Stop and Restart return once what was asked for is written down. No names:
	// all, of the project if there is one. An unknown one is process.ErrNotFound.
	Start(ctx context.Context, project string, names []string) error
	Stop(ctx context.Context, project string, names []string) error
	Restart(ctx context.Context, project string, names []string) error
	// Adopt has a service be the process of a pid, and returns once that is written down.
	Adopt(ctx context.Context, name string, pid int) error
	// List returns all services, and the files that declare them.
	List(ctx context.Context) (*tendv1.ListServicesResponse, error)
	// Next returns all services once they are not as they were when it returned after;
	// "": at once.
	Next(ctx context.Context, after string) (all []*tendv1.ServiceStatus, now string, err error)
	// Episodes returns what was done to repair a service, the newest first; "": all.
	Episodes(ctx context.Context, service string) ([]*tendv1.Episode, error)
	// Episode returns one; "": the newest.
	Episode(ctx context.Context, id string) (*tendv1.GetEpisodeResponse, error)
	// WatchEpisode sends one, and what becomes of it, until it is over; nil: nothing is
	// new at this look. It looks each second at least.
	WatchEpisode(ctx context.Context, id string, from int64, send func(*tendv1.WatchEpisodeResponse) error) error
	// Heal begins one, and returns its ID once that is written down.
	Heal(ctx context.Context, service string, dry bool) (string, error)
	// Held applies a change that waits, by its hash, and returns the ID of the episode that does, once
	// it is known that it may. discard: it removes it instead.
	Held(ctx context.Context, hash string, discard bool) (string, error)
	// CancelHeal ends one; "": the one that is under way.
	CancelHeal(ctx context.Context, id string) error
	// RollBack takes one back, and returns the ID of the one that does, once it is known that
	// it may.
	RollBack(ctx context.Context, id string) (string, error)
}

// services implements the ServiceService.
type services struct {
	kept      Services // nil: there are none
	heartbeat time.Duration
	stopping  <-chan struct{}
}

func (s *services) Apply(ctx context.Context,
	req *connect.Request[tendv1.ApplyServicesRequest]) (*connect.Response[tendv1.ApplyServicesResponse], error) {
	if s.kept == nil {
		return nil, unsupported("services")
	}
	if err := checkApply(req.Msg); err != nil {
		return nil, wireError(err)
	}
	return answer(&tendv1.ApplyServicesResponse{}, s.kept.Apply(ctx, req.Msg))
}

func checkApply(m *tendv1.ApplyServicesRequest) error {
	if n := len(m.GetText()); n > maxServiceFile {
		return &process.InvalidError{Field: "text", Reason: fmt.Sprintf("has %d bytes; the limit is %d", n, maxServiceFile)}
	}
	if n := len(m.GetEnvFiles()); n > maxServiceFiles {
		return &process.InvalidError{Field: "env_files", Reason: fmt.Sprintf("has %d entries; the limit is %d", n, maxServiceFiles)}
	}
	for name, text := range m.GetEnvFiles() {
		if n := len(text); n > maxServiceFile {
			return &process.InvalidError{Field: "env_files", Reason: fmt.Sprintf("has %d bytes for %.80q; the limit is %d", n, name, maxServiceFile)}
		}
	}
	// What the environment of a process may be, that of a service may.
	spec := process.Spec{Argv: []string{"-"}, Env: m.GetEnv()}
	return spec.Validate()
}

func checkNames(names []string, least int) error {
	if n := len(names); n < least || n > maxServiceNames {
		return &process.InvalidError{Field: "names", Reason: fmt.Sprintf("has %d entries; %d to %d are allowed", n, least, maxServiceNames)}
	}
	for _, name := range names {
		if name == "" || len(name) > maxServiceName {
			return &process.InvalidError{Field: "names", Reason: fmt.Sprintf("has one of %d bytes; 1 to %d are allowed", len(name), maxServiceName)}
		}
	}
	return nil
}

// wish answers a call about services by name.
func wish[A any](ctx context.Context, s *services, req interface {
	GetNames() []string
	GetProject() string
}, least int, do func(Services) func(context.Context, string, []string) error, m *A) (*connect.Response[A], error) {
	if s.kept == nil {
		return nil, unsupported("services")
	}
	if err := checkNames(req.GetNames(), least); err != nil {
		return nil, wireError(err)
	}
	return answer(m, do(s.kept)(ctx, req.GetProject(), req.GetNames()))
}

func (s *services) Start(ctx context.Context,
	req *connect.Request[tendv1.StartServicesRequest]) (*connect.Response[tendv1.StartServicesResponse], error) {
	return wish(ctx, s, req.Msg, 0, func(k Services) func(context.Context, string, []string) error { return k.Start },
		&tendv1.StartServicesResponse{})
}

func (s *services) Stop(ctx context.Context,
	req *connect.Request[tendv1.StopServicesRequest]) (*connect.Response[tendv1.StopServicesResponse], error) {
	return wish(ctx, s, req.Msg, 0, func(k Services) func(context.Context, string, []string) error { return k.Stop },
		&tendv1.StopServicesResponse{})
}

func (s *services) Restart(ctx context.Context,
	req *connect.Request[tendv1.RestartServicesRequest]) (*connect.Response[tendv1.RestartServicesResponse], error) {
	return wish(ctx, s, req.Msg, 1, func(k Services) func(context.Context, string, []string) error { return k.Restart },
		&tendv1.RestartServicesResponse{})
}

func (s *services) Adopt(ctx context.Context,
	req *connect.Request[tendv1.AdoptServiceRequest]) (*connect.Response[tendv1.AdoptServiceResponse], error) {
	if s.kept == nil {
		return nil, unsupported("services")
	}
	if err := checkNames([]string{req.Msg.GetName()}, 1); err != nil {
		return nil, wireError(err)
	}
	pid := req.Msg.GetPid()
	if pid == 0 || pid > math.MaxInt32 {
		return nil, wireError(&process.InvalidError{Field: "pid", Reason: fmt.Sprintf("is %d; 1 to %d are allowed", pid, math.MaxInt32)})
	}
	return answer(&tendv1.AdoptServiceResponse{}, s.kept.Adopt(ctx, req.Msg.GetName(), int(pid)))
}

func (s *services) List(ctx context.Context,
	_ *connect.Request[tendv1.ListServicesRequest]) (*connect.Response[tendv1.ListServicesResponse], error) {
	if s.kept == nil {
		return nil, unsupported("services")
	}
	all, err := s.kept.List(ctx)
	return answer(all, err)
}

func (s *services) Watch(ctx context.Context, _ *connect.Request[tendv1.WatchServicesRequest],
	stream *connect.ServerStream[tendv1.WatchServicesResponse]) error {
	if s.kept == nil {
		return unsupported("services")
	}
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-watched }()
	for seen := ""; ; {
		turn, over := context.WithTimeout(ctx, s.heartbeat)
		all, now, err := s.kept.Next(turn, seen)
		over()
		m := &tendv1.WatchServicesResponse{Services: all}
		select {
		case <-s.stopping:
			return stream.Send(&tendv1.WatchServicesResponse{GoingAway: true})
		default:
		}
		switch {
		case err == nil:
			seen = now
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			m.Heartbeat = true
		default:
			return wireError(err)
		}
		if err := stream.Send(m); err != nil {
			return err
		}
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
		}
	}
}

// maxEpisodeID is more than any ID of an episode has.
const maxEpisodeID = 128

func checkWord(field, word string, most int) error {
	if len(word) > most {
		return &process.InvalidError{Field: field, Reason: fmt.Sprintf("has %d bytes; the limit is %d", len(word), most)}
	}
	return nil
}

func (s *services) ListEpisodes(ctx context.Context,
	req *connect.Request[tendv1.ListEpisodesRequest]) (*connect.Response[tendv1.ListEpisodesResponse], error) {
	if s.kept == nil {
		return nil, unsupported("services")
	}
	if err := checkWord("service", req.Msg.GetService(), maxServiceName); err != nil {
		return nil, wireError(err)
	}
	all, err := s.kept.Episodes(ctx, req.Msg.GetService())
	return answer(&tendv1.ListEpisodesResponse{Episodes: all}, err)
}

func (s *services) GetEpisode(ctx context.Context,
	req *connect.Request[tendv1.GetEpisodeRequest]) (*connect.Response[tendv1.GetEpisodeResponse], error) {
	if s.kept == nil {
		return nil, unsupported("services")
	}
	if err := checkWord("id", req.Msg.GetId(), maxEpisodeID); err != nil {
		return nil, wireError(err)
	}
	return answer(s.kept.Episode(ctx, req.Msg.GetId()))
}

func (s *services) WatchEpisode(ctx context.Context, req *connect.Request[tendv1.WatchEpisodeRequest],
	stream *connect.ServerStream[tendv1.WatchEpisodeResponse]) error {
	if s.kept == nil {
		return unsupported("services")
	}
	if err := checkWord("id", req.Msg.GetId(), maxEpisodeID); err != nil {
		return wireError(err)
	}
	from := req.Msg.GetTranscriptFrom()
	if from < 0 {
		return wireError(&process.InvalidError{Field: "transcript_from", Reason: fmt.Sprintf("is %d; it counts bytes from 0", from)})
	}
	return looks[tendv1.WatchEpisodeResponse]{
		every: s.heartbeat, heartbeat: &tendv1.WatchEpisodeResponse{Heartbeat: true},
		stopping: s.stopping, away: &tendv1.WatchEpisodeResponse{GoingAway: true},
	}.send(stream, func(send func(*tendv1.WatchEpisodeResponse) error) error {
		return s.kept.WatchEpisode(ctx, req.Msg.GetId(), from, send)
	})
}

func (s *services) Heal(ctx context.Context, req *connect.Request[tendv1.HealRequest]) (*connect.Response[tendv1.HealResponse], error) {
	if s.kept == nil {
		return nil, unsupported("services")
	}
	if err := checkWord("service", req.Msg.GetService(), maxServiceName); err != nil {
		return nil, wireError(err)
	}
	var id string
	var err error
	switch m := req.Msg; {
	case m.GetApply() == "" && m.GetDiscard() == "":
		id, err = s.kept.Heal(ctx, m.GetService(), m.GetDryRun())
	case m.GetService() != "" || m.GetDryRun() || m.GetApply() != "" && m.GetDiscard() != "":
		err = &process.InvalidError{Field: "apply", Reason: "and discard stand alone: the hash says of which service the change is"}
	default:
		id, err = s.kept.Held(ctx, cmp.Or(m.GetApply(), m.GetDiscard()), m.GetDiscard() != "")
	}
	return answer(&tendv1.HealResponse{Episode: id}, err)
}

func (s *services) CancelHeal(ctx context.Context,
	req *connect.Request[tendv1.CancelHealRequest]) (*connect.Response[tendv1.CancelHealResponse], error) {
	if s.kept == nil {
		return nil, unsupported("services")
	}
	if err := checkWord("id", req.Msg.GetId(), maxEpisodeID); err != nil {
		return nil, wireError(err)
	}
	return answer(&tendv1.CancelHealResponse{}, s.kept.CancelHeal(ctx, req.Msg.GetId()))
}

func (s *services) RollBackEpisode(ctx context.Context,
	req *connect.Request[tendv1.RollBackEpisodeRequest]) (*connect.Response[tendv1.RollBackEpisodeResponse], error) {
	if s.kept == nil {
		return nil, unsupported("services")
	}
	if err := checkWord("id", req.Msg.GetId(), maxEpisodeID); err != nil {
		return nil, wireError(err)
	}
	id, err := s.kept.RollBack(ctx, req.Msg.GetId())
	return answer(&tendv1.RollBackEpisodeResponse{Episode: id}, err)
}
