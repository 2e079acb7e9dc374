package pressure

import (
	"fmt"
	"math"
	"time"
)

// Kind is the resource that is short.
type Kind string

const (
	KindMemory      Kind = "memory"
	KindDescriptors Kind = "descriptors"
	KindPids        Kind = "pids"
	KindDisk        Kind = "disk"
)

var kinds = []Kind{KindMemory, KindDescriptors, KindPids, KindDisk}

// Rules say from where on something is short. A number that is 0 is not looked at.
type Rules struct {
	Memory, Descriptors, Pids float64 // parts of the limit
	Disk                      int64   // bytes that are free at least
	// Looks of the newest Of looks must be beyond a level; at least 1.
	Looks, Of int
	// Stalls: what the kernel says of stalls counts, and growth; else levels alone.
	Stalls bool
}

const (
	stallFull10 = 10.0 // percent
	stallSome60 = 40.0
	tightWork   = 0.8 // parts of the limit
	tightHeld   = 0.5
	soon        = 30 * time.Second
	// grows is how many heights growth is worked out from, and heights how many there
	// are up to a limit: what changes by less is noise.
	grows   = 4
	heights = 256
	// ownPart of what is short is the tree's own: to end it would help.
	ownPart = 0.25
	// smallDisk is the part of a disk that is short whatever its size.
	smallDisk = 0.05
	// fewInodes is the part of inodes that is short.
	fewInodes = 0.01
)

// Finding says that something has become short.
type Finding struct {
	Kind Kind
	// Text is for people.
	Text string
	// Own: the tree itself uses much of the short resource.
	Own bool
}

// Judge remembers looks. The zero value is ready; it is of one tree.
type Judge struct {
	over   map[Kind][]bool // the newest Of looks
	short  map[Kind]bool   // has been reported, and is so still
	stalls int             // looks in a row
	grown  []point         // when it had grown by a height, the newest ones
	limit  int64           // of grown
}

type point struct {
	at   time.Duration
	held int64
}

// Add adds a look, with its time on a clock that is never set, and returns the
// resources that have become short with it. A resource that stays short is not reported
// again; it is normal once none of the newest Of looks is above the level.
func (j *Judge) Add(r *Rules, at time.Duration, s *Sample) (news []Finding) {
	if j.over == nil {
		j.over, j.short = map[Kind][]bool{}, map[Kind]bool{}
	}
	for _, kind := range kinds {
		over, text, own := s.beyond(r, kind)
		n := max(1, r.Of)
		looks := append(j.over[kind], over)
		looks = looks[max(0, len(looks)-n):]
		j.over[kind] = looks
		count := 0
		for _, one := range looks {
			if one {
				count++
			}
		}
		found := over && count >= max(1, r.Looks)
		if kind == KindMemory && r.Memory > 0 && r.Stalls {
			if why := j.urgent(at, s); why != "" {
				found, text = true, text+why
			}
			count += j.stalls
		}
		switch {
		case found && !j.short[kind]:
			j.short[kind] = true
			news = append(news, Finding{Kind: kind, Text: text, Own: own})
		case !found && count == 0:
			j.short[kind] = false
		}
	}
	return news
}

// urgent says why memory is short whatever the looks before; "": it is not.
func (j *Judge) urgent(at time.Duration, s *Sample) string {
	m := &s.Memory
	if s.Stalls && (s.Stall.Full10 >= stallFull10 || s.Stall.Some60 >= stallSome60) &&
		(m.Limit == 0 || m.share(m.Working) >= tightWork && m.share(m.Held) >= tightHeld) {
		j.stalls++
	} else {
		j.stalls = 0
	}
	j.grow(at, m)
	if j.stalls >= 2 {
		return fmt.Sprintf("; it waited for memory for %.0f %% of the last 10 s, and some of it for %.0f %% of the last minute",
			s.Stall.Full10, s.Stall.Some60)
	}
	if left, ok := j.forecast(at, m); ok && left < soon && m.share(m.Held) >= tightWork {
		return fmt.Sprintf("; as it grows, nothing is left in %v", max(time.Second, left.Round(time.Second)))
	}
	return ""
}

