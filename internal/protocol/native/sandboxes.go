package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// sandboxes implements the SandboxService. It holds nothing but the files of builds.
type sandboxes struct {
	driver    driver.Driver // nil: there are none
	secret    *protocol.Secret
	page      Page // nil: tickets are of nobody
	domains   []string
	heartbeat time.Duration
	stopping  <-chan struct{}
	prepared  map[string]func(context.Context) error // by the template
	builds    builds
}

// lacks is the error about an ability that the driver has not.
func (s *sandboxes) lacks(what string) error {
	if s.driver == nil {
		return unsupported("sandboxes")
	}
	return wireError(fmt.Errorf("%s, by the driver %q: %w", what, s.driver.Capabilities().Name, driver.ErrUnsupported))
}

// with answers a call about one sandbox.
func with[A any](ctx context.Context, s *sandboxes, key string, do func(driver.Sandbox) (*A, error)) (*connect.Response[A], error) {
	sb, err := find(ctx, s.driver, key)
	if err != nil {
		return nil, wireError(err)
	}
	return answer(do(sb))
}

// by answers a call about one sandbox with an ability of the driver.
func by[Ability, A any](ctx context.Context, s *sandboxes, what, key string, do func(Ability, driver.ID) (*A,
	error)) (*connect.Response[A], error) {
	can, ok := s.driver.(Ability)
	if !ok {
		return nil, s.lacks(what)
	}
	return with(ctx, s, key, func(sb driver.Sandbox) (*A, error) {
		info, err := sb.Info(ctx)
		if err != nil {
			return nil, err
		}
		return do(can, info.ID)
	})
}

func (s *sandboxes) Create(ctx context.Context,
	req *connect.Request[tendv1.CreateSandboxRequest]) (*connect.Response[tendv1.CreateSandboxResponse], error) {
	if s.driver == nil {
		return nil, unsupported("sandboxes")
	}
	spec, err := toSandboxSpec(req.Msg.GetSpec())
	if err != nil {
		return nil, wireError(err)
	}
	if err := (images{s}).present(ctx, spec.Image); err != nil {
		return nil, wireError(err)
	}
	if prepare := s.prepared[spec.Template]; prepare != nil {
		ctx, cancel := context.WithTimeout(ctx, prepareTime)
		err := prepare(ctx)
		cancel()
		if err != nil {
			return nil, wireError(err)
		}
	}
	sb, err := s.driver.Create(ctx, spec)
	if err != nil {
		return nil, wireError(err)
	}
	info, err := sb.Info(ctx)
	if err == nil {
		err = enforced(ctx, s.driver, sb, spec.Size, info.Size)
	}
	return answer(&tendv1.CreateSandboxResponse{Sandbox: sandbox(&info)}, err)
}

// enforced takes a sandbox back that has not all the limits that were asked for.
func enforced(ctx context.Context, d driver.Driver, sb driver.Sandbox, asked, got driver.Size) error {
	beyond := asked.Beyond(got)
	if len(beyond) == 0 {
		return nil
	}
	refused := &driver.UnsupportedError{Field: "size." + beyond[0], Reason: "this daemon cannot enforce it for such a sandbox; leave it out"}
	for _, m := range d.Capabilities().Missing {
		if why, ok := strings.CutPrefix(m, beyond[0]+": "); ok {
			refused.Reason += ", or mend what is missing: " + why
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBack)
	defer cancel()
	return errors.Join(refused, sb.Destroy(ctx))
}

// takeBack bounds the removal of a sandbox that nobody was told of.
const takeBack = 30 * time.Second

// prepareTime bounds how long a creation waits for its template; the build goes on. Clients wait 45 s for an answer.
const prepareTime = 30 * time.Second

func (s *sandboxes) Get(ctx context.Context,
	req *connect.Request[tendv1.GetSandboxRequest]) (*connect.Response[tendv1.GetSandboxResponse], error) {
	return with(ctx, s, req.Msg.GetSandbox(), func(sb driver.Sandbox) (*tendv1.GetSandboxResponse, error) {
		info, err := sb.Info(ctx)
		return &tendv1.GetSandboxResponse{Sandbox: sandbox(&info)}, err
	})
}

func (s *sandboxes) List(ctx context.Context,
	req *connect.Request[tendv1.ListSandboxesRequest]) (*connect.Response[tendv1.ListSandboxesResponse], error) {
	if s.driver == nil {
		return nil, unsupported("sandboxes")
	}
	after, err := parsePlace(req.Msg.GetAfter())
	if err != nil {
		return nil, wireError(err)
	}
	infos, err := s.driver.List(ctx)
	if err != nil {
		return nil, wireError(err)
	}
	resp := &tendv1.ListSandboxesResponse{}
	limit, size := int(min(req.Msg.GetLimit(), 1<<30)), 0
	var last place
	for i := range infos {
		in := &infos[i]
		at := place{in.Created, process.ID(in.ID)}
		if after.id != "" && compare(at, after) <= 0 || !wanted(in, req.Msg) {
			continue
		}
		m := sandbox(in)
		size += proto.Size(m)
		if n := len(resp.Sandboxes); n > 0 && (size > maxPage || n == limit) {
			resp.Next = last.String()
			break
		}
		resp.Sandboxes, last = append(resp.Sandboxes, m), at
	}
	return connect.NewResponse(resp), nil
}

// compare orders places as drivers order sandboxes.
func compare(a, b place) int {
	return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.id, b.id))
}

