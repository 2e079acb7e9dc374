//go:build !linux

package work

import (
	"context"
	"fmt"
	"os"
	"os/user"

	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/process"
)

// isOther reports whether a user of a service is another one than that of this process.
func isOther(name string) (bool, error) {
	u, err := user.Current()
	return name != "" && (err != nil || u.Username != name && u.Uid != name), nil
}

func (w *worker) startAs(context.Context) (project.Conn, error) {
	return nil, fmt.Errorf("the service runs as %s, and a project of another user is repaired on Linux alone: %w",
		w.order.Rules.User, process.ErrUnsupported)
}

func idsOf(name string) (string, error) { return name, nil }

func homeOf(string) (string, error) { return os.UserHomeDir() }
