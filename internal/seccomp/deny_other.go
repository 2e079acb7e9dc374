//go:build !linux || (!amd64 && !arm64)

package seccomp

// Default is ErrUnsupported here.
func Default() (Filter, error) { return nil, ErrUnsupported }
