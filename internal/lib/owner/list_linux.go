package owner

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Tags of entries of a list, and the permission to write, as the kernel has them.
const (
	listUser     = 0x02
	listOwnGroup = 0x04
	listGroup    = 0x08
	listMask     = 0x10
	mayWrite     = 2
	maxList      = 64 << 10
)

// byList says who of others may write a file by its list of access; "": nobody. ok is false
// if it has no list. With one, the bits of the group are the most that anybody on the list has.
func byList(path string, gid, uid int) (who string, ok bool) {
	data := make([]byte, maxList)
	n, err := unix.Lgetxattr(path, "system.posix_acl_access", data)
	if err != nil {
		return "", false
	}
	return writers(data[:n], gid, uid), true
}

// writers reads a list: 4 bytes of its version, and entries of a tag, permissions and an id.
func writers(list []byte, gid, uid int) string {
	const head, size = 4, 8
	if len(list) < head || binary.LittleEndian.Uint32(list) != 2 || (len(list)-head)%size != 0 {
		return "those on a list that cannot be read"
	}
	mask := uint16(7)
	for e := list[head:]; len(e) > 0; e = e[size:] {
		if binary.LittleEndian.Uint16(e) == listMask {
			mask = binary.LittleEndian.Uint16(e[2:])
		}
	}
	for e := list[head:]; len(e) > 0; e = e[size:] {
		tag, may, id := binary.LittleEndian.Uint16(e), binary.LittleEndian.Uint16(e[2:])&mask&mayWrite != 0,
			int(binary.LittleEndian.Uint32(e[4:]))
		switch {
		case !may:
		case tag == listUser && id != uid && id != 0:
			return fmt.Sprintf("uid %d", id)
		case tag == listGroup && !isPrivate(id, uid):
			return fmt.Sprintf("gid %d, which others may be in", id)
		case tag == listOwnGroup && !isPrivate(gid, uid):
			return fmt.Sprintf("gid %d, which others may be in", gid)
		}
	}
	return ""
}
