//go:build !linux

package place

import "errors"

// Meet is errors.ErrUnsupported here.
func Meet(string, string) (bool, error) { return false, errors.ErrUnsupported }
