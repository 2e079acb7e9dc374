package usage

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

const (
	maxSubjects = 256
	slotSize    = 12 << 10
	maxKey      = 510
	pointSize   = 32
	minutes     = 60
	fives       = 288
	minutesAt   = 512
	fivesAt     = minutesAt + minutes*pointSize
	// minute and five are the times between two points.
	minute, five = 60, 300 // seconds
	unknown      = ^uint64(0)
)

// point is what a subject used for some time until At.
type point struct {
	At             uint32 // seconds since 1970
	CPU            uint32 // thousandths of one processor
	Memory         uint64 // bytes
	Received, Sent uint64 // bytes a second, or unknown
}

// points is the file, whose format the package comment has. Its owner calls one method at a time.
type points struct {
	f     *os.File
	slots map[string]int64 // by key
	free  []int64
	end   int64 // the first slot that was never used
}

// openPoints opens the file, or makes it; a link is not followed. What is no slot is overwritten.
func openPoints(path string) (*points, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|atomicfile.NoFollow, 0o600)
	if err != nil {
		return nil, err
	}
	p := &points{f: f, slots: map[string]int64{}}
	var head [minutesAt]byte
	for ; p.end < maxSubjects; p.end++ {
		if _, err := f.ReadAt(head[:], p.end*slotSize); err != nil {
			break // the end of the file
		}
		n := int(binary.LittleEndian.Uint16(head[:]))
		if n == 0 || n > maxKey {
			p.free = append(p.free, p.end)
			continue
		}
		p.slots[string(head[2:2+n])] = p.end
	}
	if err := f.Truncate(p.end * slotSize); err != nil { // the last slot may have been cut
		f.Close()
		return nil, err
	}
	return p, nil
}

// add writes a point of a subject. Of more subjects than there are slots nothing is kept.
func (p *points) add(key string, at point) error {
	slot, ok := p.slots[key]
	if !ok {
		if len(key) > maxKey || len(p.free) == 0 && p.end == maxSubjects {
			return nil
		}
		if n := len(p.free); n > 0 {
			slot, p.free = p.free[n-1], p.free[:n-1]
		} else {
			slot = p.end
			p.end++
		}
		p.slots[key] = slot
		b := make([]byte, slotSize)
		binary.LittleEndian.PutUint16(b, uint16(len(key)))
		copy(b[2:], key)
		if _, err := p.f.WriteAt(b, slot*slotSize); err != nil {
			return err
		}
	}
	if err := p.put(slot*slotSize+minutesAt+int64(at.At/minute%minutes)*pointSize, at); err != nil {
		return err
	}
	all, err := p.read(slot, minutesAt, minutes)
	if err != nil {
		return err
	}
	return p.put(slot*slotSize+fivesAt+int64(at.At/five%fives)*pointSize, together(all, at))
}

// together is one point of those that are of the same five minutes.
func together(all []point, last point) point {
	sum, n, counted := point{At: last.At}, uint64(0), uint64(0)
	var cpu uint64
	for _, one := range all {
		if one.At/five != last.At/five || one.At > last.At {
			continue
		}
		n++
		cpu += uint64(one.CPU)
		sum.Memory = max(sum.Memory, one.Memory)
		if one.Received != unknown {
			counted++
			sum.Received, sum.Sent = sum.Received+one.Received, sum.Sent+one.Sent
		}
	}
	sum.CPU = uint32(cpu / max(n, 1))
	if counted == 0 {
		sum.Received, sum.Sent = unknown, unknown
	} else {
		sum.Received, sum.Sent = sum.Received/counted, sum.Sent/counted
	}
	return sum
}

func (p *points) put(at int64, one point) error {
	b := make([]byte, 0, pointSize)
	b = binary.LittleEndian.AppendUint32(b, one.At)
	b = binary.LittleEndian.AppendUint32(b, one.CPU)
	for _, n := range []uint64{one.Memory, one.Received, one.Sent} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	_, err := p.f.WriteAt(b, at)
	return err
}

func (p *points) read(slot, from, count int64) ([]point, error) {
	b := make([]byte, count*pointSize)
	if _, err := p.f.ReadAt(b, slot*slotSize+from); err != nil {
		return nil, err
	}
	all := make([]point, 0, count)
	for ; len(b) > 0; b = b[pointSize:] {
		all = append(all, point{
			At: binary.LittleEndian.Uint32(b), CPU: binary.LittleEndian.Uint32(b[4:]), Memory: binary.LittleEndian.Uint64(b[8:]),
			Received: binary.LittleEndian.Uint64(b[16:]), Sent: binary.LittleEndian.Uint64(b[24:]),
		})
	}
	return all, nil
}

// since returns the points of a subject from a time to another, oldest first: of a minute each if
// the time is an hour or less, else of five.
func (p *points) since(key string, from, to time.Time) ([]point, error) {
	slot, ok := p.slots[key]
	if !ok {
		return nil, nil
	}
	at, count := int64(minutesAt), int64(minutes)
	step := int64(minute)
	if to.Sub(from) > time.Hour {
		at, count, step = fivesAt, fives, five
	}
	all, err := p.read(slot, at, count)
	if err != nil {
		return nil, err
	}
	var out []point
	// The places are a ring: the one after that of the newest is the oldest.
	for i := int64(1); i <= count; i++ {
		one := all[(to.Unix()/step+i)%count]
		if t := int64(one.At); t > from.Unix() && t <= to.Unix() {
			out = append(out, one)
		}
	}
	return out, nil
}

// keep forgets the subjects that are none any more.
func (p *points) keep(is func(key string) bool) error {
	var failed error
	for key, slot := range p.slots {
		if !is(key) {
			delete(p.slots, key)
			p.free = append(p.free, slot)
			_, err := p.f.WriteAt([]byte{0, 0}, slot*slotSize)
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func (p *points) close() error { return p.f.Close() }
