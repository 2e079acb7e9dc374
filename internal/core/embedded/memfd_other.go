//go:build !linux

package embedded

import (
	"errors"
	"io"
	"os"
)

func inMemory(io.Reader) (*os.File, error) {
	return nil, errors.New("the roles run on Linux only")
}
