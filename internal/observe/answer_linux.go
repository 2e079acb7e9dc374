package observe

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// Answering returns the processes whose sockets get the connections to an address, in
// the network of the leader's tree. A socket that both the tree and others hold, such
// as an inherited one, counts as the tree's.
func Answering(leader, session int, to netip.AddrPort) (Answerer, error) {
	// The leader itself and its children hold it, mostly. Only if they do not, the table of
	// all processes is read.
	if a, ok := answeringBelow(leader, to); ok {
		return a, nil
	}
	return AnsweringOf(Tree(leader, session), leader, to)
}

// AnsweringOf is Answering for a tree that the caller knows: these are its processes.
func AnsweringOf(pids []int, leader int, to netip.AddrPort) (Answerer, error) {
	if len(pids) == 0 {
		return Answerer{}, fmt.Errorf("no process is left of the tree of %d", leader)
	}
	in := pids[max(0, slices.Index(pids, leader))]
	ns, err := networkOf(in)
	if err != nil {
		return Answerer{}, err
	}
	missing := inodesAt(in, ns, to)
	if len(missing) == 0 {
		return Answerer{}, nil
	}
	for _, pid := range pids {
		if strike(missing, pid) {
			return Answerer{Listening: true, Ours: true}, nil
		}
	}
	a := Answerer{Listening: true}
	everyone, _ := procfs.PIDs()
	slices.Sort(everyone)
	for _, pid := range everyone {
		if other, err := networkOf(pid); err != nil || other != ns {
			continue
		}
		if slices.ContainsFunc(socketsOf(pid), func(inode uint64) bool { return missing[inode] }) {
			name, _ := procfs.Read(pid, "comm")
			a.PID, a.Name = pid, strings.TrimSpace(string(name))
			break
		}
	}
	return a, nil
}

// Holders returns the processes that hold a TCP socket which listens on a port, at any
// address in our own network, in ascending order. listening: somebody does; without
// holders it is somebody whose descriptors we may not see.
func Holders(port uint16) (pids []int, listening bool, err error) {
	self := os.Getpid()
	ns, err := networkOf(self)
	if err != nil {
		return nil, false, err
	}
	all := listeners(self, ns, port)
	if len(all) == 0 {
		return nil, false, nil
	}
	inodes := map[uint64]bool{}
	for _, s := range all {
		inodes[s.Inode] = true
	}
	everyone, err := procfs.PIDs()
	if err != nil {
		return nil, true, err
	}
	for _, pid := range everyone {
		if slices.ContainsFunc(socketsOf(pid), func(inode uint64) bool { return inodes[inode] }) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, true, nil
}

// answeringBelow looks at the leader and its descendants alone; false: they do not tell
// all, or are not all.
func answeringBelow(leader int, to netip.AddrPort) (Answerer, bool) {
	if s, ok := procfs.ReadStat(leader); !ok || s.Dead() {
		return Answerer{}, false
	}
	ns, err := networkOf(leader)
	if err != nil {
		return Answerer{}, false
	}
	missing := inodesAt(leader, ns, to)
	if len(missing) == 0 {
		return Answerer{}, true
	}
	for pids := []int{leader}; len(pids) > 0; pids = pids[1:] {
		if strike(missing, pids[0]) {
			return Answerer{Listening: true, Ours: true}, true
		}
		pids = append(pids, procfs.Children(pids[0])...)
	}
	return Answerer{}, false
}

// strike takes the sockets that a process holds out of missing, and reports whether none is
// left.
func strike(missing map[uint64]bool, pid int) bool {
	for _, inode := range socketsOf(pid) {
		delete(missing, inode)
	}
	return len(missing) == 0
}

// networkOf names the network namespace of a process.
func networkOf(pid int) (string, error) { return os.Readlink(procfs.Path(pid, "ns/net")) }

// inodesAt are the sockets that get the connections to an address.
func inodesAt(pid int, ns string, to netip.AddrPort) map[uint64]bool {
	inodes := map[uint64]bool{}
	for _, s := range best(listeners(pid, ns, to.Port()), to) {
		inodes[s.Inode] = true
	}
	return inodes
}

// socketsOf returns the inodes of a process's sockets.
func socketsOf(pid int) (inodes []uint64) {
	dir := procfs.Path(pid, "fd")
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil // gone, or not ours to see
	}
	for _, fd := range fds {
		link, err := os.Readlink(dir + "/" + fd.Name())
		if err != nil {
			continue
		}
		text, ok := strings.CutPrefix(link, "socket:[")
		if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); ok && err == nil {
			inodes = append(inodes, inode)
		}
	}
	return inodes
}
