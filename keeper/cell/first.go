//go:build linux && (amd64 || arm64)

package cell

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/eintr"
)

// The first process of a box (pid 1) is a program of some hundred bytes, for one reason:
// it lives as long as the box, and there may be thousands. Its code is in
// first_GOARCH.go. What it does:
//
//   - It ignores SIGCHLD, so that the kernel reaps the orphans of the box.
//   - It blocks all signals.
//   - It waits for SIGUSR1, and then makes a network namespace, enters it and gives
//     itself the name networked. So pid 1 holds the network, and no descriptor has to.
//     With an argument, it does not.
//   - It waits for ever.

// first returns the ELF file.
func first() []byte {
	const (
		base = 0x400000
		head = 64 + 2*56
	)
	var data bytes.Buffer
	put := func(v any) { binary.Write(&data, binary.LittleEndian, v) }
	put([4]uint64{1 /* SIG_IGN */, 2 /* SA_NOCLDWAIT */, 0, 0})
	put(^uint64(0))                      // all signals
	put(uint64(1) << (unix.SIGUSR1 - 1)) // this one
	data.WriteString(networked + "\x00") // at the end: it has any length
	total := uint64(head + len(firstCode) + data.Len())
	var out bytes.Buffer
	write := func(v any) { binary.Write(&out, binary.LittleEndian, v) }
	out.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00") // 64 bits, little endian
	write([]uint16{2 /* ET_EXEC */, firstMachine})
	write(uint32(1))
	write([]uint64{base + head /* entry */, 64 /* program headers */, 0})
	write(uint32(0))
	write([]uint16{64, 56, 2, 0, 0, 0})
	write([]uint32{1 /* PT_LOAD */, 5 /* read, execute */})
	write([]uint64{0, base, base, total, total, 0x1000})
	write([]uint32{0x6474e551 /* PT_GNU_STACK */, 6})
	write([]uint64{0, 0, 0, 0, 0, 16})
	out.Write(firstCode)
	out.Write(data.Bytes())
	return out.Bytes()
}

// openFirst returns a descriptor of the program that nobody can write to: a sealed file
// in memory, or a file in dir where such a file may not be executed (the sysctl
// vm.memfd_noexec).
func openFirst(dir string) (fd int, err error) {
	if fd, err = memoryFile(first()); err == nil {
		return fd, nil
	}
	path := dir + "/first"
	os.Remove(path)
	if werr := os.WriteFile(path, first(), 0o755); werr != nil {
		return -1, fmt.Errorf("%w; %w", err, werr)
	}
	return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

const mfdExec = 0x10 // MFD_EXEC, Linux 6.3

func memoryFile(b []byte) (int, error) {
	fd, err := unix.MemfdCreate(firstName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|mfdExec)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(firstName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, fmt.Errorf("a program in memory: %w", err)
	}
	n, err := eintr.Get(func() (int, error) { return unix.Write(fd, b) })
	if err == nil && n < len(b) {
		err = unix.ENOSPC
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("a program in memory: %w", err)
	}
	return fd, nil
}
