//go:build unix

package eintr

import "golang.org/x/sys/unix"

// Write writes all of b, and Pwrite does so at an offset. n is how much was written before an error.
func Write(fd int, b []byte) (n int, err error) {
	return whole(b, func(n int) (int, error) { return unix.Write(fd, b[n:]) })
}

func Pwrite(fd int, b []byte, at int64) (n int, err error) {
	return whole(b, func(n int) (int, error) { return unix.Pwrite(fd, b[n:], at+int64(n)) })
}

// Pread reads from an offset until b is full, or the file has no more, which is no error.
func Pread(fd int, b []byte, at int64) (n int, err error) {
	return whole(b, func(n int) (int, error) { return unix.Pread(fd, b[n:], at+int64(n)) })
}

func whole(b []byte, step func(done int) (int, error)) (done int, err error) {
	for done < len(b) {
		n, err := step(done)
		if err != unix.EINTR && (err != nil || n == 0) {
			return done, err
		}
		done += max(n, 0)
	}
	return done, nil
}
