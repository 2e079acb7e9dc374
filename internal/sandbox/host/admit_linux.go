package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sort"

	"golang.org/x/sys/unix"
)

// Attributes with a directory's access list, and with the list that what is
// made in it gets: acl(5).
const (
	accessList  = "system.posix_acl_access"
	defaultList = "system.posix_acl_default"
)

// Tags of the entries of a list, in the order that the kernel wants.
const (
	aclOwner  = 0x01
	aclUser   = 0x02
	aclGroups = 0x04 // of the file
	aclGroup  = 0x08
	aclMask   = 0x10
	aclOther  = 0x20

	aclVersion = 2
	aclNobody  = 0xffffffff // the id of entries that name none
)

type aclEntry struct {
	tag, perm uint16
	id        uint32
}

// admit gives one user more permission bits (rwx) on a directory than all
// others have. errors.ErrUnsupported: the filesystem keeps no such lists.
func admit(dir string, uid int, perm uint16) error { return addEntry(dir, accessList, uid, perm) }

// admitBelow gives a user the bits on what will be made in a directory.
func admitBelow(dir string, uid int, perm uint16) error {
	return addEntry(dir, defaultList, uid, perm)
}

func addEntry(dir, attr string, uid int, perm uint16) error {
	old, err := readList(dir, attr)
	if err != nil {
		return listError(dir, err)
	}
	list := withUser(old, uint32(uid), perm)
	if slices.Equal(list, old) {
		return nil
	}
	return listError(dir, unix.Setxattr(dir, attr, encodeList(list), 0))
}

func listError(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOTSUP):
		err = errors.ErrUnsupported
	}
	return fmt.Errorf("access list of %s: %w", dir, err)
}

// readList returns the list of a directory, made of its mode where it has
// none.
func readList(dir, attr string) ([]aclEntry, error) {
	buf := make([]byte, 64<<10) // the longest attribute that Linux keeps
	n, err := unix.Getxattr(dir, attr, buf)
	if err == nil {
		return decodeList(buf[:n])
	}
	if !errors.Is(err, unix.ENODATA) {
		return nil, err
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, fs.ErrInvalid
	}
	mode := uint16(fi.Mode().Perm())
	return []aclEntry{{aclOwner, mode >> 6, aclNobody}, {aclGroups, mode >> 3 & 7, aclNobody}, {aclOther, mode & 7, aclNobody}}, nil
}

// withUser returns the list with more bits for a user, and with the mask that
// lets all entries have what they say.
func withUser(old []aclEntry, uid uint32, perm uint16) []aclEntry {
	list := slices.DeleteFunc(slices.Clone(old), func(e aclEntry) bool { return e.tag == aclMask })
	i := slices.IndexFunc(list, func(e aclEntry) bool { return e.tag == aclUser && e.id == uid })
	if i < 0 {
		i = len(list)
		list = append(list, aclEntry{aclUser, 0, uid})
	}
	list[i].perm |= perm
	mask := uint16(0)
	for _, e := range list {
		if e.tag == aclUser || e.tag == aclGroups || e.tag == aclGroup {
			mask |= e.perm
		}
	}
	list = append(list, aclEntry{aclMask, mask, aclNobody})
	sort.Slice(list, func(i, j int) bool { // slices.SortFunc is compiled for each type
		a, b := list[i], list[j]
		return a.tag < b.tag || a.tag == b.tag && a.id < b.id
	})
	return list
}

func decodeList(b []byte) ([]aclEntry, error) {
	le := binary.LittleEndian
	if len(b) < 4 || (len(b)-4)%8 != 0 || le.Uint32(b) != aclVersion {
		return nil, fs.ErrInvalid
	}
	var list []aclEntry
	for b = b[4:]; len(b) > 0; b = b[8:] {
		list = append(list, aclEntry{le.Uint16(b), le.Uint16(b[2:]), le.Uint32(b[4:])})
	}
	return list, nil
}

func encodeList(list []aclEntry) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, aclVersion)
	for _, e := range list {
		b = le.AppendUint16(b, e.tag)
		b = le.AppendUint16(b, e.perm)
		b = le.AppendUint32(b, e.id)
	}
	return b
}
