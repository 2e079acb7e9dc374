//go:build linux

package keeper

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/process"
)

// identity distinguishes this daemon from all others on the machine. Another state
// directory may have the same path in another mount namespace, or be a copy of
// ours. So the identity is a random number that belongs to the directory with this
// device and inode. It is in the names of the cgroups and in the marks of
// processes. The keeper ends nothing that has another identity.
//
// It is the file "identity" in the state directory: "NUMBER DEVICE INODE GROUP\n",
// where GROUP is the name of the directory in the cgroup tree.
type identity struct {
	number uint64
	group  string
}

const identityName = "identity"

// maxIdentity bounds the file, in bytes.
const maxIdentity = 4 << 10

// formerGroup is the name that keepers of before gave to their groups.
func formerGroup(stateDir string) string {
	h := fnv.New32a()
	h.Write([]byte(stateDir))
	return fmt.Sprintf(cgroup.Prefix+"%08x", h.Sum32())
}

// openIdentity reads the identity, or creates one. takesOver: a previous keeper has
// left processes, so an existing identity is kept, and so is the name from before
// identities existed.
func openIdentity(stateDir string, takesOver bool) (identity, error) {
	var st unix.Stat_t
	if err := unix.Stat(stateDir, &st); err != nil {
		return identity{group: formerGroup(stateDir)}, fmt.Errorf("state directory: %w", err)
	}
	path := filepath.Join(stateDir, identityName)
	var id identity
	var dev, ino uint64
	text, err := rundir.ReadFile(path, maxIdentity)
	if errors.Is(err, process.ErrDamaged) {
		text, err = nil, nil // as one that cannot be read: it is made again
	}
	if err == nil {
		n, _ := fmt.Sscanf(string(text), "%x %d %d %s", &id.number, &dev, &ino, &id.group)
		if n == 4 && len(id.group) < 64 && filepath.Base(id.group) == id.group && (takesOver || dev == uint64(st.Dev) && ino == st.Ino) {
			return id, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return identity{group: formerGroup(stateDir)}, fmt.Errorf("identity of the state directory: %w", err)
	}
	var b [8]byte
	rand.Read(b[:])
	id.number = binary.NativeEndian.Uint64(b[:])
	id.group = fmt.Sprintf(cgroup.Prefix+"%016x", id.number)
	if takesOver && errors.Is(err, fs.ErrNotExist) {
		id.group = formerGroup(stateDir)
	}
	if err = rundir.WriteFile(path, fmt.Appendf(nil, "%x %d %d %s\n", id.number, uint64(st.Dev), st.Ino, id.group)); err != nil {
		// Nothing can be written, and the next keeper must find the same number.
		h := fnv.New64a()
		fmt.Fprintln(h, st.Dev, st.Ino)
		id.number = h.Sum64()
		if !takesOver {
			id.group = fmt.Sprintf(cgroup.Prefix+"%016x", id.number)
		}
		return id, fmt.Errorf("identity of the state directory: %w", err)
	}
	return id, nil
}
