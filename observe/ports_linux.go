package observe

import (
	"os"
	"strconv"

	"github.com/tend-run/tend/process"
)

// Listening returns the TCP sockets on which the tree of the leader listens.
// A socket that several processes share is reported once, for the lowest pid.
func Listening(leader int) ([]process.Listener, error) {
	namespaces := map[string]map[string]listener{} // by socket inode
	seen := map[string]bool{}
	var out []process.Listener
	for _, pid := range Tree(leader) {
		ns, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
		if err != nil {
			continue // gone, or not ours to see
		}
		sockets, ok := namespaces[ns]
		if !ok {
			sockets = map[string]listener{}
			for _, l := range listeners(pid, ns, 0) {
				sockets[l.inode] = l
			}
			namespaces[ns] = sockets
		}
		if len(sockets) == 0 {
			continue
		}
		for _, inode := range socketsOf(pid) {
			if l, ok := sockets[inode]; ok && !seen[inode] {
				seen[inode] = true
				out = append(out, process.Listener{Address: l.addr.String(), PID: pid})
			}
		}
	}
	return out, nil
}
