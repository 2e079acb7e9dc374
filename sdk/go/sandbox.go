package tend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// Errors about a sandbox's state.
var (
	// ErrSandboxStopped: the sandbox is stopped; call [Sandbox.Start] first.
	ErrSandboxStopped = tendpb.ErrSandboxStopped
	// ErrSandboxPaused: the sandbox is paused; call [Sandbox.Resume] first.
	ErrSandboxPaused = tendpb.ErrSandboxPaused
	// ErrInUse: sandboxes still need the snapshot.
	ErrInUse = tendpb.ErrInUse
)

// Sandbox is a place on the server with its own files and processes.
// SandboxSpec.Isolation requests the isolation from the server's machine, and
// SandboxInfo.Isolation reports it. All methods may be called concurrently. A Sandbox
// needs no Close, and cannot be used after its client was closed.
type Sandbox struct {
	client *Client
	spec   SandboxSpec
	turn   turn // of those who need the client inside

	// inside is the client of the processes, once the sandbox was made or found
	// and is ready. Guarded by turn, as id is.
	inside *Client
	id     string
}

// NewSandbox returns a sandbox that is created, or found by the name in spec, and
// started before the first operation that needs it. An existing sandbox with that name
// is used as it is.
func NewSandbox(c *Client, spec SandboxSpec) *Sandbox { return &Sandbox{client: c, spec: spec} }

// CreateSandbox creates a sandbox and returns when programs can run in it. If the name
// is taken, the error is [process.ErrExists]. The call is not repeated if the answer is
// lost: the sandbox may have been created, and is then in [Client.Sandboxes].
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

