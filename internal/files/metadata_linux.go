package files

import (
	"errors"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// readMetadata returns the metadata of the file, or nil. It does its best:
// a file system without attributes has no metadata. Keys and values that are
// not UTF-8, which processes can set, are left out: no message could carry
// them.
func readMetadata(file way) map[string]string {
	listAttributes, getAttribute := unix.Llistxattr, unix.Lgetxattr
	if file.follow {
		listAttributes, getAttribute = unix.Listxattr, unix.Getxattr
	}
	list, err := attribute(func(buf []byte) (int, error) { return listAttributes(file.path, buf) })
	if err != nil || len(list) == 0 {
		return nil
	}
	var metadata map[string]string
	for name := range strings.SplitSeq(string(list), "\x00") {
		key, ok := strings.CutPrefix(name, metadataPrefix)
		if !ok || !utf8.ValidString(key) {
			continue
		}
		value, err := attribute(func(buf []byte) (int, error) { return getAttribute(file.path, name, buf) })
		if err != nil || !utf8.Valid(value) {
			continue
		}
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[key] = string(value)
	}
	return metadata
}

// writeMetadata makes metadata the only metadata of the open file. A file
// system without attributes is no error: the answer of the upload shows what
// was kept.
func writeMetadata(file *os.File, metadata map[string]string) error {
	fd := int(file.Fd())
	list, err := attribute(func(buf []byte) (int, error) { return unix.Flistxattr(fd, buf) })
	if err != nil {
		return unlessUnsupported(err)
	}
	for name := range strings.SplitSeq(string(list), "\x00") {
		key, ok := strings.CutPrefix(name, metadataPrefix)
		if _, keep := metadata[key]; !ok || keep {
			continue
		}
		if err := eintr.Do(func() error { return unix.Fremovexattr(fd, name) }); err != nil && !errors.Is(err, unix.ENODATA) {
			return unlessUnsupported(err)
		}
	}
	for k, v := range metadata {
		if err := eintr.Do(func() error { return unix.Fsetxattr(fd, metadataPrefix+k, []byte(v), 0) }); err != nil {
			return unlessUnsupported(err)
		}
	}
	return nil
}

func unlessUnsupported(err error) error {
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// attribute reads a value whose size is not known before.
func attribute(read func([]byte) (int, error)) ([]byte, error) {
	// Most files have none, and most that have any have few.
	buf := make([]byte, 256)
	for {
		n, err := eintr.Get(func() (int, error) { return read(buf) })
		switch {
		case err == nil:
			return buf[:n], nil
		case errors.Is(err, unix.ERANGE) && len(buf) < 1<<16:
			buf = make([]byte, len(buf)*4)
		default:
			return nil, err
		}
	}
}