// grow remembers a look if it is higher than those before. Looks come more often than
// many programs grow, so those that are no higher do not end a growth; a fall does.
func (j *Judge) grow(at time.Duration, m *Memory) {
	height := m.Limit / heights
	if n := len(j.grown); n > 0 && m.Limit == j.limit && m.Held >= j.grown[n-1].held-height {
		if m.Held <= j.grown[n-1].held || m.Held < j.grown[n-1].held+height {
			return
		}
	} else {
		j.grown, j.limit = nil, m.Limit
	}
	j.grown = append(j.grown, point{at, m.Held})
	j.grown = j.grown[max(0, len(j.grown)-grows):]
}

// forecast is how long until the limit is reached, if it continues as slowly as it did from
// one height to the next at the slowest; false: it does not grow.
func (j *Judge) forecast(at time.Duration, m *Memory) (time.Duration, bool) {
	if len(j.grown) < grows || m.Limit <= 0 {
		return 0, false
	}
	slowest := math.Inf(1) // bytes in a nanosecond
	for i := 1; i < grows; i++ {
		from, to := j.grown[i-1], j.grown[i]
		if i == grows-1 { // it may have ceased to grow
			to = point{at, m.Held}
		}
		if to.held <= from.held || to.at <= from.at {
			return 0, false
		}
		slowest = min(slowest, float64(to.held-from.held)/float64(to.at-from.at))
	}
	left := float64(max(0, m.Limit-m.Held)) / slowest
	return time.Duration(min(left, float64(24*time.Hour))), true
}

// Tense reports whether something comes near to being short, so that it is worth to
// look more often.
func (s *Sample) Tense(r *Rules) bool {
	near := *r
	const nearer = 0.8
	near.Memory, near.Descriptors, near.Pids = nearer*r.Memory, nearer*r.Descriptors, nearer*r.Pids
	near.Disk = r.Disk * 2
	for _, kind := range kinds {
		if over, _, _ := s.beyond(&near, kind); over {
			return true
		}
	}
	return r.Memory > 0 && s.Stalls && s.Stall.Some10 >= stallFull10
}

// beyond reports whether a look is beyond a level, what it has seen, and whether that is
// the tree's own.
func (s *Sample) beyond(r *Rules, kind Kind) (over bool, text string, own bool) {
	switch kind {
	case KindMemory:
		m := &s.Memory
		used := m.Held
		if !s.Stalls || !r.Stalls {
			used = m.Working
		}
		over = r.Memory > 0 && m.share(used) > r.Memory
		where := "of the machine"
		if m.Level != "" {
			where = "of the control group " + m.Level
		}
		own = float64(m.Own) >= ownPart*float64(m.Working)
		text = fmt.Sprintf("memory is short: %s of %s %s are in use", size(used), size(m.Limit), where)
		if !own {
			text += fmt.Sprintf(", and it holds %s itself", size(m.Own))
		}
	case KindDescriptors:
		c := &s.Descriptors
		over, own = r.Descriptors > 0 && c.share() > r.Descriptors, true
		text = fmt.Sprintf("descriptors are short: %s has %d of %d open", c.Name, c.Used, c.Limit)
	case KindPids:
		c := &s.Tasks
		over = r.Pids > 0 && c.share() > r.Pids
		own = float64(s.Processes) >= ownPart*float64(c.Used)
		text = fmt.Sprintf("processes are short: %d of %d of the control group %s", c.Used, c.Limit, c.Name)
	case KindDisk:
		for i := range s.Disks {
			d := &s.Disks[i]
			switch {
			case r.Disk > 0 && d.Free < min(r.Disk, int64(smallDisk*float64(d.Size))):
				over, text = true, fmt.Sprintf("the disk is short: %s of %s are free below %s", size(d.Free), size(d.Size), d.Dir)
			case r.Disk > 0 && d.Inodes > 0 && float64(d.Left) < fewInodes*float64(d.Inodes):
				over, text = true, fmt.Sprintf("the disk is short: %d of %d inodes are free below %s", d.Left, d.Inodes, d.Dir)
			}
		}
	}
	return over, text, own
}

// size is a number of bytes for people.
func size(n int64) string {
	for _, u := range []struct {
		n    int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= 10*u.n {
			return fmt.Sprintf("%d %s", n/u.n, u.name)
		}
		if n >= u.n {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.n), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
