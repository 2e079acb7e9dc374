//go:build linux && (amd64 || arm64)

package contain

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/microelf"
)

// The first process of a container (pid 1) is a program of some hundred bytes, for one reason:
// it lives as long as the container, and there may be thousands. Its code is in
// first_GOARCH.go. What it does:
//
//   - It ignores SIGCHLD, so that the kernel reaps the orphans of the container.
//   - It blocks all signals.
//   - It waits for SIGUSR1, and then makes a network namespace, enters it and gives
//     itself the name networked. So pid 1 holds the network, and no descriptor has to.
//     With an argument, it does not.
//   - It waits for ever.

// first returns the ELF file.
func first() []byte {
	var data bytes.Buffer
	put := func(v any) { binary.Write(&data, binary.LittleEndian, v) }
	put([4]uint64{1 /* SIG_IGN */, 2 /* SA_NOCLDWAIT */, 0, 0})
	put(^uint64(0))                      // all signals
	put(uint64(1) << (unix.SIGUSR1 - 1)) // this one
	data.WriteString(networked + "\x00") // at the end: it has any length
	return microelf.Program(slices.Concat(firstCode, data.Bytes()))
}

// openFirst returns a descriptor of the program that nobody can write to: a sealed file
// in memory, or a file in dir where such a file may not be executed (the sysctl
// vm.memfd_noexec).
func openFirst(dir string) (fd int, err error) {
	if fd, err = microelf.File(firstName, first()); err == nil {
		return fd, nil
	}
	path := dir + "/first"
	os.Remove(path)
	if werr := os.WriteFile(path, first(), 0o755); werr != nil {
		return -1, fmt.Errorf("%w; %w", err, werr)
	}
	return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
}
