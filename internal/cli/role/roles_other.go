//go:build !linux

package role

import "errors"

func run([]string) error {
	return errors.New("processes are kept on Linux only: the keeper needs splice, pidfd and epoll")
}
