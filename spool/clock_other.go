//go:build !linux

package spool

// BootTime is not known here.
func BootTime() int64 { return 0 }
