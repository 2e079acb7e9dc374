//go:build !linux

package idletrim

// Program returns what a Rest calls to unmap the program, where that can be done.
func Program() func() { return func() {} }
