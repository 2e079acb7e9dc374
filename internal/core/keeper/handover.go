//go:build linux

package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/wire"
)

// A handover is what a keeper leaves to the program that it executes in its
// place: the numbers of the descriptors, which stay open, and the little that is
// neither on the board nor in the spool. It is in a memfd whose number is on the
// command line.
//
// # Format (do not change; new kinds and tags may be added)
//
//	8 bytes  magic "tendSNP" and the version, one byte
//	records  u8 kind, u32 LE length, fields
//	end      u8 0, u32 LE CRC-32C of all before it
//
// Fields are a uvarint tag, a uvarint length, and a value: a zigzag varint, or
// bytes. Unknown kinds and tags are skipped, and a field that is missing is zero.
// A keeper reads the versions before its own and the one after it. Descriptors
// are numbers, and 0 for one that is not open.
//
//	kind  fields
//	1     keeper: see handoverKeeper
//	2     process: see handoverProc
//
// Versions 1 and 2 have many more tags. Board and spool say the same, so they are
// skipped. Version 2 added tag 40. Version 3 was never written: a keeper that
// writes 2 reads 3, and would miss what version 4 leaves out.
const (
	handoverMagic  = "tendSNP"
	oldestHandover = 1
	newestHandover = 4

	handoverEnd  = 0
	kindKeeper   = 1
	kindProcess  = 2
	maxHandover  = 256 << 20 // bytes
	headHandover = len(handoverMagic) + 1
)

var errHandover = errors.New("handover is damaged")

// handover is the content.
type handover struct {
	Keeper handoverKeeper
	Procs  []handoverProc
}

type handoverKeeper struct {
	FDs      heldFDs
	Epoll    int64
	Lock     int64                // of the role
	Sockets  [fdstore.Count]int64 // to the holders of the vaults
	Complete [fdstore.Count]bool  // the vault has all descriptors
	Upgrades int64                // so far, this one included
	Began    int64                // CLOCK_BOOTTIME, ns
}

type handoverProc struct {
	Slot, Gen int64
	FDs       heldFDs
	// The journal has both, but to read a thousand journals takes longer than all
	// the rest of an upgrade.
	Limit, Policy int64
	Deferred      []byte   // journal records that found no room yet
	Streams       [2]int64 // streamWaits
	Events        int64    // cgroup.events, left open by versions 1 and 2
}

// streamWaits: the stream is at its limit, or starved, and not armed. Versions 1
// and 2 have other bits too.
const streamWaits = 2

// heldFDs are descriptors by kind (wire.FD*).
type heldFDs [wire.FDGate + 1]int64

// put notes descriptors, and held returns them. A terminal has the place of stdout,
// as in version 1; its staging pipes show that it is one.
func (fds *heldFDs) put(kinds []byte, values []int) {
	for i, kind := range kinds {
		if kind == wire.FDPTY {
			kind = wire.FDStdout
		}
		fds[kind] = fdOut(values[i])
	}
}

func (fds *heldFDs) held() fdstore.FDs {
	h := fdstore.FDs{}
	for kind, fd := range fds {
		if fd > 0 {
			h[byte(kind)] = int(fd)
		}
	}
	if _, ok := h[wire.FDStageR]; ok {
		h[wire.FDPTY] = h[wire.FDStdout]
		delete(h, wire.FDStdout)
	}
	return h
}

// open are all descriptors that the handover names.
func (s *handover) open() (fds []int) {
	k := &s.Keeper
	add := func(list ...int64) {
		for _, fd := range list {
			if fd > 0 {
				fds = append(fds, int(fd))
			}
		}
	}
	add(k.FDs[:]...)
	add(k.Lock, k.Epoll)
	add(k.Sockets[:]...)
	for i := range s.Procs {
		add(s.Procs[i].FDs[:]...)
		add(s.Procs[i].Events)
	}
	return fds
}

// fdOut is a descriptor as a handover has it, and fdIn the reverse.
func fdOut(fd int) int64 { return int64(max(fd, 0)) }

func fdIn(v int64) int {
	if v <= 0 {
		return -1
	}
	return int(v)
}

// field ties a tag to a number or bytes of one struct.
type field struct {
	tag    uint64
	number *int64
	flag   *bool
	bytes  *[]byte
}

func (k *handoverKeeper) fields() []field {
	return []field{
		{tag: 1, number: &k.Epoll}, {tag: 2, number: &k.FDs[wire.FDBoard]}, {tag: 3, number: &k.FDs[wire.FDWake]},
		{tag: 4, number: &k.FDs[wire.FDListen]},
		{tag: 5, number: &k.Lock}, {tag: 6, number: &k.Sockets[fdstore.Anchor]}, {tag: 7, flag: &k.Complete[fdstore.Anchor]},
		{tag: 8, number: &k.Sockets[fdstore.Mirror]}, {tag: 9, flag: &k.Complete[fdstore.Mirror]}, {tag: 10, number: &k.Upgrades},
		{tag: 11, number: &k.Began},
	}
}

