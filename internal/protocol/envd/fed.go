package envd

import (
	"context"
	"sync/atomic"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/process"
)

// fedProcesses remembers of processes that were fed by pid whether they have a
// terminal, which never changes. Without it each SendInput would ask for all
// that is known of the process, and that reads a file of /proc. Each entry has
// its place by pid and gives way to the next with the same place.
type fedProcesses [64]atomic.Pointer[fedProcess]

type fedProcess struct {
	id  process.ID
	pty bool
}

func (c *fedProcesses) at(sel *pb.ProcessSelector) *atomic.Pointer[fedProcess] {
	return &c[sel.GetPid()%uint32(len(c))]
}

// fedBefore returns the process with this pid if it is remembered, else nil.
// It may have ended since; a write to it then fails.
func (f *Face) fedBefore(ctx context.Context, sel *pb.ProcessSelector) *target {
	known := f.fed.at(sel).Load()
	if known == nil || sel.GetPid() == 0 {
		return nil
	}
	p, err := f.in(ctx).Processes().Get(ctx, process.Selector{PID: int(sel.GetPid())})
	if err != nil || p.ID() != known.id {
		return nil
	}
	return &target{proc: p, pid: int(sel.GetPid()), pty: known.pty, sel: sel}
}

func (f *Face) rememberFed(t *target) {
	if t.sel.GetPid() != 0 {
		f.fed.at(t.sel).Store(&fedProcess{id: t.proc.ID(), pty: t.pty})
	}
}

// takes reports whether the input is of the kind that the process reads.
func (t *target) takes(in *pb.ProcessInput) bool {
	switch in.GetInput().(type) {
	case *pb.ProcessInput_Stdin:
		return !t.pty
	case *pb.ProcessInput_Pty:
		return t.pty
	}
	return false
}
