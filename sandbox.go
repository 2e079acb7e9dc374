package tend

import (
	"context"
	"errors"
	"fmt"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// Errors about a sandbox's state.
var (
	// ErrSandboxStopped: it is stopped; [Sandbox.Start] it first.
	ErrSandboxStopped = tendpb.ErrSandboxStopped
	// ErrSandboxPaused: it is paused; [Sandbox.Resume] it first.
	ErrSandboxPaused = tendpb.ErrSandboxPaused
	// ErrInUse: a snapshot is needed by sandboxes.
	ErrInUse = tendpb.ErrInUse
)

// Sandbox is a place on the server with files and processes of its own. How far it
// is isolated from the server's machine is what [SandboxSpec].Isolation asks for and
// [SandboxInfo].Isolation tells. All methods may be called concurrently. It holds
// nothing that must be closed, and is of no use after its client was closed.
type Sandbox struct {
	client *Client
	spec   SandboxSpec
	turn   turn // of those who need the client inside

	// inside is the client of the processes, once the sandbox was made or found
	// and is ready. Guarded by turn, as id is.
	inside *Client
	id     string
}

// NewSandbox returns a sandbox that is made, or found by the name in spec, and
// started before the first operation that needs it. A sandbox of that name which is
// there already is taken as it is.
func NewSandbox(c *Client, spec SandboxSpec) *Sandbox { return &Sandbox{client: c, spec: spec} }

// CreateSandbox makes a sandbox and returns when programs can run in it. A name that
// is taken is [process.ErrExists]. It is not repeated when the answer is lost: the
// sandbox may have been made then, and is in [Client.Sandboxes].
func (c *Client) CreateSandbox(ctx context.Context, spec SandboxSpec) (*Sandbox, error) {
	s := NewSandbox(c, spec)
	if err := s.create(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Sandbox finds a sandbox by its ID or name, in whatever state it is.
// [process.ErrNotFound] if there is none.
func (c *Client) Sandbox(ctx context.Context, key string) (*Sandbox, error) {
	info, err := c.sandboxInfo(ctx, key)
	if err != nil {
		return nil, err
	}
	return &Sandbox{client: c, id: info.ID}, nil
}

// Sandboxes returns those that the filter lets through, oldest first.
func (c *Client) Sandboxes(ctx context.Context, f SandboxFilter) ([]SandboxInfo, error) {
	req := &tendv1.ListSandboxesRequest{Metadata: f.Metadata}
	for _, state := range f.States {
		req.States = append(req.States, tendv1.SandboxState(state))
	}
	if err := sendable("filter", req); err != nil {
		return nil, err
	}
	if err := c.needsSandboxes(ctx); err != nil {
		return nil, err
	}
	return pages(c, "sandboxes", &req.After, func() (page []SandboxInfo, next string, err error) {
		err = c.call(ctx, unary(c.boxes.List, req, func(m *tendv1.ListSandboxesResponse) error {
			page, next = nil, m.GetNext()
			for _, m := range m.GetSandboxes() {
				info, err := toSandboxInfo(m)
				if err != nil {
					return err
				}
				page = append(page, info)
			}
			return nil
		}))
		return page, next, err
	})
}

func (c *Client) sandboxInfo(ctx context.Context, key string) (SandboxInfo, error) {
	var info SandboxInfo
	req := &tendv1.GetSandboxRequest{Sandbox: key}
	if err := sendable("sandbox", req); err != nil {
		return info, err
	}
	if err := c.needsSandboxes(ctx); err != nil {
		return info, err
	}
	err := c.call(ctx, unary(c.boxes.Get, req, func(m *tendv1.GetSandboxResponse) (err error) {
		info, err = toSandboxInfo(m.GetSandbox())
		return err
	}))
	return info, err
}

// needsSandboxes fails on a server of a former version, which would do to the machine
// what is meant for a sandbox. It may have been replaced since it said what it knows.
func (c *Client) needsSandboxes(ctx context.Context) error {
	if c.hasBox.Load() {
		return nil
	}
	if err := c.call(ctx, c.hello); err != nil {
		return err
	}
	if !c.hasBox.Load() {
		return fmt.Errorf("%w: the server has no sandboxes, or is of a former version: tend upgrade replaces it", process.ErrUnsupported)
	}
	return nil
}

// create makes the sandbox. s.turn is held, or nobody else has s.
func (s *Sandbox) create(ctx context.Context) error {
	req := &tendv1.CreateSandboxRequest{Spec: s.spec.message()}
	if err := sendable("spec", req); err != nil {
		return err
	}
	if err := s.client.needsSandboxes(ctx); err != nil {
		return err
	}
	return s.client.once(ctx, unary(s.client.boxes.Create, req, func(m *tendv1.CreateSandboxResponse) error {
		info, err := toSandboxInfo(m.GetSandbox())
		if err != nil {
			return err
		}
		s.id, s.inside = info.ID, s.client.in(info.ID)
		return nil
	}))
}

// find makes sure that the sandbox is there, and returns its ID.
func (s *Sandbox) find(ctx context.Context) (string, error) {
	if err := s.turn.take(ctx); err != nil {
		return "", err
	}
	defer s.turn.give()
	err := s.found(ctx)
	return s.id, err
}

// found makes the sandbox, or finds one of its name, unless that was done. s.turn is
// held.
func (s *Sandbox) found(ctx context.Context) error {
	if s.id != "" {
		return nil
	}
	err := s.create(ctx)
	if s.spec.Name == "" || !errors.Is(err, process.ErrExists) {
		return err
	}
	info, err := s.client.sandboxInfo(ctx, s.spec.Name)
	if err == nil {
		s.id = info.ID
	}
	return err
}

// Client returns a client whose processes are those of the sandbox: it starts, finds
// and lists no others. The sandbox is made first if it is not there, and started if it
// was not ready when it was found. The client ends with that of the sandbox; closing
// it does nothing.
func (s *Sandbox) Client(ctx context.Context) (*Client, error) {
	if err := s.turn.take(ctx); err != nil {
		return nil, err
	}
	defer s.turn.give()
	if err := s.found(ctx); err != nil {
		return nil, err
	}
	if s.inside == nil {
		if err := s.start(ctx, s.id); err != nil {
			return nil, err
		}
		s.inside = s.client.in(s.id)
	}
	return s.inside, nil
}

// Look returns a client as [Sandbox.Client] does, and starts nothing: for processes of a
// sandbox that is stopped or paused, which can be listed and read. A sandbox that is not
// there is made first.
func (s *Sandbox) Look(ctx context.Context) (*Client, error) {
	id, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	return s.client.in(id), nil
}

// Passive returns a handle of the same sandbox that starts nothing: what needs a sandbox that
// is ready is [ErrSandboxStopped] or [ErrSandboxPaused] while it is not. One that is not there
// yet, by [NewSandbox], is made first.
func (s *Sandbox) Passive(ctx context.Context) (*Sandbox, error) {
	id, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	return &Sandbox{client: s.client, spec: s.spec, id: id, inside: s.client.in(id)}, nil
}

// Metrics returns what the sandbox used, oldest first: samples of the last minutes
// between two times. A zero time is no bound; without bounds there is one of now at
// least. [process.ErrUnsupported]: the sandbox is not isolated.
func (s *Sandbox) Metrics(ctx context.Context, from, to time.Time) ([]SandboxMetric, error) {
	var all []SandboxMetric
	err := s.about(ctx, func(id string) error {
		req := &tendv1.SandboxMetricsRequest{Sandbox: id, From: tendpb.Time(from), To: tendpb.Time(to)}
		return s.client.call(ctx, unary(s.client.boxes.Metrics, req, func(m *tendv1.SandboxMetricsResponse) error {
			all = nil
			for _, m := range m.GetMetrics() {
				all = append(all, SandboxMetric{
					Time: tendpb.ToTime(m.GetTime()), CPUs: m.GetCpus(), CPUPercent: m.GetCpuPercent(),
					MemUsed: m.GetMemUsed(), MemCache: m.GetMemCache(), MemTotal: m.GetMemTotal(),
					DiskUsed: m.GetDiskUsed(), DiskTotal: m.GetDiskTotal(), Tasks: m.GetTasks(), OOMKills: m.GetOomKills(),
				})
			}
			return nil
		}))
	})
	return all, err
}

// Processes returns the manager of the sandbox's processes, with the methods that
// providers have. The first operation makes or starts the sandbox as Client does.
func (s *Sandbox) Processes() *Processes {
	return &Processes{Ensure: func(ctx context.Context) (process.Manager, error) {
		// A nil *Client would not be a nil Manager.
		c, err := s.Client(ctx)
		if err != nil {
			return nil, err
		}
		return c, nil
	}}
}

// ID returns the sandbox's ID, which no other sandbox ever has. A sandbox that is
// not there is made first.
func (s *Sandbox) ID(ctx context.Context) (string, error) { return s.find(ctx) }

// Info returns what is known of the sandbox now. [process.ErrNotFound] once it was
// destroyed.
func (s *Sandbox) Info(ctx context.Context) (SandboxInfo, error) {
	id, err := s.find(ctx)
	if err != nil {
		return SandboxInfo{}, err
	}
	return s.client.sandboxInfo(ctx, id)
}

// Update changes what can be changed, in whatever state the sandbox is.
func (s *Sandbox) Update(ctx context.Context, change SandboxChange) (SandboxInfo, error) {
	var info SandboxInfo
	err := s.about(ctx, func(id string) error {
		req := change.message(id)
		if err := sendable("change", req); err != nil {
			return err
		}
		return s.client.call(ctx, unary(s.client.boxes.Update, req, func(m *tendv1.UpdateSandboxResponse) (err error) {
			info, err = toSandboxInfo(m.GetSandbox())
			return err
		}))
	})
	return info, err
}

// about does something with the sandbox's ID.
func (s *Sandbox) about(ctx context.Context, do func(id string) error) error {
	id, err := s.find(ctx)
	if err != nil {
		return err
	}
	return do(id)
}

func (s *Sandbox) start(ctx context.Context, id string) error {
	return s.client.call(ctx, unary(s.client.boxes.Start, &tendv1.StartSandboxRequest{Sandbox: id}, nil))
}

// Start makes a stopped sandbox ready again, with its files, and resumes one that is
// paused. It is no error if it is ready.
func (s *Sandbox) Start(ctx context.Context) error {
	return s.about(ctx, func(id string) error { return s.start(ctx, id) })
}

// Stop ends all processes of the sandbox and keeps its files, unless it is
// disposable. Commands are [ErrSandboxStopped] until Start.
func (s *Sandbox) Stop(ctx context.Context) error {
	return s.about(ctx, func(id string) error {
		return s.client.call(ctx, unary(s.client.boxes.Stop, &tendv1.StopSandboxRequest{Sandbox: id}, nil))
	})
}

// Pause lets the processes of the sandbox stand still. It is no error if they do
// already. Commands are [ErrSandboxPaused] until Resume. [process.ErrUnsupported]: the
// sandbox cannot; Stop keeps its files.
func (s *Sandbox) Pause(ctx context.Context) error {
	return s.about(ctx, func(id string) error {
		err := s.client.call(ctx, unary(s.client.boxes.Pause, &tendv1.PauseSandboxRequest{Sandbox: id}, nil))
		if errors.Is(err, ErrSandboxPaused) {
			return nil // by this call, whose first answer was lost, or before it
		}
		return err
	})
}

// Resume lets a paused sandbox go on. It is no error if it is ready.
func (s *Sandbox) Resume(ctx context.Context) error {
	return s.about(ctx, func(id string) error {
		return s.client.call(ctx, unary(s.client.boxes.Resume, &tendv1.ResumeSandboxRequest{Sandbox: id}, nil))
	})
}

// Destroy ends all processes and removes all that belongs to the sandbox. It is no
// error if that was done. One that was not needed yet is looked for by its name, and
// not made. What a sandbox that was destroyed is asked for is [process.ErrNotFound].
func (s *Sandbox) Destroy(ctx context.Context) error {
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.give()
	key := s.id
	if key == "" {
		key = s.spec.Name
	}
	if key == "" {
		return nil
	}
	if err := s.client.needsSandboxes(ctx); err != nil {
		return err
	}
	return gone(s.client.call(ctx, unary(s.client.boxes.Destroy, &tendv1.DestroySandboxRequest{Sandbox: key}, nil)))
}

// Snapshot keeps the files of the sandbox under a name, for [SandboxSpec].Snapshot of
// later ones. Without a name the server makes one up. It is not repeated when the
// answer is lost.
func (s *Sandbox) Snapshot(ctx context.Context, name string) (SandboxSnapshot, error) {
	var kept SandboxSnapshot
	err := s.about(ctx, func(id string) error {
		req := &tendv1.SnapshotSandboxRequest{Sandbox: id, Name: name}
		if err := sendable("name", req); err != nil {
			return err
		}
		return s.client.once(ctx, unary(s.client.boxes.Snapshot, req, func(m *tendv1.SnapshotSandboxResponse) error {
			kept = toSnapshot(m.GetSnapshot())
			return nil
		}))
	})
	return kept, err
}

// SandboxSnapshots returns all snapshots, oldest first.
func (c *Client) SandboxSnapshots(ctx context.Context) ([]SandboxSnapshot, error) {
	if err := c.needsSandboxes(ctx); err != nil {
		return nil, err
	}
	var all []SandboxSnapshot
	err := c.call(ctx, unary(c.boxes.Snapshots, &tendv1.ListSnapshotsRequest{}, func(m *tendv1.ListSnapshotsResponse) error {
		all = nil
		for _, m := range m.GetSnapshots() {
			all = append(all, toSnapshot(m))
		}
		return nil
	}))
	return all, err
}

// DeleteSandboxSnapshot removes the snapshot with this ID or name. It is no error if
// there is none. [ErrInUse]: sandboxes need it.
func (c *Client) DeleteSandboxSnapshot(ctx context.Context, key string) error {
	req := &tendv1.DeleteSnapshotRequest{Snapshot: key}
	if err := sendable("snapshot", req); err != nil {
		return err
	}
	if err := c.needsSandboxes(ctx); err != nil {
		return err
	}
	return gone(c.call(ctx, unary(c.boxes.DeleteSnapshot, req, nil)))
}

// Fork makes n sandboxes with the files that this one has now, without its processes.
// The error joins those of the copies that were not made. It is not repeated when the
// answer is lost.
func (s *Sandbox) Fork(ctx context.Context, n int) ([]*Sandbox, error) {
	if n < 1 || n > 100 {
		return nil, &process.InvalidError{Field: "n", Reason: fmt.Sprintf("is %d; 1 to 100 copies can be made", n)}
	}
	var copies []*Sandbox
	var missing []error
	err := s.about(ctx, func(id string) error {
		return s.client.once(ctx, unary(s.client.boxes.Fork, &tendv1.ForkSandboxRequest{Sandbox: id, Count: uint32(n)}, func(m *tendv1.ForkSandboxResponse) error {
			for _, m := range m.GetForks() {
				if m.GetSandbox() == nil {
					missing = append(missing, errors.New(tendpb.CleanText(m.GetError())))
					continue
				}
				info, err := toSandboxInfo(m.GetSandbox())
				if err != nil {
					return err
				}
				copies = append(copies, &Sandbox{client: s.client, id: info.ID, inside: s.client.in(info.ID)})
			}
			return nil
		}))
	})
	if err != nil {
		return nil, err
	}
	return copies, errors.Join(missing...)
}
