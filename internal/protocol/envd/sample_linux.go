package envd

import "golang.org/x/sys/unix"

func readDisk(s *sample) {
	var st unix.Statfs_t
	if unix.Statfs("/", &st) != nil {
		return
	}
	size := uint64(st.Bsize)
	s.DiskTotal, s.DiskUsed = st.Blocks*size, (st.Blocks-st.Bfree)*size
}
