package adopt

import (
	"fmt"

	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// Guard is what else must be known to refuse what must not be adopted.
type Guard struct {
	// User is that of the service; "": the user of this program.
	User string
	// Manager of the processes that tend has started.
	Manager process.Manager
	// Roles are the pids of tend's own roles, as far as they are known.
	Roles []int
	// Others are the processes that other services have adopted, by the service's name.
	Others map[string]supervisor.Adopted
}

// RefusedError: a process is there, and must not be adopted. It is a
// process.ErrPermission.
type RefusedError struct {
	PID int
	Why string // completes "pid 42 …"
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("pid %d cannot be adopted: it %s", e.PID, e.Why)
}

func (e *RefusedError) Unwrap() error { return process.ErrPermission }
