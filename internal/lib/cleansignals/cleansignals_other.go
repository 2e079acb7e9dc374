//go:build !linux

package cleansignals

// Exec does nothing: only Linux has the calls it needs.
func Exec(argv, environ []string) error { return nil }