func wanted(in *driver.Info, m *tendv1.ListSandboxesRequest) bool {
	if len(m.GetStates()) > 0 && !slices.Contains(m.GetStates(), tendv1.SandboxState(in.State)) {
		return false
	}
	for k, v := range m.GetMetadata() {
		if got, ok := in.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func (s *sandboxes) Update(ctx context.Context,
	req *connect.Request[tendv1.UpdateSandboxRequest]) (*connect.Response[tendv1.UpdateSandboxResponse], error) {
	change, err := toChange(req.Msg)
	if err != nil {
		return nil, wireError(err)
	}
	return with(ctx, s, req.Msg.GetSandbox(), func(sb driver.Sandbox) (*tendv1.UpdateSandboxResponse, error) {
		info, err := sb.Update(ctx, change)
		return &tendv1.UpdateSandboxResponse{Sandbox: sandbox(&info)}, err
	})
}

func (s *sandboxes) Start(ctx context.Context,
	req *connect.Request[tendv1.StartSandboxRequest]) (*connect.Response[tendv1.StartSandboxResponse], error) {
	return with(ctx, s, req.Msg.GetSandbox(), func(sb driver.Sandbox) (*tendv1.StartSandboxResponse, error) {
		return &tendv1.StartSandboxResponse{}, sb.Start(ctx)
	})
}

func (s *sandboxes) Stop(ctx context.Context,
	req *connect.Request[tendv1.StopSandboxRequest]) (*connect.Response[tendv1.StopSandboxResponse], error) {
	return with(ctx, s, req.Msg.GetSandbox(), func(sb driver.Sandbox) (*tendv1.StopSandboxResponse, error) {
		return &tendv1.StopSandboxResponse{}, sb.Stop(ctx)
	})
}

func (s *sandboxes) Destroy(ctx context.Context,
	req *connect.Request[tendv1.DestroySandboxRequest]) (*connect.Response[tendv1.DestroySandboxResponse], error) {
	return with(ctx, s, req.Msg.GetSandbox(), func(sb driver.Sandbox) (*tendv1.DestroySandboxResponse, error) {
		return &tendv1.DestroySandboxResponse{}, sb.Destroy(ctx)
	})
}

func (s *sandboxes) Pause(ctx context.Context,
	req *connect.Request[tendv1.PauseSandboxRequest]) (*connect.Response[tendv1.PauseSandboxResponse], error) {
	return by(ctx, s, "pause", req.Msg.GetSandbox(), func(p driver.Pauser, id driver.ID) (*tendv1.PauseSandboxResponse, error) {
		return &tendv1.PauseSandboxResponse{}, p.Pause(ctx, id, driver.PauseSpec{Memory: !req.Msg.GetFilesOnly()})
	})
}

func (s *sandboxes) Resume(ctx context.Context,
	req *connect.Request[tendv1.ResumeSandboxRequest]) (*connect.Response[tendv1.ResumeSandboxResponse], error) {
	return by(ctx, s, "resume", req.Msg.GetSandbox(), func(p driver.Pauser, id driver.ID) (*tendv1.ResumeSandboxResponse, error) {
		return &tendv1.ResumeSandboxResponse{}, p.Resume(ctx, id)
	})
}

func (s *sandboxes) Snapshot(ctx context.Context,
	req *connect.Request[tendv1.SnapshotSandboxRequest]) (*connect.Response[tendv1.SnapshotSandboxResponse], error) {
	if name := req.Msg.GetName(); name != "" {
		if err := driver.CheckName(name); err != nil {
			return nil, wireError(err)
		}
	}
	return by(ctx, s, "snapshots", req.Msg.GetSandbox(), func(k driver.Snapshotter, id driver.ID) (*tendv1.SnapshotSandboxResponse, error) {
		kept, err := k.Snapshot(ctx, id, driver.SnapshotSpec{Name: req.Msg.GetName()})
		return &tendv1.SnapshotSandboxResponse{Snapshot: snapshot(&kept)}, err
	})
}

func (s *sandboxes) Snapshots(ctx context.Context,
	_ *connect.Request[tendv1.ListSnapshotsRequest]) (*connect.Response[tendv1.ListSnapshotsResponse], error) {
	k, ok := s.driver.(driver.Snapshotter)
	if !ok {
		return nil, s.lacks("snapshots")
	}
	all, err := k.Snapshots(ctx)
	if err != nil {
		return nil, wireError(err)
	}
	resp := &tendv1.ListSnapshotsResponse{}
	for i := range all {
		resp.Snapshots = append(resp.Snapshots, snapshot(&all[i]))
	}
	return connect.NewResponse(resp), nil
}

func (s *sandboxes) DeleteSnapshot(ctx context.Context,
	req *connect.Request[tendv1.DeleteSnapshotRequest]) (*connect.Response[tendv1.DeleteSnapshotResponse], error) {
	k, ok := s.driver.(driver.Snapshotter)
	if !ok {
		return nil, s.lacks("snapshots")
	}
	return answer(&tendv1.DeleteSnapshotResponse{}, k.DeleteSnapshot(ctx, req.Msg.GetSnapshot()))
}

func (s *sandboxes) Fork(ctx context.Context,
	req *connect.Request[tendv1.ForkSandboxRequest]) (*connect.Response[tendv1.ForkSandboxResponse], error) {
	spec := driver.ForkSpec{Count: int(max(1, min(req.Msg.GetCount(), driver.MaxForks)))}
	if req.Msg.GetCount() > driver.MaxForks {
		return nil, wireError(&process.InvalidError{Field: "count", Reason: fmt.Sprintf("is %d; at most %d are allowed",
			req.Msg.GetCount(), driver.MaxForks)})
	}
	deadline, err := fromNow("timeout", req.Msg.GetTimeout())
	if err != nil {
		return nil, wireError(err)
	}
	if deadline != nil {
		spec.Deadline = *deadline
	}
	return by(ctx, s, "fork", req.Msg.GetSandbox(), func(f driver.Forker, id driver.ID) (*tendv1.ForkSandboxResponse, error) {
		results, err := f.Fork(ctx, id, spec)
		if err != nil {
			return nil, err
		}
		resp := &tendv1.ForkSandboxResponse{}
		for _, r := range results {
			m := &tendv1.ForkSandboxResponse_Fork{}
			if r.Err == nil {
				var info driver.Info
				info, r.Err = r.Sandbox.Info(ctx)
				m.Sandbox = sandbox(&info)
			}
			if r.Err != nil {
				m.Sandbox, m.Error = nil, wireError(r.Err).Message()
			}
			resp.Forks = append(resp.Forks, m)
		}
		return resp, nil
	})
}

func (s *sandboxes) Metrics(ctx context.Context,
	req *connect.Request[tendv1.SandboxMetricsRequest]) (*connect.Response[tendv1.SandboxMetricsResponse], error) {
	from, to := tendpb.ToTime(req.Msg.GetFrom()), tendpb.ToTime(req.Msg.GetTo())
	return by(ctx, s, "metrics", req.Msg.GetSandbox(), func(m driver.Meter, id driver.ID) (*tendv1.SandboxMetricsResponse, error) {
		samples, err := m.Metrics(ctx, id, from, to)
		if err != nil {
			return nil, err
		}
		resp := &tendv1.SandboxMetricsResponse{}
		for _, v := range samples {
			resp.Metrics = append(resp.Metrics, &tendv1.SandboxMetric{
				Time: tendpb.Time(v.Time), Cpus: v.CPUs, CpuPercent: v.CPUPercent, MemUsed: v.MemUsed, MemCache: v.MemCache, MemTotal: v.MemTotal,
				DiskUsed: v.DiskUsed, DiskTotal: v.DiskTotal, Tasks: v.Tasks, OomKills: v.OOMKills,
			})
		}
		return resp, nil
	})
}
