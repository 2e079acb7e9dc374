package files

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// born is when the file was made; zero where the filesystem does not keep it.
func (h *handle) born() time.Time {
	var st unix.Statx_t
	err := eintr.Do(func() error {
		return unix.Statx(int(h.file.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
	})
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return time.Time{}
	}
	return time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
}
