//go:build !linux

package idletrim

// Program returns what a Trimmer calls to unmap the program, where that can be done.
func Program() func() { return func() {} }
