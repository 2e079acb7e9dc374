//go:build linux && (amd64 || arm64)

package microelf

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/memfd"
	"github.com/tend-run/tend/internal/lib/eintr"
)

// Program returns the ELF file of code, which begins with its first instruction and may have
// constants behind it. It is executable and cannot be written to.
func Program(code []byte) []byte {
	const (
		base = 0x400000
		head = 64 + 2*56
	)
	total := uint64(head + len(code))
	var out bytes.Buffer
	write := func(v any) { binary.Write(&out, binary.LittleEndian, v) }
	out.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00") // 64 bits, little endian
	write([]uint16{2 /* ET_EXEC */, machine})
	write(uint32(1))
	write([]uint64{base + head /* entry */, 64 /* program headers */, 0})
	write(uint32(0))
	write([]uint16{64, 56, 2, 0, 0, 0})
	write([]uint32{1 /* PT_LOAD */, 5 /* read, execute */})
	write([]uint64{0, base, base, total, total, 0x1000})
	write([]uint32{0x6474e551 /* PT_GNU_STACK */, 6})
	write([]uint64{0, 0, 0, 0, 0, 16})
	out.Write(code)
	return out.Bytes()
}

// File returns a descriptor of a program in memory, which nobody can write to. The sysctl
// vm.memfd_noexec may forbid such files.
func File(name string, program []byte) (int, error) {
	fd, err := memfd.Create(name, unix.MFD_EXEC)
	if err != nil {
		return -1, fmt.Errorf("a program in memory: %w", err)
	}
	if _, err := eintr.Write(fd, program); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("a program in memory: %w", err)
	}
	memfd.Seal(fd, memfd.Constant)
	return fd, nil
}
