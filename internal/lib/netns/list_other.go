//go:build linux && !amd64 && !arm64

package netns

import "errors"

// list is a spawn.List, which there is not for this processor.
type list struct{}

func newList(int, int) (list, error) { return list{}, errors.ErrUnsupported }

func (list) Close()                           {}
func (list) Call(string, uintptr, ...uintptr) {}
func (list) Text(string) uintptr              { return 0 }
func (list) Keep() *uintptr                   { return nil }
func (list) Run(int) error                    { return errors.ErrUnsupported }
