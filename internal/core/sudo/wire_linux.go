package sudo

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// maxRequest bounds arguments and environment, as the kernel does with most limits of the stack.
const maxRequest = 4 << 20

// encode writes lists of texts without NUL: for each its length, and its texts.
func encode(lists [][]string) string {
	var b strings.Builder
	for _, list := range lists {
		b.WriteString(strconv.Itoa(len(list)) + "\x00")
		for _, s := range list {
			b.WriteString(s + "\x00")
		}
	}
	return b.String()
}

var errRequest = errors.New("the request is not what a helper takes")

// decode reads what encode has written.
func decode(text string, count int) ([][]string, error) {
	parts := strings.Split(text, "\x00")
	lists := make([][]string, 0, count)
	for range count {
		if len(parts) == 0 {
			return nil, errRequest
		}
		n, err := strconv.ParseUint(parts[0], 10, 31)
		if err != nil || int(n) > len(parts)-1 {
			return nil, errRequest
		}
		lists, parts = append(lists, parts[1:1+n]), parts[1+n:]
	}
	return lists, nil
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := eintr.Get(func() (int, error) { return unix.Write(fd, b) })
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func readAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := eintr.Get(func() (int, error) { return unix.Read(fd, b) })
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		b = b[n:]
	}
	return nil
}
