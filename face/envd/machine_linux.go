package envd

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func readMemory(s *sample) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return
	}
	kib := map[string]uint64{}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if f := strings.Fields(rest); len(f) > 0 {
			kib[name], _ = strconv.ParseUint(f[0], 10, 64)
		}
	}
	s.MemTotal = kib["MemTotal"] << 10
	s.MemUsed = (kib["MemTotal"] - min(kib["MemAvailable"], kib["MemTotal"])) << 10
	s.MemCache = (kib["Cached"] + kib["SReclaimable"]) << 10
}

func readDisk(s *sample) {
	var st unix.Statfs_t
	if unix.Statfs("/", &st) != nil {
		return
	}
	size := uint64(st.Bsize)
	s.DiskTotal, s.DiskUsed = st.Blocks*size, (st.Blocks-st.Bfree)*size
}

// readCPU sums the first line of /proc/stat: user nice system idle iowait irq
// softirq steal; the guest columns after them are counted in user already.
func readCPU() cpuTime {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTime{}
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	var t cpuTime
	for i, f := range strings.Fields(string(line)) {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil || i > 8 {
			continue
		}
		t.total += n
		if i != 4 && i != 5 { // idle, iowait
			t.busy += n
		}
	}
	return t
}
