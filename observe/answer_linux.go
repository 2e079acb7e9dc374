package observe

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/procfs"
)

// Answering tells whose sockets get the connections to an address, in the network of
// the tree of the leader. A socket that the tree and others hold, as one that was
// inherited, counts as the tree's.
func Answering(leader int, to netip.AddrPort) (Answerer, error) {
	pids := Tree(leader)
	if len(pids) == 0 {
		return Answerer{}, fmt.Errorf("no process is left of the tree of %d", leader)
	}
	at := slices.Index(pids, leader)
	dir := "/proc/" + strconv.Itoa(pids[max(0, at)])
	ns, err := os.Readlink(dir + "/ns/net")
	if err != nil {
		return Answerer{}, err
	}
	var all []listener
	for _, name := range []string{"/net/tcp", "/net/tcp6"} {
		b, err := os.ReadFile(dir + name)
		if err == nil { // without IPv6 there is no such table
			all = append(all, parseTCP(b)...)
		}
	}
	chosen := best(all, to)
	if len(chosen) == 0 {
		return Answerer{}, nil
	}
	missing := map[string]bool{}
	for _, l := range chosen {
		missing[l.inode] = true
	}
	for _, pid := range pids {
		for _, inode := range socketsOf(pid) {
			delete(missing, inode)
		}
	}
	if len(missing) == 0 {
		return Answerer{Listening: true, Ours: true}, nil
	}
	a := Answerer{Listening: true}
	everyone, _ := procfs.PIDs()
	slices.Sort(everyone)
	for _, pid := range everyone {
		if other, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net"); err != nil || other != ns {
			continue
		}
		if slices.ContainsFunc(socketsOf(pid), func(inode string) bool { return missing[inode] }) {
			name, _ := procfs.Read(pid, "comm")
			a.PID, a.Name = pid, strings.TrimSpace(string(name))
			break
		}
	}
	return a, nil
}

// socketsOf returns the inodes of a process's sockets.
func socketsOf(pid int) (inodes []string) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil // gone, or not ours to see
	}
	for _, fd := range fds {
		link, err := os.Readlink(dir + "/" + fd.Name())
		if err != nil {
			continue
		}
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			inodes = append(inodes, strings.TrimSuffix(inode, "]"))
		}
	}
	return inodes
}
