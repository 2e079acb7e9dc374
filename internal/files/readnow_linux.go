package files

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// readNow reads a file that the kernel makes up. It uses the descriptor
// directly: an [os.File] would wait for more where the kernel says that there
// is nothing now.
func readNow(path string) ([]byte, error) {
	fd, err := eintr.Get(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|openFlags, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 0, 4096)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		// No read is larger than what is left, and one byte tells of more.
		room := buf[len(buf):min(cap(buf), MaxPseudo+1)]
		n, err := eintr.Get(func() (int, error) { return unix.Read(fd, room) })
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil, ErrEndless
		case err != nil:
			return nil, err
		case n == 0:
			return buf, nil
		}
		if buf = buf[:len(buf)+n]; len(buf) > MaxPseudo {
			return nil, ErrEndless
		}
	}
}
