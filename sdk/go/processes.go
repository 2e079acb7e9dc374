package tend

import (
	"context"
	"errors"
	"sync"

	"github.com/tend-run/tend/process"
)

// Processes is the process manager of one sandbox: spawn, list, get, kill,
// release. Embed it in your own provider, and set Ensure:
//
//	type MySandbox struct {
//		tend.Processes
//		// …
//	}
//
//	func New() *MySandbox {
//		s := &MySandbox{}
//		s.Ensure = s.start // starts the sandbox, dials the tend in it
//		return s
//	}
//
// It holds nothing of the processes: the server does.
type Processes struct {
	// Ensure makes sure that the sandbox runs and returns what manages its
	// processes, a [*Client] or any other [process.Manager]. It is called
	// before each operation, by one caller at a time, and so it is cheap when
	// the sandbox runs already. Required.
	Ensure func(context.Context) (process.Manager, error)
	// Env is laid under the environment of each command. Do not change it
	// while commands are spawned.
	Env map[string]string

	turn turn // of the callers of Ensure
}

// turn is a lock whose waiters give up with their context.
type turn struct {
	once sync.Once
	held chan struct{} // capacity 1
}

func (t *turn) acquire(ctx context.Context) error {
	t.once.Do(func() { t.held = make(chan struct{}, 1) })
	select {
	case t.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// free takes the turn if nobody has it.
func (t *turn) free() bool {
	t.once.Do(func() { t.held = make(chan struct{}, 1) })
	select {
	case t.held <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t *turn) give() { <-t.held }

// Processes returns a manager of the processes of this client's server, with
// the methods that providers have.
func (c *Client) Processes() *Processes {
	return &Processes{Ensure: func(context.Context) (process.Manager, error) { return c, nil }}
}

// ensure calls Ensure, one caller at a time, so that a sandbox is not started
// twice. A caller that waits for another's start gives up with its context.
func (m *Processes) ensure(ctx context.Context) (process.Manager, error) {
	if m.Ensure == nil {
		return nil, errors.New("tend.Processes has no Ensure; set it to a function that starts the sandbox")
	}
	if err := m.turn.acquire(ctx); err != nil {
		return nil, err
	}
	defer m.turn.give()
	return m.Ensure(ctx)
}

// Spawn starts a command and returns without waiting for its end.
func (m *Processes) Spawn(ctx context.Context, cmd Cmd) (*Process, error) {
	mgr, err := m.ensure(ctx)
	if err != nil {
		return nil, err
	}
	cmd.Env = overlay(m.Env, cmd.Env)
	return Spawn(ctx, mgr, cmd)
}

// Run spawns a command, waits for its end and releases it.
func (m *Processes) Run(ctx context.Context, cmd Cmd) (Result, error) {
	if cmd.OnExit != "" || cmd.OnExitURL != "" {
		return Result{}, &process.InvalidError{Field: "Cmd.OnExit",
			Reason: "is for Spawn: Run waits for the end itself, and releases the process"}
	}
	p, err := m.Spawn(ctx, cmd)
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	res, err := p.Wait(ctx, WaitOptions{})
	if err != nil {
		return res, err
	}
	return res, p.Raw().Remove(ctx)
}

// List returns all processes of the sandbox, live and finished, oldest first.
func (m *Processes) List(ctx context.Context) ([]process.Info, error) {
	mgr, err := m.ensure(ctx)
	if err != nil {
		return nil, err
	}
	return mgr.List(ctx, process.Filter{})
}

// Get returns a handle to the newest process with this pid;
// [process.ErrNotFound] if there is none, or it was released.
func (m *Processes) Get(ctx context.Context, pid int) (*Process, error) {
	mgr, err := m.ensure(ctx)
	if err != nil {
		return nil, err
	}
	return Attach(ctx, mgr, process.Selector{PID: pid})
}

// Kill ends the process with this pid and all its descendants, waits until
// they are gone, and releases it. killed is false if there was none, or it had
// exited.
func (m *Processes) Kill(ctx context.Context, pid int) (killed bool, err error) {
	p, err := m.Get(ctx, pid)
	if errors.Is(err, process.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer p.Close()
	if killed, err = p.Kill(ctx); err != nil {
		return killed, err
	}
	if _, err := p.Raw().Wait(ctx, process.Until{}); err != nil {
		return killed, err
	}
	return killed, gone(p.Raw().Remove(ctx))
}

// Release removes a finished process and its output, so that Get and List do not show
// it any more. If it still runs, the error is [process.ErrRunning]. If it does not
// exist, Release does nothing.
func (m *Processes) Release(ctx context.Context, pid int) error {
	mgr, err := m.ensure(ctx)
	if err != nil {
		return err
	}
	p, err := mgr.Get(ctx, process.Selector{PID: pid})
	if err != nil {
		return gone(err)
	}
	return gone(p.Remove(ctx))
}

func gone(err error) error {
	if errors.Is(err, process.ErrNotFound) {
		return nil
	}
	return err
}
