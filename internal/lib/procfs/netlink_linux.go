package procfs

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
)

// socketSize is about what the kernel has for a netlink socket itself, in bytes.
const socketSize = 2 << 10

// NetlinkQueues is how many bytes the kernel holds for the netlink sockets of the network
// namespace of a process, with what waits in them; 0: none, or there is no such process. It
// stops above enough: a program may have many thousands, and a list of them takes long.
func NetlinkQueues(pid int, enough int64) (held int64) {
	f, err := os.Open(Path(pid, "net/netlink"))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); held <= enough && lines.Scan(); {
		held += socketSize + queued(lines.Bytes())
	}
	return held
}

// queued is what one line of /proc/PID/net/netlink counts: "sk Eth Pid Groups Rmem Wmem …".
func queued(line []byte) (held int64) {
	column := 0
	for f := range bytes.FieldsSeq(line) {
		if column++; column == 5 || column == 6 {
			n, _ := strconv.ParseInt(string(f), 10, 64) // those of the head are words
			held += n
		}
	}
	return held
}
