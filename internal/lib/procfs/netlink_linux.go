package procfs

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
)

// NetlinkQueues is how many bytes wait in the netlink sockets of the network namespace of
// a process; 0: none, or there is no such process.
func NetlinkQueues(pid int) (held int64) {
	f, err := os.Open(Path(pid, "net/netlink"))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); { // a program may have many thousands
		held += queued(lines.Bytes())
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
