//go:build !linux || (!amd64 && !arm64)

package seccomp

// Default is ErrUnsupported here.
func Default() (Filter, error) { return nil, ErrUnsupported }

// Keyed is ErrUnsupported here.
func Keyed(k Key) (Filter, error) { return nil, ErrUnsupported }
