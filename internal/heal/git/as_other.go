//go:build !linux

package git

import (
	"context"
	"errors"
	"os/exec"
)

type user struct{}

func userOf(int) (*user, error) { return nil, errors.ErrUnsupported }

func (*user) run(*exec.Cmd) {}

// As does what is done in the directory of the repository.
func (r *Repository) As(_ context.Context, do func() error) error { return do() }

// Secret reports false.
func (r *Repository) Secret(int, uint32) bool { return false }
