package langsmith

import "syscall"

// changeTime is when the file's content or attributes changed, in nanoseconds.
func changeTime(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }
