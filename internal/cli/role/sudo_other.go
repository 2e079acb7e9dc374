//go:build !linux

package role

func asSudo() (status int, ok bool) { return 0, false }