// Sandboxes returns the sandboxes that match the filter, the oldest first.
func (c *Client) Sandboxes(ctx context.Context, f SandboxFilter) ([]SandboxInfo, error) {
	req := &tendv1.ListSandboxesRequest{Metadata: f.Metadata}
	for _, state := range f.States {
		req.States = append(req.States, tendv1.SandboxState(state))
	}
	return pages(c, "sandboxes", &req.After, func() (page []SandboxInfo, next string, err error) {
		err = c.aboutSandboxes(ctx, c.call, checked("filter", c.sandboxes.List, req, func(m *tendv1.ListSandboxesResponse) error {
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

func (c *Client) sandboxInfo(ctx context.Context, key string) (info SandboxInfo, err error) {
	req := &tendv1.GetSandboxRequest{Sandbox: key}
	err = c.aboutSandboxes(ctx, c.call, checked("sandbox", c.sandboxes.Get, req, func(m *tendv1.GetSandboxResponse) (err error) {
		info, err = toSandboxInfo(m.GetSandbox())
		return err
	}))
	return info, err
}

func (c *Client) needsSandboxes(ctx context.Context) error {
	return c.needs(ctx, (*tendv1.HelloResponse).GetSandboxes, "has no sandboxes, or is")
}

// aboutSandboxes runs a call about sandboxes, by call or once.
func (c *Client) aboutSandboxes(ctx context.Context, run runs, f func(context.Context) error) error {
	if err := c.needsSandboxes(ctx); err != nil {
		return err
	}
	return run(ctx, f)
}

// create makes the sandbox. s.turn is held, or nobody else has s.
func (s *Sandbox) create(ctx context.Context) error {
	c, req := s.client, &tendv1.CreateSandboxRequest{Spec: s.spec.message()}
	return c.aboutSandboxes(ctx, c.once, checked("spec", c.sandboxes.Create, req, func(m *tendv1.CreateSandboxResponse) error {
		info, err := toSandboxInfo(m.GetSandbox())
		if err != nil {
			return err
		}
		s.id, s.inside = info.ID, c.in(info.ID)
		return nil
	}))
}

// find makes sure that the sandbox is there, and returns its ID.
func (s *Sandbox) find(ctx context.Context) (string, error) {
	if err := s.turn.acquire(ctx); err != nil {
		return "", err
	}
	defer s.turn.give()
	err := s.found(ctx)
	return s.id, err
}

// found makes the sandbox, or finds one of its name, unless that was done. s.turn is
// held.
func (s *Sandbox) found(ctx context.Context) error {
	for tries := 1; s.id == ""; tries++ {
		err := s.create(ctx)
		if s.spec.Name == "" || !errors.Is(err, process.ErrExists) {
			return err
		}
		// The name may have been that of a creation that has failed since: of our own, too,
		// whose answer was lost. One that still runs has the name, and can not yet be found.
		info, err := s.client.sandboxInfo(ctx, s.spec.Name)
		switch {
		case err == nil:
			s.id = info.ID
		case !errors.Is(err, process.ErrNotFound) || tries == mostCreations || !backoff.Wait(ctx, s.client.retry.delay(tries, rand.Float64())):
			return err
		}
	}
	return nil
}

// mostCreations bounds how often a name is found taken by a sandbox that is then not there.
const mostCreations = 10

// Client returns a client whose processes are those of the sandbox: it starts, finds
// and lists no others. If the sandbox does not exist, it is created first, and if it is
// not ready, it is started. The client ends with the sandbox's own client; closing it
// does nothing.
func (s *Sandbox) Client(ctx context.Context) (*Client, error) {
	if err := s.turn.acquire(ctx); err != nil {
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

// Look returns a client like [Sandbox.Client], but does not start the sandbox: it is
// for listing and reading processes of a stopped or paused sandbox. If the sandbox does
// not exist, it is created first.
func (s *Sandbox) Look(ctx context.Context) (*Client, error) {
	id, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	return s.client.in(id), nil
}

// Passive returns a handle to the same sandbox that never starts it: while the sandbox
// is not ready, operations that need it return [ErrSandboxStopped] or
// [ErrSandboxPaused]. A sandbox of [NewSandbox] that does not exist yet is created
// first.
func (s *Sandbox) Passive(ctx context.Context) (*Sandbox, error) {
	id, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	return &Sandbox{client: s.client, spec: s.spec, id: id, inside: s.client.in(id)}, nil
}

// Metrics returns the resource usage of the sandbox, the oldest first: samples of the
// last minutes between two times. A zero time is no bound; without bounds there is at
// least a sample of now. If the sandbox is not isolated, the error is
// [process.ErrUnsupported].
func (s *Sandbox) Metrics(ctx context.Context, from, to time.Time) (all []SandboxMetric, err error) {
	err = s.about(ctx, func(id string) error {
		req := &tendv1.SandboxMetricsRequest{Sandbox: id, From: tendpb.Time(from), To: tendpb.Time(to)}
		return s.client.call(ctx, unary(s.client.sandboxes.Metrics, req, func(m *tendv1.SandboxMetricsResponse) error {
			all = mapped(m.GetMetrics(), toMetric)
			return nil
		}))
	})
	return all, err
}

// Processes returns the manager of the sandbox's processes, with the methods that
// providers have. The first operation creates or starts the sandbox, as Client does.
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

// ID returns the sandbox's ID, which no other sandbox ever has. If the sandbox does not
// exist, it is created first.
func (s *Sandbox) ID(ctx context.Context) (string, error) { return s.find(ctx) }

// Info returns the current state of the sandbox, or [process.ErrNotFound] if it was
// destroyed.
func (s *Sandbox) Info(ctx context.Context) (SandboxInfo, error) {
	id, err := s.find(ctx)
	if err != nil {
		return SandboxInfo{}, err
	}
	return s.client.sandboxInfo(ctx, id)
}

// Update changes what can be changed, in whatever state the sandbox is.
func (s *Sandbox) Update(ctx context.Context, change SandboxChange) (info SandboxInfo, err error) {
	err = s.about(ctx, func(id string) error {
		return s.client.call(ctx, checked("change", s.client.sandboxes.Update, change.message(id), func(
			m *tendv1.UpdateSandboxResponse,
		) (err error) {
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
	return s.client.call(ctx, unary(s.client.sandboxes.Start, &tendv1.StartSandboxRequest{Sandbox: id}, nil))
}

// Start starts a stopped sandbox again, with its files, and resumes a paused one. If it
// is ready, Start does nothing.
func (s *Sandbox) Start(ctx context.Context) error {
	return s.about(ctx, func(id string) error { return s.start(ctx, id) })
}

// Stop ends all processes of the sandbox and keeps its files, unless it is disposable.
// Until Start, commands return [ErrSandboxStopped].
func (s *Sandbox) Stop(ctx context.Context) error {
	return s.about(ctx, func(id string) error {
		return s.client.call(ctx, unary(s.client.sandboxes.Stop, &tendv1.StopSandboxRequest{Sandbox: id}, nil))
	})
}

// Pause suspends the processes of the sandbox. If they are suspended already, it does
// nothing. Until Resume, commands return [ErrSandboxPaused]. If the sandbox cannot be
// paused, the error is [process.ErrUnsupported]; Stop keeps its files.
func (s *Sandbox) Pause(ctx context.Context) error {
	return s.about(ctx, func(id string) error {
		err := s.client.call(ctx, unary(s.client.sandboxes.Pause, &tendv1.PauseSandboxRequest{Sandbox: id}, nil))
		if errors.Is(err, ErrSandboxPaused) {
			return nil // by this call, whose first answer was lost, or before it
		}
		return err
	})
}

// Resume resumes a paused sandbox. If it is ready, Resume does nothing.
func (s *Sandbox) Resume(ctx context.Context) error {
	return s.about(ctx, func(id string) error {
		return s.client.call(ctx, unary(s.client.sandboxes.Resume, &tendv1.ResumeSandboxRequest{Sandbox: id}, nil))
	})
}

// Destroy ends all processes and removes everything that belongs to the sandbox. If
// this was already done, it does nothing. A sandbox that was not used yet is looked up
// by its name, not created. After Destroy other methods return [process.ErrNotFound].
func (s *Sandbox) Destroy(ctx context.Context) error {
	if err := s.turn.acquire(ctx); err != nil {
		return err
	}
	defer s.turn.give()
	key := cmp.Or(s.id, s.spec.Name)
	if key == "" {
		return nil
	}
	destroy := unary(s.client.sandboxes.Destroy, &tendv1.DestroySandboxRequest{Sandbox: key}, nil)
	return gone(s.client.aboutSandboxes(ctx, s.client.call, destroy))
}

// Snapshot saves the files of the sandbox under a name, for SandboxSpec.Snapshot of
// later sandboxes. Without a name the server generates one. The call is not repeated if
// the answer is lost.
func (s *Sandbox) Snapshot(ctx context.Context, name string) (kept SandboxSnapshot, err error) {
	err = s.about(ctx, func(id string) error {
		req := &tendv1.SnapshotSandboxRequest{Sandbox: id, Name: name}
		return s.client.once(ctx, checked("name", s.client.sandboxes.Snapshot, req, func(m *tendv1.SnapshotSandboxResponse) error {
			kept = toSnapshot(m.GetSnapshot())
			return nil
		}))
	})
	return kept, err
}

// SandboxSnapshots returns all snapshots, oldest first.
func (c *Client) SandboxSnapshots(ctx context.Context) (all []SandboxSnapshot, err error) {
	req := &tendv1.ListSnapshotsRequest{}
	err = c.aboutSandboxes(ctx, c.call, unary(c.sandboxes.Snapshots, req, func(m *tendv1.ListSnapshotsResponse) error {
		all = mapped(m.GetSnapshots(), toSnapshot)
		return nil
	}))
	return all, err
}

// DeleteSandboxSnapshot removes the snapshot with this ID or name. If there is none, it
// does nothing. If sandboxes still need it, the error is [ErrInUse].
func (c *Client) DeleteSandboxSnapshot(ctx context.Context, key string) error {
	req := &tendv1.DeleteSnapshotRequest{Snapshot: key}
	return gone(c.aboutSandboxes(ctx, c.call, checked("snapshot", c.sandboxes.DeleteSnapshot, req, nil)))
}

// Fork creates n sandboxes with the current files of this one, without its processes.
// The error joins the errors of the copies that failed. The call is not repeated if the
// answer is lost.
func (s *Sandbox) Fork(ctx context.Context, n int) ([]*Sandbox, error) {
	if n < 1 || n > 100 {
		return nil, &process.InvalidError{Field: "n", Reason: fmt.Sprintf("is %d; 1 to 100 copies can be made", n)}
	}
	var copies []*Sandbox
	var missing []error
	err := s.about(ctx, func(id string) error {
		return s.client.once(ctx, unary(s.client.sandboxes.Fork, &tendv1.ForkSandboxRequest{Sandbox: id, Count: uint32(n)},
			func(m *tendv1.ForkSandboxResponse) error {
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
