//go:build !linux

package main

import "errors"

func run([]string) error {
	return errors.New("processes are kept on Linux only: the keeper needs splice, pidfd and epoll")
}
