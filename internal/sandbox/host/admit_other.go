//go:build !linux

package host

import "errors"

// Access lists are kept on Linux only, where tend serves.
func admit(string, int, uint16) error      { return errors.ErrUnsupported }
func admitBelow(string, int, uint16) error { return errors.ErrUnsupported }
