package observe

import (
	"github.com/tend-run/tend/internal/lib/sockdiag"
	"github.com/tend-run/tend/process"
)

// Listening returns the TCP sockets on which the tree of the leader ([Tree]) listens.
// A socket that several processes share is reported once, for the lowest pid.
func Listening(leader, session int) ([]process.Listener, error) {
	namespaces := map[string]map[uint64]sockdiag.Socket{} // by socket inode
	seen := map[uint64]bool{}
	var out []process.Listener
	for _, pid := range Tree(leader, session) {
		ns, err := networkOf(pid)
		if err != nil {
			continue // gone, or not ours to see
		}
		sockets, ok := namespaces[ns]
		if !ok {
			sockets = map[uint64]sockdiag.Socket{}
			for _, s := range listeners(pid, ns, 0) {
				sockets[s.Inode] = s
			}
			namespaces[ns] = sockets
		}
		if len(sockets) == 0 {
			continue
		}
		for _, inode := range socketsOf(pid) {
			if s, ok := sockets[inode]; ok && !seen[inode] {
				seen[inode] = true
				out = append(out, process.Listener{Address: s.Local.String(), PID: pid})
			}
		}
	}
	return out, nil
}
