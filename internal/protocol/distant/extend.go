package distant

import (
	"context"
	"errors"
	"math"

	"github.com/tend-run/tend/process"
)

// The requests whose names begin with tend_ are not distant's. Its clients
// never send them, so they disturb nobody; they offer what else a process can.

// maxSignal is the largest signal number of the kernel.
const maxSignal = 64

// tendAttach streams the output of a process that any connection has started,
// from an offset of its stdout (or terminal) and stderr on. It is answered by
// proc_spawned, and lets finished processes be read as long as their output is
// kept.
func (c *client) tendAttach(ctx context.Context, call call, f *fields) (message, func(), error) {
	id := f.id()
	stdout := f.optUint("stdout", 0, math.MaxInt64)
	stderr := f.optUint("stderr", 0, math.MaxInt64)
	if err := f.end(); err != nil {
		return nil, nil, err
	}
	p, err := c.face.manager.Get(ctx, process.Selector{Tag: tagOf(id)})
	if errors.Is(err, process.ErrNotFound) {
		return nil, nil, unknownProcess(id)
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := p.Info(ctx)
	if err != nil {
		return nil, nil, gone(id, err)
	}
	st := &stream{id: id, proc: p, origin: call.origin, pty: info.Spec.PTY != nil}
	st.next[process.Stderr] = int64(stderr)
	if st.pty {
		st.next[process.PTY] = int64(stdout)
	} else {
		st.next[process.Stdout] = int64(stdout)
	}
	for _, s := range info.Streams {
		if st.next[s.Stream] > s.End {
			return nil, nil, faultf(kindInvalidInput, "offset %d is past the end of %s, which is %d", st.next[s.Stream], s.Stream, s.End)
		}
	}
	return c.follow(st, call, false)
}

// tendSignal sends any signal to the process, or to the whole tree.
func (c *client) tendSignal(ctx context.Context, f *fields) (message, error) {
	id, sig, tree := f.id(), f.uint("signal", maxSignal), f.flag("tree")
	p, err := c.only(ctx, f, id)
	if err != nil {
		return nil, err
	}
	scope := process.ScopeLeader
	if tree {
		scope = process.ScopeTree
	}
	if err := p.Signal(ctx, int(sig), scope); err != nil {
		return nil, gone(id, err)
	}
	return okMessage, nil
}

// tendCloseStdin closes the input of the process, for which the original has
// no message.
func (c *client) tendCloseStdin(ctx context.Context, f *fields) (message, error) {
	id := f.id()
	p, err := c.only(ctx, f, id)
	if err != nil {
		return nil, err
	}
	if _, err := p.Write(ctx, process.Input{EOF: true}); err != nil && !errors.Is(err, process.ErrStdinClosed) {
		return nil, gone(id, err)
	}
	return okMessage, nil
}
