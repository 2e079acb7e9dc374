package embedded

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/memfd"
)

// inMemory writes the binary to a memfd, or, where memfds may not be executed
// (vm.memfd_noexec), to a file without a name in the temporary directory.
func inMemory(r io.Reader) (*os.File, error) {
	fd, err := memfd.Create(Name, unix.MFD_EXEC)
	if err == nil {
		f := os.NewFile(uintptr(fd), Name)
		if _, err := io.Copy(f, r); err != nil {
			f.Close()
			return nil, err
		}
		memfd.Seal(fd, memfd.Constant)
		return f, nil
	}
	f, ferr := os.CreateTemp("", Name)
	if ferr != nil {
		return nil, fmt.Errorf("neither memory (%v) nor a temporary file (%w) can hold %s", err, ferr, Name)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if _, err := io.Copy(f, r); err != nil {
		return nil, err
	}
	if err := f.Chmod(0o700); err != nil {
		return nil, err
	}
	// Read-only: a file open for writing is not executed. By its name another one may lie there.
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}
