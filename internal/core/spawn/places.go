//go:build linux && (amd64 || arm64)

package spawn

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A place is a few low descriptors, kept for starts: /dev/null lies there at rest.
// During a start its files are there too, so that the child finds them in the part
// of the table that it copies.
type place [placeFiles]int

const (
	placeFiles = 3
	mostPlaces = 16
	// A place for so many descriptors that may be open: a small table is copied as fast.
	filesPerPlace = 128
)

type places struct {
	null int
	free chan *place
	end  int // behind the last of them
}

// newPlaces takes the lowest descriptors that are free, for one start more than there
// are processors: what loads at once beyond that only delays others.
func newPlaces(null int) *places {
	p := &places{null: null, free: make(chan *place, mostPlaces)}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return p
	}
	for range min(mostPlaces, uint64(runtime.NumCPU()+1), limit.Cur/filesPerPlace) {
		pl := new(place)
		for i := range pl {
			fd, err := unix.FcntlInt(uintptr(null), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				for _, fd := range pl[:i] {
					unix.Close(fd)
				}
				return p
			}
			pl[i] = fd
			p.end = max(p.end, fd+1)
		}
		p.free <- pl
	}
	return p
}

// patience is how long a start waits for a place.
const patience = 50 * time.Millisecond

// acquire waits for a place; nil: there is none, or all are held for long, by programs
// on a disk that hangs. Waiting takes less than a copy of the whole table, and less
// than many starts that share few processors.
func (p *places) acquire() *place {
	select {
	case pl := <-p.free:
		return pl
	default:
	}
	if p.end == 0 {
		return nil
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case pl := <-p.free:
		return pl
	case <-late.C:
		return nil
	}
}

// put lends files to a place; nil: there is none for them.
func (p *places) put(files []int) *place {
	if len(files) > placeFiles {
		return nil
	}
	pl := p.acquire()
	for i, fd := range files {
		if pl == nil {
			break
		}
		if fd == p.null {
			continue // is there
		}
		if unix.Dup3(fd, pl[i], unix.O_CLOEXEC) != nil {
			p.clear(pl)
			pl = nil
		}
	}
	return pl
}

// clear takes the files back.
func (p *places) clear(pl *place) {
	for _, fd := range pl {
		unix.Dup3(p.null, fd, unix.O_CLOEXEC)
	}
	p.free <- pl
}
