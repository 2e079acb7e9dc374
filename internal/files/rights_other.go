//go:build !linux

package files

import "fmt"

// rights of a thread are changed on Linux only; elsewhere the daemon acts for
// its own user.
type rights struct{}

func currentRights() *rights { return &rights{} }

func (*rights) become(u User, _ bool) error {
	return fmt.Errorf("acting for user '%s' needs a daemon on Linux: %w", u.Name, ErrPermission)
}

func (*rights) restore() error { return nil }

const fileCapabilities = 0

func (*rights) setCapabilities(uint32) error { return nil }

func (a *Actor) ownGroup(*handle, string) error { return nil }