func (p *handoverProc) fields() []field {
	return []field{
		{tag: 1, number: &p.Slot}, {tag: 2, number: &p.Gen}, {tag: 4, number: &p.FDs[wire.FDPid]},
		{tag: 6, number: &p.FDs[wire.FDStdin]}, {tag: 7, number: &p.FDs[wire.FDStdinMem]},
		{tag: 8, number: &p.FDs[wire.FDFeedR]}, {tag: 9, number: &p.FDs[wire.FDFeedW]},
		{tag: 11, number: &p.Limit}, {tag: 12, number: &p.Policy}, {tag: 15, number: &p.Events},
		{tag: 20, number: &p.FDs[wire.FDStdout]}, {tag: 21, number: &p.FDs[wire.FDStageR]}, {tag: 22, number: &p.FDs[wire.FDStageW]},
		{tag: 26, number: &p.Streams[0]}, {tag: 30, number: &p.FDs[wire.FDStderr]}, {tag: 36, number: &p.Streams[1]},
		{tag: 40, bytes: &p.Deferred},
	}
}

// encode writes the handover in a version.
func (s *handover) encode(version byte) []byte {
	b := append([]byte(handoverMagic), version)
	b = appendRecord(b, kindKeeper, s.Keeper.fields())
	var p handoverProc
	fields := p.fields()
	for i := range s.Procs {
		p = s.Procs[i]
		b = appendRecord(b, kindProcess, fields)
	}
	b = append(b, handoverEnd)
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func appendRecord(b []byte, kind byte, fields []field) []byte {
	b = append(b, kind, 0, 0, 0, 0)
	start := len(b)
	var num [binary.MaxVarintLen64]byte
	for _, f := range fields {
		var value []byte
		switch {
		case f.number != nil && *f.number != 0:
			value = num[:binary.PutVarint(num[:], *f.number)]
		case f.flag != nil && *f.flag:
			value = num[:binary.PutVarint(num[:], 1)]
		case f.bytes != nil:
			value = *f.bytes
		}
		if len(value) == 0 {
			continue
		}
		b = binary.AppendUvarint(b, f.tag)
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(b, value...)
	}
	binary.LittleEndian.PutUint32(b[start-4:], uint32(len(b)-start))
	return b
}

// decodeHandover reads a handover of this version or one beside it.
func decodeHandover(b []byte) (*handover, error) {
	if len(b) < headHandover+5 || string(b[:len(handoverMagic)]) != handoverMagic {
		return nil, errHandover
	}
	if v := b[len(handoverMagic)]; v < oldestHandover || v > newestHandover+1 {
		return nil, fmt.Errorf("handover has version %d; %d to %d are known", v, oldestHandover, newestHandover+1)
	}
	end := len(b) - 5
	if b[end] != handoverEnd || binary.LittleEndian.Uint32(b[end+1:]) != checksum(b[:end+1]) {
		return nil, errHandover
	}
	s := &handover{}
	var p handoverProc
	fields := p.fields()
	for rest := b[headHandover:end]; len(rest) > 0; {
		if len(rest) < 5 {
			return nil, errHandover
		}
		kind, n := rest[0], int(binary.LittleEndian.Uint32(rest[1:]))
		if n < 0 || n > len(rest)-5 {
			return nil, errHandover
		}
		body := rest[5 : 5+n]
		rest = rest[5+n:]
		var err error
		switch kind {
		case kindKeeper:
			err = decodeFields(body, s.Keeper.fields())
		case kindProcess:
			p = handoverProc{}
			err = decodeFields(body, fields)
			s.Procs = append(s.Procs, p)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func decodeFields(b []byte, fields []field) error {
	next := 0 // fields are written in order: most often the next one is it
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return errHandover
		}
		size, m := binary.Uvarint(b[n:])
		if m <= 0 || size > uint64(len(b)-n-m) {
			return errHandover
		}
		value := b[n+m : n+m+int(size)]
		b = b[n+m+int(size):]
		for i := range fields {
			at := (next + i) % len(fields)
			f := &fields[at]
			if f.tag != tag {
				continue
			}
			next = at + 1
			if f.bytes != nil {
				*f.bytes = append([]byte(nil), value...)
				break
			}
			v, n := binary.Varint(value)
			if n != len(value) {
				return errHandover
			}
			if f.number != nil {
				*f.number = v
			} else {
				*f.flag = v != 0
			}
			break
		}
	}
	return nil
}
