//go:build !linux

package files

import "errors"

// Watch is for Linux only.
func (f FS) Watch(string, WatchOptions) (Watcher, error) { return nil, errors.ErrUnsupported }
