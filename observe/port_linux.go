package observe

import (
	"cmp"
	"os"
	"slices"
	"strconv"

	"github.com/tend-run/tend/process"
)

// listeners returns the sockets of the tree that listen on port. Of several
// holders of one socket the first in the order of pids is named.
func listeners(pids []int, port int) []process.Listener {
	sockets := map[uint64]socket{}
	spaces := map[string]bool{} // network namespaces that were looked at
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid)
		space, err := os.Readlink(dir + "/ns/net")
		if err != nil || spaces[space] {
			continue
		}
		spaces[space] = true
		for _, table := range []string{"/net/tcp", "/net/tcp6"} {
			text, err := os.ReadFile(dir + table)
			if err != nil {
				continue // no IPv6, or gone
			}
			for _, s := range parseSockets(string(text), port) {
				sockets[s.inode] = s
			}
		}
	}
	var out []process.Listener
	for _, pid := range pids {
		if len(sockets) == 0 {
			break
		}
		dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			link, err := os.Readlink(dir + fd.Name())
			if err != nil {
				continue
			}
			inode, ok := parseSocketLink(link)
			if s, held := sockets[inode]; ok && held {
				out = append(out, process.Listener{Address: s.addr.String(), PID: pid})
				delete(sockets, inode)
			}
		}
	}
	slices.SortFunc(out, func(a, b process.Listener) int { return cmp.Compare(a.Address, b.Address) })
	return out
}

// probePort is one look for a listener.
func probePort(pid, port int) ([]process.Listener, error) { return listeners(Tree(pid), port), nil }
